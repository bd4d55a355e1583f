//! A device that waits for a command with its request.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use millstream_http::MoreTime;
use millstream_types::Principal;
use tokio::sync::oneshot;

use super::HttpAdapter;
use crate::adapter::UNAUTHENTICATED;
use crate::commands::{CommandDelivery, Commands, Listening, Once, Way, Whose};
use crate::metrics::{Direction, ProcessingOutcome, TenantMetrics};
use crate::registry::TenantState;

const COMMAND: HeaderName = HeaderName::from_static("hono-command");
const REQUEST_ID: HeaderName = HeaderName::from_static("hono-cmd-req-id");
const TARGET_DEVICE: HeaderName = HeaderName::from_static("hono-cmd-target-device");

/// A device that waits for a command; dropping it ends the wait and releases a command that arrived meanwhile.
pub(super) struct Waiting {
    listening: [Option<Listening>; 2],
    inbox: oneshot::Receiver<CommandDelivery>,
    ttd: Duration,
}

impl Waiting {
    /// Begins to listen for a command to `device`. `caller` is that device or its gateway. A request of a gateway for
    /// itself also takes commands to the devices behind it.
    pub(super) fn of(
        commands: &Arc<Commands>,
        known: &TenantState,
        caller: &Principal,
        device: &str,
        ttd_s: u32,
    ) -> Self {
        let (outbox, inbox) = oneshot::channel();
        let once = Once::new(outbox);
        let device: Arc<str> = device.into();
        let is_own = *device == *caller.name || caller.name == UNAUTHENTICATED;
        let via = (!is_own).then(|| caller.name.as_str().into());
        let listen = |whose| commands.listen(&caller.tenant, whose, Way::Once(once.clone()));
        let behind = (is_own && known.is_gateway(&device)).then(|| Whose::Behind { gateway: device.clone() });
        let listening = [Some(listen(Whose::Device { device, via })), behind.map(listen)];
        Self { listening, inbox, ttd: Duration::from_secs(ttd_s.into()) }
    }

    /// Waits for the command; `None` if none comes in time, if a later request of the device takes the place of this
    /// one, or if the server stops.
    pub(super) async fn command(mut self, more_time: &MoreTime) -> Option<CommandDelivery> {
        tokio::select! {
            biased;
            delivered = &mut self.inbox => return delivered.ok(),
            () = more_time.wait(self.ttd) => {}
        }
        drop(self.listening);
        // One that has come at the last moment.
        self.inbox.try_recv().ok()
    }
}

impl HttpAdapter {
    /// Counts a command and makes the answer that carries it to `caller`. Rejects the command and returns `None` if
    /// it does not fit into HTTP headers.
    pub(super) fn command_answer(
        &self,
        delivery: CommandDelivery,
        caller: &str,
        meter: &TenantMetrics,
    ) -> Option<Response> {
        let command = delivery.command();
        let took_ms = self.uplink.wall.now_ms().saturating_sub(command.received_ms);
        let took = Duration::from_millis(u64::try_from(took_ms).unwrap_or(0));
        let headers = headers(&delivery, caller);
        let outcome = if headers.is_ok() { ProcessingOutcome::Forwarded } else { ProcessingOutcome::Unprocessable };
        meter.count_command(Direction::of(command.wants_response), outcome, command.payload.len(), took);
        let mut response = Response::new(Body::from(command.payload.clone()));
        match headers {
            Ok(headers) => *response.headers_mut() = headers,
            Err(why) => {
                delivery.reject(400, why);
                return None;
            }
        }
        delivery.accept();
        Some(response)
    }
}

fn headers(delivery: &CommandDelivery, caller: &str) -> Result<HeaderMap, String> {
    let command = delivery.command();
    let target = (*command.device != *caller && caller != UNAUTHENTICATED).then_some(&*command.device);
    let mut headers = HeaderMap::new();
    for (name, text) in [
        (COMMAND, Some(&*command.name)),
        (REQUEST_ID, delivery.request_id()),
        (TARGET_DEVICE, target),
        (CONTENT_TYPE, command.content_type.as_deref()),
    ] {
        let Some(text) = text else { continue };
        let value = HeaderValue::from_bytes(text.as_bytes());
        let value = value.map_err(|_| format!("{name} = {text:?} cannot be the value of a header"))?;
        headers.insert(name, value);
    }
    Ok(headers)
}
