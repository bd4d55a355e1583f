//! Packets that a server sends, read from the bytes where they lie. Nothing is allocated.

use crate::error::Error;
use crate::packet::{Ack, Publish, Qos, Version, auth, ended};
use crate::property::{
    ALIAS, ALIAS_MAXIMUM, ASSIGNED_CLIENT_ID, AUTHENTICATION_DATA, AUTHENTICATION_METHOD, Allowed, CONTENT_TYPE,
    CORRELATION_DATA, MESSAGE_EXPIRY, PACKET_MAXIMUM, PAYLOAD_FORMAT, Property, QOS_MAXIMUM, REASON_TEXT,
    RECEIVE_MAXIMUM, RESPONSE_INFORMATION, RESPONSE_TOPIC, RETAIN_AVAILABLE, SERVER_KEEP_ALIVE, SERVER_REFERENCE,
    SESSION_EXPIRY, SHARED_SUBSCRIPTIONS_AVAILABLE, SUBSCRIPTION_ID, SUBSCRIPTION_IDS_AVAILABLE, WILDCARDS_AVAILABLE,
    each,
};
use crate::reason;
use crate::wire::{Frame, Reader};

/// A message may be sent for several subscriptions at once.
const PUBLISH: Allowed =
    Allowed::these(&[PAYLOAD_FORMAT, MESSAGE_EXPIRY, ALIAS, RESPONSE_TOPIC, CORRELATION_DATA, CONTENT_TYPE])
        .and_repeated(SUBSCRIPTION_ID);
const CONNACK: Allowed = Allowed::these(&[
    SESSION_EXPIRY,
    ASSIGNED_CLIENT_ID,
    SERVER_KEEP_ALIVE,
    AUTHENTICATION_METHOD,
    AUTHENTICATION_DATA,
    RESPONSE_INFORMATION,
    SERVER_REFERENCE,
    REASON_TEXT,
    RECEIVE_MAXIMUM,
    ALIAS_MAXIMUM,
    QOS_MAXIMUM,
    RETAIN_AVAILABLE,
    PACKET_MAXIMUM,
    WILDCARDS_AVAILABLE,
    SUBSCRIPTION_IDS_AVAILABLE,
    SHARED_SUBSCRIPTIONS_AVAILABLE,
]);
const FILTERS_ACK: Allowed = Allowed::these(&[REASON_TEXT]);
const DISCONNECT: Allowed = Allowed::these(&[REASON_TEXT, SERVER_REFERENCE]);

/// Codes that a packet may carry, by the sections of the standard.
const CONNACK_V311: &[u8] = &[0, 1, 2, 3, 4, 5];
const CONNACK_V5: &[u8] = &[
    0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B,
    0x9C, 0x9D, 0x9F,
];
const SUBACK_V311: &[u8] = &[0, 1, 2, 0x80];
const SUBACK_V5: &[u8] = &[0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2];
const UNSUBACK_V5: &[u8] = &[0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91];
const DISCONNECT_V5: &[u8] = &[
    0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99,
    0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2,
];

/// A packet of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    /// CONNACK: the answer to CONNECT.
    ConnAck(ConnAck<'a>),
    /// PUBLISH: a message for one or more subscriptions.
    Publish(Publish<'a>),
    /// PUBACK: the answer to a message at QoS 1.
    PubAck(Ack),
    /// PUBREC: the first answer to a message at QoS 2.
    PubRec(Ack),
    /// PUBREL: the server releases its message at QoS 2.
    PubRel(Ack),
    /// PUBCOMP: the last answer to a message at QoS 2.
    PubComp(Ack),
    /// SUBACK: the answer to SUBSCRIBE.
    SubAck(FiltersAck<'a>),
    /// UNSUBACK: the answer to UNSUBSCRIBE.
    UnsubAck(FiltersAck<'a>),
    /// PINGRESP: the answer to PINGREQ.
    PingResp,
    /// DISCONNECT: the server ends the connection; MQTT 5 only.
    Disconnect(Disconnect<'a>),
    /// AUTH: part of an authentication in several steps; MQTT 5 only.
    Auth,
}

/// The content of a CONNACK packet. Limits that it does not name have the standard's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnAck<'a> {
    /// True if the client continues an earlier session.
    pub session_present: bool,
    /// 0 if the client is accepted; else a return code of MQTT 3.1.1 (1 to 5), or a code of [`reason`].
    pub code: u8,
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
    /// Highest quality of service of messages that the server takes.
    pub qos_max: Qos,
    /// True if the server keeps retained messages.
    pub has_retained: bool,
    /// True if filters may have wildcards.
    pub has_wildcards: bool,
    /// True if subscriptions may have identifiers.
    pub has_subscription_ids: bool,
    /// True if subscriptions may be shared.
    pub has_shared_subscriptions: bool,
    /// The client id that the server chose.
    pub assigned_client_id: Option<&'a str>,
    /// The reason of the code in words; MQTT 5 only.
    pub reason_text: Option<&'a str>,
}

/// The content of a SUBACK or UNSUBACK packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FiltersAck<'a> {
    /// The packet id of the request.
    pub id: u16,
    /// One code for each filter of the request; none in an UNSUBACK of MQTT 3.1.1.
    pub codes: &'a [u8],
}

/// The content of a server's DISCONNECT packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Disconnect<'a> {
    /// The code of [`reason`] for which the server ends the connection.
    pub reason: u8,
    /// The reason of the code in words, if the server gives one.
    pub reason_text: Option<&'a str>,
}

/// Reads a packet in the version of the connection.
///
/// # Errors
/// The packet is malformed, or no server may send it.
#[inline]
pub fn decode<'a>(frame: Frame<'a>, version: Version) -> Result<Packet<'a>, Error> {
    let (kind, flags) = frame.kind_and_flags()?;
    let reader = Reader(frame.body);
    match kind {
        2 => ConnAck::decode(reader, version).map(Packet::ConnAck),
        3 => Publish::decode(reader, flags, version, PUBLISH).map(Packet::Publish),
        4 => Ack::decode(reader, version).map(Packet::PubAck),
        5 => Ack::decode(reader, version).map(Packet::PubRec),
        6 => Ack::decode(reader, version).map(Packet::PubRel),
        7 => Ack::decode(reader, version).map(Packet::PubComp),
        9 => FiltersAck::subscribed(reader, version).map(Packet::SubAck),
        11 => FiltersAck::unsubscribed(reader, version).map(Packet::UnsubAck),
        13 => ended(reader).map(|()| Packet::PingResp),
        14 if version == Version::V5 => Disconnect::decode(reader).map(Packet::Disconnect),
        15 if version == Version::V5 => auth(reader).map(|()| Packet::Auth),
        _ => Err(Error::Protocol("a packet that no server sends")),
    }
}

