//! Reads encoded values one after the other (AMQP 1.0, section 1.2).

use crate::Error;
use crate::composite::descriptor_of;
use crate::items::{Array, Items};
use crate::value::{Described, Symbol, Timestamp, Value};

const END: Error = Error::Malformed("a value that ends before its bytes do");

/// The constructor of a described value.
pub(crate) const DESCRIBED: u8 = 0x00;

/// Encoded values, of which the first ones may have been read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes that are not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Error> {
        let (first, rest) = self.rest.split_first().ok_or(END)?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn take(&mut self, size: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(size).ok_or(END)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(END)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Reads a size or count of one byte or four, as the constructor says.
    fn size(&mut self, is_wide: bool) -> Result<usize, Error> {
        Ok(if is_wide { u32::from_be_bytes(self.array()?) as usize } else { usize::from(self.byte()?) })
    }

    /// Reads the next value.
    pub(crate) fn value(&mut self) -> Result<Value<'a>, Error> {
        let constructor = self.byte()?;
        self.value_of(constructor)
    }

    /// Reads a value whose constructor has been read.
    pub(crate) fn value_of(&mut self, constructor: u8) -> Result<Value<'a>, Error> {
        if constructor == DESCRIBED {
            let descriptor = self.descriptor()?;
            let start = self.rest;
            self.skip()?;
            let encoded = &start[..start.len() - self.rest.len()];
            return Ok(Value::Described(Described { descriptor, encoded }));
        }
        self.primitive(constructor)
    }

    fn primitive(&mut self, constructor: u8) -> Result<Value<'a>, Error> {
        Ok(match constructor {
            0x40 => Value::Null,
            0x41 => Value::Bool(true),
            0x42 => Value::Bool(false),
            0x43 => Value::Uint(0),
            0x44 => Value::Ulong(0),
            0x45 => Value::List(Items::default()),
            0x50 => Value::Ubyte(self.byte()?),
            0x51 => Value::Byte(self.byte()?.cast_signed()),
            0x52 => Value::Uint(self.byte()?.into()),
            0x53 => Value::Ulong(self.byte()?.into()),
            0x54 => Value::Int(self.byte()?.cast_signed().into()),
            0x55 => Value::Long(self.byte()?.cast_signed().into()),
            0x56 => match self.byte()? {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                _ => return Err(Error::Malformed("a truth value other than 0 and 1")),
            },
            0x60 => Value::Ushort(u16::from_be_bytes(self.array()?)),
            0x61 => Value::Short(i16::from_be_bytes(self.array()?)),
            0x70 => Value::Uint(u32::from_be_bytes(self.array()?)),
            0x71 => Value::Int(i32::from_be_bytes(self.array()?)),
            0x72 => Value::Float(f32::from_be_bytes(self.array()?)),
            0x73 => {
                let number = u32::from_be_bytes(self.array()?);
                Value::Char(char::from_u32(number).ok_or(Error::Malformed("a char that is no character"))?)
            }
            0x74 => Value::Decimal(self.take(4)?),
            0x80 => Value::Ulong(u64::from_be_bytes(self.array()?)),
            0x81 => Value::Long(i64::from_be_bytes(self.array()?)),
            0x82 => Value::Double(f64::from_be_bytes(self.array()?)),
            0x83 => Value::Timestamp(Timestamp(i64::from_be_bytes(self.array()?))),
            0x84 => Value::Decimal(self.take(8)?),
            0x94 => Value::Decimal(self.take(16)?),
            0x98 => Value::Uuid(self.array()?),
            0xA0 | 0xB0 => Value::Binary(self.variable(constructor)?),
            0xA1 | 0xB1 => {
                let text = std::str::from_utf8(self.variable(constructor)?);
                Value::String(text.map_err(|_| Error::Malformed("a string that is not UTF-8"))?)
            }
            0xA3 | 0xB3 => {
                let name = std::str::from_utf8(self.variable(constructor)?).ok().filter(|name| name.is_ascii());
                Value::Symbol(Symbol(name.ok_or(Error::Malformed("a symbol that is not ASCII"))?))
            }
            0xC0 | 0xD0 => Value::List(self.items(constructor)?),
            0xC1 | 0xD1 => {
                let items = self.items(constructor)?;
                if !items.len().is_multiple_of(2) {
                    return Err(Error::Malformed("a map with a key that has no value"));
                }
                Value::Map(items)
            }
            0xE0 | 0xF0 => {
                let is_wide = constructor == 0xF0;
                let mut inside = Self::new(self.variable(constructor)?);
                let count = inside.size(is_wide)?;
                Value::Array(Array::read(count, inside)?)
            }
            _ => return Err(Error::Malformed("an unknown constructor of a value")),
        })
    }

    /// Reads the bytes of a value that begins with its size.
    fn variable(&mut self, constructor: u8) -> Result<&'a [u8], Error> {
        let size = self.size(is_wide(constructor))?;
        self.take(size)
    }

    fn items(&mut self, constructor: u8) -> Result<Items<'a>, Error> {
        let mut inside = Self::new(self.variable(constructor)?);
        let count = inside.size(is_wide(constructor))?;
        if count > inside.rest.len() {
            return Err(Error::Malformed("a list or map with more elements than bytes"));
        }
        Ok(Items::new(count, inside.rest))
    }

    /// Reads a descriptor: a number or a name.
    pub(crate) fn descriptor(&mut self) -> Result<u64, Error> {
        let constructor = self.byte()?;
        match constructor {
            0x44 | 0x53 | 0x80 | 0xA3 | 0xB3 => {}
            _ => return Err(Error::Malformed("a descriptor that is neither a number nor a name")),
        }
        Ok(match self.primitive(constructor)? {
            Value::Ulong(number) => number,
            Value::Symbol(Symbol(name)) => descriptor_of(name),
            _ => 0,
        })
    }

    /// Skips a value without looking into it.
    pub(crate) fn skip(&mut self) -> Result<(), Error> {
        let mut constructor = self.byte()?;
        while constructor == DESCRIBED {
            self.descriptor()?;
            constructor = self.byte()?;
        }
        let size = match constructor >> 4 {
            0x4 => 0,
            0x5 => 1,
            0x6 => 2,
            0x7 => 4,
            0x8 => 8,
            0x9 => 16,
            0xA..=0xF => self.size(is_wide(constructor))?,
            _ => return Err(Error::Malformed("an unknown constructor of a value")),
        };
        self.take(size).map(drop)
    }
}

/// True if sizes and counts behind the constructor have four bytes.
fn is_wide(constructor: u8) -> bool {
    (constructor >> 4) % 2 == 1
}
