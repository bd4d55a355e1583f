//! Properties of MQTT 5: walked where they lie, each checked against what its packet may carry.

use crate::error::Error;
use crate::wire::Reader;
pub use crate::wire::put_text;

/// 1 if the payload is UTF-8 text.
pub const PAYLOAD_FORMAT: u8 = 0x01;
/// Seconds that a message may be delivered for.
pub const MESSAGE_EXPIRY: u8 = 0x02;
/// Media type of the payload.
pub const CONTENT_TYPE: u8 = 0x03;
/// Topic to which the receiver sends a response.
pub const RESPONSE_TOPIC: u8 = 0x08;
/// Bytes that link a response to its request.
pub const CORRELATION_DATA: u8 = 0x09;
/// Number that the client gave the subscription: 1 to 268,435,455.
pub const SUBSCRIPTION_ID: u8 = 0x0B;
/// Seconds that a session outlives its connection.
pub const SESSION_EXPIRY: u8 = 0x11;
/// The client id that the server chose.
pub const ASSIGNED_CLIENT_ID: u8 = 0x12;
/// The keep alive that the server wants instead.
pub const SERVER_KEEP_ALIVE: u8 = 0x13;
/// Name of the authentication method.
pub const AUTHENTICATION_METHOD: u8 = 0x15;
/// Data of the authentication method.
pub const AUTHENTICATION_DATA: u8 = 0x16;
/// 0 if the client wants no reason texts.
pub const REQUEST_PROBLEMS: u8 = 0x17;
/// Seconds between the end of the connection and the will.
pub const WILL_DELAY: u8 = 0x18;
/// 1 if the client wants response information.
pub const REQUEST_RESPONSE: u8 = 0x19;
/// The reason of a code in words, for logs.
pub const REASON_TEXT: u8 = 0x1F;
/// Response information of the server.
pub const RESPONSE_INFORMATION: u8 = 0x1A;
/// The server that the client uses instead of this one.
pub const SERVER_REFERENCE: u8 = 0x1C;
/// Most messages in flight that the sender of this takes.
pub const RECEIVE_MAXIMUM: u8 = 0x21;
/// Highest topic alias that the sender of this takes.
pub const ALIAS_MAXIMUM: u8 = 0x22;
/// Number that stands for a topic.
pub const ALIAS: u8 = 0x23;
/// Highest quality of service that the server takes.
pub const QOS_MAXIMUM: u8 = 0x24;
/// 0 if the server keeps no retained messages.
pub const RETAIN_AVAILABLE: u8 = 0x25;
/// A name and a value of the user; the only property that may stand several times in every packet.
pub const USER: u8 = 0x26;
/// Largest packet that the sender of this takes.
pub const PACKET_MAXIMUM: u8 = 0x27;
/// 0 if the server takes no filters with wildcards.
pub const WILDCARDS_AVAILABLE: u8 = 0x28;
/// 0 if the server has no subscription identifiers.
pub const SUBSCRIPTION_IDS_AVAILABLE: u8 = 0x29;
/// 0 if the server has no shared subscriptions.
pub const SHARED_SUBSCRIPTIONS_AVAILABLE: u8 = 0x2A;

/// The typed value of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PropertyValue<'a> {
    Number(u32),
    Text(&'a str),
    Binary(&'a [u8]),
    Pair(&'a str, &'a str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Property<'a> {
    pub(crate) id: u8,
    pub(crate) value: PropertyValue<'a>,
    /// The encoded bytes as they were sent.
    pub(crate) bytes: &'a [u8],
}

impl<'a> Property<'a> {
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        if let PropertyValue::Number(number) = self.value { number } else { 0 }
    }

    #[inline]
    pub(crate) fn text(&self) -> &'a str {
        if let PropertyValue::Text(text) = self.value { text } else { "" }
    }

    #[inline]
    pub(crate) fn binary(&self) -> &'a [u8] {
        if let PropertyValue::Binary(bytes) = self.value { bytes } else { &[] }
    }
}

/// The set of properties that a packet may carry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowed {
    mask: u64,
    /// The bits of the properties that may stand several times.
    repeated: u64,
}

impl Allowed {
    pub(crate) const fn these(ids: &[u8]) -> Self {
        let mut mask = 1 << USER;
        let mut at = 0;
        while at < ids.len() {
            mask |= 1 << ids[at];
            at += 1;
        }
        Self { mask, repeated: 1 << USER }
    }

    /// The set with `id` added, which may stand several times.
    pub(crate) const fn and_repeated(self, id: u8) -> Self {
        Self { mask: self.mask | 1 << id, repeated: self.repeated | 1 << id }
    }

