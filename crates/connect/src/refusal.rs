//! Problems that refuse a message. Each of the three temporary refusals has its own text, so that users can tell them
//! apart from each other.

use std::fmt;
use std::time::Duration;

use millstream_http::{Problem, Reason};
use millstream_types::{ErrorCode, TenantId, TopicPartition, iso_time};

use crate::period::Allowance;
use crate::rate_limit::{RateUnit, TooFast};

pub(crate) fn other_tenant(named: &str, own: &TenantId) -> Problem {
    Problem::forbidden("the path names another tenant than the login")
        .value(named)
        .rule(format!("this login is of tenant '{own}'"))
        .remedy("name that tenant, or leave its segment empty")
}

pub(crate) fn adapter_disabled(tenant: &TenantId, adapter: &str) -> Problem {
    Problem::forbidden("the tenant may not use this adapter")
        .value(tenant)
        .rule(format!("the tenant is enabled, and so is {adapter} if it lists adapters"))
        .remedy("enable it in the registry, in the tenant's adapters")
}

/// The text is the same for every tenant that refuses clients without login, also unknown ones, so guessing
/// does not reveal the names of tenants.
pub(crate) fn login_needed(tenant: &TenantId, adapter: &str) -> Problem {
    Problem::forbidden("devices of this tenant log in")
        .value(tenant)
        .rule(format!("the tenant is enabled, and its entry for {adapter} says device-authentication-required: false"))
        .remedy("connect with the user name auth-id@tenant and a password, or change that entry in the registry")
}

pub(crate) fn gateway_disabled(gateway: &str) -> Problem {
    Problem::forbidden("the gateway is unknown or disabled")
        .value(gateway)
        .rule("a gateway is an enabled device")
        .remedy("enable it in the registry")
}

pub(crate) fn not_behind(device: &str, gateway: &str) -> Problem {
    Problem::forbidden("the device is not behind this gateway")
        .value(device)
        .rule(format!("via of the device names '{gateway}', or viaGroups a group that the gateway is memberOf"))
        .remedy("add the gateway to the device in the registry")
}

pub(crate) fn unknown_device(device: &str) -> Problem {
    Problem::new(Reason::Code(ErrorCode::NotFound), "the device is unknown or disabled")
        .value(device)
        .rule("only an enabled device of the tenant may send")
        .remedy("register or enable it in the registry")
}

/// Refuses a device that cannot be registered at its first login or message. `name` is its id, or its certificate's subject.
pub(crate) fn not_provisioned(name: &str, why: String) -> Problem {
    Problem::forbidden(format!("the device is unknown and cannot be registered: {why}"))
        .value(name)
        .rule("an unknown device is registered if its id is legal and free, and the tenant's limits allow another one")
        .remedy("register it at /v1/devices, or correct the tenant's trusted-ca or registration-limits")
}

pub(crate) fn unknown_tenant(tenant: &TenantId) -> Problem {
    Problem::new(Reason::Code(ErrorCode::NotFound), "the tenant has just been deleted")
        .value(tenant)
        .rule("only devices of a tenant may send")
        .remedy("create the tenant in the registry")
}

/// `name` is the adapter's name for the status parameter.
pub(crate) fn bad_reply_status(name: &str, given: &str) -> Problem {
    Problem::invalid("an answer to a command needs a status")
        .value(format!("'{given}'"))
        .rule(format!("{name} is 200 to 299 or 400 to 599"))
        .remedy("send for example 200")
}

pub(crate) fn bad_request_id(given: &str) -> Problem {
    let shown: String = given.chars().take(64).collect();
    Problem::invalid("the request id is none that came with a command")
        .value(shown)
        .rule("an answer names the command under the id with which it was delivered")
        .remedy("send back hono-cmd-req-id, or the level before the name in the command's topic, unchanged")
}

/// Refuses an answer to a command that was never delivered to `device` under `id`.
pub(crate) fn nobody_waits(device: &str, id: impl fmt::Display) -> Problem {
    let shown: String = id.to_string().chars().take(64).collect();
    Problem::new(Reason::NobodyWaits, "nobody waits for this command response")
        .value(shown)
        .rule(format!("an answer names a command that this server has delivered to device '{device}'"))
        .remedy("send back the request id of a command to this device, unchanged")
}

/// Refuses a payload that exceeds the limit in the tenant's adapter entry.
pub(crate) fn payload_too_large(bytes: usize, adapter: &str, limit: u64) -> Problem {
    Problem::new(Reason::Code(ErrorCode::TooLarge), "the payload is larger than the tenant allows")
        .value(format!("{bytes} bytes"))
        .rule(format!("ext.max-payload-bytes of the tenant's entry for {adapter} = {limit}"))
        .remedy("send less at once, or raise the limit")
}

