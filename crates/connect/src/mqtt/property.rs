//! Properties of MQTT 5: walked where they lie, each checked against what its packet may carry.

use super::fault::Fault;
use super::wire::Reader;

pub(super) const PAYLOAD_FORMAT: u8 = 0x01;
pub(super) const MESSAGE_EXPIRY: u8 = 0x02;
pub(super) const CONTENT_TYPE: u8 = 0x03;
pub(super) const RESPONSE_TOPIC: u8 = 0x08;
pub(super) const CORRELATION_DATA: u8 = 0x09;
pub(super) const SUBSCRIPTION_ID: u8 = 0x0B;
pub(super) const SESSION_EXPIRY: u8 = 0x11;
pub(super) const ASSIGNED_CLIENT_ID: u8 = 0x12;
pub(super) const SERVER_KEEP_ALIVE: u8 = 0x13;
pub(super) const AUTHENTICATION_METHOD: u8 = 0x15;
pub(super) const AUTHENTICATION_DATA: u8 = 0x16;
pub(super) const REQUEST_PROBLEMS: u8 = 0x17;
pub(super) const WILL_DELAY: u8 = 0x18;
pub(super) const REQUEST_RESPONSE: u8 = 0x19;
pub(super) const REASON_TEXT: u8 = 0x1F;
pub(super) const RECEIVE_MAXIMUM: u8 = 0x21;
pub(super) const ALIAS_MAXIMUM: u8 = 0x22;
pub(super) const ALIAS: u8 = 0x23;
pub(super) const QOS_MAXIMUM: u8 = 0x24;
pub(super) const USER: u8 = 0x26;
pub(super) const PACKET_MAXIMUM: u8 = 0x27;
pub(super) const SUBSCRIPTION_IDS_AVAILABLE: u8 = 0x29;
pub(super) const SHARED_SUBSCRIPTIONS_AVAILABLE: u8 = 0x2A;

/// What a property carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u32),
    Text(&'a str),
    Binary(&'a [u8]),
    Pair(&'a str, &'a str),
}

/// One property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Property<'a> {
    pub(super) id: u8,
    pub(super) value: Value<'a>,
    /// As it was sent.
    pub(super) bytes: &'a [u8],
}

impl<'a> Property<'a> {
    pub(super) fn number(&self) -> u32 {
        if let Value::Number(number) = self.value { number } else { 0 }
    }

    pub(super) fn text(&self) -> &'a str {
        if let Value::Text(text) = self.value { text } else { "" }
    }
}

/// Which properties a packet may carry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowed(u64);

impl Allowed {
    pub(super) const fn these(ids: &[u8]) -> Self {
        let mut mask = 1 << USER;
        let mut at = 0;
        while at < ids.len() {
            mask |= 1 << ids[at];
            at += 1;
        }
        Self(mask)
    }

    fn has(self, id: u8) -> bool {
        id < 64 && self.0 & (1 << id) != 0
    }
}

/// Reads a packet's properties, length first, and hands each to `take`.
pub(super) fn each<'a>(
    reader: &mut Reader<'a>,
    allowed: Allowed,
    mut take: impl FnMut(Property<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let length = reader.varint()?;
    let mut rest = Reader(reader.bytes(length as usize)?);
    let mut seen = 0_u64;
    while !rest.is_empty() {
        let property = one(&mut rest)?;
        if !allowed.has(property.id) {
            return Err(Fault::Protocol("a property that this packet cannot carry"));
        }
        if seen & (1 << property.id) != 0 && property.id != USER {
            return Err(Fault::Protocol("a property twice"));
        }
        seen |= 1 << property.id;
        take(property)?;
    }
    Ok(())
}

/// Properties as they were sent, but for those that are `unwanted`. They have been read before.
pub(super) fn without(bytes: &[u8], unwanted: &[u8]) -> Vec<u8> {
    let (mut rest, mut kept) = (Reader(bytes), Vec::new());
    while let Some(property) = (!rest.is_empty()).then(|| one(&mut rest).ok()).flatten() {
        if !unwanted.contains(&property.id) {
            kept.extend_from_slice(property.bytes);
        }
    }
    kept
}

fn one<'a>(reader: &mut Reader<'a>) -> Result<Property<'a>, Fault> {
    let from = reader.0;
    let id = reader.u8()?;
    let value = match id {
        PAYLOAD_FORMAT | REQUEST_PROBLEMS | REQUEST_RESPONSE => match reader.u8()? {
            value @ (0 | 1) => Value::Number(value.into()),
            _ => return Err(Fault::Protocol("a property that is 0 or 1 has another value")),
        },
        SERVER_KEEP_ALIVE => Value::Number(reader.u16()?.into()),
        RECEIVE_MAXIMUM | ALIAS => match reader.u16()? {
            0 => return Err(Fault::Protocol("a receive maximum or topic alias of 0")),
            value => Value::Number(value.into()),
        },
        ALIAS_MAXIMUM => Value::Number(reader.u16()?.into()),
        MESSAGE_EXPIRY | SESSION_EXPIRY | WILL_DELAY => Value::Number(reader.u32()?),
        PACKET_MAXIMUM => match reader.u32()? {
            0 => return Err(Fault::Protocol("a maximum packet size of 0")),
            value => Value::Number(value),
        },
        SUBSCRIPTION_ID => match reader.varint()? {
            0 => return Err(Fault::Protocol("subscription identifier 0")),
            value => Value::Number(value),
        },
        CONTENT_TYPE | RESPONSE_TOPIC | ASSIGNED_CLIENT_ID | AUTHENTICATION_METHOD | REASON_TEXT => {
            Value::Text(reader.text()?)
        }
        CORRELATION_DATA | AUTHENTICATION_DATA => Value::Binary(reader.binary()?),
        USER => Value::Pair(reader.text()?, reader.text()?),
        _ => return Err(Fault::Malformed("an unknown property")),
    };
    Ok(Property { id, value, bytes: &from[..from.len() - reader.0.len()] })
}
