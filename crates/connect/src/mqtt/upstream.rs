//! Messages on Hono's topics: from the packets of one read to appends, one for each run of messages of one device.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::StatusCode;
use millstream_http::{Problem, Reason};
use millstream_log::AckLevel;
use millstream_mqtt::encode::{ack, publish, publish_size};
use millstream_mqtt::{AckKind, Outgoing as OutgoingPacket, Qos, Version, reason};

use super::client::Client;
use super::disconnect::DisconnectCause;
use super::incoming::IncomingPublish;
use super::pending::Waits;
use super::publish::{PublishContext, Sent, split};
use super::session_store::StoreReply;
use super::topic::{OnError, TopicKind};
use crate::commands::RequestId;
use crate::ingest::{AdmittedRun, fits_apart};
use crate::outgoing::status_of_reply;
use crate::refusal::{bad_reply_status, bad_request_id};
use crate::sender::DeviceAddress;
use crate::stream::{Delivery, Stream};
use crate::topic_filter::is_reserved;

impl Client {
    /// Sends messages in their order, run by run.
    pub(super) fn send(&mut self, items: &[IncomingPublish<'_>], out: &mut Vec<u8>) -> Result<(), DisconnectCause> {
        let is_private = |item: &IncomingPublish<'_>| !is_reserved(item.topic.as_str());
        let same = |a: &IncomingPublish<'_>, b: &IncomingPublish<'_>| {
            a.topic.as_str() == b.topic.as_str() && a.publish.qos == b.publish.qos
        };
        let alike = |a: &IncomingPublish<'_>, b: &IncomingPublish<'_>| (is_private(a) && is_private(b)) || same(a, b);
        items.chunk_by(alike).try_for_each(|run| match run.first() {
            Some(first) if is_private(first) => self.publish_to_broker(run, out),
            _ => self.send_run(run, out),
        })
    }

    /// Sends messages of one topic and quality.
    fn send_run(&mut self, run: &[IncomingPublish<'_>], out: &mut Vec<u8>) -> Result<(), DisconnectCause> {
        let Some(first) = run.first() else { return Ok(()) };
        let known = Arc::clone(self.uplink.who());
        let who = &*known;
        let place = TopicKind::of(first.topic.as_str());
        if self.login.is_none() {
            self.check_anonymous(&place)?;
        }
        let (stream, target, address, bag) = match place {
            TopicKind::Stream { stream, target, address, bag } => (stream, target, address, bag),
            TopicKind::Reply { request_id, status, target, address, bag } => {
                let delivery = match first.publish.qos {
                    Qos::AtMostOnce => Delivery::UnconfirmedResponse,
                    Qos::AtLeastOnce => Delivery::Response,
                    Qos::ExactlyOnce => return Err(no_such_qos(address)),
                };
                let target = match target {
                    DeviceAddress::Named { device: "", .. } if self.login.is_none() => {
                        let why = format!("topic '{address}': a client without login names its device");
                        return Err(DisconnectCause::refused(reason::BAD_TOPIC, why));
                    }
                    // The spelling of c/TENANT//q/#.
                    DeviceAddress::Named { tenant, device: "" } => {
                        DeviceAddress::Named { tenant, device: who.name.as_str() }
                    }
                    named => named,
                };
                let context = PublishContext::new(who, delivery, target, address, &bag);
                return self.send_replies(run, context, request_id, status, out);
            }
            TopicKind::Wrong(rule) => {
                let why = format!("topic '{}': {rule}", first.topic.as_str());
                return Err(DisconnectCause::refused(reason::BAD_TOPIC, why));
            }
            TopicKind::Broker => {
                return Err(DisconnectCause::Protocol("a private topic among the reserved ones"));
            }
        };
        let delivery = match (stream, first.publish.qos) {
            (_, Qos::ExactlyOnce) => return Err(no_such_qos(address)),
            (Stream::Telemetry, Qos::AtMostOnce) => Delivery::AtMostOnce,
            (Stream::Telemetry, Qos::AtLeastOnce) => Delivery::AtLeastOnce,
            (_, Qos::AtLeastOnce) => Delivery::Event,
            (_, Qos::AtMostOnce) => {
                let problem = || {
                    Problem::invalid("events are not sent at quality of service 0")
                        .value(address)
                        .rule("events are sent at least once")
                        .remedy("publish them at quality of service 1")
                };
                let context = PublishContext::new(who, Delivery::Event, target, address, &bag);
                return run.iter().try_for_each(|item| self.refuse(&context.sent(item), &problem(), out));
            }
        };
        let context = PublishContext::new(who, delivery, target, address, &bag);
        let mut rest = run;
        // A message that does not fit its type is refused by itself, and the messages around it are sent.
        while let Some((good, problem)) = split(rest, &context) {
            self.append(&rest[..good], &context, out)?;
            self.refuse(&context.sent(&rest[good]), &problem, out)?;
            rest = &rest[good + 1..];
        }
        self.append(rest, &context, out)
    }

    /// Sends answers to one command, one by one, so that repeats are told apart.
    fn send_replies<'a>(
        &mut self,
        run: &[IncomingPublish<'a>],
        mut context: PublishContext<'a>,
        request_id: &str,
        status: &'a str,
        out: &mut Vec<u8>,
    ) -> Result<(), DisconnectCause> {
        let judged = match status_of_reply(status) {
            Some(number) => {
                RequestId::parse(request_id).ok_or_else(|| bad_request_id(request_id)).map(|id| (id, number))
            }
            None => Err(bad_reply_status("the topic's last level", status)),
        };
        match judged {
            Ok((id, number)) => context.reply = Some((id, status, number)),
            Err(problem) => return run.iter().try_for_each(|item| self.refuse(&context.sent(item), &problem, out)),
        }
        run.chunks(1).try_for_each(|answer| self.append(answer, &context, out))
    }

    /// Appends messages of one device, all or none.
    fn append(
        &mut self,
        run: &[IncomingPublish<'_>],
        context: &PublishContext<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), DisconnectCause> {
        if run.is_empty() {
            return Ok(());
        }
        if let Some(large) = run.iter().find(|item| item.size_bytes() > self.adapter.config.payload_max_bytes) {
            let limit = self.adapter.config.payload_max_bytes;
            let why = format!(
                "payload and user properties of {} bytes; connect.mqtt.payload_max_bytes = {limit}",
                large.size_bytes()
            );
            return Err(DisconnectCause::refused(reason::TOO_LARGE, why));
        }
        match self.offer(run, context) {
            Ok(verdict) => {
                match verdict {
                    Some(verdict) => {
                        let sent = run.iter().map(|item| context.sent(item)).collect();
                        self.uplink.pend(verdict, Waits::Upstream(sent));
                    }
                    None => run.iter().for_each(|item| {
                        self.uplink.accepted(context.delivery, item.publish.payload.len(), Duration::ZERO, None)
                    }),
                }
                Ok(())
            }
            // Each message is offered by itself, so that those that fit are taken.
            Err(problem) if fits_apart(run, &problem) => {
                run.chunks(1).try_for_each(|one| self.append(one, context, out))
            }
            Err(problem) => run.iter().try_for_each(|item| self.refuse(&context.sent(item), &problem, out)),
        }
    }

    fn offer(
        &mut self,
        run: &[IncomingPublish<'_>],
        context: &PublishContext<'_>,
    ) -> Result<Option<StoreReply>, Problem> {
        let answer = self.offer_with(run, context, |admitted| admitted.append(context.level))?;
        Ok(answer.map(StoreReply::Log))
    }

    /// Has `take` append messages of one device, if they are admitted.
    pub(super) fn offer_with<R>(
        &mut self,
        run: &[IncomingPublish<'_>],
        context: &PublishContext<'_>,
        take: impl FnOnce(&AdmittedRun<'_>) -> Result<R, millstream_log::Error>,
    ) -> Result<R, Problem> {
        self.uplink.offer(&context.envelope(), run, context.level != AckLevel::Memory, take)
    }

    /// Counts messages that the log has and passes responses to the waiting callers of commands.
    pub(super) fn accepted(&self, sent: impl IntoIterator<Item = Sent>, took: Duration) {
        for sent in sent {
            self.uplink.accepted(sent.delivery, sent.payload_bytes, took, sent.reply.map(|reply| *reply));
        }
    }

    /// Counts messages of the private space that are not taken.
    pub(super) fn count_rejected(&self, messages: usize) {
        self.adapter.uplink.ingest.totals.rejected.fetch_add(messages as u64, Ordering::Relaxed);
    }

    /// Counts messages of the private space that the log has.
    pub(super) fn count_accepted(&self, messages: usize, took: Duration) {
        (0..messages).for_each(|_| self.adapter.uplink.ingest.totals.accept_latency.record(took));
    }

    /// Deals with a message that is not taken, as its sender wants it dealt with.
    pub(super) fn refuse(&mut self, sent: &Sent, problem: &Problem, out: &mut Vec<u8>) -> Result<(), DisconnectCause> {
        self.uplink.refused(sent.delivery, sent.payload_bytes, problem);
        let fault = || DisconnectCause::refused(reason_of(problem), problem.text());
        // A device that may no longer connect is disconnected, whatever its on-error property says.
        if let Err(terminal) = self.adapter.check(self.uplink.who()) {
            return Err(DisconnectCause::refused(reason::NOT_AUTHORISED, terminal.text()));
        }
        let is_told = self.tell(sent, problem, out);
        let code = reason_of(problem);
        let is_acknowledged = match sent.on_error {
            OnError::Disconnect => return Err(fault()),
            OnError::Default if !is_told && self.has_negative_ack(sent, code) => {
                ack(out, self.version, AckKind::PubAck, sent.id, code);
                return Ok(());
            }
            OnError::Default if !is_told => return Err(fault()),
            OnError::Default | OnError::Ignore => sent.id != 0,
            OnError::SkipAck => false,
        };
        if is_acknowledged {
            ack(out, self.version, AckKind::PubAck, sent.id, reason::SUCCESS);
        }
        Ok(())
    }

    /// True if PUBACK can say that a message is refused. It can for a device behind a gateway, so that the gateway's
    /// other devices keep the connection.
    fn has_negative_ack(&self, sent: &Sent, code: u8) -> bool {
        let is_of_another = sent.device.as_deref().is_some_and(|device| *device != *self.uplink.who().name);
        let is_possible = self.version == Version::V5 && sent.id != 0 && is_in_acknowledgements(code);
        is_possible && self.login.is_some() && is_of_another
    }

    /// Sends the error to a client that listens on the error topic and takes as large a packet; true if it was sent.
    fn tell(&self, sent: &Sent, problem: &Problem, out: &mut Vec<u8>) -> bool {
        let own = &self.uplink.who().name;
        let device = sent.device.as_deref().unwrap_or(own);
        let Some(filter) =
            self.errors.iter().find(|filter| filter.is_about(self.uplink.tenant().as_str(), device, own))
        else {
            return false;
        };
        let endpoint = match sent.delivery {
            Delivery::AtMostOnce | Delivery::AtLeastOnce => "telemetry",
            Delivery::Event => "event",
            Delivery::UnconfirmedResponse | Delivery::Response => "command-response",
        };
        let correlation = sent
            .correlation_id
            .as_deref()
            .map_or_else(|| if sent.id == 0 { "-1".to_owned() } else { sent.id.to_string() }, str::to_owned);
        let status = problem.status().as_u16();
        let topic = filter.topic(device, endpoint, &correlation.replace(['/', '+', '#', '\0'], "_"), status);
        let body = serde_json::json!({
            "code": status,
            "message": problem.text(),
            "timestamp": millstream_types::iso_time(self.adapter.uplink.wall.now_ms()),
            "correlation-id": correlation,
        });
        let payload = body.to_string();
        let told = OutgoingPacket {
            dup: false,
            retain: false,
            qos: Qos::AtMostOnce,
            id: 0,
            topic: &topic,
            alias: 0,
            expiry_s: None,
            subscription_ids: &[],
            properties: &[],
            payload: payload.as_bytes(),
        };
        if publish_size(self.version, &told) > self.takes.packet_max_bytes {
            return false;
        }
        publish(out, self.version, &told);
        true
    }
}

fn no_such_qos(address: &str) -> DisconnectCause {
    DisconnectCause::refused(
        reason::QOS,
        format!("topic '{address}' takes quality of service 0 or 1, events 1 only; got 2"),
    )
}

/// True if PUBACK and PUBREC have a reason code that DISCONNECT has as well (MQTT 5, section 2.4).
pub(super) fn is_in_acknowledgements(code: u8) -> bool {
    !matches!(code, reason::TOO_LARGE | reason::BUSY)
}

/// The reason code of a refusal, for DISCONNECT or an acknowledgement.
pub(super) fn reason_of(problem: &Problem) -> u8 {
    match problem.status() {
        // "Busy" would ask the client to send it again.
        _ if problem.reason() == Reason::NobodyWaits => reason::IMPLEMENTATION,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => reason::NOT_AUTHORISED,
        StatusCode::PAYLOAD_TOO_LARGE => reason::TOO_LARGE,
        StatusCode::TOO_MANY_REQUESTS => reason::QUOTA,
        status if status.is_server_error() => reason::BUSY,
        _ => reason::IMPLEMENTATION,
    }
}
