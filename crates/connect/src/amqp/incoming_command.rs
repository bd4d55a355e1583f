//! A command that an application sends, from its message to its outcome.

use std::sync::Arc;
use std::time::Duration;

use millstream_amqp::{Message, Value, condition};
use millstream_http::Problem;
use millstream_net::Login;
use millstream_types::{Grant, Header, TenantId, header};

use super::adapter::AmqpAdapter;
use super::reply_address::{self, REPLY_MAX_BYTES};
use crate::commands::{End, NAME_MAX_BYTES, NewCommand, Outcome, is_correlation_id, is_name};

/// Longest wait for a device that listens to take a command.
const OUTCOME_LIMIT: Duration = Duration::from_secs(30);
/// Application property with the time that a command may wait for its device, in milliseconds.
const TTL: &str = "ttl";

/// The end of a command, as its sender is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CommandOutcome {
    /// The device has it, or it waits for its device as long as the sender has said.
    Accepted,
    /// The device does not have it; it may be sent again.
    Released,
    /// It breaks a rule: the condition, and a text.
    Rejected(&'static str, String),
}

/// Parses the address of commands of a tenant, `command/TENANT` or `command/TENANT/DEVICE`.
pub(super) fn command_address(text: &str) -> Option<(TenantId, Option<&str>)> {
    let rest = text.strip_prefix("command/")?;
    let (tenant, device) = rest.split_once('/').map_or((rest, None), |(tenant, device)| (tenant, Some(device)));
    Some((TenantId::new(tenant).ok()?, device.filter(|device| !device.is_empty())))
}

/// A command that was read from a message.
struct IncomingCommand<'a> {
    command: NewCommand,
    headers: Vec<Header<'a>>,
    payload: &'a [u8],
}

/// Sends the command of a message that came over a link, and waits for its outcome. `tenant` is that of the link.
pub(super) async fn command(
    adapter: Arc<AmqpAdapter>,
    login: Login,
    tenant: Option<TenantId>,
    bytes: Vec<u8>,
    _room: Grant,
) -> CommandOutcome {
    let message = match Message::read(&bytes) {
        Ok(message) => message,
        Err(error) => return CommandOutcome::Rejected(condition::DECODE_ERROR, error.to_string()),
    };
    let IncomingCommand { command, headers, payload } = match read(&adapter, &login, tenant.as_ref(), &message) {
        Ok(incoming) => incoming,
        Err(refused) => return refused,
    };
    let mut waiter = match adapter.commands.send(&command, &headers, payload).await {
        Ok(waiter) => waiter,
        Err(problem) => return refused(&problem),
    };
    let decided = waiter.progress.wait_for(|progress| progress.outcome.is_some() || progress.waits);
    // A closed channel and a passed limit are alike: nobody knows whether the device has it.
    let _ = tokio::time::timeout(OUTCOME_LIMIT, decided).await;
    let progress = waiter.progress.borrow();
    match &progress.outcome {
        Some(outcome) => ended(outcome),
        None if progress.waits => CommandOutcome::Accepted,
        None => CommandOutcome::Released,
    }
}

fn ended(outcome: &Outcome) -> CommandOutcome {
    match outcome.end {
        End::Accepted => CommandOutcome::Accepted,
        End::Released | End::Expired => CommandOutcome::Released,
        End::Rejected => CommandOutcome::Rejected(condition_of(outcome.status), outcome.why.to_string()),
    }
}

/// A fault of the server releases the command; one of the command rejects it.
fn refused(problem: &Problem) -> CommandOutcome {
    match problem.status().as_u16() {
        500.. => CommandOutcome::Released,
        status => CommandOutcome::Rejected(condition_of(status), problem.text()),
    }
}

/// The condition for a status of HTTP, as clients of Eclipse Hono know it.
fn condition_of(status: u16) -> &'static str {
    match status {
        400 | 409 => condition::BAD_REQUEST,
        403 => condition::UNAUTHORIZED_ACCESS,
        404 => condition::NOT_FOUND,
        429 => condition::RESOURCE_LIMIT_EXCEEDED,
        _ => condition::PRECONDITION_FAILED,
    }
}

fn bad(why: impl Into<String>) -> CommandOutcome {
    CommandOutcome::Rejected(condition::BAD_REQUEST, why.into())
}

