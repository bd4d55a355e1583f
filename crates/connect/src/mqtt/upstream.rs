//! Messages on Hono's topics: from the packets of one read to appends, one for each run of messages of one device.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::StatusCode;
use millstream_http::Problem;
use millstream_log::{AckLevel, Done, reply};
use millstream_types::Header;

use super::adapter::{ADAPTER, origin};
use super::client::{Client, Topic};
use super::encode::{AckKind, Outgoing as OutgoingPacket, ack, publish};
use super::fault::{Fault, reason};
use super::kept::Verdict;
use super::packet::{Publish, Qos};
use super::pending::Waits;
use super::topic::{Bag, OnError, Place, is_reserved};
use crate::meter::{Delivery, Fate};
use crate::outgoing::{Numbers, Outgoing, check_type};
use crate::refusal::{not_taken, unknown_tenant};
use crate::sender::{Sender, Target};
use crate::streams::Stream;
use crate::usage::Moment;

/// A message, read and not yet sent.
#[derive(Clone)]
pub(super) struct Item<'a> {
    pub(super) topic: Topic<'a>,
    pub(super) publish: Publish<'a>,
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
        let (stream, target, address, bag) = match Place::of(first.topic.as_str()) {
            Place::Stream { stream, target, address, bag } => (stream, target, address, bag),
            Place::Wrong(rule) => {
                let why = format!("topic '{}': {rule}", first.topic.as_str());
                return Err(Fault::refused(reason::BAD_TOPIC, why));
            }
            Place::Private => return Err(Fault::Protocol("a private topic among the reserved ones")),
        };
        let delivery = match (stream, first.publish.qos) {
            (_, Qos::ExactlyOnce) => {
                let why = format!("topic '{address}' takes quality of service 0 or 1, events 1 only; got 2");
                return Err(Fault::refused(reason::QOS, why));
            }
            (Stream::Telemetry, Qos::AtMostOnce) => Delivery::AtMostOnce,
            (Stream::Telemetry, Qos::AtLeastOnce) => Delivery::AtLeastOnce,
            (Stream::Event, Qos::AtLeastOnce) => Delivery::Event,
            (Stream::Event, Qos::AtMostOnce) => {
                let problem = || {
                    Problem::invalid("events are not sent at quality of service 0")
                        .value(address)
                        .rule("events are sent at least once")
                        .remedy("publish them at quality of service 1")
                };
                let sent = |item: &Item<'_>| sent(item, Delivery::Event, target, &bag);
                return run.iter().try_for_each(|item| self.refuse(&sent(item), &problem(), out));
            }
        };
        let way = Way { delivery, target, address, bag: &bag };
        let mut rest = run;
        // What does not fit its type is refused by itself, and what stands around it is sent.
        while let Some((good, problem)) = split(rest, &way) {
            self.append(&rest[..good], &way, out)?;
            self.refuse(&way.sent(&rest[good]), &problem, out)?;
            rest = &rest[good + 1..];
        }
        self.append(rest, &way, out)
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
                let sent = run.iter().map(|item| way.sent(item)).collect();
                match verdict {
                    Some(verdict) => self.pend(verdict, Waits::Upstream(sent)),
                    None => self.accepted(sent, Duration::ZERO),
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
        let tenant = &self.verified.tenant;
        let snapshot = self.adapter.registry.snapshot(tenant);
        let known = snapshot.state.tenant(tenant).ok_or_else(|| unknown_tenant(tenant))?;
        let sender = Sender::find(known, way.target, origin(&self.verified))?;
        let ttl_s = sender.ttl_s(way.delivery, if way.delivery == Delivery::Event { way.bag.ttl_s } else { None });
        let now = Moment { wall_ms: self.adapter.wall.now_ms(), monotonic: self.adapter.monotonic.now() };
        run.iter().try_for_each(|item| sender.check_payload(item.publish.payload.len()))?;
        let amount = sender.amount(run.iter().map(|item| item.publish.payload.len()));
        let admission = self.streams.usage.admit(&sender, amount, now)?;
        let numbers = Numbers::at(now.wall_ms).with_times(None, ttl_s);
        let mut headers: Vec<Header<'_>> = Vec::with_capacity(run.len() * Outgoing::headers_max(&sender));
        let mut ends = Vec::with_capacity(run.len());
        for item in run {
            way.outgoing(item).headers(&sender, &numbers, &mut headers);
            ends.push(headers.len());
        }
        let mut from = 0;
        let records: Vec<_> = run
            .iter()
            .zip(&ends)
            .map(|(item, end)| {
                let own = &headers[std::mem::replace(&mut from, *end)..*end];
                way.outgoing(item).record(&sender, &numbers, own)
            })
            .collect();
        let (level, done, verdict) = match way.delivery {
            Delivery::AtMostOnce => (AckLevel::Memory, Done::ignore(), None),
            delivery => {
                let (done, reply) = reply();
                let level = if delivery == Delivery::Event { AckLevel::Synced } else { AckLevel::Written };
                (level, done, Some(Verdict::Log(reply)))
            }
        };
        let partition = self.streams.partition(way.delivery.stream(), sender.id);
        match partition.append(&records, level, done) {
            Ok(()) => {
                admission.keep();
                Ok(verdict)
            }
            Err(error) => {
                drop(admission);
                if let millstream_log::Error::UnknownTopic { .. } = error {
                    // Somebody has deleted the topic since it was resolved.
                    self.adapter.streams.forget(tenant);
                    self.are_streams_stale = true;
                }
                Err(not_taken(&error))
            }
        }
    }

    /// Counts messages that the log has.
    pub(super) fn accepted(&self, sent: Vec<Sent>, took: Duration) {
        for sent in sent {
            self.meter.count(sent.delivery, Fate::Forwarded, sent.payload_bytes, took);
            self.adapter.totals.accept_latency.record(took);
        }
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
        let fate = if problem.status().is_server_error() { Fate::Undeliverable } else { Fate::Unprocessable };
        self.meter.count(sent.delivery, fate, sent.payload_bytes, Duration::ZERO);
        let fault = || Fault::refused(reason_of(problem.status()), problem.text());
        // Whoever may no longer be connected at all is not asked how he wants it.
        if let Err(terminal) = self.adapter.check(&self.verified) {
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

    /// Tells a client that listens on the error topic. Whether it does.
    fn tell(&self, sent: &Sent, problem: &Problem, out: &mut Vec<u8>) -> bool {
        let own = &self.verified.identity.principal.name;
        let device = sent.device.as_deref().unwrap_or(own);
        let Some(filter) = self.errors.iter().find(|filter| filter.is_about(device, own)) else { return false };
        let endpoint = if sent.delivery == Delivery::Event { "event" } else { "telemetry" };
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
        publish(
            out,
            self.version,
            &OutgoingPacket {
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
            },
        );
        true
    }
}

/// What the messages of a run have in common.
struct Way<'a> {
    delivery: Delivery,
    target: Target<'a>,
    address: &'a str,
    bag: &'a Bag<'a>,
}

