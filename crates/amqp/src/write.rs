//! Writes values (AMQP 1.0, section 1.6) in their shortest encoding, except for strings in arrays.

use crate::value::{Symbol, Timestamp, Value};

/// Appends a value.
pub fn value(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Null => out.push(0x40),
        Value::Bool(true) => out.push(0x41),
        Value::Bool(false) => out.push(0x42),
        Value::Ubyte(number) => out.extend([0x50, number]),
        Value::Ushort(number) => fixed(out, 0x60, number.to_be_bytes()),
        Value::Uint(0) => out.push(0x43),
        Value::Uint(number) => match u8::try_from(number) {
            Ok(small) => out.extend([0x52, small]),
            Err(_) => fixed(out, 0x70, number.to_be_bytes()),
        },
        Value::Ulong(0) => out.push(0x44),
        Value::Ulong(number) => match u8::try_from(number) {
            Ok(small) => out.extend([0x53, small]),
            Err(_) => fixed(out, 0x80, number.to_be_bytes()),
        },
        Value::Byte(number) => out.extend([0x51, number.cast_unsigned()]),
        Value::Short(number) => fixed(out, 0x61, number.to_be_bytes()),
        Value::Int(number) => match i8::try_from(number) {
            Ok(small) => out.extend([0x54, small.cast_unsigned()]),
            Err(_) => fixed(out, 0x71, number.to_be_bytes()),
        },
        Value::Long(number) => match i8::try_from(number) {
            Ok(small) => out.extend([0x55, small.cast_unsigned()]),
            Err(_) => fixed(out, 0x81, number.to_be_bytes()),
        },
        Value::Float(number) => fixed(out, 0x72, number.to_be_bytes()),
        Value::Double(number) => fixed(out, 0x82, number.to_be_bytes()),
        Value::Decimal(bytes) => {
            out.push(match bytes.len() {
                4 => 0x74,
                8 => 0x84,
                _ => 0x94,
            });
            out.extend_from_slice(bytes);
        }
        Value::Char(character) => fixed(out, 0x73, u32::from(character).to_be_bytes()),
        Value::Timestamp(Timestamp(ms)) => fixed(out, 0x83, ms.to_be_bytes()),
        Value::Uuid(bytes) => fixed(out, 0x98, bytes),
        Value::Binary(bytes) => variable(out, 0xA0, bytes),
        Value::String(text) => variable(out, 0xA1, text.as_bytes()),
        Value::Symbol(Symbol(name)) => variable(out, 0xA3, name.as_bytes()),
        Value::List(items) if items.is_empty() => out.push(0x45),
        Value::List(items) => compound(out, 0xC0, items.len(), items.bytes()),
        Value::Map(items) => compound(out, 0xC1, items.len(), items.bytes()),
        Value::Array(array) => {
            let content = [&[array.constructor()], array.bytes()].concat();
            compound(out, 0xE0, array.len(), &content);
        }
        Value::Described(described) => {
            out.push(0x00);
            self::value(out, Value::Ulong(described.descriptor));
            out.extend_from_slice(described.encoded);
        }
    }
}

fn fixed<const N: usize>(out: &mut Vec<u8>, constructor: u8, bytes: [u8; N]) {
    out.push(constructor);
    out.extend_from_slice(&bytes);
}

/// Appends bytes behind their size; `narrow` is the constructor with a size of one byte.
fn variable(out: &mut Vec<u8>, narrow: u8, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(small) => out.extend([narrow, small]),
        Err(_) => fixed(out, narrow + 0x10, size(bytes.len())),
    }
    out.extend_from_slice(bytes);
}

/// Appends encoded elements behind their size and count.
fn compound(out: &mut Vec<u8>, narrow: u8, count: usize, bytes: &[u8]) {
    match (u8::try_from(bytes.len() + 1), u8::try_from(count)) {
        (Ok(size), Ok(count)) => out.extend([narrow, size, count]),
        _ => {
            fixed(out, narrow + 0x10, size(bytes.len() + 4));
            out.extend_from_slice(&size(count));
        }
    }
    out.extend_from_slice(bytes);
}

/// A size as it is written. What is written is in memory and stays below 4 GiB.
pub(crate) fn size(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes()
}

/// Appends the beginning of a section whose content are `bytes` of binary data.
pub(crate) fn data_section(out: &mut Vec<u8>, descriptor: u64, bytes: &[u8]) {
    out.push(0x00);
    value(out, Value::Ulong(descriptor));
    value(out, Value::Binary(bytes));
}

/// The fields of a described list, written one by one. Fields without value at its end are left out.
#[derive(Debug)]
pub(crate) struct FieldWriter<'o> {
    out: &'o mut Vec<u8>,
    /// The position of the list's constructor.
    start: usize,
    count: u8,
    /// Fields without value that are not written yet.
    absent: u8,
}

/// Bytes of a list's constructor, size and count, if each has one byte.
const NARROW_HEAD: usize = 3;

impl<'o> FieldWriter<'o> {
    pub(crate) fn begin(out: &'o mut Vec<u8>, descriptor: u64) -> Self {
        out.push(0x00);
        value(out, Value::Ulong(descriptor));
        let start = out.len();
        out.extend_from_slice(&[0; NARROW_HEAD]);
        Self { out, start, count: 0, absent: 0 }
    }

    pub(crate) fn absent(&mut self) {
        self.absent += 1;
    }

    /// Returns the buffer to append the value of the next field to.
    pub(crate) fn field(&mut self) -> &mut Vec<u8> {
        self.out.extend(std::iter::repeat_n(0x40, usize::from(self.absent)));
        self.count += self.absent + 1;
        self.absent = 0;
        self.out
    }

    pub(crate) fn finish(self) {
        let Self { out, start, count, .. } = self;
        if count == 0 {
            out.truncate(start);
            out.push(0x45);
            return;
        }
        let content_bytes = out.len() - start - NARROW_HEAD;
        match u8::try_from(content_bytes + 1) {
            Ok(size) => out[start..start + NARROW_HEAD].copy_from_slice(&[0xC0, size, count]),
            Err(_) => {
                let mut head = [0xD0; 9];
                head[1..5].copy_from_slice(&size(content_bytes + 4));
                head[5..].copy_from_slice(&size(count.into()));
                out.splice(start..start + NARROW_HEAD, head);
            }
        }
    }
}
