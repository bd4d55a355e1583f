//! From a request to a record: checked against the registry, appended, answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use millstream_http::{Caller, Problem};
use millstream_log::{AckLevel, Appended, Done, reply};
use millstream_types::Principal;
use tokio::time::timeout;

use super::message::{Message, Said, What};
use super::wait::Waiting;
use super::{ADAPTER, Asked, HttpAdapter};
use crate::login::UNAUTHENTICATED;
use crate::meter::{Delivery, Fate, Meter, Waited};
use crate::outgoing::{Numbers, Outgoing, Reply};
use crate::refusal::{not_accepted_in_time, not_taken, unknown_tenant};
use crate::sender::{Origin, Sender, Target};
use crate::streams::TenantStreams;
use crate::usage::Moment;

fn origin(caller: &Principal) -> Origin<'_> {
    Origin { adapter: ADAPTER, tenant: &caller.tenant, device: &caller.name }
}

/// A message that the log has. It is counted when its sender is answered, or has left.
struct Accepted<'a> {
    meter: &'a Meter,
    delivery: Delivery,
    waited: Waited,
    payload_bytes: usize,
    took: Duration,
}

impl Drop for Accepted<'_> {
    fn drop(&mut self) {
        self.meter.count_waited(self.delivery, Fate::Forwarded, self.waited, self.payload_bytes, self.took);
    }
}

/// A message that was handed to its partition.
pub(super) struct Offered {
    /// What the log says of it, unless nothing was promised.
    pub(super) verdict: Option<millstream_log::Reply<Appended>>,
    /// Its device, if that waits for a command.
    waiting: Option<Waiting>,
}

impl HttpAdapter {
    /// Takes a message, counts it, and answers its sender; with a command if it waits for one.
    pub(super) async fn take(
        &self,
        what: What<'_>,
        target: Target<'_>,
        asked: Asked,
        request: Request,
    ) -> Result<Response, Problem> {
        let started = self.monotonic.now();
        let message = Message::read(what, asked.trace, request).await;
        let message = message.inspect_err(|_| self.count_unread())?;
        let (delivery, payload_bytes) = (message.delivery, message.payload.len());
        let sent = self.send(message, target, &asked.caller).await;
        let took = self.monotonic.now().saturating_sub(started);
        let (streams, waiting) = match sent {
            Ok(sent) => sent,
            Err(problem) => {
                self.count_refused(&asked.caller, &problem, delivery, payload_bytes, took);
                return Err(problem);
            }
        };
        self.totals.accept_latency.record(took);
        let mut accepted = Accepted { meter: &streams.meter, delivery, waited: Waited::No, payload_bytes, took };
        let Some(waiting) = waiting else { return Ok(StatusCode::ACCEPTED.into_response()) };
        accepted.waited = Waited::Expired;
        let delivered = waiting.command(&asked).await;
        let answer = delivered.and_then(|command| self.command_answer(command, &asked.caller.name, &streams.meter));
        let Some(answer) = answer else { return Ok(StatusCode::ACCEPTED.into_response()) };
        accepted.waited = Waited::Command;
        Ok(answer)
    }