fn read<'a>(
    adapter: &AmqpAdapter,
    login: &Login,
    tenant: Option<&TenantId>,
    message: &'a Message<'a>,
) -> Result<IncomingCommand<'a>, CommandOutcome> {
    let properties = &message.properties;
    let to = properties.to.and_then(|to| to.text()).unwrap_or_default();
    let no_device = || bad(format!("property to = '{to}'; use command/TENANT/DEVICE"));
    let (named, device) = command_address(to).ok_or_else(no_device)?;
    let device = device.ok_or_else(no_device)?;
    if tenant.is_some_and(|tenant| *tenant != named) {
        return Err(bad(format!("property to = '{to}' is of another tenant than its link")));
    }
    if !adapter.may_command(login, &named) {
        let why =
            format!("'{}' may not send to '{to}'; that takes the role writer in its tenant", login.principal.name);
        return Err(CommandOutcome::Rejected(condition::UNAUTHORIZED_ACCESS, why));
    }
    let device = adapter.commands.commanded(&named, device).map_err(|problem| refused(&problem))?;
    let name = properties.subject.unwrap_or_default();
    if !is_name(name) {
        let rule = format!("a command's name has 1 to {NAME_MAX_BYTES} bytes, none of them a control, + or #");
        return Err(bad(format!("property subject = '{}'; {rule}", name.chars().take(64).collect::<String>())));
    }
    let reply_to = properties.reply_to.filter(|reply_to| *reply_to != Value::Null);
    let correlation_id = correlation_id(message, &named, reply_to)?;
    let payload = message.content.bytes();
    let payload = payload.ok_or_else(|| bad("a content that is neither data nor a value of bytes or text"))?;
    if payload.len() > adapter.payload_max_bytes {
        let (bytes, limit) = (payload.len(), adapter.payload_max_bytes);
        let why = format!("a payload of {bytes} bytes; connect.commands.payload_max_bytes = {limit}");
        return Err(CommandOutcome::Rejected(condition::MESSAGE_SIZE_EXCEEDED, why));
    }
    let mut headers = Vec::new();
    if let Some(content_type) = properties.content_type.filter(|content_type| !content_type.0.is_empty()) {
        headers.push(Header { key: header::CONTENT_TYPE, value: Some(content_type.0.as_bytes()) });
    }
    if let Some(trace) = message.application_properties.get(header::TRACEPARENT).and_then(|trace| trace.text()) {
        headers.push(Header { key: header::TRACEPARENT, value: Some(trace.as_bytes()) });
    }
    let command = NewCommand {
        tenant: named,
        device,
        name: name.to_owned(),
        is_one_way: reply_to.is_none(),
        ttl_ms: ttl_ms(message)?,
        correlation_id,
    };
    Ok(IncomingCommand { command, headers, payload })
}

/// The id under which the command and its response are found.
fn correlation_id(
    message: &Message<'_>,
    tenant: &TenantId,
    reply_to: Option<Value<'_>>,
) -> Result<String, CommandOutcome> {
    let given = message.properties.correlation_id.or(message.properties.message_id);
    let given = given.filter(|id| *id != Value::Null);
    let Some(reply_to) = reply_to else {
        let text = given.and_then(|id| id.text()).filter(|id| is_correlation_id(id));
        return Ok(text.map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned));
    };
    let text = reply_to.text().unwrap_or_default();
    let reply = text.strip_prefix("command_response/").and_then(|rest| rest.split_once('/'));
    let Some((_, reply)) = reply.filter(|(of, reply)| *of == tenant.as_str() && !reply.is_empty()) else {
        return Err(bad(format!(
            "property reply-to = '{text}'; use command_response/{tenant}/REPLY, or none for no response"
        )));
    };
    let given = given.ok_or_else(|| bad("a command with reply-to and neither correlation-id nor message-id"))?;
    reply_address::correlation_id(reply, given).ok_or_else(|| {
        bad(format!("the end of reply-to and the correlation-id have more than {REPLY_MAX_BYTES} bytes together"))
    })
}

/// The time that the command may wait for its device.
fn ttl_ms(message: &Message<'_>) -> Result<Option<u64>, CommandOutcome> {
    let Some(given) = message.application_properties.get(TTL) else { return Ok(None) };
    let ttl_ms = match given {
        Value::Ubyte(ttl) => Some(ttl.into()),
        Value::Ushort(ttl) => Some(ttl.into()),
        Value::Uint(ttl) => Some(ttl.into()),
        Value::Ulong(ttl) => Some(ttl),
        Value::Byte(ttl) => u64::try_from(ttl).ok(),
        Value::Short(ttl) => u64::try_from(ttl).ok(),
        Value::Int(ttl) => u64::try_from(ttl).ok(),
        Value::Long(ttl) => u64::try_from(ttl).ok(),
        Value::String(ttl) => ttl.parse().ok(),
        _ => None,
    };
    let ttl_ms = ttl_ms.ok_or_else(|| bad("application property ttl; use a whole number of milliseconds"))?;
    Ok((ttl_ms > 0).then_some(ttl_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_commands_names_a_tenant_and_perhaps_a_device() {
        let parsed = |text| command_address(text).map(|(tenant, device)| (tenant.to_string(), device));
        assert_eq!(parsed("command/a"), Some(("a".to_owned(), None)));
        assert_eq!(parsed("command/a/"), Some(("a".to_owned(), None)));
        assert_eq!(parsed("command/a/d/e"), Some(("a".to_owned(), Some("d/e"))));
        for wrong in ["", "command", "command/", "command//d", "commands/a", "telemetry/a"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn each_end_of_a_command_is_an_outcome() {
        for (outcome, expected) in [
            (Outcome::ACCEPTED, CommandOutcome::Accepted),
            (Outcome::released("away"), CommandOutcome::Released),
            (Outcome::EXPIRED, CommandOutcome::Released),
            (Outcome::rejected(400, "wrong"), CommandOutcome::Rejected("hono:bad-request", "wrong".to_owned())),
            (Outcome::rejected(404, "who"), CommandOutcome::Rejected("amqp:not-found", "who".to_owned())),
            (
                Outcome::rejected(429, "much"),
                CommandOutcome::Rejected("amqp:resource-limit-exceeded", "much".to_owned()),
            ),
            (Outcome::rejected(413, "large"), CommandOutcome::Rejected("amqp:precondition-failed", "large".to_owned())),
        ] {
            assert_eq!(ended(&outcome), expected);
        }
    }
}
