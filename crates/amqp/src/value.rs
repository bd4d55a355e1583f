//! Values of AMQP's types (AMQP 1.0, section 1.6), borrowed from their encoding.

use crate::Error;
use crate::items::{Array, Items};
use crate::reader::Reader;

/// A value. Lists, maps, arrays and described values are read further when they are looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// 8 bits without sign.
    Ubyte(u8),
    /// 16 bits without sign.
    Ushort(u16),
    /// 32 bits without sign.
    Uint(u32),
    /// 64 bits without sign.
    Ulong(u64),
    /// 8 bits with sign.
    Byte(i8),
    /// 16 bits with sign.
    Short(i16),
    /// 32 bits with sign.
    Int(i32),
    /// 64 bits with sign.
    Long(i64),
    /// A binary floating point number of 32 bits.
    Float(f32),
    /// A binary floating point number of 64 bits.
    Double(f64),
    /// A decimal number of 4, 8 or 16 bytes, as IEEE 754 encodes it.
    Decimal(&'a [u8]),
    /// A character.
    Char(char),
    /// Milliseconds since 1970.
    Timestamp(Timestamp),
    /// A UUID.
    Uuid([u8; 16]),
    /// Bytes.
    Binary(&'a [u8]),
    /// Text.
    String(&'a str),
    /// A name of ASCII characters.
    Symbol(Symbol<'a>),
    /// Values in order.
    List(Items<'a>),
    /// Keys and values in turn.
    Map(Items<'a>),
    /// Values of one type.
    Array(Array<'a>),
    /// A value with the name of its type.
    Described(Described<'a>),
}

/// A name of ASCII characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol<'a>(pub &'a str);

/// Milliseconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// A value with the name of its type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Described<'a> {
    /// The number of its type; 0 for a name that this crate does not know.
    pub descriptor: u64,
    /// The encoded value, and nothing behind it.
    pub(crate) encoded: &'a [u8],
}

impl<'a> Described<'a> {
    /// Reads the value itself.
    ///
    /// # Errors
    /// [`Error::Malformed`] if it is none.
    pub fn value(&self) -> Result<Value<'a>, Error> {
        Reader::new(self.encoded).value()
    }

    /// Reads the value as a list of fields.
    pub(crate) fn fields(&self) -> Result<Items<'a>, Error> {
        match self.value()? {
            Value::List(items) => Ok(items),
            _ => Err(Error::Malformed("a described value whose fields are no list")),
        }
    }
}

impl<'a> Value<'a> {
    /// Returns a string's or symbol's text.
    pub fn text(&self) -> Option<&'a str> {
        match *self {
            Self::String(text) | Self::Symbol(Symbol(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns an integer of any width, if it fits.
    pub fn integer(&self) -> Option<i64> {
        Some(match *self {
            Self::Ubyte(number) => number.into(),
            Self::Ushort(number) => number.into(),
            Self::Uint(number) => number.into(),
            Self::Ulong(number) => number.try_into().ok()?,
            Self::Byte(number) => number.into(),
            Self::Short(number) => number.into(),
            Self::Int(number) => number.into(),
            Self::Long(number) => number,
            _ => return None,
        })
    }
}