    /// Counts a message that could not even be read.
    pub(super) fn count_unread(&self) {
        self.totals.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a message that was refused.
    pub(super) fn count_refused(
        &self,
        caller: &Principal,
        problem: &Problem,
        delivery: Delivery,
        payload_bytes: usize,
        took: Duration,
    ) {
        self.totals.rejected.fetch_add(1, Ordering::Relaxed);
        let is_ours = problem.status().is_server_error();
        let fate = if is_ours { Fate::Undeliverable } else { Fate::Unprocessable };
        self.meters.of(&caller.tenant).count(delivery, fate, payload_bytes, took);
    }

    async fn send(
        &self,
        message: Message,
        target: Target<'_>,
        caller: &Caller,
    ) -> Result<(Arc<TenantStreams>, Option<Waiting>), Problem> {
        let mut streams = match self.streams.known(&caller.tenant) {
            Some(known) => known,
            None => self.resolve(target, caller).await?,
        };
        let mut outcome = self.offer(message.said(), target, caller, &streams)?;
        if let Err(millstream_log::Error::UnknownTopic { .. }) = outcome {
            // Somebody has deleted the topic since it was resolved.
            self.streams.forget(&caller.tenant);
            streams = self.resolve(target, caller).await?;
            outcome = self.offer(message.said(), target, caller, &streams)?;
        }
        let Offered { verdict, waiting } = outcome.map_err(|error| not_taken(&error))?;
        if let Some(verdict) = verdict {
            self.judged(verdict).await?;
        }
        if let Some((correlation_id, status)) = &message.reply {
            let device = match target {
                Target::Caller => &*caller.name,
                Target::Named { device, .. } => device,
            };
            self.commands.responded(&caller.tenant, correlation_id, message.response(device, *status));
        }
        Ok((streams, waiting))
    }

    /// Waits until the log has said what it makes of a message.
    pub(super) async fn judged(&self, verdict: millstream_log::Reply<Appended>) -> Result<(), Problem> {
        let judged = timeout(self.patience(), verdict).await.map_err(|_| not_in_time(self.patience()))?;
        judged.map(drop).map_err(|error| not_taken(&error))
    }

    /// How long the log has for a message.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_millis(self.config.send_timeout_ms)
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

    /// Checks the message against the registry as it is now and hands it to its partition.
    pub(super) fn offer(
        &self,
        message: Said<'_>,
        target: Target<'_>,
        caller: &Principal,
        streams: &TenantStreams,
    ) -> Result<Result<Offered, millstream_log::Error>, Problem> {
        let snapshot = self.registry.snapshot(&caller.tenant);
        let known = snapshot.state.tenant(&caller.tenant).ok_or_else(|| unknown_tenant(&caller.tenant))?;
        let sender = Sender::find(known, target, origin(caller))?;
        sender.check_payload(message.payload.len())?;
        sender.check_default_type(message.content_type, message.payload)?;
        let (level, done, verdict) = match message.delivery {
            Delivery::AtMostOnce => (AckLevel::Memory, Done::ignore(), None),
            Delivery::AtLeastOnce | Delivery::UnconfirmedResponse | Delivery::Response => {
                with_verdict(AckLevel::Written)
            }
            Delivery::Event => with_verdict(AckLevel::Synced),
        };
        let partition = streams.partition(message.delivery.stream(), sender.id);
        sender.check_consumer(message.delivery, &**partition)?;
        let ttd_s = message.ttd_s.map(|seconds| seconds.min(sender.ttd_max_s(self.config.ttd_max_s)));
        let ttl_s = sender.ttl_s(message.delivery, message.ttl_s);
        let wall_ms = self.wall.now_ms();
        let numbers = Numbers::at(wall_ms).with_times(ttd_s, ttl_s);
        let trace = known.sampling(&caller.name).of_request(message.trace).traceparent();
        let status = message.reply.map(|(_, status)| status.to_string()).unwrap_or_default();
        let reply = message.reply.map(|(correlation_id, _)| Reply {
            tenant: caller.tenant.as_str(),
            correlation_id,
            status: &status,
        });
        let outgoing = Outgoing {
            adapter: ADAPTER,
            delivery: message.delivery,
            address: message.address,
            content_type: message.content_type,
            content_encoding: message.content_encoding,
            traceparent: Some(&trace),
            is_retained: false,
            payload: message.payload,
            reply,
        };
        // In place before anybody can see the message and react to it.
        let waiting = ttd_s.map(|ttd_s| Waiting::of(&self.commands, known, caller, sender.id, ttd_s));
        let now = Moment { wall_ms, monotonic: self.monotonic.now() };
        let admission = streams.usage.admit(&sender, sender.amount([message.payload.len()]), now)?;
        let headers = outgoing.headers(&sender, &numbers);
        let record = outgoing.record(&sender, &numbers, &headers);
        let appended = partition.append(&[record], level, done);
        if appended.is_ok() {
            admission.keep();
            if sender.id != caller.name && caller.name != UNAUTHENTICATED {
                self.commands.seen_behind(&caller.tenant, sender.id, &caller.name);
            }
        }
        Ok(appended.map(|()| Offered { verdict, waiting }))
    }
}

pub(super) fn not_in_time(patience: Duration) -> Problem {
    not_accepted_in_time("connect.http.send_timeout_ms", patience)
}

fn with_verdict(level: AckLevel) -> (AckLevel, Done<Appended>, Option<millstream_log::Reply<Appended>>) {
    let (done, verdict) = reply();
    (level, done, Some(verdict))
}
