//! Limits of a tenant's registrations and usage.

use millstream_http::Problem;
use serde::{Deserialize, Serialize};

use super::object::Object;
use crate::period::Rule;
use crate::rate_limit::Rates;
use crate::timestamp::Timestamp;

/// The members of a device's `ext` that limit its messages, payload bytes and connects per second.
const DEVICE_RATES: [&str; 3] = ["max-messages-per-second", "max-bytes-per-second", "max-connects-per-second"];

/// Limits of a tenant's registrations; -1 means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct RegistrationLimits {
    max_devices: i64,
    max_credentials_per_device: i64,
}

impl Default for RegistrationLimits {
    fn default() -> Self {
        Self { max_devices: -1, max_credentials_per_device: -1 }
    }
}

impl RegistrationLimits {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn devices_max(&self) -> Option<usize> {
        usize::try_from(self.max_devices).ok()
    }

    pub(crate) fn credentials_max(&self) -> Option<usize> {
        usize::try_from(self.max_credentials_per_device).ok()
    }
}

/// Limits of a tenant's usage; -1 means unlimited. Times to live are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct ResourceLimits {
    max_connections: i64,
    max_ttl: i64,
    max_ttl_telemetry_qos0: i64,
    max_ttl_telemetry_qos1: i64,
    max_ttl_command_response: i64,
    /// Not Hono's: of all devices together.
    #[serde(skip_serializing_if = "is_unlimited")]
    max_messages_per_second: i64,
    /// Not Hono's: of each device, unless its own `ext` says otherwise.
    #[serde(skip_serializing_if = "is_unlimited")]
    max_messages_per_second_per_device: i64,
    /// Not Hono's: payloads of all devices together, as they are metered.
    #[serde(skip_serializing_if = "is_unlimited")]
    max_bytes_per_second: i64,
    /// Not Hono's: of each device, unless its own `ext` says otherwise.
    #[serde(skip_serializing_if = "is_unlimited")]
    max_bytes_per_second_per_device: i64,
    /// Not Hono's: of all devices together.
    #[serde(skip_serializing_if = "is_unlimited")]
    max_connects_per_second: i64,
    /// Not Hono's: of each device, unless its own `ext` says otherwise.
    #[serde(skip_serializing_if = "is_unlimited")]
    max_connects_per_second_per_device: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_volume: Option<DataVolume>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_duration: Option<ConnectionDuration>,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self {
            max_connections: -1,
            max_ttl: -1,
            max_ttl_telemetry_qos0: -1,
            max_ttl_telemetry_qos1: -1,
            max_ttl_command_response: -1,
            max_messages_per_second: -1,
            max_messages_per_second_per_device: -1,
            max_bytes_per_second: -1,
            max_bytes_per_second_per_device: -1,
            max_connects_per_second: -1,
            max_connects_per_second_per_device: -1,
            data_volume: None,
            connection_duration: None,
        }
    }
}

impl ResourceLimits {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Most connections at a time.
    pub(crate) fn connections_max(&self) -> Option<usize> {
        usize::try_from(self.max_connections).ok()
    }

    /// Message and byte rates of all devices together.
    pub(crate) fn rates(&self) -> Rates {
        let limit = |limit| u64::try_from(limit).ok();
        Rates { messages: limit(self.max_messages_per_second), bytes: limit(self.max_bytes_per_second) }
    }

    /// Message and byte rates of a device with this `ext`.
    pub(crate) fn device_rates(&self, ext: &Object) -> Rates {
        let [messages, bytes, _] = DEVICE_RATES;
        Rates {
            messages: of_device(ext, messages, self.max_messages_per_second_per_device),
            bytes: of_device(ext, bytes, self.max_bytes_per_second_per_device),
        }
    }

    /// Connect rate of all devices together.
    pub(crate) fn connects_per_second_max(&self) -> Option<u64> {
        u64::try_from(self.max_connects_per_second).ok()
    }

    /// Connect rate of a device with this `ext`.
    pub(crate) fn device_connects_per_second_max(&self, ext: &Object) -> Option<u64> {
        let [_, _, connects] = DEVICE_RATES;
        of_device(ext, connects, self.max_connects_per_second_per_device)
    }

    /// Bytes of messages in a period. The tenant was created at `created_ms`.
    pub(crate) fn data_volume(&self, created_ms: i64) -> Rule {
        let Some(limit) = &self.data_volume else { return Rule { created_ms, ..Rule::default() } };
        let max = u64::try_from(limit.max_bytes).ok();
        Rule { max, since_ms: since_ms(limit.effective_since), days: days(limit.period.as_ref()), created_ms }
    }

    /// Milliseconds of all connections together in a period.
    pub(crate) fn connection_duration(&self, created_ms: i64) -> Rule {
        let Some(limit) = &self.connection_duration else { return Rule { created_ms, ..Rule::default() } };
        let max = u64::try_from(limit.max_minutes).ok().map(|minutes| minutes.saturating_mul(60_000));
        Rule { max, since_ms: since_ms(limit.effective_since), days: days(limit.period.as_ref()), created_ms }
    }

