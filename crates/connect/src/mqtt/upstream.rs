//! Messages on Hono's topics: from the packets of one read to appends, one for each run of messages of one device.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::StatusCode;
use millstream_http::Problem;
use millstream_log::{AckLevel, Partition};
use millstream_types::Record;

use super::client::{Client, Topic};
use super::encode::{AckKind, Outgoing as OutgoingPacket, ack, publish, publish_size};
use super::fault::{Fault, reason};
use super::kept::Verdict;
use super::packet::{Publish, Qos};
use super::pending::Waits;
use super::topic::{OnError, Place};
use super::way::{Ground, Way, split};
use crate::commands::{Response, correlation_of};
use crate::meter::{Delivery, Fate};
use crate::outgoing::status_of_reply;
use crate::refusal::{bad_reply_status, bad_request_id, not_taken, unknown_tenant};
use crate::streams::Stream;
use crate::topic_filter::is_reserved;
use crate::usage::Moment;

/// A message, read and not yet sent.
#[derive(Clone)]
pub(super) struct Item<'a> {
    pub(super) topic: Topic<'a>,
    pub(super) publish: Publish<'a>,
}

impl<'a> Item<'a> {
    /// The media type that it says in a property.
    pub(super) fn content_type(&self) -> Option<&'a str> {
        self.publish.properties.content_type.filter(|value| !value.is_empty())
    }
}

/// A message whose fate its device may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    /// 0 at most once.
    pub(super) id: u16,
    pub(super) delivery: Delivery,
    pub(super) payload_bytes: usize,
    pub(super) on_error: OnError,
    pub(super) correlation_id: Option<Box<str>>,
    /// The device that it was sent for, if not for the one that has logged in.
    pub(super) device: Option<Box<str>>,
    /// What it answers, and how, if it answers a command.
    pub(super) reply: Option<Box<(String, Response)>>,
}

