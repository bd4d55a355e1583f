//! Counters by tenant and outcome, for events that are rarer than messages.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_http::{Counter, Metrics};
use millstream_types::TenantId;
use parking_lot::Mutex;

/// Tenants that have labels of their own; the others share [`OTHERS`].
pub(crate) const LABELLED_TENANTS_MAX: usize = 1_000;
/// Label of the tenants beyond [`LABELLED_TENANTS_MAX`]. It is not a valid tenant id.
pub(crate) const OTHERS: &str = "(others)";
/// Label of tenants that are not registered.
const UNKNOWN: &str = "UNKNOWN";

/// A counter that has a value for each tenant and each outcome.
#[derive(Clone)]
pub(crate) struct TenantCounter(Arc<CounterParts>);

struct CounterParts {
    metrics: Metrics,
    name: &'static str,
    help: &'static str,
    /// Name of the outcome's label, and constant labels.
    labels: (&'static str, Vec<(&'static str, &'static str)>),
    known: Mutex<LabelledTenants>,
}

#[derive(Default)]
struct LabelledTenants {
    tenants: HashMap<Box<str>, HashMap<&'static str, Counter>>,
}

impl TenantCounter {
    pub(crate) fn new(
        metrics: &Metrics,
        name: &'static str,
        help: &'static str,
        outcome: &'static str,
        labels: &[(&'static str, &'static str)],
    ) -> Self {
        let labels = (outcome, labels.to_vec());
        Self(Arc::new(CounterParts { metrics: metrics.clone(), name, help, labels, known: Mutex::default() }))
    }

    /// Counts an event with this outcome. `tenant` is `None` if it is not registered.
    pub(crate) fn count(&self, tenant: Option<&TenantId>, outcome: &'static str) {
        let mut known = self.0.known.lock();
        let mut tenant = tenant.map_or(UNKNOWN, TenantId::as_str);
        if !known.tenants.contains_key(tenant) && known.tenants.len() >= LABELLED_TENANTS_MAX && tenant != UNKNOWN {
            tenant = OTHERS;
        }
        let outcomes = known.tenants.entry(tenant.into()).or_default();
        outcomes.entry(outcome).or_insert_with(|| self.0.counter(tenant, outcome)).inc();
    }
}

impl CounterParts {
    fn counter(&self, tenant: &str, outcome: &'static str) -> Counter {
        let (name, always) = &self.labels;
        let labels: Vec<(&str, &str)> =
            [("tenant", tenant), (*name, outcome)].into_iter().chain(always.iter().copied()).collect();
        self.metrics.counter(self.name, self.help, &labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_beyond_the_limit_share_one_label() {
        let metrics = Metrics::default();
        let counter = TenantCounter::new(&metrics, "tries_total", "Tries.", "outcome", &[("where", "here")]);
        counter.count(None, "bad");
        for number in 0..LABELLED_TENANTS_MAX + 5 {
            counter.count(Some(&TenantId::new(&format!("t{number}")).unwrap()), "good");
        }
        counter.count(Some(&TenantId::new("t0").unwrap()), "good");
        let text = metrics.text();
        for line in [
            r#"tries_total{outcome="bad",tenant="UNKNOWN",where="here"} 1"#,
            r#"tries_total{outcome="good",tenant="t0",where="here"} 2"#,
            r#"tries_total{outcome="good",tenant="(others)",where="here"} 6"#,
        ] {
            assert!(text.lines().any(|known| known == line), "{line}");
        }
    }
}
