//! Errors of records that make entities: the last one of each tenant, and a rate-limited line in the log.

use std::collections::HashMap;

use millstream_types::{TenantId, iso_time};
use parking_lot::Mutex;
use serde::Serialize;

/// Tenants with a stored error; a full table is cleared.
const TENANTS_MAX: usize = 10_000;
/// Minimum time between two stored errors of a tenant: if every measurement is wrong, formatting the error costs
/// more than reading the measurement.
const TOLD_INTERVAL_MS: i64 = 100;
/// Minimum time between two log lines; errors in between are counted in the next.
const LOG_INTERVAL_MS: i64 = 1_000;
/// Maximum length of a stored text, in characters.
const TEXT_MAX_CHARS: usize = 500;

/// The last error of a tenant's measurements, or of its records of updates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MappingError {
    /// Time of the error, as in `2013-01-01T06:00:00.000Z`.
    pub at: String,
    /// The device of the measurement; empty if it has none or if the entity is named instead, and for updates.
    pub device: String,
    /// A description of the error.
    pub what: String,
    /// Measurements and attributes, or updates, of the tenant that were left out since the start of the process.
    pub count: u64,
}

/// The last errors of all tenants.
#[derive(Debug)]
pub(crate) struct MappingErrors {
    records: SourceRecords,
    state: Mutex<State>,
}

/// The records that the errors are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceRecords {
    /// Records of `telemetry.<tenant>`, which mappings turn into updates.
    Measurements,
    /// Records of `context_update.<tenant>`, which are updates themselves.
    Updates,
}

#[derive(Debug, Default)]
struct State {
    last: HashMap<TenantId, Last>,
    logged_ms: Option<i64>,
    unlogged: u64,
}

#[derive(Debug)]
struct Last {
    trouble: MappingError,
    told_ms: i64,
}

impl MappingErrors {
    pub(crate) fn new(records: SourceRecords) -> Self {
        Self { records, state: Mutex::default() }
    }

    /// Counts an error. Formats, stores and logs it within the rate limits.
    pub(crate) fn tell<'a>(&self, tenant: &TenantId, now_ms: i64, trouble: impl FnOnce() -> (&'a str, String)) {
        let mut state = self.state.lock();
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
            match self.records {
                SourceRecords::Measurements => {
                    tracing::warn!(%tenant, device, what, more, "a measurement, or a part of it, became no entity");
                }
                SourceRecords::Updates => {
                    tracing::warn!(%tenant, what, more, "a record of updates, or a part of it, was refused");
                }
            }
            state.logged_ms = Some(now_ms);
        } else {
            state.unlogged += 1;
        }
        if state.last.len() >= TENANTS_MAX && !state.last.contains_key(tenant) {
            state.last.clear();
        }
        let count = state.last.get(tenant).map_or(1, |last| last.trouble.count);
        let trouble = MappingError { at: iso_time(now_ms), device: device.to_owned(), what, count };
        state.last.insert(tenant.clone(), Last { trouble, told_ms: now_ms });
    }

    pub(crate) fn last(&self, tenant: &TenantId) -> Option<MappingError> {
        self.state.lock().last.get(tenant).map(|last| last.trouble.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_trouble_of_each_tenant_is_kept_and_the_log_gets_few_lines() {
        let mapping_errors = MappingErrors::new(SourceRecords::Measurements);
        let [a, b] = ["a", "b"].map(|name| TenantId::new(name).unwrap());
        for at_ms in 0..1_500 {
            mapping_errors.tell(&a, at_ms, || ("d", format!("wrong {at_ms}")));
        }
        mapping_errors.tell(&b, 1_500, || ("e", "x".repeat(10_000)));
        let last = mapping_errors.last(&a).unwrap();
        assert_eq!((last.what.as_str(), last.count, last.device.as_str()), ("wrong 1400", 1_500, "d"));
        assert_eq!(last.at, "1970-01-01T00:00:01.400Z");
        assert_eq!(mapping_errors.last(&b).unwrap().what.len(), TEXT_MAX_CHARS);
        let state = mapping_errors.state.lock();
        assert_eq!((state.logged_ms, state.unlogged), (Some(1_000), 500), "two lines were written");
    }
}
