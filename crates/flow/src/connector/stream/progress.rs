//! The progress of a source: how far it has read its partitions.

use std::sync::Arc;

use millstream_log::Partition;
use millstream_types::Offset;
use parking_lot::Mutex;

use crate::connector::{ReadUpTo, SourceProgress};
use crate::delivery::SourcePosition;

/// The partitions of one instance; empty before it has started.
#[derive(Default)]
pub(super) struct StreamProgress(Mutex<Vec<PartitionProgress>>);

struct PartitionProgress {
    partition: Arc<dyn Partition>,
    /// The first offset that is not finished; all before it are.
    next: Offset,
    /// The place at which the source ends.
    end: Option<Offset>,
}

impl StreamProgress {
    /// Begins with these partitions, the places from which they are read, and the ends of the source.
    pub(super) fn begin(&self, partitions: impl Iterator<Item = (Arc<dyn Partition>, Offset, Option<Offset>)>) {
        *self.0.lock() = partitions.map(|(partition, next, end)| PartitionProgress { partition, next, end }).collect();
    }

    /// Everything before these places is finished.
    pub(super) fn finished(&self, up_to: &[SourcePosition]) {
        if up_to.is_empty() {
            return;
        }
        let mut partitions = self.0.lock();
        for position in up_to {
            let is_meant = |known: &&mut PartitionProgress| known.partition.id().partition.0 == position.partition;
            if let Some(known) = partitions.iter_mut().find(is_meant) {
                known.next = Offset(position.offset);
            }
        }
    }
}

impl SourceProgress for StreamProgress {
    fn read_up_to(&self) -> ReadUpTo {
        let mut total = ReadUpTo::default();
        for known in &*self.0.lock() {
            let end = known.end.unwrap_or_else(|| known.partition.offsets().stable);
            total.offset += known.next.0;
            total.lag += end.0.saturating_sub(known.next.0);
        }
        total
    }
}
