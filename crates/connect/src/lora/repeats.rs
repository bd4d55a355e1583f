//! The uplinks of late, so that one that a network server sends again does not become another record.
//!
//! Network servers repeat a request that was answered with a failure, or not in time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{Appended, Done, Error, Reply, reply};
use millstream_types::{MonotonicClock, TenantId};
use parking_lot::Mutex;

use crate::recent_appends::RecentAppends;

/// Time for which an uplink is remembered.
const KEPT_FOR: Duration = Duration::from_secs(300);

/// The uplinks of all tenants that are on their way to the log, or reached it lately.
pub(super) struct Repeats {
    tenants: Mutex<Tenants>,
    monotonic: Arc<dyn MonotonicClock>,
    /// Uplinks of a tenant that are remembered.
    max_per_tenant: usize,
}

#[derive(Default)]
struct Tenants {
    recent: HashMap<TenantId, RecentAppends<u128>>,
    /// The time of the last look for tenants that send no more.
    swept: Duration,
}

impl Repeats {
    pub(super) fn new(monotonic: Arc<dyn MonotonicClock>, max_per_tenant: usize) -> Self {
        Self { tenants: Mutex::default(), monotonic, max_per_tenant }
    }

    /// The outcome of the uplink with this key, if it is known: there, or to come.
    pub(super) fn outcome(&self, tenant: &TenantId, key: u128) -> Option<Reply<Appended>> {
        let (done, outcome) = reply();
        let joined = self.with(tenant, |recent| recent.join(key, done));
        joined.or_new().is_none().then_some(outcome)
    }

    /// Has `append` append an uplink, unless it is known. `done` gets the outcome either way.
    pub(super) fn once(
        self: &Arc<Self>,
        tenant: &TenantId,
        key: u128,
        done: Done<Appended>,
        append: impl FnOnce(Done<Appended>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let joined = self.with(tenant, |recent| recent.begin(key, done));
        let Some(done) = joined.or_new() else { return Ok(()) };
        let (repeats, of) = (Arc::clone(self), tenant.clone());
        let settled = Done::call(move |result: Result<Appended, Error>| {
            repeats.settle(&of, key, &result);
            done.finish(result);
        });
        append(settled.failing_on_full_disk()).inspect_err(|error| self.settle(tenant, key, &Err(error.clone())))
    }

    fn settle(&self, tenant: &TenantId, key: u128, result: &Result<Appended, Error>) {
        let (now, max) = (self.monotonic.now(), self.max_per_tenant);
        let waiting = self.with(tenant, |recent| recent.settle(key, result, now, max));
        waiting.into_iter().for_each(|done| done.finish(result.clone()));
    }

    fn with<R>(&self, tenant: &TenantId, act: impl FnOnce(&mut RecentAppends<u128>) -> R) -> R {
        let now = self.monotonic.now();
        let mut tenants = self.tenants.lock();
        tenants.sweep(now);
        let recent = tenants.recent.entry(tenant.clone()).or_default();
        recent.forget_before(now.saturating_sub(KEPT_FOR));
        act(recent)
    }
}

impl Tenants {
    /// Forgets the old uplinks of all tenants, unless that was done a short time ago.
    fn sweep(&mut self, now: Duration) {
        if now.saturating_sub(self.swept) < KEPT_FOR {
            return;
        }
        self.swept = now;
        self.recent.retain(|_, recent| {
            recent.forget_before(now.saturating_sub(KEPT_FOR));
            !recent.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::{Epoch, ManualClock, Offset};

    use super::*;

    const APPENDED: Appended = Appended { first: Offset(7), last: Offset(7), epoch: Epoch(1) };

    /// Offers an uplink; its outcome, and the answer that the log is to give if it is a new one.
    fn offer(repeats: &Arc<Repeats>, tenant: &str, key: u128) -> (Reply<Appended>, Option<Done<Appended>>) {
        let (done, outcome) = reply();
        let mut to_answer = None;
        let append = |done| {
            to_answer = Some(done);
            Ok(())
        };
        repeats.once(&TenantId::new(tenant).unwrap(), key, done, append).unwrap();
        (outcome, to_answer)
    }

    fn repeats(max_per_tenant: usize) -> (Arc<Repeats>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(0));
        (Arc::new(Repeats::new(clock.clone(), max_per_tenant)), clock)
    }

    #[tokio::test]
    async fn a_repeat_shares_the_outcome_and_after_a_failure_the_next_one_is_appended() {
        let (repeats, _) = repeats(10);
        let tenant = TenantId::new("T").unwrap();
        assert!(repeats.outcome(&tenant, 1).is_none());
        let (first, answer) = offer(&repeats, "T", 1);
        let (second, nothing) = offer(&repeats, "T", 1);
        let third = repeats.outcome(&tenant, 1).unwrap();
        assert!(nothing.is_none(), "it is on its way");
        answer.unwrap().finish(Err(Error::Stopped));
        for outcome in [first, second, third] {
            assert!(outcome.await.is_err());
        }
        let (outcome, answer) = offer(&repeats, "T", 1);
        answer.expect("the first one has failed").finish(Ok(APPENDED));
        assert_eq!(outcome.await.unwrap(), APPENDED);
        let (outcome, nothing) = offer(&repeats, "T", 1);
        assert!(nothing.is_none());
        assert_eq!(outcome.await.unwrap(), APPENDED);
        // The log may refuse at once.
        let (done, outcome) = reply();
        assert!(repeats.once(&tenant, 2, done, |_| Err(Error::Stopped)).is_err());
        assert!(outcome.await.is_err() && repeats.outcome(&tenant, 2).is_none());
    }

    #[test]
    fn uplinks_are_forgotten_by_number_and_age_for_each_tenant() {
        let (repeats, clock) = repeats(2);
        let known = |tenant, key| repeats.outcome(&TenantId::new(tenant).unwrap(), key).is_some();
        let keep = |tenant, key| offer(&repeats, tenant, key).1.unwrap().finish(Ok(APPENDED));
        keep("U", 1);
        for key in 1..=3 {
            keep("T", key);
        }
        assert_eq!([known("T", 1), known("T", 2), known("T", 3), known("U", 1)], [false, true, true, true]);
        clock.advance(KEPT_FOR);
        keep("T", 4);
        assert_eq!([known("T", 3), known("T", 4), known("U", 1)], [true, true, true]);
        clock.advance(Duration::from_nanos(1));
        assert_eq!([known("T", 3), known("T", 4), known("U", 1)], [false, true, false]);
        let (_outcome, on_its_way) = offer(&repeats, "V", 1);
        clock.advance(KEPT_FOR * 2);
        assert_eq!([known("T", 4), known("V", 1)], [false, true], "one on its way is never forgotten");
        assert_eq!(repeats.tenants.lock().recent.keys().filter(|tenant| tenant.as_str() == "U").count(), 0);
        drop(on_its_way);
    }
}
