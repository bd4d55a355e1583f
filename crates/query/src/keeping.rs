//! What a live query that outlives the process knows about being kept.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_types::{Epoch, PartitionId};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use crate::QueryRequest;
use crate::progress::{Reading, Share};

#[derive(Debug)]
pub(crate) struct Keeping {
    pub(crate) request: QueryRequest,
    /// If its results go into a topic: for whom.
    pub(crate) addressee: Option<Addressee>,
    /// How long it had run before this process.
    pub(crate) ran_before: Duration,
    /// Whether its first record is durable: only then it outlives its client.
    is_kept: AtomicBool,
    /// Whether a client reads its results.
    has_client: AtomicBool,
    /// Up to where the records of each partition are in its results. Shut while records are added to them, so that
    /// whoever holds it sees both as they were at one moment.
    places: Mutex<Places>,
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

impl Keeping {
    /// Of a query that begins.
    pub(crate) fn begin(request: QueryRequest, addressee: Option<Addressee>) -> Self {
        Self {
            request,
            addressee,
            ran_before: Duration::ZERO,
            is_kept: AtomicBool::new(false),
            has_client: AtomicBool::new(true),
            places: Mutex::default(),
        }
    }

    /// Of one that a former process has kept.
    pub(crate) fn resume(
        request: QueryRequest,
        addressee: Option<Addressee>,
        ran_before: Duration,
        places: Places,
    ) -> Self {
        Self {
            ran_before,
            is_kept: AtomicBool::new(true),
            has_client: AtomicBool::new(false),
            places: Mutex::new(places),
            ..Self::begin(request, addressee)
        }
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Acquire)
    }

    pub(crate) fn has_been_kept(&self) {
        self.is_kept.store(true, Ordering::Release);
    }

    /// Makes somebody its client; false if it has one.
    pub(crate) fn attach(&self) -> bool {
        !self.has_client.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn detach(&self) {
        self.has_client.store(false, Ordering::Release);
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
