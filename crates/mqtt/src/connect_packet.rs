//! CONNECT: the client's name, login and limits, and its will.

use crate::error::Error;
use crate::packet::{PublishProperties, Qos, Version};
use crate::property::{
    ALIAS_MAXIMUM, AUTHENTICATION_DATA, AUTHENTICATION_METHOD, Allowed, CONTENT_TYPE, CORRELATION_DATA, MESSAGE_EXPIRY,
    PACKET_MAXIMUM, PAYLOAD_FORMAT, RECEIVE_MAXIMUM, REQUEST_PROBLEMS, REQUEST_RESPONSE, RESPONSE_TOPIC,
    SESSION_EXPIRY, WILL_DELAY, each,
};
use crate::reason;
use crate::wire::Reader;

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

/// The content of a CONNECT packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect<'a> {
    /// The version that the connection speaks.
    pub version: Version,
    /// True if an earlier session of this client is dropped.
    pub clean_start: bool,
    /// Longest time without a packet of the client; 0 if there is no limit.
    pub keep_alive_s: u16,
    /// Seconds that its session outlives the connection, as far as MQTT 5 says it.
    pub session_expiry_s: u32,
    /// Most messages in flight that the client takes.
    pub receive_max: u16,
    /// Largest packet that the client takes.
    pub packet_max_bytes: u32,
    /// Highest topic alias that the client takes.
    pub alias_max: u16,
    /// False if the client wants no reason texts.
    pub wants_problems: bool,
    /// Asks for an authentication in several steps.
    pub authentication_method: Option<&'a str>,
    /// Data of the authentication method.
    pub authentication_data: Option<&'a [u8]>,
    /// Empty if the server chooses one.
    pub client_id: &'a str,
    /// The will, if there is one.
    pub will: Option<Will<'a>>,
    /// The user name, if there is one.
    pub user: Option<&'a str>,
    /// The password, if there is one.
    pub password: Option<&'a [u8]>,
}

/// The message that is published when the client goes without a normal DISCONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Will<'a> {
    /// The quality of service that the will is published at.
    pub qos: Qos,
    /// True if the server keeps it as the topic's retained message.
    pub retain: bool,
    /// Seconds between the end of the connection and the will.
    pub delay_s: u32,
    /// The topic that the will is published to; it has no wildcards.
    pub topic: &'a str,
    /// The MQTT 5 properties of the will; empty in MQTT 3.1.1.
    pub properties: PublishProperties<'a>,
    /// The payload of the will; it may be empty.
    pub payload: &'a [u8],
}

impl<'a> Connect<'a> {
    /// A client without will and login that starts clean. Its limits are the standard's defaults, its keep alive is off.
    #[must_use]
    pub fn new(version: Version, client_id: &'a str) -> Self {
        Self {
            version,
            clean_start: true,
            keep_alive_s: 0,
            session_expiry_s: 0,
            receive_max: u16::MAX,
            packet_max_bytes: u32::MAX,
            alias_max: 0,
            wants_problems: true,
            authentication_method: None,
            authentication_data: None,
            client_id,
            will: None,
            user: None,
            password: None,
        }
    }

    pub(crate) fn decode(mut reader: Reader<'a>) -> Result<Self, Error> {
        let name = reader.binary()?;
        let level = reader.u8()?;
        let version = match (name, level) {
            (b"MQTT", 4) => Version::V311,
            (b"MQTT", 5) => Version::V5,
            _ => {
                let name = String::from_utf8_lossy(&name[..name.len().min(16)]);
                let why = format!("protocol '{name}' level {level}; MQTT 3.1.1 (level 4) and 5 are spoken here");
                return Err(Error::refused(reason::UNSUPPORTED_VERSION, why));
            }
        };
        let flags = reader.u8()?;
        if flags & 1 != 0 {
            return Err(Error::Malformed("the reserved flag of CONNECT"));
        }
        let mut connect = Self::new(version, "");
        connect.clean_start = flags & 0b10 != 0;
        connect.keep_alive_s = reader.u16()?;
        connect.properties(&mut reader)?;
        connect.client_id = reader.text()?;
        connect.will = Will::decode(&mut reader, flags, version)?;
        let (has_user, has_password) = (flags & 0x80 != 0, flags & 0x40 != 0);
        if has_password && !has_user && version == Version::V311 {
            return Err(Error::Malformed("a password without user name"));
        }
        connect.user = has_user.then(|| reader.text()).transpose()?;
        connect.password = has_password.then(|| reader.binary()).transpose()?;
        if !reader.is_empty() {
            return Err(Error::Malformed("bytes behind its end"));
        }
        Ok(connect)
    }

    fn properties(&mut self, reader: &mut Reader<'a>) -> Result<(), Error> {
        if self.version == Version::V311 {
            // Without a clean session it is kept until the client asks for one.
            self.session_expiry_s = if self.clean_start { 0 } else { u32::MAX };
            return Ok(());
        }
        each(reader, CONNECT, |property| {
            match property.id {
                SESSION_EXPIRY => self.session_expiry_s = property.number(),
                RECEIVE_MAXIMUM => self.receive_max = property.number() as u16,
                PACKET_MAXIMUM => self.packet_max_bytes = property.number(),
                ALIAS_MAXIMUM => self.alias_max = property.number() as u16,
                REQUEST_PROBLEMS => self.wants_problems = property.number() == 1,
                AUTHENTICATION_METHOD => self.authentication_method = Some(property.text()),
                AUTHENTICATION_DATA => self.authentication_data = Some(property.binary()),
                _ => {}
            }
            Ok(())
        })?;
        if self.authentication_data.is_some() && self.authentication_method.is_none() {
            return Err(Error::Protocol("authentication data without an authentication method"));
        }
        Ok(())
    }
}

impl<'a> Will<'a> {
    fn decode(reader: &mut Reader<'a>, flags: u8, version: Version) -> Result<Option<Self>, Error> {
        let (qos, retain) = (Qos::of((flags >> 3) & 0b11)?, flags & 0x20 != 0);
        if flags & 0b100 == 0 {
            let is_plain = qos == Qos::AtMostOnce && !retain;
            return if is_plain { Ok(None) } else { Err(Error::Malformed("flags of a will without a will")) };
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
            return Err(Error::refused(reason::BAD_TOPIC, format!("will topic '{topic}' is empty or has a wildcard")));
        }
        Ok(Some(Self { qos, retain, delay_s, topic, properties, payload: reader.binary()? }))
    }
}
