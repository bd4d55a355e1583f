//! What a live query that outlives the process knows about being kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use millstream_types::{Epoch, Offset, PartitionId};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use crate::QueryRequest;
use crate::progress::{Progress, Reading, Share};

#[derive(Debug)]
pub(crate) struct Keeping {
    pub(crate) request: QueryRequest,
    /// If its results go into a topic: for whom.
    pub(crate) addressee: Option<Addressee>,
    /// How long it had run before this process.
    pub(crate) ran_before: Duration,
    /// Whether its first record is durable: only then it outlives its client.
    is_kept: AtomicBool,
    client: Mutex<Client>,
    /// When its end was sent to a client that may ask for it again, milliseconds since 1970-01-01T00:00:00Z; 0 if it was not.
    end_sent_ms: AtomicI64,
    /// Up to where the records of each partition are in its results. Shut while records are added to them, so that
    /// whoever holds it sees both as they were at one moment.
    places: Mutex<Places>,
}

/// Who reads its results.
#[derive(Debug)]
struct Client {
    /// Which of those that there have been.
    number: u64,
    is_there: bool,
    /// Whether another may take its place: what it has not got is not lost.
    is_replaceable: bool,
}

/// On whose behalf results are appended to a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Addressee {
    /// On whose account of `quota.*`.
    pub(crate) client: String,
    /// What the results have in common with the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) correlation: Option<String>,
}

pub(crate) type Places = BTreeMap<PartitionId, Reached>;

/// How far a query has come in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) epoch: Epoch,
    /// The first offset that it was to see.
    pub(crate) first: u64,
    pub(crate) counted: Reading,
}

impl Reached {
    /// Whether something of the partition may be in the results.
    pub(crate) fn has_begun(&self) -> bool {
        self.counted.next > self.first
    }
}

impl Client {
    fn replace(&mut self) -> u64 {
        *self = Self { number: self.number + 1, is_there: true, is_replaceable: false };
        self.number
    }
}

impl Keeping {
    /// Whoever asked.
    pub(crate) const FIRST_CLIENT: u64 = 1;

    /// Of a query that begins.
    pub(crate) fn begin(request: QueryRequest, addressee: Option<Addressee>) -> Self {
        Self {
            request,
            addressee,
            ran_before: Duration::ZERO,
            is_kept: AtomicBool::new(false),
            client: Mutex::new(Client { number: Self::FIRST_CLIENT, is_there: true, is_replaceable: false }),
            end_sent_ms: AtomicI64::new(0),
            places: Mutex::default(),
        }
    }

    /// Of one that a former process has kept.
    pub(crate) fn resume(request: QueryRequest, addressee: Option<Addressee>, ran_before: Duration) -> Self {
        Self {
            ran_before,
            is_kept: AtomicBool::new(true),
            client: Mutex::new(Client { number: Self::FIRST_CLIENT, is_there: false, is_replaceable: false }),
            ..Self::begin(request, addressee)
        }
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Acquire)
    }

    pub(crate) fn has_been_kept(&self) {
        self.is_kept.store(true, Ordering::Release);
    }

    /// Makes somebody its client: which that is; `None` if it has one.
    pub(crate) fn attach(&self) -> Option<u64> {
        let mut client = self.client.lock();
        (!client.is_there).then(|| client.replace())
    }

    /// Makes somebody its client, in place of whoever is if that may be replaced: which that is.
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

    /// Holds still what is added to its results.
    pub(crate) fn hold(&self) -> MutexGuard<'_, Places> {
        self.places.lock()
    }
}

/// Notes how far a query has come in a partition.
pub(crate) fn note(places: &mut Places, share: &Share) {
    let (counted, covered) = share.since_begin();
    places.insert(share.partition(), Reached { epoch: share.epoch(), first: covered.first, counted });
}

/// What was counted before, with nothing more to come until a thread has read on.
pub(crate) fn share(partition: PartitionId, reached: &Reached) -> Share {
    let progress = Arc::new(Progress::start(partition, Offset(reached.counted.next), reached.epoch));
    Share::go_on(&progress, reached.first, reached.counted)
}
