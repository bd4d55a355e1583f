//! A client publishes to its tenant's broker.

use std::sync::Arc;
use std::time::Duration;

use millstream_http::Problem;
use millstream_log::{AckLevel, Done, reply};
use millstream_mqtt::encode::ack;
use millstream_mqtt::property::{ALIAS, MESSAGE_EXPIRY, without};
use millstream_mqtt::{AckKind, Qos, Version, reason};
use millstream_types::Record;

use super::ADAPTER;
use super::access::forbidden;
use super::broker::message::{MessageDraft, expires};
use super::client::Client;
use super::disconnect::DisconnectCause;
use super::incoming::IncomingPublish;
use super::pending::Waits;
use super::routing::{RoutedBatch, StreamAppend};
use super::session_store::{StoreReply, StoredPublish, Upstream};
use super::settle::unacknowledged;
use super::upstream::{is_in_acknowledgements, reason_of};
use crate::ingest::fits_apart;
use crate::refusal::not_taken;
use crate::registry::Act;

/// Bytes of payload and properties below which a message fits into a record with its topic and its headers.
const SURELY_STORED_BYTES: usize = 256 << 10;

impl Client {
    /// Publishes messages in the tenant's private space, in order.
    pub(super) fn publish_to_broker(
        &mut self,
        run: &[IncomingPublish<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), DisconnectCause> {
        let mut new = Vec::with_capacity(run.len());
        let mut judged = Ok(());
        for item in run {
            match self.is_to_be_published(item, out) {
                Ok(true) => new.push(item.clone()),
                Ok(false) => {}
                Err(fault) => {
                    judged = Err(fault);
                    break;
                }
            }
        }
        // The messages before a fault are valid.
        let is_acknowledged = |item: &IncomingPublish<'_>| item.publish.qos > Qos::AtMostOnce;
        let mut alike = new.chunk_by(|a, b| is_acknowledged(a) == is_acknowledged(b));
        alike.try_for_each(|same| self.offer_to_broker(same, out)).and(judged)
    }

    /// True if the device may publish the message and has not sent it before. Any other message is answered here.
    fn is_to_be_published(&mut self, item: &IncomingPublish<'_>, out: &mut Vec<u8>) -> Result<bool, DisconnectCause> {
        let (topic, publish) = (item.topic.as_str(), &item.publish);
        self.check_topic(topic)?;
        self.check_record_size(item)?;
        if let Some(why) = self.why_undeclared(topic) {
            return self.refuse_topic(item, DisconnectCause::refused(reason::BAD_TOPIC, why), out);
        }
        if !self.is_new(item)? {
            // The first copy was accepted; the client has missed the PUBREC.
            ack(out, self.version, AckKind::PubRec, publish.id, reason::SUCCESS);
            return Ok(false);
        }
        if !self.allows(Act::Publish, topic) {
            if self.version == Version::V311 {
                return Err(forbidden(topic));
            }
            self.count_rejected(1);
            if publish.qos > Qos::AtMostOnce {
                self.forget_arrived(publish.id)?;
                ack(out, self.version, acknowledged_by(publish.qos), publish.id, reason::NOT_AUTHORISED);
            }
            return Ok(false);
        }
        if publish.qos == Qos::ExactlyOnce && self.version == Version::V5 {
            let most = self.adapter.config.in_flight_max;
            self.open.insert(publish.id);
            if self.open.len() > usize::from(most) {
                let why = format!("more than connect.mqtt.in_flight_max = {most} messages exactly once are open");
                return Err(DisconnectCause::refused(reason::RECEIVE_MAXIMUM, why));
            }
        }
        Ok(true)
    }

    /// Ends the connection over a message that no record of the tenant's topic has room for: an acknowledgement has no word
    /// for it, and at most once there is none.
    fn check_record_size(&self, item: &IncomingPublish<'_>) -> Result<(), DisconnectCause> {
        let publish = &item.publish;
        if publish.payload.len() + publish.properties.bytes.len() < SURELY_STORED_BYTES {
            return Ok(());
        }
        let Some(broker_client) = &self.broker_client else { return Ok(()) };
        let link = &broker_client.link;
        let parts = PublishParts::of(item, self.adapter.uplink.wall.now_ms());
        let size_bytes = self.draft(item, &parts, &link.client, true).size_bytes();
        let limit_bytes = link.broker.partition.topic().config.record_max_bytes;
        if size_bytes <= limit_bytes {
            return Ok(());
        }
        self.count_rejected(1);
        let partition = link.broker.partition.id().clone();
        let error = millstream_log::Error::RecordTooLarge { partition, size_bytes, limit_bytes };
        Err(unacknowledged(&not_taken(&error)))
    }

    /// Refuses a message whose topic the tenant has not declared: by its acknowledgement, if that can say so.
    fn refuse_topic(
        &mut self,
        item: &IncomingPublish<'_>,
        fault: DisconnectCause,
        out: &mut Vec<u8>,
    ) -> Result<bool, DisconnectCause> {
        let publish = &item.publish;
        if self.version == Version::V311 || publish.qos == Qos::AtMostOnce {
            return Err(fault);
        }
        self.count_rejected(1);
        ack(out, self.version, acknowledged_by(publish.qos), publish.id, reason::BAD_TOPIC);
        Ok(false)
    }

    /// The id of a message that is refused is the client's to use again.
    fn forget_arrived(&mut self, id: u16) -> Result<(), DisconnectCause> {
        self.open.remove(&id);
        if let Some(broker_client) = self.broker_client.as_ref().filter(|broker_client| !broker_client.is_durable) {
            broker_client.link.with(|session| session.arrived.remove(&id))?;
        }
        Ok(())
    }

    /// Publishes messages that are promised alike.
    fn offer_to_broker(&mut self, run: &[IncomingPublish<'_>], out: &mut Vec<u8>) -> Result<(), DisconnectCause> {
        let snapshot = self.adapter.registry.snapshot(self.uplink.tenant());
        let known = snapshot.state.tenant(self.uplink.tenant());
        match known.filter(|known| known.mapping.is_some()) {
            Some(known) => self.offer_by_rules(run, known, out),
            None => self.offer_unrouted(run, out),
        }
    }

    /// Publishes messages that stay within the private space, if tenant and device may use as much.
    pub(super) fn offer_unrouted(
        &mut self,
        run: &[IncomingPublish<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), DisconnectCause> {
        let Some(streams) = self.uplink.streams().cloned() else { return Ok(()) };
        let (ingest, who, now) =
            (Arc::clone(&self.adapter.uplink.ingest), Arc::clone(self.uplink.who()), self.uplink.moment());
        match ingest.offer_private(&who, run, &streams, now, || self.append_private(run)) {
            Ok(published) => {
                if published? {
                    streams.stamps.stamp(&who.name, now.wall_ms);
                }
                Ok(())
            }
            // Each message is offered by itself, so that those that fit are taken.
            Err(problem) if fits_apart(run, &problem) => {
                run.chunks(1).try_for_each(|one| self.offer_unrouted(one, out))
            }
            Err(problem) => run.iter().try_for_each(|item| self.refuse_broker_publish(item, &problem, out)),
        }
    }

    /// Tells the sender of a message that it is not taken, as far as its version has words for it.
    pub(super) fn refuse_broker_publish(
        &mut self,
        item: &IncomingPublish<'_>,
        problem: &Problem,
        out: &mut Vec<u8>,
    ) -> Result<(), DisconnectCause> {
        self.count_rejected(1);
        let publish = &item.publish;
        if publish.qos == Qos::AtMostOnce {
            return Ok(());
        }
        let code = reason_of(problem);
        if self.version == Version::V311 || !is_in_acknowledgements(code) {
            return Err(DisconnectCause::refused(code, problem.text()));
        }
        self.forget_arrived(publish.id)?;
        ack(out, self.version, acknowledged_by(publish.qos), publish.id, code);
        Ok(())
    }

    /// Publishes messages, all acknowledged or all not; true if they were taken. Those at most once may not be.
    fn append_private(&mut self, run: &[IncomingPublish<'_>]) -> Result<bool, DisconnectCause> {
        if !self.needs_owner(run) {
            return self.append_here(run, StreamAppend::No);
        }
        self.publish_owned(run, Vec::new(), None);
        Ok(true)
    }

    /// Has messages published by the tenant's owner, each together with its record in `upstream` if they are mapped.
    pub(super) fn publish_owned(
        &mut self,
        run: &[IncomingPublish<'_>],
        upstream: Vec<Upstream>,
        routed: Option<Box<RoutedBatch>>,
    ) {
        let Some(broker_client) = &self.broker_client else { return };
        let now_ms = self.adapter.uplink.wall.now_ms();
        let mut upstream = upstream.into_iter();
        let ones = run.iter().map(|item| {
            let parts = PublishParts::of(item, now_ms);
            let draft = self.draft(item, &parts, &broker_client.link.client, routed.is_some());
            StoredPublish {
                record: draft.to_publish(now_ms),
                upstream: upstream.next(),
                retain: draft.retain.then(|| Arc::new(draft.to_message())),
                once: (item.publish.qos == Qos::ExactlyOnce && broker_client.is_durable).then_some(item.publish.id),
            }
        });
        let verdict = broker_client.link.publish(ones.collect());
        let acks = run.iter().map(|item| (acknowledged_by(item.publish.qos), item.publish.id)).collect();
        self.uplink.pend(verdict, Waits::Owned { acks, routed });
    }

    /// Appends messages of which nothing else is kept, as [`Client::append_private`].
    pub(super) fn append_here(
        &mut self,
        run: &[IncomingPublish<'_>],
        elsewhere: StreamAppend,
    ) -> Result<bool, DisconnectCause> {
        let Some(broker_client) = &self.broker_client else { return Ok(false) };
        let broker = &broker_client.link.broker;
        let now_ms = self.adapter.uplink.wall.now_ms();
        let is_routed = !matches!(elsewhere, StreamAppend::No);
        let parts: Vec<PublishParts> = run.iter().map(|item| PublishParts::of(item, now_ms)).collect();
        let draft = |(item, parts)| self.draft(item, parts, &broker_client.link.client, is_routed);
        let drafts: Vec<MessageDraft<'_>> = run.iter().zip(&parts).map(draft).collect();
        let headers: Vec<_> = drafts.iter().map(MessageDraft::headers).collect();
        let records: Vec<Record<'_>> =
            drafts.iter().zip(&headers).map(|(draft, headers)| draft.record(now_ms, headers)).collect();
        let acks = run.iter().map(|item| (acknowledged_by(item.publish.qos), item.publish.id));
        let acks: Vec<_> = acks.filter(|(_, id)| *id != 0).collect();
        let (level, done, answer) = if acks.is_empty() {
            (AckLevel::Memory, Done::ignore(), None)
        } else {
            let (done, reply) = reply();
            (broker.level, done.failing_on_full_disk(), Some(reply))
        };
        if let Err(error) = broker.partition.append(&records, level, done) {
            self.count_rejected(run.len());
            return if acks.is_empty() { Ok(false) } else { Err(unacknowledged(&not_taken(&error))) };
        }
        self.uplink.appended(answer.is_some());
        match (answer, elsewhere) {
            (Some(reply), StreamAppend::Awaited(first, routed)) => {
                self.uplink.pend(StoreReply::Both(Some(first), reply), Waits::Broker { acks, routed: Some(routed) });
            }
            (Some(reply), _) => self.uplink.pend(StoreReply::Log(reply), Waits::Broker { acks, routed: None }),
            (None, _) => self.count_accepted(run.len(), Duration::ZERO),
        }
        Ok(true)
    }

    /// True if the tenant's owner has to publish the run, because state is stored together with its messages. Later
    /// runs go the same way until that is answered, so that they do not overtake it.
    pub(super) fn needs_owner(&self, run: &[IncomingPublish<'_>]) -> bool {
        let is_durable = self.broker_client.as_ref().is_some_and(|broker_client| broker_client.is_durable);
        let is_kept =
            |item: &IncomingPublish<'_>| item.publish.retain || (is_durable && item.publish.qos == Qos::ExactlyOnce);
        self.uplink.has_first() || run.iter().any(is_kept)
    }

    /// True if a message has not been taken before; only one that is sent exactly once can have been.
    fn is_new(&self, item: &IncomingPublish<'_>) -> Result<bool, DisconnectCause> {
        let (publish, id) = (&item.publish, item.publish.id);
        match &self.broker_client {
            Some(broker_client) if publish.qos == Qos::ExactlyOnce && !broker_client.is_durable => {
                Ok(broker_client.link.with(|session| session.arrived.insert(id))?)
            }
            // The tenant's owner keeps the ids of a durable session. A repeat whose id is stored is not offered again, so
            // that it uses up no limit. While the owner has messages, it decides, so that acknowledgements stay in order.
            Some(broker_client) if publish.qos == Qos::ExactlyOnce && publish.dup && !self.uplink.has_first() => {
                Ok(!broker_client.link.has_arrived(id))
            }
            _ => Ok(true),
        }
    }

    fn draft<'a>(
        &'a self,
        item: &'a IncomingPublish<'_>,
        parts: &'a PublishParts,
        client: &'a str,
        is_routed: bool,
    ) -> MessageDraft<'a> {
        MessageDraft {
            is_routed,
            topic: item.topic.as_str(),
            payload: item.publish.payload,
            qos: item.publish.qos,
            retain: item.publish.retain,
            adapter: ADAPTER,
            client,
            device: &self.uplink.who().name,
            content_type: item.publish.properties.content_type,
            properties: &parts.properties,
            expires: &parts.expires,
        }
    }
}

/// The packet that acknowledges a message of this QoS.
fn acknowledged_by(qos: Qos) -> AckKind {
    if qos == Qos::ExactlyOnce { AckKind::PubRec } else { AckKind::PubAck }
}

/// Parts of a message that differ from the client's packet.
struct PublishParts {
    properties: Vec<u8>,
    expires: String,
}

impl PublishParts {
    fn of(item: &IncomingPublish<'_>, now_ms: i64) -> Self {
        let properties = item.publish.properties;
        let expires = expires(properties.expiry_s, now_ms);
        Self { properties: without(properties.bytes, &[ALIAS, MESSAGE_EXPIRY]), expires }
    }
}
