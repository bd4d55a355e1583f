//! Packets that only servers write, appended to the bytes that wait to be sent. `encode` writes those of both sides.

use crate::packet::Version;
use crate::property::{
    ALIAS_MAXIMUM, ASSIGNED_CLIENT_ID, PACKET_MAXIMUM, QOS_MAXIMUM, REASON_TEXT, RECEIVE_MAXIMUM, SERVER_KEEP_ALIVE,
    SESSION_EXPIRY, SHARED_SUBSCRIPTIONS_AVAILABLE, SUBSCRIPTION_IDS_AVAILABLE,
};
use crate::reason;
use crate::wire::{put_text, put_varint, varint_size};

/// The content of a CONNACK that accepts a client.
#[derive(Debug, Clone, Copy)]
pub struct ConnackParts<'a> {
    /// True if the client continues an earlier session.
    pub session_present: bool,
    /// Seconds that the session outlives the connection, if not as asked.
    pub session_expiry_s: Option<u32>,
    /// Most messages in flight that the server takes.
    pub receive_max: u16,
    /// Largest packet that the server takes.
    pub packet_max_bytes: u32,
    /// Highest topic alias that the server takes.
    pub alias_max: u16,
    /// The keep alive, if not as asked.
    pub keep_alive_s: Option<u16>,
    /// False if there is QoS 0 and 1 only, and neither subscription identifiers nor shared subscriptions.
    pub has_broker: bool,
    /// The client id that the server chose.
    pub assigned_client_id: Option<&'a str>,
}

/// Writes a packet whose body is short.
fn packet(out: &mut Vec<u8>, first_byte: u8, body: &[u8]) {
    out.push(first_byte);
    put_varint(out, body.len() as u32);
    out.extend_from_slice(body);
}

/// Writes the CONNACK that accepts a client.
pub fn connack(out: &mut Vec<u8>, version: Version, parts: &ConnackParts<'_>) {
    let mut body = vec![u8::from(parts.session_present), reason::SUCCESS];
    if version == Version::V5 {
        let mut properties = Vec::with_capacity(32);
        let mut number = |id: u8, bytes: &[u8]| {
            properties.push(id);
            properties.extend_from_slice(bytes);
        };
        if let Some(seconds) = parts.session_expiry_s {
            number(SESSION_EXPIRY, &seconds.to_be_bytes());
        }
        number(RECEIVE_MAXIMUM, &parts.receive_max.to_be_bytes());
        number(PACKET_MAXIMUM, &parts.packet_max_bytes.to_be_bytes());
        number(ALIAS_MAXIMUM, &parts.alias_max.to_be_bytes());
        if let Some(seconds) = parts.keep_alive_s {
            number(SERVER_KEEP_ALIVE, &seconds.to_be_bytes());
        }
        if !parts.has_broker {
            number(QOS_MAXIMUM, &[1]);
            number(SUBSCRIPTION_IDS_AVAILABLE, &[0]);
            number(SHARED_SUBSCRIPTIONS_AVAILABLE, &[0]);
        }
        if let Some(id) = parts.assigned_client_id {
            properties.push(ASSIGNED_CLIENT_ID);
            put_text(&mut properties, id.as_bytes());
        }
        put_varint(&mut body, properties.len() as u32);
        body.extend_from_slice(&properties);
    }
    packet(out, 0x20, &body);
}

/// Writes the CONNACK that refuses a client: with a return code in MQTT 3.1.1, with a reason text in MQTT 5. A packet above
/// `packet_max_bytes` goes without the text, or is not written.
pub fn connack_refusal(out: &mut Vec<u8>, version: Version, code: u8, why: &str, packet_max_bytes: usize) {
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

/// Writes SUBACK with a code for each filter.
pub fn suback(out: &mut Vec<u8>, version: Version, id: u16, codes: &[u8]) {
    filters_ack(out, 0x90, version, id, codes);
}

/// Writes UNSUBACK; the codes are sent in MQTT 5 only.
pub fn unsuback(out: &mut Vec<u8>, version: Version, id: u16, codes: &[u8]) {
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
    // MQTT 3.1.1 knows only 0x80 for a refusal.
    let told = |code: &u8| if !is_5 && *code >= reason::UNSPECIFIED { reason::UNSPECIFIED } else { *code };
    out.extend(codes.iter().map(told));
}

/// Writes PINGRESP, the answer to PINGREQ.
#[inline]
pub fn pong(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0xD0, 0]);
}

/// Writes DISCONNECT; in MQTT 3.1.1 the server only closes the connection. A packet above `packet_max_bytes` goes without the
/// text, or is not written.
pub fn disconnect(out: &mut Vec<u8>, version: Version, code: u8, why: &str, packet_max_bytes: usize) {
    if version == Version::V5 {
        packet_with_reason(out, 0xE0, &[code], why, packet_max_bytes);
    }
}
