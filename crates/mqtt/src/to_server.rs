//! Packets that only clients write, appended to the bytes that wait to be sent. `encode` writes those of both sides.

use crate::connect_packet::{Connect, Will};
use crate::error::WriteError;
use crate::packet::{Disconnect, RetainHandling, Subscribe, SubscribeOptions, Unsubscribe, Version};
use crate::property::{
    ALIAS_MAXIMUM, AUTHENTICATION_DATA, AUTHENTICATION_METHOD, CONTENT_TYPE, MESSAGE_EXPIRY, PACKET_MAXIMUM,
    RECEIVE_MAXIMUM, REQUEST_PROBLEMS, SESSION_EXPIRY, SUBSCRIPTION_ID, WILL_DELAY, without,
};
use crate::reason;
use crate::wire::{TEXT_MAX_BYTES, VARINT_MAX, put_text, put_varint};

const CLEAN_START: u8 = 0x02;
const HAS_WILL: u8 = 0x04;
const WILL_RETAIN: u8 = 0x20;
const HAS_PASSWORD: u8 = 0x40;
const HAS_USER: u8 = 0x80;

/// Writes CONNECT. What only MQTT 5 knows is left out in 3.1.1.
///
/// # Errors
/// A field is too long, or has a value that the version does not know. `out` is as before.
pub fn connect(out: &mut Vec<u8>, connect: &Connect<'_>) -> Result<(), WriteError> {
    let is_5 = connect.version == Version::V5;
    if connect.password.is_some() && connect.user.is_none() && !is_5 {
        return Err(WriteError::PasswordWithoutUser);
    }
    let mut flags = if connect.clean_start { CLEAN_START } else { 0 };
    flags |= connect.will.as_ref().map_or(0, will_flags);
    flags |= if connect.user.is_some() { HAS_USER } else { 0 };
    flags |= if connect.password.is_some() { HAS_PASSWORD } else { 0 };
    let mut body = b"\x00\x04MQTT".to_vec();
    body.extend_from_slice(&[if is_5 { 5 } else { 4 }, flags]);
    body.extend_from_slice(&connect.keep_alive_s.to_be_bytes());
    if is_5 {
        let properties = connect_properties(connect)?;
        put_properties(&mut body, &properties)?;
    }
    field(&mut body, "the client id", connect.client_id.as_bytes())?;
    if let Some(will) = &connect.will {
        put_will(&mut body, will, is_5)?;
    }
    if let Some(user) = connect.user {
        field(&mut body, "the user name", user.as_bytes())?;
    }
    if let Some(password) = connect.password {
        field(&mut body, "the password", password)?;
    }
    packet(out, 0x10, &body)
}

/// Writes SUBSCRIBE. Options that only MQTT 5 knows are left out in 3.1.1.
///
/// # Errors
/// There is no filter, or a field is too long. `out` is as before.
pub fn subscribe(out: &mut Vec<u8>, version: Version, given: &Subscribe<'_>) -> Result<(), WriteError> {
    let mut body = filters_head(given.id, given.filters.len())?;
    if version == Version::V5 {
        let mut properties = Vec::new();
        if given.subscription_id != 0 {
            if given.subscription_id > VARINT_MAX {
                return Err(WriteError::SubscriptionId(given.subscription_id));
            }
            properties.push(SUBSCRIPTION_ID);
            put_varint(&mut properties, given.subscription_id);
        }
        put_properties(&mut body, &properties)?;
    }
    for (filter, options) in &given.filters {
        field(&mut body, "a filter", filter.as_bytes())?;
        body.push(bits(*options, version));
    }
    packet(out, 0x82, &body)
}

/// Writes UNSUBSCRIBE with at least one filter.
///
/// # Errors
/// There is no filter, or a field is too long. `out` is as before.
pub fn unsubscribe(out: &mut Vec<u8>, version: Version, given: &Unsubscribe<'_>) -> Result<(), WriteError> {
    let mut body = filters_head(given.id, given.filters.len())?;
    if version == Version::V5 {
        put_properties(&mut body, &[])?;
    }
    for filter in &given.filters {
        field(&mut body, "a filter", filter.as_bytes())?;
    }
    packet(out, 0xA2, &body)
}

/// Writes PINGREQ, which the server answers with PINGRESP.
#[inline]
pub fn ping(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0xC0, 0]);
}

/// Writes DISCONNECT; 3.1.1 has neither reason nor session expiry.
pub fn disconnect(out: &mut Vec<u8>, version: Version, given: Disconnect) {
    let Disconnect { reason, session_expiry_s } = given;
    match session_expiry_s.filter(|_| version == Version::V5) {
        Some(expiry_s) => {
            out.extend_from_slice(&[0xE0, 7, reason, 5, SESSION_EXPIRY]);
            out.extend_from_slice(&expiry_s.to_be_bytes());
        }
        None if version == Version::V311 || reason == reason::SUCCESS => out.extend_from_slice(&[0xE0, 0]),
        None => out.extend_from_slice(&[0xE0, 1, reason]),
    }
}

