//! From a request to a record: checked against the registry, appended, answered.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use millstream_http::{Caller, Problem, TraceContext};
use millstream_log::{AckLevel, Appended, Done, reply};
use millstream_types::{Header, Record, header};
use tokio::time::timeout;

use super::message::{Message, Target};
use super::refusal::{
    adapter_disabled, gateway_disabled, not_accepted_in_time, not_behind, not_taken, other_tenant, unknown_device,
    unknown_tenant,
};
use super::{ADAPTER, HttpAdapter};
use crate::login::UNAUTHENTICATED;
use crate::meter::{Delivery, Fate};
use crate::registry::{Device, Tenant, TenantState};
use crate::streams::{Stream, TenantStreams};

const DEFAULT_TYPE: &[u8] = b"application/octet-stream";

impl HttpAdapter {
    /// Takes a message, counts it, and answers its sender.
    pub(super) async fn take(
        &self,
        stream: Stream,
        target: Target<'_>,
        caller: &Caller,
        trace: TraceContext,
        request: Request,
    ) -> Result<StatusCode, Problem> {
        let started = self.monotonic.now();
        let message = match Message::read(stream, trace, request).await {
            Ok(message) => message,
            Err(problem) => {
                self.totals.rejected.fetch_add(1, Ordering::Relaxed);
                return Err(problem);
            }
        };
        let (delivery, payload_bytes) = (message.delivery, message.payload.len());
        let sent = self.send(&message, target, caller).await;
        let took = self.monotonic.now().saturating_sub(started);
        match sent {
            Ok(streams) => {
                streams.meter.count(delivery, Fate::Forwarded, payload_bytes, took);
                self.totals.accept_latency.record(took);
            }
            Err(problem) => {
                self.totals.rejected.fetch_add(1, Ordering::Relaxed);
                let is_ours = problem.status().is_server_error();
                let fate = if is_ours { Fate::Undeliverable } else { Fate::Unprocessable };
                self.meters.of(&caller.tenant).count(delivery, fate, payload_bytes, took);
                return Err(problem);
            }
        }
        Ok(StatusCode::ACCEPTED)
    }

    async fn send(
        &self,
        message: &Message,
        target: Target<'_>,
        caller: &Caller,
    ) -> Result<Arc<TenantStreams>, Problem> {
        let mut streams = match self.streams.known(&caller.tenant) {
            Some(known) => known,
            None => self.resolve(target, caller).await?,
        };
        let mut outcome = self.offer(message, target, caller, &streams)?;
        if let Err(millstream_log::Error::UnknownTopic { .. }) = outcome {
            // Somebody has deleted the topic since it was resolved.
            self.streams.forget(&caller.tenant);
            streams = self.resolve(target, caller).await?;
            outcome = self.offer(message, target, caller, &streams)?;
        }
        match outcome {
            Ok(None) => Ok(streams),
            Ok(Some(verdict)) => {
                let patience = Duration::from_millis(self.config.send_timeout_ms);
                match timeout(patience, verdict).await {
                    Ok(Ok(_)) => Ok(streams),
                    Ok(Err(error)) => Err(not_taken(&error)),
                    Err(_) => Err(not_accepted_in_time(patience)),
                }
            }
            Err(error) => Err(not_taken(&error)),
        }
    }

    /// The tenant's topics, created if need be: but only for a message that may be sent.
    async fn resolve(&self, target: Target<'_>, caller: &Caller) -> Result<Arc<TenantStreams>, Problem> {
        {
            let snapshot = self.registry.snapshot(&caller.tenant);
            let known = snapshot.state.tenant(&caller.tenant).ok_or_else(|| unknown_tenant(&caller.tenant))?;
            sender(known, target, caller)?;
        }
        self.streams.of(&caller.tenant).await.map_err(|error| not_taken(&error))
    }

    /// Checks the message against the registry as it is now and hands it to its partition. The verdict of the log is
    /// still to be waited for, unless nothing was promised.
    fn offer(
        &self,
        message: &Message,
        target: Target<'_>,
        caller: &Caller,
        streams: &TenantStreams,
    ) -> Result<Result<Option<millstream_log::Reply<Appended>>, millstream_log::Error>, Problem> {
        let snapshot = self.registry.snapshot(&caller.tenant);
        let known = snapshot.state.tenant(&caller.tenant).ok_or_else(|| unknown_tenant(&caller.tenant))?;
        let sender = sender(known, target, caller)?;
        let (level, done, verdict) = match message.delivery {
            Delivery::AtMostOnce => (AckLevel::Memory, Done::ignore(), None),
            Delivery::AtLeastOnce => with_verdict(AckLevel::Written),
            Delivery::Event => with_verdict(AckLevel::Synced),
        };
        let partition = streams.partition(message.delivery.stream(), sender.id);
        let appended = self.with_record(message, &sender, |record| partition.append(&[record], level, done));
        Ok(appended.map(|()| verdict))
    }