    /// Longest time to live of an event.
    pub(crate) fn event_ttl_max_s(&self) -> Option<u64> {
        u64::try_from(self.max_ttl).ok()
    }

    /// Longest time to live of telemetry at QoS 0.
    pub(crate) fn unconfirmed_ttl_max_s(&self) -> Option<u64> {
        u64::try_from(self.max_ttl_telemetry_qos0).ok()
    }

    /// Longest time to live of telemetry at QoS 1.
    pub(crate) fn confirmed_ttl_max_s(&self) -> Option<u64> {
        u64::try_from(self.max_ttl_telemetry_qos1).ok()
    }

    /// Time to live of answers to commands.
    pub(crate) fn response_ttl_s(&self) -> Option<u64> {
        u64::try_from(self.max_ttl_command_response).ok()
    }
}

/// A rate of a device: its own, else its tenant's for each.
fn of_device(ext: &Object, name: &str, of_each: i64) -> Option<u64> {
    let own = if ext.is_empty() { None } else { ext.get(name).and_then(serde_json::Value::as_u64) };
    own.or_else(|| u64::try_from(of_each).ok())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct DataVolume {
    #[serde(skip_serializing_if = "Option::is_none")]
    effective_since: Option<Timestamp>,
    #[serde(default = "no_limit")]
    max_bytes: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    period: Option<Period>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ConnectionDuration {
    #[serde(skip_serializing_if = "Option::is_none")]
    effective_since: Option<Timestamp>,
    #[serde(default = "no_limit")]
    max_minutes: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    period: Option<Period>,
}

fn since_ms(effective_since: Option<Timestamp>) -> Option<i64> {
    effective_since.map(|moment| moment.0)
}

/// Days of a period; `None` is a month.
fn days(period: Option<&Period>) -> Option<u32> {
    period.filter(|period| period.mode == PeriodMode::Days).map(|period| period.no_of_days.unwrap_or(1))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_unlimited(limit: &i64) -> bool {
    *limit == -1
}

const fn no_limit() -> i64 {
    -1
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Period {
    mode: PeriodMode,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_of_days: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PeriodMode {
    Monthly,
    Days,
}

/// Refuses limits with invalid values.
pub(crate) fn check_limits(registration: &RegistrationLimits, resource: &ResourceLimits) -> Result<(), Problem> {
    let volume = resource.data_volume.as_ref();
    let duration = resource.connection_duration.as_ref();
    for (name, limit) in [
        ("registration-limits.max-devices", registration.max_devices),
        ("registration-limits.max-credentials-per-device", registration.max_credentials_per_device),
        ("resource-limits.max-connections", resource.max_connections),
        ("resource-limits.max-ttl", resource.max_ttl),
        ("resource-limits.max-ttl-telemetry-qos0", resource.max_ttl_telemetry_qos0),
        ("resource-limits.max-ttl-telemetry-qos1", resource.max_ttl_telemetry_qos1),
        ("resource-limits.max-ttl-command-response", resource.max_ttl_command_response),
        ("resource-limits.max-messages-per-second", resource.max_messages_per_second),
        ("resource-limits.max-messages-per-second-per-device", resource.max_messages_per_second_per_device),
        ("resource-limits.max-bytes-per-second", resource.max_bytes_per_second),
        ("resource-limits.max-bytes-per-second-per-device", resource.max_bytes_per_second_per_device),
        ("resource-limits.max-connects-per-second", resource.max_connects_per_second),
        ("resource-limits.max-connects-per-second-per-device", resource.max_connects_per_second_per_device),
        ("resource-limits.data-volume.max-bytes", volume.map_or(-1, |limit| limit.max_bytes)),
        ("resource-limits.connection-duration.max-minutes", duration.map_or(-1, |limit| limit.max_minutes)),
    ] {
        if limit < -1 {
            return Err(Problem::invalid("a limit cannot be less than nothing")
                .value(limit)
                .rule(format!("{name} is 0 or more, or -1 for no limit"))
                .remedy("send such a number, or leave it out"));
        }
    }
    let periods = [volume.and_then(|limit| limit.period.as_ref()), duration.and_then(|limit| limit.period.as_ref())];
    for period in periods.into_iter().flatten() {
        let days = period.no_of_days;
        if (period.mode == PeriodMode::Days) != days.is_some_and(|days| days > 0) {
            return Err(Problem::invalid("a period has no length, or two")
                .value(format!("no-of-days {}", days.map_or("left out".to_owned(), |days| days.to_string())))
                .rule("a period of mode days has no-of-days, 1 or more; one of mode monthly has none")
                .remedy("correct one of them"));
        }
    }
    Ok(())
}

/// Refuses an invalid rate of a device.
pub(crate) fn check_rates(ext: &Object) -> Result<(), Problem> {
    for name in DEVICE_RATES {
        if let Some(rate) = ext.get(name).filter(|rate| !rate.is_u64()) {
            return Err(Problem::invalid("a device's rate is no number")
                .value(rate)
                .rule(format!("ext.{name} is a whole number, 0 or more"))
                .remedy("send such a number, or leave it out"));
        }
    }
    Ok(())
}
