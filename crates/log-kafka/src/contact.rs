//! The contact with the cluster, and the appends that it does not take.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millstream_types::TopicPartition;
use parking_lot::Mutex;
use tracing::warn;

use crate::pauses::Pauses;

/// Time without any answer after which appends are refused: one lost connection is no reason.
const SILENCE: Duration = Duration::from_secs(1);

/// The time since a broker, or all of them, have stopped to answer.
#[derive(Debug)]
pub(crate) struct Contact {
    opened_at: Instant,
    /// The contact with all brokers, if this is the one with a broker.
    with_all: Option<Arc<Contact>>,
    /// Milliseconds since `opened_at` of the first call that failed since the last answer; 0 if none has.
    failing_since_ms: AtomicU64,
    pub(crate) pauses: Pauses,
}

impl Contact {
    /// Another process may take over after a pause of `session_timeout`.
    pub(crate) fn new(session_timeout: Duration) -> Self {
        let pauses = Pauses::new(session_timeout);
        Self { opened_at: Instant::now(), with_all: None, failing_since_ms: AtomicU64::new(0), pauses }
    }

    /// The contact with one broker, whose answers and failures count for `all`, too. Pauses count for all alone.
    pub(crate) fn of_broker(all: &Arc<Self>) -> Self {
        Self { with_all: Some(Arc::clone(all)), ..Self::new(Duration::MAX) }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened_at.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// A broker has answered.
    pub(crate) fn answered(&self) {
        // The doubt comes first, so that nothing is taken between the two.
        self.pauses.answered();
        self.with_all.iter().for_each(|all| all.answered());
        if self.failing_since_ms.load(Ordering::Relaxed) != 0 {
            self.failing_since_ms.store(0, Ordering::Release);
        }
    }

    /// A broker could not be reached, or has not answered.
    pub(crate) fn failed(&self) {
        self.missed();
        self.with_all.iter().for_each(|all| all.missed());
    }

    /// The other brokers do not know of this one any more.
    pub(crate) fn missed(&self) {
        let now_ms = self.now_ms();
        let _ = self.failing_since_ms.compare_exchange(0, now_ms, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The time for which every call has failed, if that is long.
    pub(crate) fn silence(&self) -> Option<Duration> {
        match self.failing_since_ms.load(Ordering::Acquire) {
            0 => None,
            since_ms => Some(Duration::from_millis(self.now_ms().saturating_sub(since_ms))),
        }
        .filter(|silence| *silence >= SILENCE)
    }
}

/// The partitions and writers whose records are not taken, each with the reason.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    by_place: Mutex<BTreeMap<String, (Option<TopicPartition>, String)>>,
    is_any: AtomicBool,
}

impl Troubles {
    /// Notes that records of a place, which may be a partition, have waited for long.
    pub(crate) fn begin(
        &self,
        place: &dyn std::fmt::Display,
        partition: Option<&TopicPartition>,
        why: &dyn std::fmt::Display,
    ) {
        let mut by_place = self.by_place.lock();
        if by_place.insert(place.to_string(), (partition.cloned(), why.to_string())).is_none() {
            warn!(%place, %why, "records wait, as they are not taken now");
        }
        self.is_any.store(true, Ordering::Release);
    }

    /// Notes that nothing of a place waits any more.
    pub(crate) fn end(&self, place: &dyn std::fmt::Display) {
        if self.is_any.load(Ordering::Acquire) {
            let mut by_place = self.by_place.lock();
            by_place.remove(&place.to_string());
            self.is_any.store(!by_place.is_empty(), Ordering::Release);
        }
    }

    /// The partition of each place, if it is one, and the reason.
    pub(crate) fn all(&self) -> Vec<(Option<TopicPartition>, String)> {
        let told = |(place, (partition, why)): (&String, &(Option<TopicPartition>, String))| {
            (partition.clone(), format!("{place} takes no records now: {why}"))
        };
        self.by_place.lock().iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_silence_of_all_brokers_for_some_time_counts() {
        let mut contact = Contact::new(Duration::from_secs(60));
        assert_eq!(contact.silence(), None);
        contact.failed();
        assert_eq!(contact.silence(), None, "one call has failed just now");
        contact.opened_at -= Duration::from_secs(5);
        assert!(contact.silence().is_some_and(|silence| silence >= Duration::from_secs(4)));
        contact.failed();
        assert!(contact.silence().is_some_and(|silence| silence >= Duration::from_secs(4)), "it goes on");
        contact.answered();
        assert_eq!(contact.silence(), None);
    }

    #[test]
    fn a_silent_broker_is_no_silence_of_all() {
        let all = Arc::new(Contact::new(Duration::from_secs(60)));
        let mut one = Contact::of_broker(&all);
        one.opened_at -= Duration::from_secs(5);
        one.missed();
        assert_eq!(all.failing_since_ms.load(Ordering::Acquire), 0, "another broker has told of it");
        one.failed();
        assert_ne!(all.failing_since_ms.load(Ordering::Acquire), 0);
        all.answered();
        one.opened_at -= Duration::from_secs(5);
        assert!(one.silence().is_some() && all.silence().is_none());
        one.answered();
        assert_eq!(one.silence(), None);
    }

    #[test]
    fn a_trouble_is_told_until_it_ends() {
        let troubles = Troubles::default();
        troubles.end(&"a/0");
        troubles.begin(&"a/0", None, &"no leader");
        troubles.begin(&"b/1", None, &"too few replicas");
        troubles.begin(&"a/0", None, &"no answer");
        let lines = || troubles.all().into_iter().map(|(_, line)| line).collect::<Vec<_>>();
        assert_eq!(lines(), ["a/0 takes no records now: no answer", "b/1 takes no records now: too few replicas"]);
        troubles.end(&"a/0");
        troubles.end(&"b/1");
        assert!(lines().is_empty() && !troubles.is_any.load(Ordering::Acquire));
    }
}
