//! Packets that a client sends, read from the bytes where they lie. Nothing is allocated but for CONNECT and the filters
//! of a (un)subscription, and these never for more than the packet holds.

use super::connect_packet::Connect;
use super::fault::Fault;
use super::property::{
    ALIAS, AUTHENTICATION_DATA, AUTHENTICATION_METHOD, Allowed, CONTENT_TYPE, CORRELATION_DATA, MESSAGE_EXPIRY,
    PAYLOAD_FORMAT, REASON_TEXT, RESPONSE_TOPIC, SESSION_EXPIRY, SUBSCRIPTION_ID, each,
};
use super::wire::{Frame, Reader};

const PUBLISH: Allowed =
    Allowed::these(&[PAYLOAD_FORMAT, MESSAGE_EXPIRY, ALIAS, RESPONSE_TOPIC, CORRELATION_DATA, CONTENT_TYPE]);
const ACK: Allowed = Allowed::these(&[REASON_TEXT]);
const SUBSCRIBE: Allowed = Allowed::these(&[SUBSCRIPTION_ID]);
const UNSUBSCRIBE: Allowed = Allowed::these(&[]);
const DISCONNECT: Allowed = Allowed::these(&[SESSION_EXPIRY, REASON_TEXT]);
const AUTH: Allowed = Allowed::these(&[AUTHENTICATION_METHOD, AUTHENTICATION_DATA, REASON_TEXT]);

/// Reasons for which a client may go (MQTT 5, section 3.14.2.1).
const REASONS_TO_GO: [u8; 14] = [0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99];

/// The protocol that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V311,
    V5,
}

/// What is promised of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(clippy::enum_variant_names, reason = "the names of the standard")]
pub(crate) enum Qos {
    AtMostOnce,
    AtLeastOnce,
    ExactlyOnce,
}

impl Qos {
    pub(super) fn of(bits: u8) -> Result<Self, Fault> {
        match bits {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            2 => Ok(Self::ExactlyOnce),
            _ => Err(Fault::Malformed("quality of service 3")),
        }
    }
}

/// A packet of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Packet<'a> {
    Connect(Box<Connect<'a>>),
    Publish(Publish<'a>),
    PubAck(Ack),
    PubRec(Ack),
    PubRel(Ack),
    PubComp(Ack),
    Subscribe(Subscribe<'a>),
    Unsubscribe(Unsubscribe<'a>),
    PingReq,
    Disconnect(Disconnect),
    Auth,
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Publish<'a> {
    pub(super) dup: bool,
    pub(super) retain: bool,
    pub(super) qos: Qos,
    /// Empty if an alias stands for it.
    pub(super) topic: &'a str,
    /// 0 at most once.
    pub(super) id: u16,
    pub(super) properties: PublishProperties<'a>,
    pub(super) payload: &'a [u8],
}

/// What MQTT 5 says of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PublishProperties<'a> {
    /// 0 if there is none.
    pub(super) alias: u16,
    pub(super) expiry_s: Option<u32>,
    pub(super) content_type: Option<&'a str>,
    /// All of them, as they were sent.
    pub(super) bytes: &'a [u8],
}

/// An acknowledgement of either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) id: u16,
    pub(super) reason: u8,
}

/// Filters that a client wants messages of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subscribe<'a> {
    pub(super) id: u16,
    /// 0 if there is none.
    pub(super) subscription_id: u32,
    pub(super) filters: Vec<(&'a str, SubscribeOptions)>,
}

/// How a client wants them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SubscribeOptions {
    pub(super) qos: Qos,
    pub(super) no_local: bool,
    pub(super) retain_as_published: bool,
    pub(super) retain_handling: RetainHandling,
}

/// Whether a subscription brings what is retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetainHandling {
    Send,
    SendIfNew,
    DoNotSend,
}

/// Filters that a client wants no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unsubscribe<'a> {
    pub(super) id: u16,
    pub(super) filters: Vec<&'a str>,
}

/// The client's orderly end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Disconnect {
    pub(super) reason: u8,
    pub(super) session_expiry_s: Option<u32>,
}

/// Reads a packet. CONNECT is read in the version that it names, others in that of the connection.
pub(super) fn decode<'a>(frame: Frame<'a>, version: Version) -> Result<Packet<'a>, Fault> {
    let (kind, flags) = (frame.first_byte >> 4, frame.first_byte & 0x0F);
    let wanted_flags = match kind {
        3 => flags,
        6 | 8 | 10 => 0b0010,
        _ => 0,
    };
    if flags != wanted_flags {
        return Err(Fault::Malformed("reserved flags in the first byte"));
    }
    let reader = Reader(frame.body);
    match kind {
        1 => Connect::decode(reader).map(|connect| Packet::Connect(Box::new(connect))),
        3 => publish(reader, flags, version).map(Packet::Publish),
        4 => ack(reader, version).map(Packet::PubAck),
        5 => ack(reader, version).map(Packet::PubRec),
        6 => ack(reader, version).map(Packet::PubRel),
        7 => ack(reader, version).map(Packet::PubComp),
        8 => subscribe(reader, version).map(Packet::Subscribe),
        10 => unsubscribe(reader, version).map(Packet::Unsubscribe),
        12 => ended(reader).map(|()| Packet::PingReq),
        14 => disconnect(reader, version).map(Packet::Disconnect),
        15 if version == Version::V5 => auth(reader).map(|()| Packet::Auth),
        _ => Err(Fault::Protocol("a packet that no client sends")),
    }
}

