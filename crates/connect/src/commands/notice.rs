//! The record that tells an application that its command did not reach the device.

use std::borrow::Cow;

use millstream_types::header;
use millstream_view::Publish;
use serde_json::json;

use super::command::{CORRELATION_ID, Command};
use super::outcome::{End, Outcome};

/// The type by which applications know it.
pub(crate) const NOTICE_TYPE: &str = "application/vnd.eclipse-hono-delivery-failure-notification+json";
/// The tenant of a response or notice.
pub(crate) const TENANT_ID: &str = "tenant_id";
/// The status of a command, as an HTTP status code.
pub(crate) const STATUS: &str = "status";

/// The notice of the outcome of `command`. `None` if the device received the command, or if the command has no
/// correlation id to identify it by.
pub(super) fn notice(command: &Command, outcome: &Outcome, now_ms: i64) -> Option<Publish> {
    let correlation_id = command.correlation_id.as_deref().filter(|_| outcome.end != End::Accepted)?;
    let text = |name: &'static str, value: &str| (Cow::Borrowed(name), value.as_bytes().to_vec());
    let mut headers = vec![
        text(header::CONTENT_TYPE, NOTICE_TYPE),
        text(TENANT_ID, command.tenant.as_str()),
        text(header::DEVICE_ID, &command.device),
        text(STATUS, &outcome.status.to_string()),
        text(CORRELATION_ID, correlation_id),
        text(header::CREATION_TIME, &now_ms.to_string()),
    ];
    let echoed = command.metadata.iter();
    headers.extend(echoed.map(|(name, value)| (Cow::Owned(name.to_string()), value.as_bytes().to_vec())));
    let body = json!({"error": outcome.why, "outcome": outcome.end.name()});
    Some(Publish {
        timestamp_ms: now_ms,
        key: Some(command.device.as_bytes().to_vec()),
        value: Some(body.to_string().into_bytes()),
        headers,
    })
}
