//! Errors of records that make entities: the last one of each tenant and of each device, and a rate-limited line in
//! the log.

use std::collections::HashMap;

use millstream_types::{TenantId, iso_time};
use parking_lot::Mutex;
use serde::Serialize;

/// Tenants with a stored error; a full table is cleared.
const TENANTS_MAX: usize = 10_000;
/// Devices of a tenant with a stored error; in a full table a new one replaces the one that erred longest ago.
const DEVICES_MAX: usize = 1_000;
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

/// The last errors of all tenants and of their devices.
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
    tenants: HashMap<TenantId, TenantErrors>,
    logged_ms: Option<i64>,
    unlogged: u64,
}

#[derive(Debug)]
struct TenantErrors {
    last: MappingError,
    told_ms: i64,
    devices: HashMap<Box<str>, DeviceErrors>,
}

#[derive(Debug)]
struct DeviceErrors {
    at_ms: i64,
    what: String,
    count: u64,
}

impl MappingErrors {
    pub(crate) fn new(records: SourceRecords) -> Self {
        Self { records, state: Mutex::default() }
    }

    /// Counts an error. Formats, stores and logs it within the rate limits; the first one of a device is always stored
    /// while there is room. `device` is empty if the error is nobody's own.
    pub(crate) fn tell(&self, tenant: &TenantId, now_ms: i64, device: &str, what: impl FnOnce() -> String) {
        let mut state = self.state.lock();
        if let Some(known) = state.tenants.get_mut(tenant)
            && known.count(now_ms, device)
        {
            state.unlogged += 1;
            return;
        }
        let what: String = what().chars().take(TEXT_MAX_CHARS).collect();
        self.log(&mut state, now_ms, tenant, device, &what);
        if state.tenants.len() >= TENANTS_MAX && !state.tenants.contains_key(tenant) {
            state.tenants.clear();
        }
        match state.tenants.get_mut(tenant) {
            Some(known) => known.store(now_ms, device, what),
            None => drop(state.tenants.insert(tenant.clone(), TenantErrors::new(now_ms, device, what))),
        }
    }

    fn log(&self, state: &mut State, now_ms: i64, tenant: &TenantId, device: &str, what: &str) {
        let since_ms = state.logged_ms.map(|logged_ms| now_ms.saturating_sub(logged_ms));
        if since_ms.is_some_and(|since_ms| (0..LOG_INTERVAL_MS).contains(&since_ms)) {
            state.unlogged += 1;
            return;
        }
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
    }

    pub(crate) fn last(&self, tenant: &TenantId) -> Option<MappingError> {
        self.state.lock().tenants.get(tenant).map(|known| known.last.clone())
    }

    /// The last error of each device of the tenant, the newest first.
    pub(crate) fn by_device(&self, tenant: &TenantId) -> Vec<MappingError> {
        let state = self.state.lock();
        let mut devices: Vec<_> = state.tenants.get(tenant).into_iter().flat_map(|known| &known.devices).collect();
        devices.sort_by(|(a, x), (b, y)| y.at_ms.cmp(&x.at_ms).then_with(|| a.cmp(b)));
        devices.into_iter().map(|(device, errors)| errors.shown(device)).collect()
    }

    /// The last error of a device.
    pub(crate) fn of_device(&self, tenant: &TenantId, device: &str) -> Option<MappingError> {
        let state = self.state.lock();
        let (device, errors) = state.tenants.get(tenant)?.devices.get_key_value(device)?;
        Some(errors.shown(device))
    }
}

impl TenantErrors {
    fn new(now_ms: i64, device: &str, what: String) -> Self {
        let last = MappingError { at: iso_time(now_ms), device: device.to_owned(), what: what.clone(), count: 1 };
        let mut new = Self { last, told_ms: now_ms, devices: HashMap::new() };
        new.store_for_device(now_ms, device, what);
        new
    }

