//! Outcomes of notifications since the last reset, for the block `notifQueue` of `/statistics`.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) queued: AtomicU64,
    /// Notifications that were dropped before delivery.
    pub(crate) dropped: AtomicU64,
    delivered: AtomicU64,
    given_up: AtomicU64,
    /// Total waiting time of ended notifications, in ms.
    waited_ms: AtomicU64,
}

impl Outcomes {
    /// Counts the end of a notification.
    pub(crate) fn ended(&self, is_delivered: bool, waited_ms: i64) {
        let counter = if is_delivered { &self.delivered } else { &self.given_up };
        counter.fetch_add(1, Ordering::Relaxed);
        self.waited_ms.fetch_add(u64::try_from(waited_ms).unwrap_or_default(), Ordering::Relaxed);
    }

    pub(crate) fn sent(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// The block, with `size` notifications waiting now.
    pub(crate) fn shown(&self, size: usize) -> Value {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (ok, error) = (read(&self.delivered), read(&self.given_up));
        let waited_s = read(&self.waited_ms) as f64 / 1_000.0;
        json!({
            "in": read(&self.queued), "out": ok + error, "reject": read(&self.dropped), "sentOk": ok, "sentError": error,
            "timeInQueue": waited_s, "avgTimeInQueue": waited_s / (ok + error).max(1) as f64, "size": size,
        })
    }

    pub(crate) fn reset(&self) {
        for counter in [&self.queued, &self.dropped, &self.delivered, &self.given_up, &self.waited_ms] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}
