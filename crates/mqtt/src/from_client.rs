//! Packets that a client sends, read from the bytes where they lie. Nothing is allocated but for CONNECT and the filters
//! of a (un)subscription, and these never for more than the packet holds.

use crate::connect_packet::Connect;
use crate::error::Error;
use crate::packet::{Ack, Disconnect, Publish, Subscribe, Unsubscribe, Version, auth, ended};
use crate::property::{ALIAS, Allowed, CONTENT_TYPE, CORRELATION_DATA, MESSAGE_EXPIRY, PAYLOAD_FORMAT, RESPONSE_TOPIC};
use crate::wire::{Frame, Reader};

const PUBLISH: Allowed =
    Allowed::these(&[PAYLOAD_FORMAT, MESSAGE_EXPIRY, ALIAS, RESPONSE_TOPIC, CORRELATION_DATA, CONTENT_TYPE]);

/// A packet of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet<'a> {
    /// CONNECT: the client opens the connection (section 3.1).
    Connect(Box<Connect<'a>>),
    /// PUBLISH: a message (section 3.3).
    Publish(Publish<'a>),
    /// PUBACK: the answer to a message at QoS 1 (section 3.4).
    PubAck(Ack),
    /// PUBREC: the first answer to a message at QoS 2 (section 3.5).
    PubRec(Ack),
    /// PUBREL: the client releases its message at QoS 2 (section 3.6).
    PubRel(Ack),
    /// PUBCOMP: the last answer to a message at QoS 2 (section 3.7).
    PubComp(Ack),
    /// SUBSCRIBE: the client asks for the messages of filters (section 3.8).
    Subscribe(Subscribe<'a>),
    /// UNSUBSCRIBE: the client gives filters up (section 3.10).
    Unsubscribe(Unsubscribe<'a>),
    /// PINGREQ: the client shows that it is alive (section 3.12).
    PingReq,
    /// DISCONNECT: the client ends the connection (section 3.14).
    Disconnect(Disconnect),
    /// AUTH: part of an authentication in several steps.
    Auth,
}

/// Reads a packet. CONNECT is read in the version that it names, others in that of the connection.
///
/// # Errors
/// The packet is malformed, or no client may send it.
#[inline]
pub fn decode<'a>(frame: Frame<'a>, version: Version) -> Result<Packet<'a>, Error> {
    let (kind, flags) = frame.kind_and_flags()?;
    let reader = Reader(frame.body);
    match kind {
        1 => Connect::decode(reader).map(|connect| Packet::Connect(Box::new(connect))),
        3 => Publish::decode(reader, flags, version, PUBLISH).map(Packet::Publish),
        4 => Ack::decode(reader, version).map(Packet::PubAck),
        5 => Ack::decode(reader, version).map(Packet::PubRec),
        6 => Ack::decode(reader, version).map(Packet::PubRel),
        7 => Ack::decode(reader, version).map(Packet::PubComp),
        8 => Subscribe::decode(reader, version).map(Packet::Subscribe),
        10 => Unsubscribe::decode(reader, version).map(Packet::Unsubscribe),
        12 => ended(reader).map(|()| Packet::PingReq),
        14 => Disconnect::from_client(reader, version).map(Packet::Disconnect),
        15 if version == Version::V5 => auth(reader).map(|()| Packet::Auth),
        _ => Err(Error::Protocol("a packet that no client sends")),
    }
}
