//! Metrics of the private spaces.

use millstream_http::{Counter, Metrics};
use millstream_types::TenantId;

use crate::tenant_counter::TenantCounter;

/// The limit that leaves no room for a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitReached {
    /// Its setting, or its name if it cannot be set.
    pub(crate) limit: &'static str,
    pub(crate) value: u64,
}

/// Metrics that all brokers share.
pub(crate) struct Counts {
    pub(super) delivered: Counter,
    pub(super) dropped: Counter,
    refused: TenantCounter,
}

impl Counts {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let counter = |name, help| metrics.counter(name, help, &[]);
        Self {
            delivered: counter("connect_mqtt_delivered_total", "Messages of private spaces that were sent to clients."),
            dropped: counter(
                "connect_mqtt_dropped_total",
                "Messages of private spaces that a client wanted and did not get: no room, too large for it, void or \
                 trimmed.",
            ),
            refused: TenantCounter::new(
                metrics,
                "connect_mqtt_subscriptions_refused_total",
                "Subscriptions over MQTT that were refused because a limit was reached.",
                "limit",
                &[],
            ),
        }
    }
}

impl Counts {
    /// Counts a subscription that a limit leaves no room for.
    pub(crate) fn subscription_refused(&self, tenant: &TenantId, reached: LimitReached) {
        self.refused.count(Some(tenant), reached.limit);
    }
}
