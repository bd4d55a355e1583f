//! Why a message is not taken. The three ways of "not now" have texts of their own, so that people can tell them apart.

use std::time::Duration;

use millstream_http::{Problem, Reason};
use millstream_types::{ErrorCode, TenantId};

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

pub(crate) fn unknown_tenant(tenant: &TenantId) -> Problem {
    Problem::new(Reason::Code(ErrorCode::NotFound), "the tenant has just been deleted")
        .value(tenant)
        .rule("only devices of a tenant may send")
        .remedy("create the tenant in the registry")
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
            Problem::new(Reason::Code(ErrorCode::Overloaded), "overloaded: too many messages wait to be written")
                .value(error)
                .rule("nothing of this message was taken")
                .remedy("wait as long as Retry-After says, then send it again")
        }
        ErrorCode::TooLarge => Problem::from_error(ErrorCode::TooLarge, error)
            .rule("a message with its headers fits into one record of its topic")
            .remedy("send less at once"),
        _ => Problem::new(Reason::Code(ErrorCode::Unavailable), "not accepted: the log takes no messages now")
            .value(error)
            .rule(if error.may_have_applied() {
                "the message may or may not be stored"
            } else {
                "nothing of this message was taken"
            })
            .remedy("wait as long as Retry-After says, then send it again")
            .caused_by(error),
    }
}