impl<'a> Way<'a> {
    fn outgoing(&self, item: &Item<'a>) -> Outgoing<'a> {
        Outgoing {
            adapter: ADAPTER,
            delivery: self.delivery,
            address: self.address,
            content_type: self.content_type(item).map(str::as_bytes),
            traceparent: None,
            is_retained: item.publish.retain,
            payload: item.publish.payload,
        }
    }

    fn content_type(&self, item: &Item<'a>) -> Option<&'a str> {
        let property = item.publish.properties.content_type.filter(|value| !value.is_empty());
        property.or(self.bag.content_type.as_deref())
    }

    fn sent(&self, item: &Item<'_>) -> Sent {
        sent(item, self.delivery, self.target, self.bag)
    }
}

/// The first message whose type and payload do not fit, and why.
fn split<'a>(run: &[Item<'a>], way: &Way<'a>) -> Option<(usize, Problem)> {
    let rule = "an empty payload needs a content type";
    run.iter().enumerate().find_map(|(at, item)| {
        let content_type = way.content_type(item).map(str::as_bytes);
        check_type(content_type, item.publish.payload, rule).err().map(|problem| (at, problem))
    })
}

fn sent(item: &Item<'_>, delivery: Delivery, target: Target<'_>, bag: &Bag<'_>) -> Sent {
    Sent {
        id: item.publish.id,
        delivery,
        payload_bytes: item.publish.payload.len(),
        on_error: bag.on_error,
        correlation_id: bag.correlation_id.as_deref().map(Into::into),
        device: match target {
            Target::Caller => None,
            Target::Named { device, .. } => Some(device.into()),
        },
    }
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