impl Client {
    /// Sends messages, in order.
    pub(super) fn send(&mut self, items: &[Item<'_>], out: &mut Vec<u8>) -> Result<(), Fault> {
        let is_private = |item: &Item<'_>| !is_reserved(item.topic.as_str());
        let same = |a: &Item<'_>, b: &Item<'_>| a.topic.as_str() == b.topic.as_str() && a.publish.qos == b.publish.qos;
        let alike = |a: &Item<'_>, b: &Item<'_>| (is_private(a) && is_private(b)) || same(a, b);
        items.chunk_by(alike).try_for_each(|run| match run.first() {
            Some(first) if is_private(first) => self.publish_private(run, out),
            _ => self.send_run(run, out),
        })
    }

    /// Sends messages of one topic and quality.
    fn send_run(&mut self, run: &[Item<'_>], out: &mut Vec<u8>) -> Result<(), Fault> {
        let Some(first) = run.first() else { return Ok(()) };
        let known = Arc::clone(&self.who);
        let who = &*known;
        let place = Place::of(first.topic.as_str());
        if self.login.is_none() {
            self.check_stranger(&place)?;
        }
        let (stream, target, address, bag) = match place {
            Place::Stream { stream, target, address, bag } => (stream, target, address, bag),
            Place::Reply { request_id, status, target, address, bag } => {
                let delivery = match first.publish.qos {
                    Qos::AtMostOnce => Delivery::UnconfirmedResponse,
                    Qos::AtLeastOnce => Delivery::Response,
                    Qos::ExactlyOnce => return Err(no_such_qos(address)),
                };
                let way = Way::new(who, delivery, target, address, &bag);
                return self.send_replies(run, way, (request_id, status), out);
            }
            Place::Wrong(rule) => {
                let why = format!("topic '{}': {rule}", first.topic.as_str());
                return Err(Fault::refused(reason::BAD_TOPIC, why));
            }
            Place::Private => return Err(Fault::Protocol("a private topic among the reserved ones")),
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
                let way = Way::new(who, Delivery::Event, target, address, &bag);
                return run.iter().try_for_each(|item| self.refuse(&way.sent(item), &problem(), out));
            }
        };
        let way = Way::new(who, delivery, target, address, &bag);
        let mut rest = run;
        // What does not fit its type is refused by itself, and what stands around it is sent.
        while let Some((good, problem)) = split(rest, &way) {
            self.append(&rest[..good], &way, out)?;
            self.refuse(&way.sent(&rest[good]), &problem, out)?;
            rest = &rest[good + 1..];
        }
        self.append(rest, &way, out)
    }

    /// Sends answers to one command.
    fn send_replies<'a>(
        &mut self,
        run: &[Item<'a>],
        mut way: Way<'a>,
        (request_id, status): (&str, &'a str),
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let judged = match status_of_reply(status) {
            Some(number) => correlation_of(request_id).ok_or_else(|| bad_request_id(request_id)).map(|id| (id, number)),
            None => Err(bad_reply_status("the topic's last level", status)),
        };
        match judged {
            Ok((correlation_id, number)) => way.reply = Some((correlation_id, status, number)),
            Err(problem) => return run.iter().try_for_each(|item| self.refuse(&way.sent(item), &problem, out)),
        }
        self.append(run, &way, out)
    }

    /// Appends messages of one device, all or none.
    fn append(&mut self, run: &[Item<'_>], way: &Way<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        if run.is_empty() {
            return Ok(());
        }
        if let Some(large) = run.iter().find(|item| item.publish.payload.len() > self.adapter.config.payload_max_bytes)
        {
            let limit = self.adapter.config.payload_max_bytes;
            let why =
                format!("a payload of {} bytes; connect.mqtt.payload_max_bytes = {limit}", large.publish.payload.len());
            return Err(Fault::refused(reason::TOO_LARGE, why));
        }
        match self.offer(run, way) {
            Ok(verdict) => {
                match verdict {
                    Some(verdict) => {
                        let sent = run.iter().map(|item| way.sent(item)).collect();
                        self.pend(verdict, Waits::Upstream(sent));
                    }
                    None => {
                        run.iter().for_each(|item| self.count(way.delivery, item.publish.payload.len(), Duration::ZERO))
                    }
                }
                Ok(())
            }
            // What fits is taken, to the last message.
            Err(problem) if run.len() > 1 && problem.status().is_client_error() => {
                run.chunks(1).try_for_each(|one| self.append(one, way, out))
            }
            Err(problem) => run.iter().try_for_each(|item| self.refuse(&way.sent(item), &problem, out)),
        }
    }

    fn offer(&mut self, run: &[Item<'_>], way: &Way<'_>) -> Result<Option<Verdict>, Problem> {
        let answer = self.offer_with(run, way, |partition, records| way.append(partition, records))?;
        Ok(answer.map(Verdict::Log))
    }

    /// Has `take` append messages of one device, if they may be sent.
    pub(super) fn offer_with<R>(
        &mut self,
        run: &[Item<'_>],
        way: &Way<'_>,
        take: impl FnOnce(&Arc<dyn Partition>, &[Record<'_>]) -> Result<R, millstream_log::Error>,
    ) -> Result<R, Problem> {
        let tenant = &self.who.tenant;
        let snapshot = self.adapter.registry.snapshot(tenant);
        let known = snapshot.state.tenant(tenant).ok_or_else(|| unknown_tenant(tenant))?;
        let streams = self.streams.as_ref().ok_or_else(|| unknown_tenant(tenant))?;
        let now = Moment { wall_ms: self.adapter.wall.now_ms(), monotonic: self.now };
        let taken = way.admitted(run, &Ground { known, streams, now }, take)?;
        self.sends_unwaited = way.level == AckLevel::Memory;
        match taken {
            Ok(taken) => {
                let own = self.who.name.as_str();
                if let Some(device) = way.device().filter(|device| *device != own && self.login.is_some()) {
                    self.adapter.commands.seen_behind(tenant, device, own);
                }
                Ok(taken)
            }
            Err(error) => {
                if let millstream_log::Error::UnknownTopic { .. } = error {
                    self.forget_streams();
                }
                Err(not_taken(&error))
            }
        }
    }

    /// Somebody has deleted one of the tenant's topics since they were resolved.
    pub(super) fn forget_streams(&mut self) {
        self.adapter.streams.forget(&self.who.tenant);
        self.are_streams_stale = true;
    }

    /// Counts messages that the log has, and hands answers to commands to whoever waits for them.
    pub(super) fn accepted(&self, sent: impl IntoIterator<Item = Sent>, took: Duration) {
        for sent in sent {
            if let Some((correlation_id, response)) = sent.reply.map(|reply| *reply) {
                self.adapter.commands.responded(&self.who.tenant, &correlation_id, response);
            }
            self.count(sent.delivery, sent.payload_bytes, took);
        }
    }

    /// Counts a message that the log has.
    fn count(&self, delivery: Delivery, payload_bytes: usize, took: Duration) {
        self.meter.count(delivery, Fate::Forwarded, payload_bytes, took);
        self.adapter.totals.accept_latency.record(took);
    }

    /// Counts messages of the private space that are not taken.
    pub(super) fn count_rejected(&self, messages: usize) {
        self.adapter.totals.rejected.fetch_add(messages as u64, Ordering::Relaxed);
    }

    /// Counts messages of the private space that the log has.
    pub(super) fn count_accepted(&self, messages: usize, took: Duration) {
        (0..messages).for_each(|_| self.adapter.totals.accept_latency.record(took));
    }

    /// Deals with a message that is not taken, as its sender wants it dealt with.
    pub(super) fn refuse(&mut self, sent: &Sent, problem: &Problem, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.adapter.totals.rejected.fetch_add(1, Ordering::Relaxed);
        self.meter.count(sent.delivery, fate_of(problem), sent.payload_bytes, Duration::ZERO);
        let fault = || Fault::refused(reason_of(problem.status()), problem.text());
        // Whoever may no longer be connected at all is not asked how he wants it.
        if let Err(terminal) = self.adapter.check(&self.who) {
            return Err(Fault::refused(reason::NOT_AUTHORISED, terminal.text()));
        }
        let is_told = self.tell(sent, problem, out);
        let is_acknowledged = match sent.on_error {
            OnError::Disconnect => return Err(fault()),
            OnError::Default if !is_told => return Err(fault()),
            OnError::Default | OnError::Ignore => sent.id != 0,
            OnError::SkipAck => false,
        };
        if is_acknowledged {
            ack(out, self.version, AckKind::PubAck, sent.id, reason::SUCCESS);
        }
        Ok(())
    }

    /// Tells a client that listens on the error topic, and takes as large a packet. Whether it does.
    fn tell(&self, sent: &Sent, problem: &Problem, out: &mut Vec<u8>) -> bool {
        let own = &self.who.name;
        let device = sent.device.as_deref().unwrap_or(own);
        let Some(filter) = self.errors.iter().find(|filter| filter.is_about(self.who.tenant.as_str(), device, own))
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
            "timestamp": millstream_types::iso_time(self.adapter.wall.now_ms()),
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

/// How a message has ended that is not taken.
pub(super) fn fate_of(problem: &Problem) -> Fate {
    if problem.status().is_server_error() { Fate::Undeliverable } else { Fate::Unprocessable }
}

fn no_such_qos(address: &str) -> Fault {
    Fault::refused(reason::QOS, format!("topic '{address}' takes quality of service 0 or 1, events 1 only; got 2"))
}

/// What DISCONNECT says of a refusal, or an acknowledgement.
pub(super) fn reason_of(status: StatusCode) -> u8 {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => reason::NOT_AUTHORISED,
        StatusCode::PAYLOAD_TOO_LARGE => reason::TOO_LARGE,
        StatusCode::TOO_MANY_REQUESTS => reason::QUOTA,
        status if status.is_server_error() => reason::BUSY,
        _ => reason::IMPLEMENTATION,
    }
}
