//! A client is sent the messages of its session, and acknowledges them.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_mqtt::encode::{ack, publish, publish_head, publish_size};
use millstream_mqtt::from_client::Packet;
use millstream_mqtt::{AckKind, Outgoing, Version, reason};

use super::broker::message::Message;
use super::broker::{Next, QueueEntry};
use super::broker_client::BrokerClient;
use super::client::Client;
use super::disconnect::DisconnectCause;
use super::pending::Waits;
use super::session_store::StoreReply;

/// Approximate bytes that are buffered for a client before they are sent.
const BURST_BYTES: usize = 64 << 10;
/// Payloads of this size and more are not copied for each client.
const SHARED_PAYLOAD_BYTES: usize = 32 << 10;

/// The state of the delivery queue after a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    No,
    /// More messages can be sent after this burst.
    Yes,
    /// More messages wait and have to be read from the log.
    Unread,
}

impl Client {
    /// Handles PUBACK, PUBREC, PUBREL and PUBCOMP of a client.
    pub(super) fn private_ack(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) -> Result<(), DisconnectCause> {
        let Some(BrokerClient { link, is_durable, .. }) = &self.broker_client else { return Ok(()) };
        let version = self.version;
        if let Packet::PubRel(given) = packet {
            self.open.remove(&given.id);
        }
        match packet {
            Packet::PubAck(given) => drop(link.with(|session| session.acknowledged(given.id))?),
            Packet::PubRec(given) if given.reason >= reason::UNSPECIFIED => {
                link.with(|session| session.rejected(given.id))?;
            }
            Packet::PubRec(given) if link.with(|session| session.received(given.id))? => self.received.push(given.id),
            Packet::PubRec(given) => ack(out, version, AckKind::PubRel, given.id, reason::UNKNOWN_ID),
            Packet::PubComp(given) => drop(link.with(|session| session.completed(given.id))?),
            Packet::PubRel(given) if *is_durable => self.forgotten.push(given.id),
            Packet::PubRel(given) => {
                let is_known = link.with(|session| session.arrived.remove(&given.id))?;
                let code = if is_known { reason::SUCCESS } else { reason::UNKNOWN_ID };
                ack(out, version, AckKind::PubComp, given.id, code);
            }
            _ => {}
        }
        // There may be room for the next one.
        link.bell.notify_one();
        Ok(())
    }

    /// Stores which messages at QoS 2 have arrived on either side, so that their ids may be forgotten.
    pub(super) fn keep_receipts(&mut self, out: &mut Vec<u8>) -> Result<(), DisconnectCause> {
        let (received, forgotten) = (std::mem::take(&mut self.received), std::mem::take(&mut self.forgotten));
        let Some(broker_client) = &self.broker_client else { return Ok(()) };
        if received.is_empty() && forgotten.is_empty() {
            return Ok(());
        }
        let Some(verdict) = broker_client.link.keep_progress(&forgotten)? else { return self.release(&received, out) };
        // One change for both.
        if forgotten.is_empty() {
            self.uplink.pend(verdict, Waits::Received(received));
        } else {
            self.uplink.pend(verdict, Waits::Forgotten(forgotten));
            if !received.is_empty()
                && let Some(verdict) =
                    self.broker_client.as_ref().map(|broker_client| broker_client.link.keep_progress(&[]))
            {
                self.uplink.pend(verdict?.unwrap_or(StoreReply::Refused(None)), Waits::Received(received));
            }
        }
        Ok(())
    }

    /// Tells a client that it may forget ids.
    pub(super) fn release(&mut self, ids: &[u16], out: &mut Vec<u8>) -> Result<(), DisconnectCause> {
        let Some(broker_client) = &self.broker_client else { return Ok(()) };
        for id in ids {
            broker_client.link.with(|session| session.released(*id))?;
            ack(out, self.version, AckKind::PubRel, *id, reason::SUCCESS);
        }
        Ok(())
    }

