//! Messages: sections in order (AMQP 1.0, section 3.2).

use std::borrow::Cow;

use crate::Error;
use crate::composite::{Composite, composite};
use crate::value::Map;
use crate::value::Reader;
use crate::value::{Described, Symbol, Timestamp, Value};
use crate::write;

const DELIVERY_ANNOTATIONS: u64 = 0x71;
const MESSAGE_ANNOTATIONS: u64 = 0x72;
const APPLICATION_PROPERTIES: u64 = 0x74;
const DATA: u64 = 0x75;
const SEQUENCE: u64 = 0x76;
const VALUE: u64 = 0x77;
const FOOTER: u64 = 0x78;

composite! {
    /// How a message is delivered.
    Header = 0x70 {
        /// True if it must not be lost.
        durable: bool = false,
        /// Its priority; 4 is the usual one.
        priority: u8 = 4,
        /// Time to live, milliseconds.
        ttl: Option<u32>,
        /// True if nobody has had it before.
        first_acquirer: bool = false,
        /// Attempts to deliver it that failed.
        delivery_count: u32 = 0,
    }
}

impl Default for Header {
    fn default() -> Self {
        Self { durable: false, priority: 4, ttl: None, first_acquirer: false, delivery_count: 0 }
    }
}

composite! {
    /// The properties that a message keeps on its way.
    #[derive(Default)]
    Properties<'a> = 0x73 {
        /// A number, UUID, binary or string.
        message_id: Option<Value<'a>>,
        /// The user who has made it.
        user_id: Option<&'a [u8]>,
        /// The address of its node.
        to: Option<Value<'a>>,
        /// Its subject; of a command its name.
        subject: Option<&'a str>,
        /// The node for answers.
        reply_to: Option<Value<'a>>,
        /// The message that it belongs to: a number, UUID, binary or string.
        correlation_id: Option<Value<'a>>,
        /// Media type of its data.
        content_type: Option<Symbol<'a>>,
        /// Encoding of its data.
        content_encoding: Option<Symbol<'a>>,
        /// The time at which it becomes void.
        absolute_expiry_time: Option<Timestamp>,
        /// The time at which it was made.
        creation_time: Option<Timestamp>,
        /// Its group.
        group_id: Option<&'a str>,
        /// Its number in the group.
        group_sequence: Option<u32>,
        /// The group for answers.
        reply_to_group_id: Option<&'a str>,
    }
}

/// A message that was received.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Message<'a> {
    /// The section of that name, or its defaults.
    pub header: Header,
    /// Annotations, by symbol.
    pub annotations: Map<'a>,
    /// The section of that name, or its defaults.
    pub properties: Properties<'a>,
    /// Properties of the application, by string.
    pub application_properties: Map<'a>,
    /// The content.
    pub content: Content<'a>,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Content<'a> {
    /// No section of content.
    #[default]
    None,
    /// Bytes: those of all its data sections.
    Data(Cow<'a, [u8]>),
    /// Lists of values; only that there are some is known.
    Sequence,
    /// One value.
    Value(Value<'a>),
}

impl<'a> Content<'a> {
    /// Returns the bytes of data, or of a value that is binary or text; `None` for other content.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::None | Self::Value(Value::Null) => Some(&[]),
            Self::Data(bytes) => Some(bytes),
            Self::Value(Value::Binary(bytes)) => Some(bytes),
            Self::Value(Value::String(text)) => Some(text.as_bytes()),
            Self::Sequence | Self::Value(_) => None,
        }
    }

    fn add(&mut self, section: Described<'a>) -> Result<(), Error> {
        let value = section.value()?;
        *self = match (std::mem::take(self), section.descriptor, value) {
            (Self::None, DATA, Value::Binary(bytes)) => Self::Data(Cow::Borrowed(bytes)),
            (Self::Data(known), DATA, Value::Binary(bytes)) => {
                let mut all = known.into_owned();
                all.extend_from_slice(bytes);
                Self::Data(Cow::Owned(all))
            }
            (Self::None | Self::Sequence, SEQUENCE, Value::List(_)) => Self::Sequence,
            (Self::None, VALUE, value) => Self::Value(value),
            _ => return Err(Error::Malformed("sections of content that do not go together")),
        };
        Ok(())
    }
}

impl<'a> Message<'a> {
    /// Reads the sections of a message.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::TooLarge`] if a section breaks a rule or may not stand where it does.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let (mut message, mut reader, mut last) = (Self::default(), Reader::new(bytes), 0);
        while !reader.is_empty() {
            let Value::Described(section) = reader.value()? else {
                return Err(Error::Malformed("a section of a message without its name"));
            };
            let descriptor = section.descriptor;
            let may_repeat = matches!(descriptor, DATA | SEQUENCE);
            if descriptor < last || (descriptor == last && !may_repeat) {
                return Err(Error::Malformed("sections of a message in another order"));
            }
            last = descriptor;
            let map = || match section.value()? {
                Value::Map(items) => Ok(Map(items)),
                _ => Err(Error::Malformed("a section that is no map")),
            };
            match descriptor {
                Header::DESCRIPTOR => message.header = Header::read(section.fields()?)?,
                DELIVERY_ANNOTATIONS | FOOTER => _ = map()?,
                MESSAGE_ANNOTATIONS => message.annotations = map()?,
                Properties::DESCRIPTOR => message.properties = Properties::read(section.fields()?)?,
                APPLICATION_PROPERTIES => message.application_properties = map()?,
                DATA | SEQUENCE | VALUE => message.content.add(section)?,
                _ => return Err(Error::Descriptor { descriptor }),
            }
        }
        Ok(message)
    }
}

/// A message that is to be sent; its content is one section of data.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MessageDraft<'a> {
    /// The section of that name.
    pub header: Header,
    /// Annotations, by symbol.
    pub annotations: Map<'a>,
    /// The section of that name.
    pub properties: Properties<'a>,
    /// Properties of the application, by string.
    pub application_properties: Map<'a>,
    /// The bytes of the data.
    pub data: &'a [u8],
}

impl MessageDraft<'_> {
    /// Appends the message. Sections with nothing but defaults are left out.
    pub fn write(&self, out: &mut Vec<u8>) {
        if self.header != Header::default() {
            self.header.write(out);
        }
        map_section(out, MESSAGE_ANNOTATIONS, self.annotations);
        if self.properties != Properties::default() {
            self.properties.write(out);
        }
        map_section(out, APPLICATION_PROPERTIES, self.application_properties);
        write::data_section(out, DATA, self.data);
    }
}

fn map_section(out: &mut Vec<u8>, descriptor: u64, map: Map<'_>) {
    if !map.0.is_empty() {
        out.push(0x00);
        write::value(out, Value::Ulong(descriptor));
        write::value(out, Value::Map(map.0));
    }
}
