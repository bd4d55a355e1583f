//! Packets that the server sends, written behind what waits to be sent already.

use super::fault::reason;
use super::packet::{Qos, Version};
use super::property::{
    ALIAS, ALIAS_MAXIMUM, ASSIGNED_CLIENT_ID, MESSAGE_EXPIRY, PACKET_MAXIMUM, QOS_MAXIMUM, REASON_TEXT,
    RECEIVE_MAXIMUM, SERVER_KEEP_ALIVE, SESSION_EXPIRY, SHARED_SUBSCRIPTIONS_AVAILABLE, SUBSCRIPTION_ID,
    SUBSCRIPTION_IDS_AVAILABLE,
};
use super::wire::{put_text, put_varint, varint_size};

/// Acknowledgements that carry an identifier and a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::enum_variant_names, reason = "the names of the standard")]
pub(super) enum AckKind {
    PubAck = 0x40,
    PubRec = 0x50,
    PubRel = 0x62,
    PubComp = 0x70,
}

/// What the server tells a client that it lets in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Welcome<'a> {
    pub(super) session_present: bool,
    pub(super) session_expiry_s: Option<u32>,
    pub(super) receive_max: u16,
    pub(super) packet_max_bytes: u32,
    pub(super) alias_max: u16,
    pub(super) keep_alive_s: Option<u16>,
    /// Whether there is a private space.
    pub(super) has_broker: bool,
    pub(super) assigned_client_id: Option<&'a str>,
}

/// A message on its way to a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) dup: bool,
    pub(super) retain: bool,
    pub(super) qos: Qos,
    /// 0 at most once.
    pub(super) id: u16,
    /// Empty if the alias says it all.
    pub(super) topic: &'a str,
    /// 0 if there is none.
    pub(super) alias: u16,
    pub(super) expiry_s: Option<u32>,
    pub(super) subscription_ids: &'a [u32],
    /// Properties that pass through as they came.
    pub(super) properties: &'a [u8],
    pub(super) payload: &'a [u8],
}

/// Writes a packet whose body is short.
fn packet(out: &mut Vec<u8>, first_byte: u8, body: &[u8]) {
    out.push(first_byte);
    put_varint(out, body.len() as u32);
    out.extend_from_slice(body);
}

/// Lets a client in.
pub(super) fn welcome(out: &mut Vec<u8>, version: Version, welcome: &Welcome<'_>) {
    let mut body = vec![u8::from(welcome.session_present), reason::SUCCESS];
    if version == Version::V5 {
        let mut properties = Vec::with_capacity(32);
        let mut number = |id: u8, bytes: &[u8]| {
            properties.push(id);
            properties.extend_from_slice(bytes);
        };
        if let Some(seconds) = welcome.session_expiry_s {
            number(SESSION_EXPIRY, &seconds.to_be_bytes());
        }
        number(RECEIVE_MAXIMUM, &welcome.receive_max.to_be_bytes());
        number(PACKET_MAXIMUM, &welcome.packet_max_bytes.to_be_bytes());
        number(ALIAS_MAXIMUM, &welcome.alias_max.to_be_bytes());
        if let Some(seconds) = welcome.keep_alive_s {
            number(SERVER_KEEP_ALIVE, &seconds.to_be_bytes());
        }
        if !welcome.has_broker {
            number(QOS_MAXIMUM, &[1]);
            number(SUBSCRIPTION_IDS_AVAILABLE, &[0]);
            number(SHARED_SUBSCRIPTIONS_AVAILABLE, &[0]);
        }
        if let Some(id) = welcome.assigned_client_id {
            properties.push(ASSIGNED_CLIENT_ID);
            put_text(&mut properties, id.as_bytes());
        }
        put_varint(&mut body, properties.len() as u32);
        body.extend_from_slice(&properties);
    }
    packet(out, 0x20, &body);
}

/// Turns a client away, in the words of its version and as far as it takes packets.
pub(super) fn turn_away(out: &mut Vec<u8>, version: Version, code: u8, why: &str, packet_max_bytes: usize) {
    if version == Version::V311 {
        let code = match code {
            reason::UNSUPPORTED_VERSION => 0x01,
            reason::BAD_CLIENT_ID => 0x02,
            reason::BAD_LOGIN | reason::BAD_AUTHENTICATION_METHOD => 0x04,
            reason::NOT_AUTHORISED | reason::QUOTA => 0x05,
            _ => 0x03,
        };
        return packet(out, 0x20, &[0, code]);
    }
    packet_with_reason(out, 0x20, &[0, code], why, packet_max_bytes);
}