impl<'a> ConnAck<'a> {
    fn decode(mut reader: Reader<'a>, version: Version) -> Result<Self, Error> {
        let flags = reader.u8()?;
        if flags > 1 {
            return Err(Error::Malformed("reserved flags of CONNACK"));
        }
        let mut code = reader.u8()?;
        // A server that does not speak MQTT 5 says so in the form of 3.1.1.
        let is_older = version == Version::V5 && code == 1 && reader.is_empty();
        if is_older {
            code = reason::UNSUPPORTED_VERSION;
        }
        let known = if version == Version::V5 { CONNACK_V5 } else { CONNACK_V311 };
        if !known.contains(&code) {
            return Err(Error::Malformed("a CONNACK with an unknown code"));
        }
        if flags == 1 && code != reason::SUCCESS {
            return Err(Error::Protocol("a session is continued, and the client refused"));
        }
        let mut answer = Self::new(flags == 1, code);
        if version == Version::V5 && !is_older {
            each(&mut reader, CONNACK, |property| {
                answer.set(property);
                Ok(())
            })?;
        }
        ended(reader)?;
        Ok(answer)
    }

    pub(crate) fn new(session_present: bool, code: u8) -> Self {
        Self {
            session_present,
            code,
            session_expiry_s: None,
            receive_max: u16::MAX,
            packet_max_bytes: u32::MAX,
            alias_max: 0,
            keep_alive_s: None,
            qos_max: Qos::ExactlyOnce,
            has_retained: true,
            has_wildcards: true,
            has_subscription_ids: true,
            has_shared_subscriptions: true,
            assigned_client_id: None,
            reason_text: None,
        }
    }

    fn set(&mut self, property: Property<'a>) {
        let number = property.number();
        match property.id {
            SESSION_EXPIRY => self.session_expiry_s = Some(number),
            RECEIVE_MAXIMUM => self.receive_max = number as u16,
            PACKET_MAXIMUM => self.packet_max_bytes = number,
            ALIAS_MAXIMUM => self.alias_max = number as u16,
            SERVER_KEEP_ALIVE => self.keep_alive_s = Some(number as u16),
            QOS_MAXIMUM => self.qos_max = if number == 0 { Qos::AtMostOnce } else { Qos::AtLeastOnce },
            RETAIN_AVAILABLE => self.has_retained = number == 1,
            WILDCARDS_AVAILABLE => self.has_wildcards = number == 1,
            SUBSCRIPTION_IDS_AVAILABLE => self.has_subscription_ids = number == 1,
            SHARED_SUBSCRIPTIONS_AVAILABLE => self.has_shared_subscriptions = number == 1,
            ASSIGNED_CLIENT_ID => self.assigned_client_id = Some(property.text()),
            REASON_TEXT => self.reason_text = Some(property.text()),
            _ => {}
        }
    }
}

impl<'a> FiltersAck<'a> {
    fn subscribed(reader: Reader<'a>, version: Version) -> Result<Self, Error> {
        Self::decode(reader, version, if version == Version::V5 { SUBACK_V5 } else { SUBACK_V311 })
    }

    fn unsubscribed(reader: Reader<'a>, version: Version) -> Result<Self, Error> {
        if version == Version::V5 {
            return Self::decode(reader, version, UNSUBACK_V5);
        }
        let mut reader = reader;
        let id = reader.id()?;
        ended(reader)?;
        Ok(Self { id, codes: &[] })
    }

    fn decode(mut reader: Reader<'a>, version: Version, known: &[u8]) -> Result<Self, Error> {
        let id = reader.id()?;
        if version == Version::V5 {
            each(&mut reader, FILTERS_ACK, |_| Ok(()))?;
        }
        let codes = reader.0;
        if codes.is_empty() {
            return Err(Error::Protocol("an answer about filters without a code"));
        }
        if !codes.iter().all(|code| known.contains(code)) {
            return Err(Error::Malformed("an answer about filters with an unknown code"));
        }
        Ok(Self { id, codes })
    }
}

impl<'a> Disconnect<'a> {
    fn decode(mut reader: Reader<'a>) -> Result<Self, Error> {
        let mut given = Self::default();
        if reader.is_empty() {
            return Ok(given);
        }
        given.reason = reader.u8()?;
        if !DISCONNECT_V5.contains(&given.reason) {
            return Err(Error::Protocol("a DISCONNECT with a reason that no server has"));
        }
        if !reader.is_empty() {
            each(&mut reader, DISCONNECT, |property| {
                if property.id == REASON_TEXT {
                    given.reason_text = Some(property.text());
                }
                Ok(())
            })?;
        }
        ended(reader)?;
        Ok(given)
    }
}
