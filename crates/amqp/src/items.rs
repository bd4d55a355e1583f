//! The elements of lists, maps and arrays, which are read one by one.

use crate::Error;
use crate::reader::{DESCRIBED, Reader};
use crate::value::{Symbol, Value};
use crate::write;

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

/// Symbols that are to be written.
#[derive(Debug, Clone, Default)]
pub struct SymbolsBuilder {
    count: usize,
    bytes: Vec<u8>,
}

impl SymbolsBuilder {
    /// Encodes symbols; their characters beyond ASCII become question marks.
    pub fn of(names: &[&str]) -> Self {
        let mut bytes = Vec::new();
        for name in names {
            bytes.extend_from_slice(&u32::try_from(name.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend(name.bytes().map(|byte| if byte.is_ascii() { byte } else { b'?' }));
        }
        Self { count: names.len(), bytes }
    }

    /// Returns the symbols as a value of `multiple`.
    pub fn as_multiple(&self) -> Multiple<'_> {
        Multiple::Many(Array { count: self.count, constructor: 0xB3, bytes: &self.bytes })
    }
}

/// A map that is to be written.
#[derive(Debug, Clone, Default)]
pub struct MapBuilder {
    count: usize,
    bytes: Vec<u8>,
}

impl MapBuilder {
    /// Appends an entry whose key is a symbol.
    pub fn symbol(&mut self, key: &str, value: Value<'_>) {
        self.entry(Value::Symbol(Symbol(key)), value);
    }

    /// Appends an entry whose key is a string.
    pub fn string(&mut self, key: &str, value: Value<'_>) {
        self.entry(Value::String(key), value);
    }

    fn entry(&mut self, key: Value<'_>, value: Value<'_>) {
        write::value(&mut self.bytes, key);
        write::value(&mut self.bytes, value);
        self.count += 2;
    }

    /// Returns the map.
    pub fn as_map(&self) -> Map<'_> {
        Map(Items { count: self.count, bytes: &self.bytes })
    }

    /// True if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes all entries out, and keeps the memory.
    pub fn clear(&mut self) {
        self.count = 0;
        self.bytes.clear();
    }
}
