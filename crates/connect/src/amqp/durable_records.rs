//! The records of a queue of events that were handed out and not settled.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_types::{Offset, WallClock};

use super::unsettled_room::UnsettledRoom;

/// Time after which the positions of a queue in use are stored although nothing has changed.
const STORED_AT_LEAST_MS: i64 = 24 * 3_600_000;

/// The records of a queue that are not settled.
pub(super) struct DurableRecords {
    /// Failed deliveries by partition and offset.
    open: BTreeMap<(u32, Offset), u32>,
    room: UnsettledRoom,
    wall: Arc<dyn WallClock>,
    has_changed: bool,
    stored_ms: i64,
}

impl DurableRecords {
    /// None, with room for others; `is_new` if the queue is to be stored.
    pub(super) fn new(room: UnsettledRoom, wall: Arc<dyn WallClock>, is_new: bool) -> Self {
        let stored_ms = wall.now_ms();
        Self { open: BTreeMap::new(), room, wall, has_changed: is_new, stored_ms }
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.wall.now_ms()
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// The number of records that there may be.
    pub(super) fn open_max(&mut self) -> usize {
        self.room.for_more_than(self.open.len())
    }

    /// A record is not settled, with so many failed deliveries.
    pub(super) fn open(&mut self, partition: u32, offset: Offset, failed: u32) {
        self.open.insert((partition, offset), failed);
    }

    /// A record is settled, or gone.
    pub(super) fn done(&mut self, partition: u32, offset: Offset) {
        self.open.remove(&(partition, offset));
        self.has_changed = true;
    }

    /// The records of a partition, in order.
    pub(super) fn of_partition(&self, number: u32) -> Vec<(Offset, u8)> {
        let of_partition = self.open.range((number, Offset(0))..=(number, Offset(u64::MAX)));
        of_partition.map(|((_, offset), failed)| (*offset, u8::try_from(*failed).unwrap_or(u8::MAX))).collect()
    }

    pub(super) fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// True if the positions are to be stored.
    pub(super) fn is_due(&self, now_ms: i64) -> bool {
        self.has_changed || now_ms.saturating_sub(self.stored_ms) >= STORED_AT_LEAST_MS
    }

    /// The positions are stored as they are now.
    pub(super) fn stored(&mut self, now_ms: i64) {
        (self.has_changed, self.stored_ms) = (false, now_ms);
    }

    /// They are not.
    pub(super) fn store_again(&mut self) {
        self.has_changed = true;
    }
}
