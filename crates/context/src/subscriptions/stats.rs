//! Counters of notifications.

use millstream_http::{Counter, Histogram, Metrics};

const MATCH_BOUNDS_S: [f64; 10] = [0.000_002, 0.000_005, 0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.001, 0.01, 0.1, 1.0];
const DELAY_BOUNDS_S: [f64; 12] = [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

pub(crate) struct NotificationCounters {
    /// Subscriptions that were candidates for a change.
    pub(crate) candidates: Counter,
    pub(crate) matched: Counter,
    delivered: Counter,
    /// Notifications with a failed attempt.
    pub(crate) failed: Counter,
    pub(crate) retried: Counter,
    pub(crate) given_up: Counter,
    pub(crate) dropped: Counter,
    pub(crate) reports: Counter,
    pub(crate) over_budget: Counter,
    /// Time to match a change and render its notifications.
    pub(crate) match_s: Histogram,
    delay_s: Histogram,
}

impl NotificationCounters {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let counter = |name: &str, help| metrics.counter(&format!("millstream_notifications_{name}_total"), help, &[]);
        Self {
            candidates: counter("candidates", "Subscriptions that a change might have concerned."),
            matched: counter("matched", "Notifications that changes led to, throttled ones included."),
            delivered: counter("delivered", "Notifications that their receivers have."),
            failed: counter("failed", "Notifications of which an attempt has failed."),
            retried: counter("retried", "Attempts after a failed one."),
            given_up: counter("given_up", "Notifications that are not tried any more."),
            dropped: counter("dropped", "Notifications that had to go because too many waited."),
            over_budget: counter(
                "over_budget",
                "Subscriptions of which an expression was null because it took too long.",
            ),
            reports: counter("reports", "Ends of notifications that were stored."),
            match_s: metrics.histogram(
                "millstream_subscription_match_seconds",
                "Time that finding out of one change whom to tell what has taken.",
                &[],
                &MATCH_BOUNDS_S,
            ),
            delay_s: metrics.histogram(
                "millstream_notification_delay_seconds",
                "Time from the matching of a change to the receiver's answer.",
                &[],
                &DELAY_BOUNDS_S,
            ),
        }
    }

    pub(crate) fn delivered(&self, took_ms: i64) {
        self.delivered.inc();
        self.delay_s.observe(took_ms.max(0) as f64 / 1_000.0);
    }
}
