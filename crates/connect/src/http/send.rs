//! The handler of the device routes: has the message of a request admitted and appended, and answers its sender.
//!
//! A message that can be answered at once, or waits for the log's reply only, is never copied. Others are kept in a
//! future: the first of a tenant, whose topics may have to be created; answers to commands; a device that waits for one.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use millstream_http::{Answer, MoreTime, Problem, Request, Unread};
use millstream_log::Appended;
use millstream_types::Principal;

use super::HttpAdapter;
use super::message::HttpMessage;
use super::sending::{Figures, Sending};
use super::wait::Waiting;
use crate::commands;
use crate::ingest::level_of;
use crate::metrics::{ProcessingOutcome, TenantMetrics, TtdStatus};
use crate::sender::DeviceAddress;
use crate::stream::Stream;
use crate::streams::TenantStreams;
use crate::uplink::Unsent;

/// The form in which the path of a route names the device.
#[derive(Debug, Clone, Copy)]
pub(super) enum PathForm {
    /// The path names none: it is the caller.
    Own,
    /// `{device}`, of the caller's tenant.
    Device,
    /// `{tenant}/{device}`.
    TenantAndDevice,
}

/// Tenant and device as a path names them.
#[derive(Debug)]
struct NamedDevice<'a> {
    tenant: Option<Cow<'a, str>>,
    device: Option<Cow<'a, str>>,
}

impl<'a> NamedDevice<'a> {
    fn read(form: PathForm, request: &Request<'a>) -> Result<Self, Problem> {
        let (tenant, device) = match form {
            PathForm::Own => (None, None),
            PathForm::Device => (None, Some(request.param(0)?)),
            PathForm::TenantAndDevice => (Some(request.param(0)?), Some(request.param(1)?)),
        };
        Ok(Self { tenant, device })
    }

    fn target(&self) -> DeviceAddress<'_> {
        match &self.device {
            None => DeviceAddress::Caller,
            Some(device) => DeviceAddress::Named { tenant: self.tenant.as_deref(), device },
        }
    }

    fn into_owned(self) -> NamedDevice<'static> {
        let owned = |name: Option<Cow<'_, str>>| name.map(|name| Cow::Owned(name.into_owned()));
        NamedDevice { tenant: owned(self.tenant), device: owned(self.device) }
    }
}

/// An appended message whose sender waits for a command. It is counted when the sender is answered or has left.
struct Accepted<'a> {
    meter: &'a TenantMetrics,
    waited: TtdStatus,
    figures: Figures,
    took: Duration,
}

impl Drop for Accepted<'_> {
    fn drop(&mut self) {
        let Figures { delivery, payload_bytes, .. } = self.figures;
        self.meter.count_waited(delivery, ProcessingOutcome::Forwarded, self.waited, payload_bytes, self.took);
    }
}

/// A message that was handed to its partition.
struct Offered {
    /// The log's reply; `None` for messages at most once.
    verdict: Option<millstream_log::Reply<Appended>>,
    /// The device's wait for a command.
    waiting: Option<Waiting>,
}

/// An answer to a command that is to be passed on once the log has it.
struct CommandReply {
    correlation_id: String,
    response: commands::Response,
}

impl HttpAdapter {
    /// Takes a message, counts it and answers its sender, with a command if the sender waits for one.
    pub(super) fn take(self: &Arc<Self>, stream: Stream, form: PathForm, request: &Request<'_>) -> Answer {
        let started = self.uplink.monotonic.now().saturating_sub(request.body_wait());
        match self.try_take(stream, form, request, started) {
            Ok(answer) => answer,
            Err(unread) => unread.into(),
        }
    }

