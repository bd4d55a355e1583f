//! The content types of devices' messages.

use millstream_http::Problem;

/// The content type of a message that only says that its device is there.
pub(crate) const EMPTY_NOTIFICATION: &[u8] = b"application/vnd.eclipse-hono-empty-notification";

/// Checks that content type and payload fit. `rule` says how the adapter's devices give a content type.
pub(crate) fn check_type(content_type: Option<&[u8]>, payload: &[u8], rule: &'static str) -> Result<(), Problem> {
    let Some(content_type) = content_type else {
        if payload.is_empty() {
            return Err(Problem::invalid("the message has neither payload nor type")
                .value("no Content-Type")
                .rule(rule)
                .remedy("send a body, or the type application/vnd.eclipse-hono-empty-notification"));
        }
        return Ok(());
    };
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if !payload.is_empty() && essence.eq_ignore_ascii_case(EMPTY_NOTIFICATION) {
        return Err(Problem::invalid("type and payload do not fit")
            .value(format!("{} bytes", payload.len()))
            .rule("an empty notification has an empty body")
            .remedy("leave the body out, or send its own type"));
    }
    Ok(())
}