    #[inline]
    fn has(self, id: u8) -> bool {
        id < 64 && self.mask & (1 << id) != 0
    }
}

/// Reads a packet's properties, length first, and hands each to `take`.
#[inline]
pub(crate) fn each<'a>(
    reader: &mut Reader<'a>,
    allowed: Allowed,
    mut take: impl FnMut(Property<'a>) -> Result<(), Error>,
) -> Result<(), Error> {
    let length = reader.varint()?;
    let mut rest = Reader(reader.bytes(length as usize)?);
    let mut seen = 0_u64;
    while !rest.is_empty() {
        let property = one(&mut rest)?;
        if !allowed.has(property.id) {
            return Err(Error::Protocol("a property that this packet cannot carry"));
        }
        if seen & !allowed.repeated & (1 << property.id) != 0 {
            return Err(Error::Protocol("a property twice"));
        }
        seen |= 1 << property.id;
        take(property)?;
    }
    Ok(())
}

/// Properties as they were sent, but for those that are `unwanted`. They have been read before.
#[inline]
pub fn without(bytes: &[u8], unwanted: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    for property in all(bytes).filter(|property| !unwanted.contains(&property.id)) {
        kept.extend_from_slice(property.bytes);
    }
    kept
}

/// Identifiers of the subscriptions that a message is sent for, among `bytes`, which have been read before.
pub fn subscription_ids(bytes: &[u8]) -> impl Iterator<Item = u32> + Clone {
    all(bytes).filter(|property| property.id == SUBSCRIPTION_ID).map(|property| property.number())
}

/// User properties among `bytes`, which have been read before.
#[inline]
pub fn user_properties(bytes: &[u8]) -> impl Iterator<Item = (&str, &str)> + Clone {
    all(bytes).filter_map(|property| match property.value {
        PropertyValue::Pair(name, value) => Some((name, value)),
        _ => None,
    })
}

#[inline]
fn all(bytes: &[u8]) -> impl Iterator<Item = Property<'_>> + Clone {
    let mut rest = Reader(bytes);
    std::iter::from_fn(move || (!rest.is_empty()).then(|| one(&mut rest).ok()).flatten())
}

#[inline]
fn one<'a>(reader: &mut Reader<'a>) -> Result<Property<'a>, Error> {
    let from = reader.0;
    let id = reader.u8()?;
    let value = match id {
        PAYLOAD_FORMAT
        | REQUEST_PROBLEMS
        | REQUEST_RESPONSE
        | QOS_MAXIMUM
        | RETAIN_AVAILABLE
        | WILDCARDS_AVAILABLE
        | SUBSCRIPTION_IDS_AVAILABLE
        | SHARED_SUBSCRIPTIONS_AVAILABLE => match reader.u8()? {
            value @ (0 | 1) => PropertyValue::Number(value.into()),
            _ => return Err(Error::Protocol("a property that is 0 or 1 has another value")),
        },
        SERVER_KEEP_ALIVE => PropertyValue::Number(reader.u16()?.into()),
        RECEIVE_MAXIMUM | ALIAS => match reader.u16()? {
            0 => return Err(Error::Protocol("a receive maximum or topic alias of 0")),
            value => PropertyValue::Number(value.into()),
        },
        ALIAS_MAXIMUM => PropertyValue::Number(reader.u16()?.into()),
        MESSAGE_EXPIRY | SESSION_EXPIRY | WILL_DELAY => PropertyValue::Number(reader.u32()?),
        PACKET_MAXIMUM => match reader.u32()? {
            0 => return Err(Error::Protocol("a maximum packet size of 0")),
            value => PropertyValue::Number(value),
        },
        SUBSCRIPTION_ID => match reader.varint()? {
            0 => return Err(Error::Protocol("subscription identifier 0")),
            value => PropertyValue::Number(value),
        },
        CONTENT_TYPE
        | RESPONSE_TOPIC
        | ASSIGNED_CLIENT_ID
        | AUTHENTICATION_METHOD
        | REASON_TEXT
        | RESPONSE_INFORMATION
        | SERVER_REFERENCE => PropertyValue::Text(reader.text()?),
        CORRELATION_DATA | AUTHENTICATION_DATA => PropertyValue::Binary(reader.binary()?),
        USER => PropertyValue::Pair(reader.text()?, reader.text()?),
        _ => return Err(Error::Malformed("an unknown property")),
    };
    Ok(Property { id, value, bytes: &from[..from.len() - reader.0.len()] })
}
