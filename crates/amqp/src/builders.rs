//! Collections that are to be written.

use crate::value::{Array, Items, Map, Multiple, Symbol, Value};
use crate::write;

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
        Multiple::Many(Array::new(self.count, 0xB3, &self.bytes))
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
        Map(Items::new(self.count, &self.bytes))
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