    /// Lays out the record that a message becomes. Nothing in it is copied before it reaches its batch.
    fn with_record<T>(&self, message: &Message, sender: &Sender<'_>, append: impl FnOnce(Record<'_>) -> T) -> T {
        let now_ms = self.wall.now_ms();
        let (mut created, mut ttd, mut ttl) = (Digits::default(), Digits::default(), Digits::default());
        let trace = message.trace.traceparent();
        let content_type = message.content_type.as_ref().map(|value| value.as_bytes());
        let content_type = content_type.or_else(|| sender.default_type()).unwrap_or(DEFAULT_TYPE);
        let mut headers = Vec::with_capacity(9 + sender.default_headers_count());
        let mut add = |key, value| headers.push(Header { key, value: Some(value) });
        add(header::DEVICE_ID, sender.id.as_bytes());
        add(header::ORIG_ADAPTER, ADAPTER.as_bytes());
        add(header::ORIG_ADDRESS, message.address.path().as_bytes());
        add(header::QOS, message.delivery.qos().as_bytes());
        add(header::CREATION_TIME, created.of(now_ms.unsigned_abs()));
        add(header::CONTENT_TYPE, content_type);
        add(header::TRACEPARENT, &trace);
        if let Some(seconds) = message.ttd_s {
            add(header::TTD, ttd.of(u64::from(seconds.min(sender.ttd_max_s(self.config.ttd_max_s)))));
        }
        if let Some(seconds) = sender.ttl_s(message) {
            add(header::TTL, ttl.of(seconds.saturating_mul(1_000)));
        }
        headers.extend(sender.default_headers());
        let (key, value) = (Some(sender.id.as_bytes()), Some(&message.payload[..]));
        append(Record { timestamp_ms: now_ms, key, value, headers: &headers })
    }
}

fn with_verdict(level: AckLevel) -> (AckLevel, Done<Appended>, Option<millstream_log::Reply<Appended>>) {
    let (done, verdict) = reply();
    (level, done, Some(verdict))
}

/// A number as text, on the stack.
#[derive(Default)]
struct Digits([u8; 20]);

impl Digits {
    fn of(&mut self, number: u64) -> &[u8] {
        let mut rest = &mut self.0[..];
        // Twenty digits hold every number of 64 bits.
        let _ = write!(rest, "{number}");
        let unused = rest.len();
        &self.0[..20 - unused]
    }
}

/// The device that a message is from, and what the registry says of it.
struct Sender<'a> {
    id: &'a str,
    device: &'a Device,
    tenant: &'a Tenant,
}

/// Whose message it is, if the caller may send it.
fn sender<'a>(known: &'a TenantState, target: Target<'a>, caller: &'a Caller) -> Result<Sender<'a>, Problem> {
    let id = match target {
        Target::Caller => caller.name.as_str(),
        Target::Named { tenant: Some(tenant), .. } if tenant != caller.tenant.as_str() => {
            return Err(other_tenant(tenant, &caller.tenant));
        }
        Target::Named { device, .. } => device,
    };
    let tenant = known.tenant.as_deref().map(|stored| &*stored.value);
    let tenant = tenant.filter(|tenant| tenant.allows(ADAPTER)).ok_or_else(|| adapter_disabled(&caller.tenant))?;
    let enabled = |id: &str| known.devices.get(id).map(|stored| &*stored.value).filter(|device| device.enabled);
    if id == caller.name || caller.name == UNAUTHENTICATED {
        let device = enabled(id).ok_or_else(|| unknown_device(id))?;
        return Ok(Sender { id, device, tenant });
    }
    let gateway = enabled(&caller.name).ok_or_else(|| gateway_disabled(&caller.name))?;
    let device = enabled(id).ok_or_else(|| unknown_device(id))?;
    if !device.is_behind(&caller.name, gateway) {
        return Err(not_behind(id, &caller.name));
    }
    Ok(Sender { id, device, tenant })
}

impl<'a> Sender<'a> {
    fn default_type(&self) -> Option<&'a [u8]> {
        let of_device = self.device.defaults.content_type();
        of_device.or_else(|| self.tenant.defaults.content_type()).map(str::as_bytes)
    }

    fn default_headers_count(&self) -> usize {
        self.device.defaults.headers().len() + self.tenant.defaults.headers().len()
    }

    /// The tenant's properties come in only where the device has none of that name.
    fn default_headers(&self) -> impl Iterator<Item = Header<'a>> {
        let of_device = self.device.defaults.headers();
        let is_free = move |(name, _): &&(String, String)| !of_device.iter().any(|(known, _)| known == name);
        let all = of_device.iter().chain(self.tenant.defaults.headers().iter().filter(is_free));
        all.map(|(key, value)| Header { key, value: Some(value.as_bytes()) })
    }

    /// The least of what the adapter and the tenant allow.
    fn ttd_max_s(&self, of_adapter: u32) -> u32 {
        let of_tenant = self.tenant.adapter(ADAPTER).and_then(|adapter| adapter.max_ttd_s());
        of_tenant.unwrap_or(of_adapter).min(of_adapter)
    }

    /// When the message is void: its own word, the device's or the tenant's, but never longer than the tenant may.
    fn ttl_s(&self, message: &Message) -> Option<u64> {
        let limits = &self.tenant.resource_limits;
        let limit = match message.delivery {
            Delivery::AtMostOnce => limits.unconfirmed_ttl_max_s(),
            Delivery::AtLeastOnce => limits.confirmed_ttl_max_s(),
            Delivery::Event => limits.event_ttl_max_s(),
        };
        let by_default = || self.device.defaults.ttl_s().or_else(|| self.tenant.defaults.ttl_s());
        let wanted = message.ttl_s.or_else(by_default);
        wanted.map_or(limit, |wanted| Some(limit.map_or(wanted, |limit| wanted.min(limit))))
    }
}