fn will_flags(will: &Will<'_>) -> u8 {
    HAS_WILL | (will.qos as u8) << 3 | if will.retain { WILL_RETAIN } else { 0 }
}

/// Limits with the standard's default are left out.
fn connect_properties(connect: &Connect<'_>) -> Result<Vec<u8>, WriteError> {
    let mut out = Vec::new();
    let mut number = |id: u8, value: &[u8]| {
        out.push(id);
        out.extend_from_slice(value);
    };
    if connect.session_expiry_s != 0 {
        number(SESSION_EXPIRY, &connect.session_expiry_s.to_be_bytes());
    }
    if connect.receive_max != u16::MAX {
        number(RECEIVE_MAXIMUM, &connect.receive_max.to_be_bytes());
    }
    if connect.packet_max_bytes != u32::MAX {
        number(PACKET_MAXIMUM, &connect.packet_max_bytes.to_be_bytes());
    }
    if connect.alias_max != 0 {
        number(ALIAS_MAXIMUM, &connect.alias_max.to_be_bytes());
    }
    if !connect.wants_problems {
        number(REQUEST_PROBLEMS, &[0]);
    }
    if let Some(method) = connect.authentication_method {
        out.push(AUTHENTICATION_METHOD);
        field(&mut out, "the authentication method", method.as_bytes())?;
    }
    if let Some(data) = connect.authentication_data {
        out.push(AUTHENTICATION_DATA);
        field(&mut out, "the authentication data", data)?;
    }
    Ok(out)
}

fn put_will(body: &mut Vec<u8>, will: &Will<'_>, is_5: bool) -> Result<(), WriteError> {
    if is_5 {
        let mut properties = Vec::new();
        if will.delay_s != 0 {
            properties.push(WILL_DELAY);
            properties.extend_from_slice(&will.delay_s.to_be_bytes());
        }
        if let Some(expiry_s) = will.properties.expiry_s {
            properties.push(MESSAGE_EXPIRY);
            properties.extend_from_slice(&expiry_s.to_be_bytes());
        }
        if let Some(content_type) = will.properties.content_type {
            properties.push(CONTENT_TYPE);
            field(&mut properties, "the content type of the will", content_type.as_bytes())?;
        }
        properties.extend(without(will.properties.bytes, &[WILL_DELAY, MESSAGE_EXPIRY, CONTENT_TYPE]));
        put_properties(body, &properties)?;
    }
    field(body, "the topic of the will", will.topic.as_bytes())?;
    field(body, "the payload of the will", will.payload)
}

fn bits(options: SubscribeOptions, version: Version) -> u8 {
    let qos = options.qos as u8;
    if version == Version::V311 {
        return qos;
    }
    let retain_handling = match options.retain_handling {
        RetainHandling::Send => 0,
        RetainHandling::SendIfNew => 1,
        RetainHandling::DoNotSend => 2,
    };
    qos | u8::from(options.no_local) << 2 | u8::from(options.retain_as_published) << 3 | retain_handling << 4
}

fn filters_head(id: u16, filters: usize) -> Result<Vec<u8>, WriteError> {
    if filters == 0 { Err(WriteError::NoFilter) } else { Ok(id.to_be_bytes().to_vec()) }
}

/// Writes a text or bytes with their length.
fn field(out: &mut Vec<u8>, what: &'static str, bytes: &[u8]) -> Result<(), WriteError> {
    within(what, bytes.len(), TEXT_MAX_BYTES)?;
    put_text(out, bytes);
    Ok(())
}

fn put_properties(out: &mut Vec<u8>, properties: &[u8]) -> Result<(), WriteError> {
    within("a list of properties", properties.len(), VARINT_MAX as usize)?;
    put_varint(out, properties.len() as u32);
    out.extend_from_slice(properties);
    Ok(())
}

fn packet(out: &mut Vec<u8>, first_byte: u8, body: &[u8]) -> Result<(), WriteError> {
    within("the packet", body.len(), VARINT_MAX as usize)?;
    out.push(first_byte);
    put_varint(out, body.len() as u32);
    out.extend_from_slice(body);
    Ok(())
}

fn within(what: &'static str, size_bytes: usize, limit_bytes: usize) -> Result<(), WriteError> {
    if size_bytes > limit_bytes { Err(WriteError::TooLong { what, size_bytes, limit_bytes }) } else { Ok(()) }
}