fn ended(reader: Reader<'_>) -> Result<(), Fault> {
    if reader.is_empty() { Ok(()) } else { Err(Fault::Malformed("bytes behind its end")) }
}

fn publish(mut reader: Reader<'_>, flags: u8, version: Version) -> Result<Publish<'_>, Fault> {
    let qos = Qos::of((flags >> 1) & 0b11)?;
    let dup = flags & 0b1000 != 0;
    if dup && qos == Qos::AtMostOnce {
        return Err(Fault::Malformed("a repeated message that was promised at most once"));
    }
    let topic = reader.text()?;
    if topic.bytes().any(|byte| byte == b'+' || byte == b'#') {
        return Err(Fault::refused(super::fault::reason::BAD_TOPIC, format!("topic '{topic}' with a wildcard")));
    }
    let id = if qos == Qos::AtMostOnce { 0 } else { reader.id()? };
    let mut properties = PublishProperties::default();
    if version == Version::V5 {
        let from = reader;
        each(&mut reader, PUBLISH, |property| {
            match property.id {
                ALIAS => properties.alias = property.number() as u16,
                MESSAGE_EXPIRY => properties.expiry_s = Some(property.number()),
                CONTENT_TYPE => properties.content_type = Some(property.text()),
                RESPONSE_TOPIC if property.text().contains(['+', '#']) => {
                    return Err(Fault::Protocol("a response topic with a wildcard"));
                }
                _ => {}
            }
            Ok(())
        })?;
        let whole = &from.0[..from.0.len() - reader.0.len()];
        let mut rest = Reader(whole);
        rest.varint()?;
        properties.bytes = rest.0;
    }
    if topic.is_empty() && properties.alias == 0 {
        return Err(Fault::Protocol("a message without topic"));
    }
    Ok(Publish { dup, retain: flags & 1 != 0, qos, topic, id, properties, payload: reader.0 })
}

fn ack(mut reader: Reader<'_>, version: Version) -> Result<Ack, Fault> {
    let id = reader.id()?;
    let mut reason = 0;
    if version == Version::V5 && !reader.is_empty() {
        reason = reader.u8()?;
        if !reader.is_empty() {
            each(&mut reader, ACK, |_| Ok(()))?;
        }
    }
    ended(reader)?;
    Ok(Ack { id, reason })
}

fn subscribe(mut reader: Reader<'_>, version: Version) -> Result<Subscribe<'_>, Fault> {
    let id = reader.id()?;
    let mut subscription_id = 0;
    if version == Version::V5 {
        each(&mut reader, SUBSCRIBE, |property| {
            if property.id == SUBSCRIPTION_ID {
                subscription_id = property.number();
            }
            Ok(())
        })?;
    }
    let mut filters = Vec::new();
    while !reader.is_empty() {
        let filter = reader.text()?;
        filters.push((filter, SubscribeOptions::of(reader.u8()?, version)?));
    }
    if filters.is_empty() {
        return Err(Fault::Protocol("a subscription without filter"));
    }
    Ok(Subscribe { id, subscription_id, filters })
}

impl SubscribeOptions {
    /// From the byte behind a filter.
    pub(super) fn of(bits: u8, version: Version) -> Result<Self, Fault> {
        let known = if version == Version::V5 { 0b0011_1111 } else { 0b11 };
        if bits & !known != 0 {
            return Err(Fault::Malformed("reserved bits behind a filter"));
        }
        let retain_handling = match bits >> 4 {
            0 => RetainHandling::Send,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::DoNotSend,
            _ => return Err(Fault::Protocol("retain handling 3")),
        };
        Ok(Self {
            qos: Qos::of(bits & 0b11)?,
            no_local: bits & 0b100 != 0,
            retain_as_published: bits & 0b1000 != 0,
            retain_handling,
        })
    }
}

fn unsubscribe(mut reader: Reader<'_>, version: Version) -> Result<Unsubscribe<'_>, Fault> {
    let id = reader.id()?;
    if version == Version::V5 {
        each(&mut reader, UNSUBSCRIBE, |_| Ok(()))?;
    }
    let mut filters = Vec::new();
    while !reader.is_empty() {
        filters.push(reader.text()?);
    }
    if filters.is_empty() {
        return Err(Fault::Protocol("an unsubscription without filter"));
    }
    Ok(Unsubscribe { id, filters })
}

fn disconnect(mut reader: Reader<'_>, version: Version) -> Result<Disconnect, Fault> {
    let mut given = Disconnect::default();
    if version == Version::V5 && !reader.is_empty() {
        given.reason = reader.u8()?;
        if !REASONS_TO_GO.contains(&given.reason) {
            return Err(Fault::Protocol("a good-bye with a reason that no client has"));
        }
        if !reader.is_empty() {
            each(&mut reader, DISCONNECT, |property| {
                if property.id == SESSION_EXPIRY {
                    given.session_expiry_s = Some(property.number());
                }
                Ok(())
            })?;
        }
    }
    ended(reader)?;
    Ok(given)
}

fn auth(mut reader: Reader<'_>) -> Result<(), Fault> {
    if !reader.is_empty() {
        reader.u8()?;
        if !reader.is_empty() {
            each(&mut reader, AUTH, |_| Ok(()))?;
        }
    }
    ended(reader)
}