    /// Writes what the client is to be sent, up to a large payload, which is to be sent behind it.
    pub(super) fn deliver(
        &mut self,
        out: &mut Vec<u8>,
        behind: &mut Option<Arc<Message>>,
    ) -> Result<More, DisconnectCause> {
        let Some(BrokerClient { link, alias_max, aliases, .. }) = &mut self.broker_client else { return Ok(More::No) };
        let packet_max_bytes = self.takes.packet_max_bytes;
        let (version, now_ms) = (self.version, self.adapter.uplink.wall.now_ms());
        let (mut delivered, mut dropped, mut is_full) = (0, 0, false);
        let unread = link.each(|session, next| {
            match next {
                Next::Release(id) => ack(out, version, AckKind::PubRel, id, reason::SUCCESS),
                Next::Message { id, dup, entry, message } => {
                    let alias = alias_of(&message.topic, *alias_max, aliases);
                    let sending = Sending { id, dup, entry, message };
                    let sent = send(out, behind, version, packet_max_bytes, now_ms, alias, &sending);
                    if !alias.is_known && sent != Some(alias.number) {
                        // The client has not learnt it.
                        aliases.retain(|_, known| *known != alias.number);
                    }
                    if sent.is_some() {
                        delivered += 1;
                    } else {
                        session.discard(id);
                        dropped += 1;
                    }
                }
                Next::Missing | Next::Nothing => {}
            }
            is_full = out.len() >= BURST_BYTES || behind.is_some();
            !is_full
        })?;
        link.count(delivered, dropped);
        Ok(match (unread, is_full) {
            (true, _) => More::Unread,
            (false, true) => More::Yes,
            (false, false) => More::No,
        })
    }
}

struct Sending {
    id: u16,
    dup: bool,
    entry: QueueEntry,
    message: Arc<Message>,
}

/// The alias of a topic.
#[derive(Clone, Copy)]
struct TopicAlias {
    /// 0 if the topic has none.
    number: u16,
    /// True if the client knows it.
    is_known: bool,
}

fn alias_of(topic: &str, most: u16, known: &mut HashMap<Box<str>, u16>) -> TopicAlias {
    let none = TopicAlias { number: 0, is_known: false };
    if most == 0 {
        return none;
    }
    if let Some(alias) = known.get(topic) {
        return TopicAlias { number: *alias, is_known: true };
    }
    let next = known.len() as u16 + 1;
    if next > most {
        return none;
    }
    known.insert(topic.into(), next);
    TopicAlias { number: next, is_known: false }
}

/// Writes a message, unless it is void or too large for the client; the alias that it carries, 0 if none.
fn send(
    out: &mut Vec<u8>,
    behind: &mut Option<Arc<Message>>,
    version: Version,
    packet_max_bytes: usize,
    now_ms: i64,
    alias: TopicAlias,
    sending: &Sending,
) -> Option<u16> {
    let Sending { id, dup, entry, message } = sending;
    let mut outgoing = Outgoing {
        dup: *dup,
        retain: entry.retain,
        qos: entry.qos,
        id: *id,
        topic: if alias.is_known { "" } else { &message.topic },
        alias: alias.number,
        expiry_s: message.lasts_s(now_ms)?,
        subscription_ids: &entry.ids,
        properties: &message.properties,
        payload: &message.payload,
    };
    if publish_size(version, &outgoing) > packet_max_bytes {
        // By the property that says the alias it may be too large.
        (outgoing.topic, outgoing.alias) = (&message.topic, 0);
        if publish_size(version, &outgoing) > packet_max_bytes {
            return None;
        }
    }
    if message.payload.len() < SHARED_PAYLOAD_BYTES {
        publish(out, version, &outgoing);
    } else {
        publish_head(out, version, &outgoing);
        *behind = Some(Arc::clone(message));
    }
    Some(outgoing.alias)
}
