//! The handler of a network server's request: reads it, has its uplink appended, and answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use millstream_http::{Answer, Problem, Reason, Request, TraceContext, Unread, parse_json};
use millstream_log::{Appended, Reply, reply};
use millstream_types::{Principal, TenantId};

use super::LoraAdapter;
use super::message::LoraMessage;
use super::provider::Provider;
use super::uplink_message::{DevEui, UplinkMessage};
use crate::ingest::{Message as _, level_of};
use crate::recent_appends::hash_of;
use crate::refusal::larger_than_set;
use crate::registry::takes_decoded_payload;
use crate::sender::DeviceAddress;
use crate::stream::Delivery;
use crate::streams::TenantStreams;
use crate::uplink::Unsent;

/// A request, as far as it is needed after it was read.
struct Webhook {
    provider: Provider,
    caller: Arc<Principal>,
    path: String,
    trace: TraceContext,
    /// The arrival of the request, by the monotonic clock.
    started: Duration,
}

impl LoraAdapter {
    /// Takes a request of a network server.
    pub(super) fn take(self: &Arc<Self>, provider: Provider, request: &Request<'_>) -> Answer {
        let started = self.uplink.monotonic.now().saturating_sub(request.body_wait());
        self.try_take(provider, request, started).unwrap_or_else(|unread| {
            if let Unread::Refused(_) = unread {
                self.uplink.ingest.totals.rejected.fetch_add(1, Ordering::Relaxed);
            }
            unread.into()
        })
    }

    fn try_take(
        self: &Arc<Self>,
        provider: Provider,
        request: &Request<'_>,
        started: Duration,
    ) -> Result<Answer, Unread> {
        let caller = request.caller()?;
        let Some(uplink) = self.read(provider, request)? else {
            self.cases.count(Some(&caller.tenant), "no-uplink");
            return Ok(StatusCode::ACCEPTED.into_response().into());
        };
        let (path, trace) = (request.path().to_owned(), request.trace());
        let webhook = Webhook { provider, caller: caller.clone(), path, trace, started };
        let adapter = Arc::clone(self);
        Ok(Answer::later(async move { adapter.send(webhook, uplink).await }))
    }

    /// Reads the uplink of a request; `None` if it has none.
    fn read(&self, provider: Provider, request: &Request<'_>) -> Result<Option<UplinkMessage>, Unread> {
        let event = if provider.names_event() { event(request.query()) } else { None };
        // The bodies of other events do not matter.
        if event.is_some_and(|event| event != "up") {
            return Ok(None);
        }
        check_json(request.header(CONTENT_TYPE.as_str()))?;
        let uplink = provider.read(event, parse_json(request.body()?)?)?;
        let limit = self.config.payload_max_bytes;
        match uplink.as_ref().map_or(0, |uplink| uplink.payload.len()) {
            bytes if bytes > limit => Err(larger_than_set(bytes, "connect.lora.payload_max_bytes", limit).into()),
            _ => Ok(uplink),
        }
    }

    /// Has an uplink appended unless the log has it already, and answers when the log has.
    async fn send(&self, webhook: Webhook, uplink: UplinkMessage) -> Response {
        let caller = &*webhook.caller;
        let (device, takes_decoded) = self.registration(&caller.tenant, uplink.dev_eui);
        let parts = |id: &String| [caller.name.clone(), device.clone(), webhook.provider.name().to_owned(), id.clone()];
        let key = uplink.repeat_id.as_ref().map(|id| hash_of(&parts(id).each_ref().map(|part| part.as_bytes())));
        if let Some(outcome) = key.and_then(|key| self.repeats.outcome(&caller.tenant, key)) {
            self.cases.count(Some(&caller.tenant), "repeated");
            return match self.uplink.judged(outcome).await {
                Ok(()) => StatusCode::ACCEPTED.into_response(),
                Err(problem) => {
                    self.uplink.ingest.totals.rejected.fetch_add(1, Ordering::Relaxed);
                    problem.into_response()
                }
            };
        }
        let (message, left_out) = LoraMessage::of(webhook.provider, uplink, takes_decoded);
        let target = DeviceAddress::Named { tenant: None, device: &device };
        let envelope = LoraMessage::envelope(caller, target, &webhook.path, webhook.trace);
        let offer = |streams: &TenantStreams| -> Result<Reply<Appended>, Unsent> {
            let run = std::slice::from_ref(&message);
            self.uplink.offer(&envelope, run, streams, self.uplink.moment(), |admitted| {
                let (done, verdict) = reply();
                let append = |done| admitted.partition.append(admitted.records, level_of(envelope.delivery), done);
                match key {
                    Some(key) => self.repeats.once(&caller.tenant, key, done, append)?,
                    None => append(done.failing_on_full_disk())?,
                }
                Ok(verdict)
            })
        };
        let judged = match self.uplink.resolve_and_offer(target, caller, offer).await {
            Ok((_, verdict)) => self.uplink.judged(verdict).await,
            Err(problem) => Err(problem),
        };
        let meter = self.uplink.meters.of(&caller.tenant);
        let took = self.uplink.monotonic.now().saturating_sub(webhook.started);
        let bytes = message.payload().len();
        if let Err(problem) = judged {
            self.uplink.ingest.count_refused(&meter, Delivery::AtLeastOnce, &problem, bytes, took);
            return problem.into_response();
        }
        self.uplink.ingest.count_accepted(&meter, Delivery::AtLeastOnce, bytes, took);
        if let Some(downlinks) = self.downlinks.get() {
            downlinks.heard(caller, webhook.provider);
        }
        for (is_left_out, case) in
            [(left_out.metadata, "metadata-left-out"), (left_out.additional, "additional-data-left-out")]
        {
            if is_left_out {
                self.cases.count(Some(&caller.tenant), case);
            }
        }
        StatusCode::ACCEPTED.into_response()
    }

    /// The id under which the device is registered, and true if its tenant wants decoded payloads. The id is the DevEUI in
    /// upper case, unless only the one in lower case is registered.
    fn registration(&self, tenant: &TenantId, dev_eui: DevEui) -> (String, bool) {
        let snapshot = self.uplink.ingest.registry.snapshot(tenant);
        let known = snapshot.state.tenant(tenant);
        let upper = dev_eui.to_string();
        let lower = upper.to_ascii_lowercase();
        let is_registered = |id: &str| known.is_some_and(|known| known.devices.contains_key(id));
        let takes_decoded = known.and_then(|known| known.tenant.as_deref());
        let takes_decoded = takes_decoded.is_some_and(|stored| takes_decoded_payload(&stored.value.ext));
        (if !is_registered(&upper) && is_registered(&lower) { lower } else { upper }, takes_decoded)
    }
}

/// The value of the query parameter `event`.
fn event(query: Option<&str>) -> Option<&str> {
    let pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(name, _)| *name == "event").map(|(_, value)| value).next()
}

/// Refuses a body that is not declared as JSON.
fn check_json(content_type: Option<&[u8]>) -> Result<(), Problem> {
    let given = String::from_utf8_lossy(content_type.unwrap_or_default());
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence == "application/json" {
        return Ok(());
    }
    let is_protobuf = essence == "application/octet-stream" || essence.ends_with("protobuf");
    let (problem, remedy) = if is_protobuf {
        let problem = Problem::new(Reason::UnsupportedMediaType, "Protobuf is not taken from network servers");
        (problem, "switch the encoding of the network server's HTTP integration to JSON")
    } else {
        (Problem::invalid("the body is not declared as JSON"), "send that header")
    };
    Err(problem.value(essence).rule("Content-Type: application/json").remedy(remedy))
}
