//! What was wrong with measurements: the last trouble of each tenant, and a line in the log now and then.

use std::collections::HashMap;

use millstream_types::{TenantId, iso_time};
use parking_lot::Mutex;
use serde::Serialize;

/// Tenants whose last trouble is remembered; when it is full all are forgotten.
const TENANTS_MAX: usize = 10_000;
/// A tenant's last trouble is replaced at most so often: where all that comes is wrong, telling it costs more than reading it.
const TOLD_INTERVAL_MS: i64 = 100;
/// A line in the log at most so often; what comes between is counted in the next.
const LOG_INTERVAL_MS: i64 = 1_000;
/// Longest text of a trouble that is kept, characters.
const TEXT_MAX_CHARS: usize = 500;

/// What was last wrong with a measurement of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MappingTrouble {
    /// When, as in `2013-01-01T06:00:00.000Z`.
    pub at: String,
    /// The device whose measurement it was; empty if it has none, or the entity is named instead.
    pub device: String,
    /// What was wrong.
    pub what: String,
    /// How many measurements and attributes of the tenant were left out since the start of the process.
    pub count: u64,
}

/// The troubles of all tenants.
#[derive(Debug, Default)]
pub(crate) struct Troubles(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: HashMap<TenantId, Last>,
    logged_ms: Option<i64>,
    unlogged: u64,
}

#[derive(Debug)]
struct Last {
    trouble: MappingTrouble,
    told_ms: i64,
}

impl Troubles {
    /// Counts it. Every now and then it is kept, too, as device and text, and logged.
    pub(crate) fn tell<'a>(&self, tenant: &TenantId, now_ms: i64, trouble: impl FnOnce() -> (&'a str, String)) {
        let mut state = self.0.lock();
        if let Some(last) = state.last.get_mut(tenant) {
            last.trouble.count += 1;
            if (0..TOLD_INTERVAL_MS).contains(&now_ms.saturating_sub(last.told_ms)) {
                state.unlogged += 1;
                return;
            }
        }
        let (device, what) = trouble();
        let what: String = what.chars().take(TEXT_MAX_CHARS).collect();
        let since_ms = state.logged_ms.map(|logged_ms| now_ms.saturating_sub(logged_ms));
        if since_ms.is_none_or(|since_ms| !(0..LOG_INTERVAL_MS).contains(&since_ms)) {
            let more = std::mem::take(&mut state.unlogged);
            tracing::warn!(%tenant, device, what, more, "a measurement, or a part of it, became no entity");
            state.logged_ms = Some(now_ms);
        } else {
            state.unlogged += 1;
        }
        if state.last.len() >= TENANTS_MAX && !state.last.contains_key(tenant) {
            state.last.clear();
        }
        let count = state.last.get(tenant).map_or(1, |last| last.trouble.count);
        let trouble = MappingTrouble { at: iso_time(now_ms), device: device.to_owned(), what, count };
        state.last.insert(tenant.clone(), Last { trouble, told_ms: now_ms });
    }

    /// The tenant's last one.
    pub(crate) fn last(&self, tenant: &TenantId) -> Option<MappingTrouble> {
        self.0.lock().last.get(tenant).map(|last| last.trouble.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_trouble_of_each_tenant_is_kept_and_the_log_gets_few_lines() {
        let troubles = Troubles::default();
        let [a, b] = ["a", "b"].map(|name| TenantId::new(name).unwrap());
        for at_ms in 0..1_500 {
            troubles.tell(&a, at_ms, || ("d", format!("wrong {at_ms}")));
        }
        troubles.tell(&b, 1_500, || ("e", "x".repeat(10_000)));
        let last = troubles.last(&a).unwrap();
        assert_eq!((last.what.as_str(), last.count, last.device.as_str()), ("wrong 1400", 1_500, "d"));
        assert_eq!(last.at, "1970-01-01T00:00:01.400Z");
        assert_eq!(troubles.last(&b).unwrap().what.len(), TEXT_MAX_CHARS);
        let state = troubles.0.lock();
        assert_eq!((state.logged_ms, state.unlogged), (Some(1_000), 500), "two lines were written");
    }
}
