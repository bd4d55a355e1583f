//! From a request to a record: checked against the registry, appended, answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use millstream_http::{Caller, Problem, TraceContext};
use millstream_log::{AckLevel, Appended, Done, reply};
use tokio::time::timeout;

use super::message::Message;
use super::{ADAPTER, HttpAdapter};
use crate::meter::{Delivery, Fate};
use crate::outgoing::{Numbers, Outgoing};
use crate::refusal::{not_accepted_in_time, not_taken, unknown_tenant};
use crate::sender::{Origin, Sender, Target};
use crate::streams::{Stream, TenantStreams};
use crate::usage::Moment;

fn origin(caller: &Caller) -> Origin<'_> {
    Origin { adapter: ADAPTER, tenant: &caller.tenant, device: &caller.name }
}

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
                    Err(_) => Err(not_accepted_in_time("connect.http.send_timeout_ms", patience)),
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
            Sender::find(known, target, origin(caller))?;
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
        let sender = Sender::find(known, target, origin(caller))?;
        sender.check_payload(message.payload.len())?;
        let (level, done, verdict) = match message.delivery {
            Delivery::AtMostOnce => (AckLevel::Memory, Done::ignore(), None),
            Delivery::AtLeastOnce => with_verdict(AckLevel::Written),
            Delivery::Event => with_verdict(AckLevel::Synced),
        };
        let partition = streams.partition(message.delivery.stream(), sender.id);
        let ttd_s = message.ttd_s.map(|seconds| seconds.min(sender.ttd_max_s(self.config.ttd_max_s)));
        let ttl_s = sender.ttl_s(message.delivery, message.ttl_s);
        let wall_ms = self.wall.now_ms();
        let numbers = Numbers::at(wall_ms).with_times(ttd_s, ttl_s);
        let trace = message.trace.traceparent();
        let outgoing = Outgoing {
            adapter: ADAPTER,
            delivery: message.delivery,
            address: message.address.path(),
            content_type: message.content_type.as_ref().map(|value| value.as_bytes()),
            traceparent: Some(&trace),
            is_retained: false,
            payload: &message.payload,
        };
        let now = Moment { wall_ms, monotonic: self.monotonic.now() };
        let admission = streams.usage.admit(&sender, sender.amount([message.payload.len()]), now)?;
        let mut headers = Vec::with_capacity(Outgoing::headers_max(&sender));
        outgoing.headers(&sender, &numbers, &mut headers);
        let record = outgoing.record(&sender, &numbers, &headers);
        let appended = partition.append(&[record], level, done);
        if appended.is_ok() {
            admission.keep();
        }
        Ok(appended.map(|()| verdict))
    }
}

fn with_verdict(level: AckLevel) -> (AckLevel, Done<Appended>, Option<millstream_log::Reply<Appended>>) {
    let (done, verdict) = reply();
    (level, done, Some(verdict))
}
