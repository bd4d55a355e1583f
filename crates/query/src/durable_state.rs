//! The additional state of a live query that survives a restart.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use millstream_types::{Epoch, Offset, PartitionId};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use crate::QueryRequest;
use crate::progress::{PartitionShare, ProgressCounters, ReadProgress};

#[derive(Debug)]
pub(crate) struct DurableState {
    pub(crate) request: QueryRequest,
    /// The recipient, if the results go into a topic.
    pub(crate) addressee: Option<ResultRecipient>,
    /// The time that it had run before this process.
    pub(crate) ran_before: Duration,
    /// True once its first checkpoint is durable: only then it outlives its client.
    is_kept: AtomicBool,
    client: Mutex<ClientSlot>,
    /// When its end was sent to a client that may ask for it again, milliseconds since 1970-01-01T00:00:00Z; 0 if it was not.
    end_sent_ms: AtomicI64,
    /// The position in each partition up to which records are in the results. Locked while records are added, so that its
    /// holder sees positions and results of the same moment.
    places: Mutex<PartitionPositions>,
}

/// The client that reads the results.
#[derive(Debug)]
struct ClientSlot {
    /// The number of the client, in the order of their arrival.
    number: u64,
    is_there: bool,
    /// True if another client may replace it without losing results.
    is_replaceable: bool,
}

/// The recipient of results that are appended to a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResultRecipient {
    /// The account of `quota.*` for the records.
    pub(crate) client: String,
    /// The client's own text, which each result record repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) correlation: Option<String>,
}

pub(crate) type PartitionPositions = BTreeMap<PartitionId, PartitionProgress>;

/// The position of a query in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartitionProgress {
    pub(crate) epoch: Epoch,
    /// The first offset that it was to see.
    pub(crate) first: u64,
    pub(crate) counted: ProgressCounters,
}

impl PartitionProgress {
    /// True if the results may contain records of the partition.
    pub(crate) fn has_begun(&self) -> bool {
        self.counted.next > self.first
    }
}

impl ClientSlot {
    fn replace(&mut self) -> u64 {
        *self = Self { number: self.number + 1, is_there: true, is_replaceable: false };
        self.number
    }
}

impl DurableState {
    /// The number of the client that asked the query.
    pub(crate) const FIRST_CLIENT: u64 = 1;

    /// The state of a query that begins.
    pub(crate) fn begin(request: QueryRequest, addressee: Option<ResultRecipient>) -> Self {
        Self {
            request,
            addressee,
            ran_before: Duration::ZERO,
            is_kept: AtomicBool::new(false),
            client: Mutex::new(ClientSlot { number: Self::FIRST_CLIENT, is_there: true, is_replaceable: false }),
            end_sent_ms: AtomicI64::new(0),
            places: Mutex::default(),
        }
    }

    /// The state of a query that a former process has stored.
    pub(crate) fn resume(request: QueryRequest, addressee: Option<ResultRecipient>, ran_before: Duration) -> Self {
        Self {
            ran_before,
            is_kept: AtomicBool::new(true),
            client: Mutex::new(ClientSlot { number: Self::FIRST_CLIENT, is_there: false, is_replaceable: false }),
            ..Self::begin(request, addressee)
        }
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Acquire)
    }

    pub(crate) fn has_been_kept(&self) {
        self.is_kept.store(true, Ordering::Release);
    }

    /// Registers a new client and returns its number; `None` if the query has a client.
    pub(crate) fn attach(&self) -> Option<u64> {
        let mut client = self.client.lock();
        (!client.is_there).then(|| client.replace())
    }

    /// Registers a new client, which replaces a replaceable one, and returns its number.
    pub(crate) fn take_over(&self) -> Option<u64> {
        let mut client = self.client.lock();
        (!client.is_there || client.is_replaceable).then(|| client.replace())
    }

    /// From now on another may take the place of this client.
    pub(crate) fn make_replaceable(&self, number: u64) {
        let mut client = self.client.lock();
        client.is_replaceable |= client.number == number;
    }

    pub(crate) fn detach(&self, number: u64) {
        let mut client = self.client.lock();
        client.is_there &= client.number != number;
    }

    pub(crate) fn end_was_sent(&self, now_ms: i64) {
        self.end_sent_ms.store(now_ms.max(1), Ordering::Release);
    }

    /// When its end was sent, milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) fn end_sent_ms(&self) -> Option<i64> {
        Some(self.end_sent_ms.load(Ordering::Acquire)).filter(|sent_ms| *sent_ms > 0)
    }

    /// Locks the positions, so that nothing is added to the results.
    pub(crate) fn hold(&self) -> MutexGuard<'_, PartitionPositions> {
        self.places.lock()
    }
}

/// Notes how far a query has come in a partition.
pub(crate) fn note(places: &mut PartitionPositions, share: &PartitionShare) {
    let (counted, covered) = share.since_begin();
    places.insert(share.partition(), PartitionProgress { epoch: share.epoch(), first: covered.first, counted });
}

/// The counts of a former process, until a thread has read on.
pub(crate) fn share(partition: PartitionId, reached: &PartitionProgress) -> PartitionShare {
    let progress = Arc::new(ReadProgress::start(partition, Offset(reached.counted.next), reached.epoch));
    PartitionShare::go_on(&progress, reached.first, reached.counted)
}