    /// Counts an error; true if its text is not to be stored.
    fn count(&mut self, now_ms: i64, device: &str) -> bool {
        self.last.count += 1;
        let has_room = self.devices.len() < DEVICES_MAX && !device.is_empty();
        let is_known = match self.devices.get_mut(device) {
            Some(errors) => {
                (errors.at_ms, errors.count) = (now_ms, errors.count + 1);
                true
            }
            None => !has_room,
        };
        is_known && (0..TOLD_INTERVAL_MS).contains(&now_ms.saturating_sub(self.told_ms))
    }

    /// Stores the text of an error that is counted.
    fn store(&mut self, now_ms: i64, device: &str, what: String) {
        let count = self.last.count;
        self.last = MappingError { at: iso_time(now_ms), device: device.to_owned(), what: what.clone(), count };
        self.told_ms = now_ms;
        self.store_for_device(now_ms, device, what);
    }

    fn store_for_device(&mut self, now_ms: i64, device: &str, what: String) {
        if let Some(errors) = self.devices.get_mut(device) {
            errors.what = what;
            return;
        }
        if device.is_empty() {
            return;
        }
        if self.devices.len() >= DEVICES_MAX {
            let oldest = self.devices.iter().min_by_key(|(_, errors)| errors.at_ms).map(|(device, _)| device.clone());
            oldest.and_then(|oldest| self.devices.remove(&oldest));
        }
        self.devices.insert(device.into(), DeviceErrors { at_ms: now_ms, what, count: 1 });
    }
}

impl DeviceErrors {
    fn shown(&self, device: &str) -> MappingError {
        let Self { at_ms, what, count } = self;
        MappingError { at: iso_time(*at_ms), device: device.to_owned(), what: what.clone(), count: *count }
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
            mapping_errors.tell(&a, at_ms, "d", || format!("wrong {at_ms}"));
        }
        mapping_errors.tell(&b, 1_500, "e", || "x".repeat(10_000));
        let last = mapping_errors.last(&a).unwrap();
        assert_eq!((last.what.as_str(), last.count, last.device.as_str()), ("wrong 1400", 1_500, "d"));
        assert_eq!(last.at, "1970-01-01T00:00:01.400Z");
        assert_eq!(mapping_errors.last(&b).unwrap().what.len(), TEXT_MAX_CHARS);
        let state = mapping_errors.state.lock();
        assert_eq!((state.logged_ms, state.unlogged), (Some(1_000), 500), "two lines were written");
    }

    #[test]
    fn the_last_trouble_of_each_device_is_kept_with_its_count_and_the_oldest_makes_room() {
        let mapping_errors = MappingErrors::new(SourceRecords::Measurements);
        let tenant = TenantId::default();
        let tell = |at_ms, device: &str, what: &str| mapping_errors.tell(&tenant, at_ms, device, || what.to_owned());
        tell(0, "a", "first");
        tell(1, "b", "other");
        tell(2, "a", "too soon for its text");
        tell(3, "", "nobody's own");
        let told = || -> Vec<_> {
            let errors = mapping_errors.by_device(&tenant).into_iter();
            errors.map(|error| format!("{} {} {}", error.device, error.count, error.what)).collect()
        };
        assert_eq!(told(), ["a 2 first", "b 1 other"]);
        tell(200, "b", "later");
        assert_eq!(told(), ["b 2 later", "a 2 first"]);
        assert_eq!(mapping_errors.of_device(&tenant, "b").unwrap().at, "1970-01-01T00:00:00.200Z");
        assert_eq!(mapping_errors.of_device(&tenant, "c"), None);
        assert_eq!(mapping_errors.last(&tenant).unwrap().count, 5);

        for number in 0..DEVICES_MAX as i64 {
            tell(1_000 + number * TOLD_INTERVAL_MS, &format!("n{number}"), "wrong");
        }
        assert_eq!(mapping_errors.by_device(&tenant).len(), DEVICES_MAX);
        assert_eq!(mapping_errors.of_device(&tenant, "a"), None, "it erred longest ago");
        assert!(mapping_errors.of_device(&tenant, "n999").is_some());
    }
}
