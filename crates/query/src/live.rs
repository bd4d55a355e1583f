//! A live query, as the engine, its threads and its client share it.

use std::sync::Arc;
use std::time::Duration;

use millstream_log::{Partition, Topic};
use millstream_types::{MonotonicClock, TenantId, WallClock};
use parking_lot::Mutex;

use crate::compiled::Compiled;
use crate::outbox::{Counts, Outbox};
use crate::progress::Share;
use crate::{Cause, Clamped, Meta, QueryId, Trouble};

/// Both clocks.
#[derive(Clone)]
pub(crate) struct Clocks {
    pub(crate) monotonic: Arc<dyn MonotonicClock>,
    pub(crate) wall: Arc<dyn WallClock>,
}

/// The stream that a query reads, by its partitions.
#[derive(Clone)]
pub(crate) struct Stream {
    pub(crate) topic: Arc<Topic>,
    pub(crate) partitions: Vec<Arc<dyn Partition>>,
}

pub(crate) struct Live {
    pub(crate) id: QueryId,
    pub(crate) tenant: TenantId,
    pub(crate) text: String,
    pub(crate) columns: Vec<String>,
    pub(crate) compiled: Arc<Compiled>,
    pub(crate) stream: Stream,
    pub(crate) received_ms: i64,
    pub(crate) received: Duration,
    /// When it ends, by the monotonic clock.
    pub(crate) deadline: Option<Duration>,
    pub(crate) clamped: Vec<Clamped>,
    pub(crate) outbox: Outbox,
    /// What it sees of each partition, added by the threads that read them.
    pub(crate) shares: Mutex<Vec<Share>>,
    pub(crate) clocks: Clocks,
}

impl Live {
    /// What can be told now.
    pub(crate) fn meta(&self) -> Meta {
        self.meta_of(self.outbox.counts())
    }

    fn meta_of(&self, counts: Counts) -> Meta {
        let mut meta = Meta {
            id: self.id,
            text: self.text.clone(),
            stream: self.stream.topic.name.to_string(),
            received_ms: self.received_ms,
            finished_ms: None,
            elapsed_us: self.clocks.monotonic.now().saturating_sub(self.received).as_micros() as u64,
            cause: None,
            records_seen: 0,
            matched: counts.matched,
            dropped: counts.dropped,
            evaluation_errors: counts.evaluation_errors,
            not_json: 0,
            skipped: 0,
            clamped: self.clamped.clone(),
            positions: Vec::new(),
            errors: Vec::new(),
        };
        for share in self.shares.lock().iter() {
            let (counted, covered) = share.since_begin();
            meta.records_seen += counted.records;
            meta.not_json += counted.not_json;
            meta.skipped += counted.skipped;
            meta.positions.push(covered);
        }
        meta.positions.sort_by_key(|covered| covered.partition);
        meta
    }

    /// Ends it, once. Whether this was the first call.
    pub(crate) fn end(&self, cause: Cause, trouble: Option<Trouble>) -> bool {
        self.outbox.end(|counts| {
            let mut meta = self.meta_of(counts);
            meta.finished_ms = Some(self.clocks.wall.now_ms());
            meta.cause = Some(cause);
            meta.errors.extend(trouble);
            meta
        })
    }
}