/// Writes a packet that ends with a text; without that if it is too large with it, and not at all if it still is.
fn packet_with_reason(out: &mut Vec<u8>, first_byte: u8, head: &[u8], why: &str, packet_max_bytes: usize) {
    let why = &why.as_bytes()[..why.floor_char_boundary(1_024)];
    let mut body = head.to_vec();
    put_varint(&mut body, (3 + why.len()) as u32);
    body.push(REASON_TEXT);
    put_text(&mut body, why);
    let size = |body: &[u8]| 1 + varint_size(body.len()) + body.len();
    if size(&body) > packet_max_bytes {
        body.truncate(head.len());
        // No properties.
        body.push(0);
    }
    if size(&body) <= packet_max_bytes {
        packet(out, first_byte, &body);
    }
}

/// Acknowledges; 3.1.1 has no reasons.
pub(super) fn ack(out: &mut Vec<u8>, version: Version, kind: AckKind, id: u16, code: u8) {
    let [high, low] = id.to_be_bytes();
    if version == Version::V311 || code == reason::SUCCESS {
        out.extend_from_slice(&[kind as u8, 2, high, low]);
    } else {
        out.extend_from_slice(&[kind as u8, 3, high, low, code]);
    }
}

/// Answers a subscription, a code for each filter.
pub(super) fn suback(out: &mut Vec<u8>, version: Version, id: u16, codes: &[u8]) {
    filters_ack(out, 0x90, version, id, codes);
}

/// Answers an unsubscription; the codes are told in MQTT 5 only.
pub(super) fn unsuback(out: &mut Vec<u8>, version: Version, id: u16, codes: &[u8]) {
    filters_ack(out, 0xB0, version, id, if version == Version::V5 { codes } else { &[] });
}

fn filters_ack(out: &mut Vec<u8>, first_byte: u8, version: Version, id: u16, codes: &[u8]) {
    let is_5 = version == Version::V5;
    out.push(first_byte);
    put_varint(out, (2 + usize::from(is_5) + codes.len()) as u32);
    out.extend_from_slice(&id.to_be_bytes());
    if is_5 {
        out.push(0);
    }
    // What 3.1.1 knows of refusals is 0x80.
    let told = |code: &u8| if !is_5 && *code >= reason::UNSPECIFIED { reason::UNSPECIFIED } else { *code };
    out.extend(codes.iter().map(told));
}

/// Answers a ping.
pub(super) fn pong(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0xD0, 0]);
}

/// Tells a client of MQTT 5 why the connection ends, as far as it takes packets; one of 3.1.1 sees it end.
pub(super) fn disconnect(out: &mut Vec<u8>, version: Version, code: u8, why: &str, packet_max_bytes: usize) {
    if version == Version::V5 {
        packet_with_reason(out, 0xE0, &[code], why, packet_max_bytes);
    }
}

/// Bytes that [`publish`] writes.
pub(super) fn publish_size(version: Version, message: &Outgoing<'_>) -> usize {
    let body = body_size(version, message);
    1 + varint_size(body) + body
}

fn body_size(version: Version, message: &Outgoing<'_>) -> usize {
    let id = if message.qos == Qos::AtMostOnce { 0 } else { 2 };
    let mut size = 2 + message.topic.len() + id + message.payload.len();
    if version == Version::V5 {
        let properties = properties_size(message);
        size += varint_size(properties) + properties;
    }
    size
}

fn properties_size(message: &Outgoing<'_>) -> usize {
    let ids: usize = message.subscription_ids.iter().map(|id| 1 + varint_size(*id as usize)).sum();
    let alias = if message.alias == 0 { 0 } else { 3 };
    let expiry = if message.expiry_s.is_some() { 5 } else { 0 };
    alias + expiry + ids + message.properties.len()
}

/// Sends a message.
pub(super) fn publish(out: &mut Vec<u8>, version: Version, message: &Outgoing<'_>) {
    let size = body_size(version, message);
    out.reserve(5 + size);
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
    out.extend_from_slice(message.payload);
}