/// Refuses a payload that exceeds the operator's limit.
pub(crate) fn larger_than_set(bytes: usize, setting: &str, limit: usize) -> Problem {
    Problem::new(Reason::Code(ErrorCode::TooLarge), "the payload is larger than this server allows")
        .value(format!("{bytes} bytes"))
        .rule(format!("{setting} = {limit}"))
        .remedy("send less at once, or raise the limit")
}

/// Refuses a message because the tenant's data volume is used up until the period ends.
pub(crate) fn volume_used_up(used: u64, bytes: u64, allowance: Allowance, now_ms: i64) -> Problem {
    let rule = "resource-limits.data-volume.max-bytes of the tenant";
    used_up("the tenant's data volume for the period is used up", rule, allowance, now_ms).value(if bytes == 0 {
        format!("{used} bytes used")
    } else {
        format!("{used} bytes used and {bytes} more")
    })
}

/// Refuses a connection because the tenant's connection time is used up until the period ends.
pub(crate) fn no_time_left(used_ms: u64, allowance: Allowance, now_ms: i64) -> Problem {
    let rule = "resource-limits.connection-duration.max-minutes of the tenant, in milliseconds";
    used_up("the tenant's connection time for the period is used up", rule, allowance, now_ms)
        .value(format!("{used_ms} ms used"))
}

fn used_up(detail: &'static str, rule: &str, allowance: Allowance, now_ms: i64) -> Problem {
    let left_ms = u64::try_from(allowance.end_ms - now_ms).unwrap_or(0);
    Problem::new(Reason::Code(ErrorCode::RateLimited), detail)
        .rule(format!("{rule} = {} until {}", allowance.max.unwrap_or(u64::MAX), iso_time(allowance.end_ms)))
        .remedy("wait until then, or raise the limit")
        .retry_after(Duration::from_millis(left_ms))
}

/// `who` is "device" or "tenant".
pub(crate) fn too_fast(who: &'static str, name: &str, exceeded: TooFast) -> Problem {
    let TooFast { unit, per_second, wait } = exceeded;
    let (does, what) = match unit {
        RateUnit::Messages => ("sends more messages in a second", "messages"),
        RateUnit::Bytes => ("sends more bytes in a second", "bytes"),
        RateUnit::Connects => ("connects more often in a second", "connects"),
    };
    let rule = match who {
        "device" => format!(
            "ext.max-{what}-per-second of the device, or max-{what}-per-second-per-device of its tenant's resource-limits"
        ),
        _ => format!("resource-limits.max-{what}-per-second of the tenant"),
    };
    Problem::new(Reason::Code(ErrorCode::RateLimited), format!("the {who} {does} than it may"))
        .value(name)
        .rule(format!("{rule} = {per_second}"))
        .remedy("wait as long as Retry-After says, or raise the limit")
        .retry_after(wait)
}

/// Refuses telemetry because no consumer reads it and the tenant requires one.
pub(crate) fn no_consumer(partition: &TopicPartition) -> Problem {
    Problem::new(Reason::Code(ErrorCode::Unavailable), "no consumer: nobody reads the tenant's telemetry")
        .value(partition)
        .rule("ext.telemetry-without-consumer of the tenant = \"refused\"; nothing of this message was taken")
        .remedy("let an application read this topic, as a Kafka client, by /api/streams or with a query; or leave the setting out")
}

pub(crate) fn not_accepted_in_time(setting: &str, timeout: Duration) -> Problem {
    let ms = timeout.as_millis();
    Problem::new(Reason::Code(ErrorCode::Timeout), "not accepted in time: the log has not confirmed the message")
        .value(format!("{ms} ms"))
        .rule(format!("{setting} = {ms}; the message may or may not be stored"))
        .remedy("send it again, and expect that it may then be there twice")
}

pub(crate) fn not_taken(error: &millstream_log::Error) -> Problem {
    match error.code() {
        ErrorCode::Overloaded | ErrorCode::RateLimited => {
            let detail = match error {
                millstream_log::Error::DiskFull { .. } | millstream_log::Error::WaitsForDisk { .. } => {
                    "overloaded: there is no room to store messages"
                }
                _ => "overloaded: too many messages wait to be written",
            };
            Problem::new(Reason::Code(ErrorCode::Overloaded), detail)
                .value(error)
                .rule(outcome(error))
                .remedy("wait as long as Retry-After says, then send it again")
        }
        ErrorCode::TooLarge => Problem::from_error(ErrorCode::TooLarge, error)
            .rule("a message with its headers fits into one record of its topic")
            .remedy("send less at once"),
        _ => Problem::new(Reason::Code(ErrorCode::Unavailable), "not accepted: the log takes no messages now")
            .value(error)
            .rule(outcome(error))
            .remedy("wait as long as Retry-After says, then send it again")
            .caused_by(error),
    }
}

fn outcome(error: &millstream_log::Error) -> &'static str {
    if error.may_have_applied() { "the message may or may not be stored" } else { "nothing of this message was taken" }
}
