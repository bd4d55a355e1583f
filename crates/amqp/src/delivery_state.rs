//! The states of a delivery (AMQP 1.0, section 3.4), and errors (section 2.8.14).

use crate::composite::{Composite, Field, composite, read_composite};
use crate::value::Map;
use crate::value::{Described, Symbol, Value};
use crate::write;

composite! {
    /// An error that ends something, or for which a message is rejected.
    ErrorInfo<'a> = 0x1d {
        /// Its name, such as those of [`crate::condition`].
        condition: Symbol<'a>,
        /// A text for people.
        description: Option<&'a str>,
        /// More about it.
        info: Option<Map<'a>>,
    }
}

composite! {
    /// The receiver has the message.
    Accepted = 0x24 {}
}

composite! {
    /// The message can never be taken.
    Rejected<'a> = 0x25 {
        /// The cause.
        error: Option<ErrorInfo<'a>>,
    }
}

composite! {
    /// The message was not and will not be acted upon.
    Released = 0x26 {}
}

composite! {
    /// As released, with a change.
    Modified<'a> = 0x27 {
        /// True if it counts as a failed attempt.
        delivery_failed: bool = false,
        /// True if it is not to be sent over this link again.
        undeliverable_here: bool = false,
        /// Annotations to be added to it.
        message_annotations: Option<Map<'a>>,
    }
}

composite! {
    /// The part of a message that has come.
    Received = 0x23 {
        /// The section, from 0.
        section_number: u32,
        /// Bytes of that section.
        section_offset: u64,
    }
}

/// The state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DeliveryState<'a> {
    /// The receiver has the message.
    Accepted,
    /// The message can never be taken, for this reason.
    Rejected(Option<ErrorInfo<'a>>),
    /// The message was not and will not be acted upon.
    Released,
    /// As released, with a change.
    Modified(Modified<'a>),
    /// A part of the message has come.
    Received(Received),
    /// A state of an extension, such as transactions.
    Other(Described<'a>),
}

impl<'a> Field<'a> for ErrorInfo<'a> {
    fn read(value: Value<'a>) -> Option<Self> {
        read_composite(value)
    }

    fn write(&self, out: &mut Vec<u8>) {
        Composite::write(self, out);
    }
}

impl<'a> Field<'a> for DeliveryState<'a> {
    fn read(value: Value<'a>) -> Option<Self> {
        let Value::Described(described) = value else { return None };
        Some(match described.descriptor {
            Accepted::DESCRIPTOR => Self::Accepted,
            Rejected::DESCRIPTOR => Self::Rejected(read_composite::<Rejected<'_>>(value)?.error),
            Released::DESCRIPTOR => Self::Released,
            Modified::DESCRIPTOR => Self::Modified(read_composite(value)?),
            Received::DESCRIPTOR => Self::Received(read_composite(value)?),
            _ => Self::Other(described),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Accepted => Composite::write(&Accepted {}, out),
            Self::Rejected(error) => Composite::write(&Rejected { error }, out),
            Self::Released => Composite::write(&Released {}, out),
            Self::Modified(modified) => Composite::write(&modified, out),
            Self::Received(received) => Composite::write(&received, out),
            Self::Other(described) => write::value(out, Value::Described(described)),
        }
    }
}
