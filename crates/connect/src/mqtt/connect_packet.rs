//! CONNECT: who comes, and what is to be published when he goes.

use super::fault::{Fault, reason};
use super::packet::{PublishProperties, Qos, Version};
use super::property::{
    ALIAS_MAXIMUM, AUTHENTICATION_DATA, AUTHENTICATION_METHOD, Allowed, CONTENT_TYPE, CORRELATION_DATA, MESSAGE_EXPIRY,
    PACKET_MAXIMUM, PAYLOAD_FORMAT, RECEIVE_MAXIMUM, REQUEST_PROBLEMS, REQUEST_RESPONSE, RESPONSE_TOPIC,
    SESSION_EXPIRY, WILL_DELAY, each,
};
use super::wire::Reader;

const CONNECT: Allowed = Allowed::these(&[
    SESSION_EXPIRY,
    AUTHENTICATION_METHOD,
    AUTHENTICATION_DATA,
    REQUEST_PROBLEMS,
    REQUEST_RESPONSE,
    RECEIVE_MAXIMUM,
    ALIAS_MAXIMUM,
    PACKET_MAXIMUM,
]);
const WILL: Allowed =
    Allowed::these(&[WILL_DELAY, PAYLOAD_FORMAT, MESSAGE_EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION_DATA]);

/// A client's first packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Connect<'a> {
    pub(super) version: Version,
    pub(super) clean_start: bool,
    pub(super) keep_alive_s: u16,
    /// How long its session outlives the connection, as far as MQTT 5 says it.
    pub(super) session_expiry_s: u32,
    pub(super) receive_max: u16,
    pub(super) packet_max_bytes: u32,
    pub(super) alias_max: u16,
    pub(super) wants_problems: bool,
    pub(super) has_authentication_method: bool,
    pub(super) client_id: &'a str,
    pub(super) will: Option<Will<'a>>,
    pub(super) user: Option<&'a str>,
    pub(super) password: Option<&'a [u8]>,
}

/// What is published when the client goes without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Will<'a> {
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) delay_s: u32,
    pub(super) topic: &'a str,
    pub(super) properties: PublishProperties<'a>,
    pub(super) payload: &'a [u8],
}

impl<'a> Connect<'a> {
    pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
        let name = reader.binary()?;
        let level = reader.u8()?;
        let version = match (name, level) {
            (b"MQTT", 4) => Version::V311,
            (b"MQTT", 5) => Version::V5,
            _ => {
                let name = String::from_utf8_lossy(&name[..name.len().min(16)]);
                let why = format!("protocol '{name}' level {level}; MQTT 3.1.1 (level 4) and 5 are spoken here");
                return Err(Fault::refused(reason::UNSUPPORTED_VERSION, why));
            }
        };
        let flags = reader.u8()?;
        if flags & 1 != 0 {
            return Err(Fault::Malformed("the reserved flag of CONNECT"));
        }
        let mut connect = Self {
            version,
            clean_start: flags & 0b10 != 0,
            keep_alive_s: reader.u16()?,
            session_expiry_s: 0,
            receive_max: u16::MAX,
            packet_max_bytes: u32::MAX,
            alias_max: 0,
            wants_problems: true,
            has_authentication_method: false,
            client_id: "",
            will: None,
            user: None,
            password: None,
        };
        connect.properties(&mut reader)?;
        connect.client_id = reader.text()?;
        connect.will = Will::decode(&mut reader, flags, version)?;
        let (has_user, has_password) = (flags & 0x80 != 0, flags & 0x40 != 0);
        if has_password && !has_user && version == Version::V311 {
            return Err(Fault::Malformed("a password without user name"));
        }
        connect.user = has_user.then(|| reader.text()).transpose()?;
        connect.password = has_password.then(|| reader.binary()).transpose()?;
        if !reader.is_empty() {
            return Err(Fault::Malformed("bytes behind its end"));
        }
        Ok(connect)
    }

    fn properties(&mut self, reader: &mut Reader<'a>) -> Result<(), Fault> {
        if self.version == Version::V311 {
            // Without a clean session it is kept until the client asks for one.
            self.session_expiry_s = if self.clean_start { 0 } else { u32::MAX };
            return Ok(());
        }
        let mut has_data = false;
        each(reader, CONNECT, |property| {
            match property.id {
                SESSION_EXPIRY => self.session_expiry_s = property.number(),
                RECEIVE_MAXIMUM => self.receive_max = property.number() as u16,
                PACKET_MAXIMUM => self.packet_max_bytes = property.number(),
                ALIAS_MAXIMUM => self.alias_max = property.number() as u16,
                REQUEST_PROBLEMS => self.wants_problems = property.number() == 1,
                AUTHENTICATION_METHOD => self.has_authentication_method = true,
                AUTHENTICATION_DATA => has_data = true,
                _ => {}
            }
            Ok(())
        })?;
        if has_data && !self.has_authentication_method {
            return Err(Fault::Protocol("authentication data without an authentication method"));
        }
        Ok(())
    }
}

impl<'a> Will<'a> {
    fn decode(reader: &mut Reader<'a>, flags: u8, version: Version) -> Result<Option<Self>, Fault> {
        let (qos, retain) = (Qos::of((flags >> 3) & 0b11)?, flags & 0x20 != 0);
        if flags & 0b100 == 0 {
            let is_plain = qos == Qos::AtMostOnce && !retain;
            return if is_plain { Ok(None) } else { Err(Fault::Malformed("flags of a will without a will")) };
        }
        let (mut properties, mut delay_s) = (PublishProperties::default(), 0);
        if version == Version::V5 {
            let from = reader.0;
            each(reader, WILL, |property| {
                match property.id {
                    WILL_DELAY => delay_s = property.number(),
                    MESSAGE_EXPIRY => properties.expiry_s = Some(property.number()),
                    CONTENT_TYPE => properties.content_type = Some(property.text()),
                    _ => {}
                }
                Ok(())
            })?;
            let mut whole = Reader(&from[..from.len() - reader.0.len()]);
            whole.varint()?;
            properties.bytes = whole.0;
        }
        let topic = reader.text()?;
        if topic.is_empty() || topic.contains(['+', '#']) {
            return Err(Fault::refused(reason::BAD_TOPIC, format!("will topic '{topic}' is empty or has a wildcard")));
        }
        Ok(Some(Self { qos, retain, delay_s, topic, properties, payload: reader.binary()? }))
    }
}