    fn try_take(
        self: &Arc<Self>,
        stream: Stream,
        form: PathForm,
        request: &Request<'_>,
        started: Duration,
    ) -> Result<Answer, Unread> {
        let caller = request.caller()?;
        let named = NamedDevice::read(form, request)?;
        let request_id = match (stream, form) {
            (Stream::Telemetry | Stream::Event, _) => None,
            (Stream::CommandResponse, PathForm::Own) => Some(request.param(0)?),
            (Stream::CommandResponse, PathForm::Device) => Some(request.param(1)?),
            (Stream::CommandResponse, PathForm::TenantAndDevice) => Some(request.param(2)?),
        };
        let message = HttpMessage::read(stream, request_id.as_deref(), request).inspect_err(|unread| {
            if let Unread::Refused(_) = unread {
                self.uplink.ingest.totals.rejected.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        let figures = Figures { delivery: message.delivery, payload_bytes: message.payload.len(), started };
        if let Some(streams) = self.uplink.streams.known(&caller.tenant) {
            match self.offer(&message, named.target(), caller, &streams) {
                Err(Unsent::TopicGone(_)) => {}
                Ok(Offered { verdict: None, waiting: None }) => {
                    return Ok(self.accepted(&streams, figures).into());
                }
                Ok(Offered { verdict: Some(verdict), waiting: None }) if message.reply.is_none() => {
                    let due = request.started().checked_add(self.uplink.patience.limit);
                    let (adapter, caller) = (self.clone(), caller.clone());
                    return Ok(Answer::Later(Box::pin(Sending { verdict, adapter, streams, caller, figures, due })));
                }
                Ok(offered) => {
                    let payload = if message.reply.is_some() { request.body_to_keep()? } else { Bytes::new() };
                    let reply = command_reply(&message, named.target(), caller, payload);
                    let (adapter, caller, more_time) = (self.clone(), caller.clone(), request.more_time());
                    return Ok(Answer::later(async move {
                        adapter.finish(Ok((streams, offered)), reply, &caller, &more_time, figures).await
                    }));
                }
                // A gateway registers the device by its message.
                Err(Unsent::Refused(_)) if self.uplink.ingest.to_provision(named.target(), caller).is_some() => {}
                Err(Unsent::Refused(problem)) => return Ok(self.refused(caller, problem, figures).into()),
            }
        }
        let (message, named) = (message.to_owned(request.body_to_keep()?), named.into_owned());
        let (adapter, caller, more_time) = (self.clone(), caller.clone(), request.more_time());
        Ok(Answer::later(async move {
            let target = named.target();
            let offer = |streams: &_| adapter.offer(&message, target, &caller, streams);
            let offered = adapter.uplink.resolve_and_offer(target, &caller, offer).await;
            let reply = command_reply(&message, target, &caller, message.payload.clone());
            adapter.finish(offered, reply, &caller, &more_time, figures).await
        }))
    }

    /// Counts a message that the log has, and answers its sender.
    pub(super) fn accepted(&self, streams: &TenantStreams, figures: Figures) -> Response {
        let Figures { delivery, payload_bytes, started } = figures;
        let took = self.uplink.monotonic.now().saturating_sub(started);
        self.uplink.ingest.count_accepted(&streams.meter, delivery, payload_bytes, took);
        StatusCode::ACCEPTED.into_response()
    }

    /// Counts a message that is refused, and answers its sender.
    pub(super) fn refused(&self, caller: &Principal, problem: Problem, figures: Figures) -> Response {
        let Figures { delivery, payload_bytes, started } = figures;
        let took = self.uplink.monotonic.now().saturating_sub(started);
        self.uplink.ingest.count_refused(
            &self.uplink.meters.of(&caller.tenant),
            delivery,
            &problem,
            payload_bytes,
            took,
        );
        problem.into_response()
    }

    /// Waits for the log's reply to a message, passes an answer to a
    /// command on, and waits for a command if the sender wants one.
    async fn finish(
        &self,
        offered: Result<(Arc<TenantStreams>, Offered), Problem>,
        reply: Option<CommandReply>,
        caller: &Principal,
        more_time: &MoreTime,
        figures: Figures,
    ) -> Response {
        let judged = match offered {
            Ok((streams, Offered { verdict: None, waiting })) => Ok((streams, waiting)),
            Ok((streams, Offered { verdict: Some(verdict), waiting })) => {
                self.uplink.judged(verdict).await.map(|()| (streams, waiting))
            }
            Err(problem) => Err(problem),
        };
        let (streams, waiting) = match judged {
            Ok(judged) => judged,
            Err(problem) => return self.refused(caller, problem, figures),
        };
        if let Some(CommandReply { correlation_id, response }) = reply {
            self.uplink.commands.responded(&caller.tenant, &correlation_id, response);
        }
        let Some(waiting) = waiting else { return self.accepted(&streams, figures) };
        let took = self.uplink.monotonic.now().saturating_sub(figures.started);
        self.uplink.ingest.totals.accept_latency.record(took);
        let mut accepted = Accepted { meter: &streams.meter, waited: TtdStatus::Expired, figures, took };
        let delivered = waiting.command(more_time).await;
        let answer = delivered.and_then(|command| self.command_answer(command, &caller.name, &streams.meter));
        let Some(answer) = answer else { return StatusCode::ACCEPTED.into_response() };
        accepted.waited = TtdStatus::Command;
        answer
    }

    /// Has the message admitted and hands it to its partition.
    fn offer<B: AsRef<[u8]>, S: AsRef<str>>(
        &self,
        message: &HttpMessage<B, S>,
        target: DeviceAddress<'_>,
        caller: &Principal,
        streams: &TenantStreams,
    ) -> Result<Offered, Unsent> {
        let mut digits = itoa::Buffer::new();
        let reply = message.reply.as_ref().map(|(request_id, status)| (request_id, digits.format(*status)));
        let envelope = message.envelope(caller, target, reply);
        self.uplink.offer(&envelope, std::slice::from_ref(message), streams, self.uplink.moment(), |admitted| {
            // The wait is registered before an application can see the message and react to it.
            let wait = |ttd_s| Waiting::of(&self.uplink.commands, admitted.tenant, caller, admitted.device, ttd_s);
            let waiting = admitted.ttd_s.map(wait);
            Ok(Offered { verdict: admitted.append(level_of(message.delivery))?, waiting })
        })
    }
}

/// The answer to a command in `message`, if it is one; `payload` holds the message's bytes.
fn command_reply<B: AsRef<[u8]>, S: AsRef<str>>(
    message: &HttpMessage<B, S>,
    target: DeviceAddress<'_>,
    caller: &Principal,
    payload: Bytes,
) -> Option<CommandReply> {
    let (request_id, status) = message.reply.as_ref()?;
    let device = match target {
        DeviceAddress::Caller => &*caller.name,
        DeviceAddress::Named { device, .. } => device,
    };
    let response = message.response(device, *status, payload);
    Some(CommandReply { correlation_id: request_id.correlation_id.clone(), response })
}
