//! Values of AMQP's types (AMQP 1.0, section 1.6), borrowed from their encoding, and their reader (section 1.2).

use crate::Error;
use crate::descriptor::descriptor_of;

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

/// Most elements of an array whose elements take no bytes.
const EMPTY_ELEMENTS_MAX: usize = 1_024;

/// The elements of a list or map, encoded.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Items<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Items<'a> {
    pub(crate) fn new(count: usize, bytes: &'a [u8]) -> Self {
        Self { count, bytes }
    }

    /// Number of elements; keys and values of a map count each.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The elements as they are encoded.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Reads the elements in order; ends after the first that cannot be read.
    pub fn values(&self) -> impl Iterator<Item = Result<Value<'a>, Error>> + use<'a> {
        Values { left: self.count, reader: Reader::new(self.bytes), constructor: None }
    }
}

struct Values<'a> {
    left: usize,
    reader: Reader<'a>,
    /// The constructor of all elements, in an array.
    constructor: Option<u8>,
}

impl<'a> Iterator for Values<'a> {
    type Item = Result<Value<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let value = match self.constructor {
            Some(constructor) => self.reader.value_of(constructor),
            None => self.reader.value(),
        };
        if value.is_err() {
            self.left = 0;
        }
        Some(value)
    }
}

/// Values of one type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Array<'a> {
    count: usize,
    constructor: u8,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    pub(crate) fn new(count: usize, constructor: u8, bytes: &'a [u8]) -> Self {
        Self { count, constructor, bytes }
    }

    /// Reads the constructor of the elements. Elements that are described lose their descriptor.
    pub(crate) fn read(count: usize, mut inside: Reader<'a>) -> Result<Self, Error> {
        if count == 0 && inside.is_empty() {
            return Ok(Self { count, constructor: 0x40, bytes: &[] });
        }
        let mut constructor = inside.byte()?;
        while constructor == DESCRIBED {
            inside.descriptor()?;
            constructor = inside.byte()?;
        }
        let bytes = inside.rest();
        let limit = if constructor >> 4 == 0x4 { EMPTY_ELEMENTS_MAX } else { bytes.len() };
        if count > limit {
            return Err(Error::Malformed("an array with more elements than bytes"));
        }
        Ok(Self { count, constructor, bytes })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn constructor(&self) -> u8 {
        self.constructor
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Reads the elements in order; ends after the first that cannot be read.
    pub fn values(&self) -> impl Iterator<Item = Result<Value<'a>, Error>> + use<'a> {
        Values { left: self.count, reader: Reader::new(self.bytes), constructor: Some(self.constructor) }
    }
}

/// A map whose keys are mostly symbols or strings.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Map<'a>(pub Items<'a>);

impl<'a> Map<'a> {
    /// Reads the entries in order; ends after the first that cannot be read.
    pub fn entries(&self) -> impl Iterator<Item = Result<(Value<'a>, Value<'a>), Error>> + use<'a> {
        let mut values = self.0.values();
        std::iter::from_fn(move || {
            let key = values.next()?;
            let value = values.next()?;
            Some(key.and_then(|key| Ok((key, value?))))
        })
    }

    /// Returns the first value of the key `name`, a symbol or string. Entries behind one that cannot be read are not found.
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        let mut entries = self.entries().map_while(Result::ok);
        entries.find(|(key, _)| key.text() == Some(name)).map(|(_, value)| value)
    }
}

/// A symbol or several: one value or an array (AMQP 1.0, section 1.4, `multiple`).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Multiple<'a> {
    /// No value.
    #[default]
    None,
    /// One symbol.
    One(Symbol<'a>),
    /// An array of symbols.
    Many(Array<'a>),
}

impl<'a> Multiple<'a> {
    /// Returns the symbols, without elements of other types.
    pub fn symbols(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let (one, many) = match *self {
            Self::None => (None, None),
            Self::One(Symbol(name)) => (Some(name), None),
            Self::Many(array) => (None, Some(array)),
        };
        let of_many = many.into_iter().flat_map(|array| array.values()).map_while(Result::ok);
        one.into_iter().chain(of_many.filter_map(|value| value.text()))
    }

    /// True if `name` is among them.
    pub fn has(&self, name: &str) -> bool {
        self.symbols().any(|symbol| symbol == name)
    }
}

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
