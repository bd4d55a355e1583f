//! Packets that both sides write, appended to the bytes that wait to be sent: messages and their acknowledgements.

use crate::packet::{Qos, Version};
use crate::property::{ALIAS, MESSAGE_EXPIRY, SUBSCRIPTION_ID};
use crate::reason;
use crate::wire::{put_text, put_varint, varint_size};

/// Acknowledgements that carry an identifier and a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::enum_variant_names, reason = "the names of the standard")]
pub enum AckKind {
    /// QoS 1: the message is accepted.
    PubAck = 0x40,
    /// QoS 2: the message has arrived.
    PubRec = 0x50,
    /// QoS 2: the message is released.
    PubRel = 0x62,
    /// QoS 2: the exchange is complete.
    PubComp = 0x70,
}

/// A message to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// True if it may have been sent before.
    pub dup: bool,
    /// True for a retained message.
    pub retain: bool,
    /// The quality of service that it is sent at.
    pub qos: Qos,
    /// The packet id; 0 at QoS 0.
    pub id: u16,
    /// Empty if the alias says it all.
    pub topic: &'a str,
    /// The topic alias; 0 if there is none.
    pub alias: u16,
    /// Seconds that it may be delivered for.
    pub expiry_s: Option<u32>,
    /// Subscriptions that it is sent for.
    pub subscription_ids: &'a [u32],
    /// Properties that pass through as they came.
    pub properties: &'a [u8],
    /// The payload of the message; it may be empty.
    pub payload: &'a [u8],
}

impl Outgoing<'_> {
    /// An empty message without topic and properties, to be filled in.
    #[inline]
    #[must_use]
    pub fn at(qos: Qos, id: u16) -> Self {
        Self {
            dup: false,
            retain: false,
            qos,
            id,
            topic: "",
            alias: 0,
            expiry_s: None,
            subscription_ids: &[],
            properties: &[],
            payload: &[],
        }
    }
}

/// Writes an acknowledgement; MQTT 3.1.1 has no reasons.
#[inline]
pub fn ack(out: &mut Vec<u8>, version: Version, kind: AckKind, id: u16, code: u8) {
    let [high, low] = id.to_be_bytes();
    if version == Version::V311 || code == reason::SUCCESS {
        out.extend_from_slice(&[kind as u8, 2, high, low]);
    } else {
        out.extend_from_slice(&[kind as u8, 3, high, low, code]);
    }
}

/// Number of bytes that [`publish`] writes.
#[inline]
#[must_use]
pub fn publish_size(version: Version, message: &Outgoing<'_>) -> usize {
    let body = body_size(version, message);
    1 + varint_size(body) + body
}

#[inline]
fn body_size(version: Version, message: &Outgoing<'_>) -> usize {
    let id = if message.qos == Qos::AtMostOnce { 0 } else { 2 };
    let mut size = 2 + message.topic.len() + id + message.payload.len();
    if version == Version::V5 {
        let properties = properties_size(message);
        size += varint_size(properties) + properties;
    }
    size
}

#[inline]
fn properties_size(message: &Outgoing<'_>) -> usize {
    let ids: usize = message.subscription_ids.iter().map(|id| 1 + varint_size(*id as usize)).sum();
    let alias = if message.alias == 0 { 0 } else { 3 };
    let expiry = if message.expiry_s.is_some() { 5 } else { 0 };
    alias + expiry + ids + message.properties.len()
}

/// Writes PUBLISH. The caller bounds the topic to 65,535 bytes and the packet to [`crate::PACKET_MAX_BYTES`].
#[inline]
pub fn publish(out: &mut Vec<u8>, version: Version, message: &Outgoing<'_>) {
    out.reserve(5 + body_size(version, message));
    publish_head(out, version, message);
    out.extend_from_slice(message.payload);
}

/// Writes PUBLISH up to its payload, which the caller sends behind it.
#[inline]
pub fn publish_head(out: &mut Vec<u8>, version: Version, message: &Outgoing<'_>) {
    let size = body_size(version, message);
    let flags = u8::from(message.dup) << 3 | (message.qos as u8) << 1 | u8::from(message.retain);
    out.push(0x30 | flags);
    put_varint(out, size as u32);
    put_text(out, message.topic.as_bytes());
    if message.qos != Qos::AtMostOnce {
        out.extend_from_slice(&message.id.to_be_bytes());
    }
    if version == Version::V5 {
        put_varint(out, properties_size(message) as u32);
        if message.alias != 0 {
            out.push(ALIAS);
            out.extend_from_slice(&message.alias.to_be_bytes());
        }
        if let Some(seconds) = message.expiry_s {
            out.push(MESSAGE_EXPIRY);
            out.extend_from_slice(&seconds.to_be_bytes());
        }
        for id in message.subscription_ids {
            out.push(SUBSCRIPTION_ID);
            put_varint(out, *id);
        }
        out.extend_from_slice(message.properties);
    }
}
