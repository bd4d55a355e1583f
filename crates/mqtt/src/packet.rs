//! The content of the packets that both sides send, and of subscriptions.

use crate::error::Error;
use crate::property::{
    ALIAS, AUTHENTICATION_DATA, AUTHENTICATION_METHOD, Allowed, CONTENT_TYPE, MESSAGE_EXPIRY, REASON_TEXT,
    RESPONSE_TOPIC, SESSION_EXPIRY, SUBSCRIPTION_ID, each,
};
use crate::reason;
use crate::wire::Reader;

const ACK: Allowed = Allowed::these(&[REASON_TEXT]);
const SUBSCRIBE: Allowed = Allowed::these(&[SUBSCRIPTION_ID]);
const UNSUBSCRIBE: Allowed = Allowed::these(&[]);
const DISCONNECT: Allowed = Allowed::these(&[SESSION_EXPIRY, REASON_TEXT]);
const AUTH: Allowed = Allowed::these(&[AUTHENTICATION_METHOD, AUTHENTICATION_DATA, REASON_TEXT]);

/// Reasons for which a client may go (MQTT 5, section 3.14.2.1).
const REASONS_TO_GO: [u8; 14] = [0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99];

/// The protocol that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// MQTT 3.1.1, protocol level 4.
    V311,
    /// MQTT 5, protocol level 5.
    V5,
}

/// Quality of service: how often a message arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(clippy::enum_variant_names, reason = "the names of the standard")]
pub enum Qos {
    /// QoS 0: sent once and not acknowledged.
    AtMostOnce,
    /// QoS 1: acknowledged by PUBACK.
    AtLeastOnce,
    /// QoS 2: PUBREC, PUBREL and PUBCOMP.
    ExactlyOnce,
}

impl Qos {
    /// The quality of service with this number: 0, 1 or 2.
    ///
    /// # Errors
    /// The number is above 2.
    #[inline]
    pub fn of(bits: u8) -> Result<Self, Error> {
        match bits {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            2 => Ok(Self::ExactlyOnce),
            _ => Err(Error::Malformed("quality of service 3")),
        }
    }
}

/// The content of a PUBLISH packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// True if it may have been sent before.
    pub dup: bool,
    /// True if the server keeps it as the topic's retained message.
    pub retain: bool,
    /// The quality of service that it was sent at.
    pub qos: Qos,
    /// Empty if an alias stands for it.
    pub topic: &'a str,
    /// The packet id; 0 at QoS 0.
    pub id: u16,
    /// The MQTT 5 properties of the message; empty in MQTT 3.1.1.
    pub properties: PublishProperties<'a>,
    /// The payload of the message; it may be empty.
    pub payload: &'a [u8],
}

/// The MQTT 5 properties of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PublishProperties<'a> {
    /// The topic alias; 0 if there is none.
    pub alias: u16,
    /// Seconds that it may be delivered for.
    pub expiry_s: Option<u32>,
    /// The media type of the payload.
    pub content_type: Option<&'a str>,
    /// All properties as they were sent.
    pub bytes: &'a [u8],
}

/// An acknowledgement of either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// The packet id of the message.
    pub id: u16,
    /// A code of [`reason`]; 0 in MQTT 3.1.1.
    pub reason: u8,
}

/// Filters that a client wants messages of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// The packet id, which SUBACK repeats; never 0.
    pub id: u16,
    /// 0 if there is none.
    pub subscription_id: u32,
    /// At least one filter, each with its options.
    pub filters: Vec<(&'a str, SubscribeOptions)>,
}

/// The options of one subscribed filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// Highest quality of service of messages that are sent for it.
    pub qos: Qos,
    /// True if the client's own messages are left out.
    pub no_local: bool,
    /// True if messages keep the retain flag of their publisher.
    pub retain_as_published: bool,
    /// The retained messages that the subscription brings.
    pub retain_handling: RetainHandling,
}

/// The retain handling option: it says when a subscription brings retained messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetainHandling {
    /// Retained messages are sent at each subscription.
    Send,
    /// Only if the subscription is new.
    SendIfNew,
    /// Retained messages are not sent at subscription.
    DoNotSend,
}

/// Filters that a client wants no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    /// The packet id, which UNSUBACK repeats; never 0.
    pub id: u16,
    /// The filters that the client gives up; at least one.
    pub filters: Vec<&'a str>,
}

/// The content of a DISCONNECT packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Disconnect {
    /// A code of [`reason`]; 0 in MQTT 3.1.1.
    pub reason: u8,
    /// Seconds that the session outlives the connection, if the client changes it.
    pub session_expiry_s: Option<u32>,
}

#[inline]
pub(crate) fn ended(reader: Reader<'_>) -> Result<(), Error> {
    if reader.is_empty() { Ok(()) } else { Err(Error::Malformed("bytes behind its end")) }
}

impl<'a> Publish<'a> {
    #[inline]
    pub(crate) fn decode(mut reader: Reader<'a>, flags: u8, version: Version, allowed: Allowed) -> Result<Self, Error> {
        let qos = Qos::of((flags >> 1) & 0b11)?;
        let dup = flags & 0b1000 != 0;
        if dup && qos == Qos::AtMostOnce {
            return Err(Error::Malformed("a repeated message that was promised at most once"));
        }
        let topic = reader.text()?;
        if topic.bytes().any(|byte| byte == b'+' || byte == b'#') {
            return Err(Error::refused(reason::BAD_TOPIC, format!("topic '{topic}' with a wildcard")));
        }
        let id = if qos == Qos::AtMostOnce { 0 } else { reader.id()? };
        let mut properties = PublishProperties::default();
        if version == Version::V5 {
            let from = reader;
            each(&mut reader, allowed, |property| {
                match property.id {
                    ALIAS => properties.alias = property.number() as u16,
                    MESSAGE_EXPIRY => properties.expiry_s = Some(property.number()),
                    CONTENT_TYPE => properties.content_type = Some(property.text()),
                    RESPONSE_TOPIC if property.text().contains(['+', '#']) => {
                        return Err(Error::Protocol("a response topic with a wildcard"));
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
            return Err(Error::Protocol("a message without topic"));
        }
        Ok(Self { dup, retain: flags & 1 != 0, qos, topic, id, properties, payload: reader.0 })
    }
}

impl Ack {
    #[inline]
    pub(crate) fn decode(mut reader: Reader<'_>, version: Version) -> Result<Self, Error> {
        let id = reader.id()?;
        let mut reason = 0;
        if version == Version::V5 && !reader.is_empty() {
            reason = reader.u8()?;
            if !reader.is_empty() {
                each(&mut reader, ACK, |_| Ok(()))?;
            }
        }
        ended(reader)?;
        Ok(Self { id, reason })
    }
}

impl<'a> Subscribe<'a> {
    pub(crate) fn decode(mut reader: Reader<'a>, version: Version) -> Result<Self, Error> {
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
            return Err(Error::Protocol("a subscription without filter"));
        }
        Ok(Self { id, subscription_id, filters })
    }
}

impl SubscribeOptions {
    /// All messages up to this quality of service, and retained ones at each subscription: what MQTT 3.1.1 has.
    #[must_use]
    pub const fn at(qos: Qos) -> Self {
        Self { qos, no_local: false, retain_as_published: false, retain_handling: RetainHandling::Send }
    }

    /// From the byte behind a filter.
    ///
    /// # Errors
    /// A reserved bit is set, or a value does not exist in this version.
    pub fn of(bits: u8, version: Version) -> Result<Self, Error> {
        let known = if version == Version::V5 { 0b0011_1111 } else { 0b11 };
        if bits & !known != 0 {
            return Err(Error::Malformed("reserved bits behind a filter"));
        }
        let retain_handling = match bits >> 4 {
            0 => RetainHandling::Send,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::DoNotSend,
            _ => return Err(Error::Protocol("retain handling 3")),
        };
        Ok(Self {
            qos: Qos::of(bits & 0b11)?,
            no_local: bits & 0b100 != 0,
            retain_as_published: bits & 0b1000 != 0,
            retain_handling,
        })
    }
}

impl<'a> Unsubscribe<'a> {
    pub(crate) fn decode(mut reader: Reader<'a>, version: Version) -> Result<Self, Error> {
        let id = reader.id()?;
        if version == Version::V5 {
            each(&mut reader, UNSUBSCRIBE, |_| Ok(()))?;
        }
        let mut filters = Vec::new();
        while !reader.is_empty() {
            filters.push(reader.text()?);
        }
        if filters.is_empty() {
            return Err(Error::Protocol("an unsubscription without filter"));
        }
        Ok(Self { id, filters })
    }
}

impl Disconnect {
    pub(crate) fn from_client(mut reader: Reader<'_>, version: Version) -> Result<Self, Error> {
        let mut given = Self::default();
        if version == Version::V5 && !reader.is_empty() {
            given.reason = reader.u8()?;
            if !REASONS_TO_GO.contains(&given.reason) {
                return Err(Error::Protocol("a good-bye with a reason that no client has"));
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
}

pub(crate) fn auth(mut reader: Reader<'_>) -> Result<(), Error> {
    if !reader.is_empty() {
        reader.u8()?;
        if !reader.is_empty() {
            each(&mut reader, AUTH, |_| Ok(()))?;
        }
    }
    ended(reader)
}
