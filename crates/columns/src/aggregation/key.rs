//! Tuples of values as bytes, and how values are sorted.

use std::borrow::Cow;
use std::cmp::Ordering;

use datasketches::codec::SketchSlice;
use datasketches::error::{Error, ErrorKind};

use crate::{CanonicalNumber, Value};

/// An object or an array where a single value is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nested;

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INTEGER: u8 = 3;
const DOUBLE: u8 = 4;
const TEXT: u8 = 5;
const NESTED: u8 = 6;

/// The stored form of a nested value: it exists, and its content is dropped.
pub(crate) const SOMETHING_NESTED: Value<'static> = Value::Nested(Cow::Borrowed(b"[]"));

/// Appends a value. Equal values, and only these, have equal bytes, and no value's bytes begin another's: so it is
/// with tuples of one length.
pub(crate) fn write_value(out: &mut Vec<u8>, value: &Value<'_>) -> Result<(), Nested> {
    match value {
        Value::Null => out.push(NULL),
        Value::Boolean(value) => out.push(if *value { TRUE } else { FALSE }),
        Value::Integer(value) => write_number(out, CanonicalNumber::Integer(*value)),
        Value::Double(value) => write_number(out, CanonicalNumber::of_double(*value)),
        Value::Text(text) => {
            out.push(TEXT);
            out.extend_from_slice(&(text.len() as u64).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        Value::Nested(_) | Value::List(_) => return Err(Nested),
    }
    Ok(())
}

fn write_number(out: &mut Vec<u8>, number: CanonicalNumber) {
    let (tag, bits) = match number {
        CanonicalNumber::Integer(value) => (INTEGER, value.to_le_bytes()),
        CanonicalNumber::Double(bits) => (DOUBLE, bits.to_le_bytes()),
    };
    out.push(tag);
    out.extend_from_slice(&bits);
}

/// Makes `out` the bytes of a tuple: equal tuples of one length, and only these, have equal bytes.
///
/// # Errors
/// A value is nested, and cannot be compared.
pub fn write_tuple(out: &mut Vec<u8>, values: &[Value<'_>]) -> Result<(), Nested> {
    out.clear();
    values.iter().try_for_each(|value| write_value(out, value))
}

/// Appends a value in a binary form: doubles stay doubles, and nested values lose their content only.
pub fn write_input(out: &mut Vec<u8>, value: &Value<'_>) {
    if let Value::Double(value) = value {
        write_number(out, CanonicalNumber::Double(value.to_bits()));
    } else if write_value(out, value).is_err() {
        out.push(NESTED);
    }
}

/// Reads the values of a tuple.
///
/// # Errors
/// [`Error`] if the bytes are not valid.
pub(crate) fn read_tuple(bytes: &[u8]) -> Result<Vec<Value<'_>>, Error> {
    let mut rest = bytes;
    let mut values = Vec::new();
    while !rest.is_empty() {
        values.push(read_value(&mut rest)?);
    }
    Ok(values)
}

/// The values of a tuple without borrowed data.
///
/// # Errors
/// The bytes are no tuple.
pub fn read_key(bytes: &[u8]) -> Result<Vec<Value<'static>>, Error> {
    Ok(read_tuple(bytes)?.into_iter().map(owned).collect())
}

/// The first `count` values of bytes that go on otherwise, and the rest.
///
/// # Errors
/// The bytes do not begin with `count` values.
pub fn read_values(bytes: &[u8], count: usize) -> Result<(Vec<Value<'_>>, &[u8]), Error> {
    let mut rest = bytes;
    let values = (0..count).map(|_| read_value(&mut rest)).collect::<Result<_, _>>()?;
    Ok((values, rest))
}

fn read_value<'a>(rest: &mut &'a [u8]) -> Result<Value<'a>, Error> {
    let [tag] = read_array(rest)?;
    Ok(match tag {
        NULL => Value::Null,
        FALSE => Value::Boolean(false),
        TRUE => Value::Boolean(true),
        INTEGER => Value::Integer(i64::from_le_bytes(read_array(rest)?)),
        DOUBLE => Value::Double(f64::from_le_bytes(read_array(rest)?)),
        TEXT => {
            let length = usize::try_from(u64::from_le_bytes(read_array(rest)?)).unwrap_or(usize::MAX);
            let (text, after) = rest.split_at_checked(length).ok_or_else(|| damaged(TOO_SHORT))?;
            *rest = after;
            Value::Text(std::str::from_utf8(text).map_err(|_| damaged("a text that is not UTF-8"))?.into())
        }
        NESTED => SOMETHING_NESTED,
        tag => return Err(damaged("an unknown kind of value").with_context("tag", tag)),
    })
}

fn read_array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Error> {
    let (taken, after) = rest.split_first_chunk().ok_or_else(|| damaged(TOO_SHORT))?;
    *rest = after;
    Ok(*taken)
}

/// The same value without borrowed data.
pub(crate) fn owned(value: Value<'_>) -> Value<'static> {
    match value {
        Value::Null => Value::Null,
        Value::Boolean(value) => Value::Boolean(value),
        Value::Integer(value) => Value::Integer(value),
        Value::Double(value) => Value::Double(value),
        Value::Text(text) => Value::Text(text.into_owned().into()),
        Value::Nested(_) | Value::List(_) => SOMETHING_NESTED,
    }
}

const TOO_SHORT: &str = "bytes that end too early";

/// The next `length` bytes of the input.
pub(crate) fn read_bytes(input: &mut SketchSlice<'_>, length: u64) -> Result<Vec<u8>, Error> {
    let rest = input.remaining();
    let taken = usize::try_from(length).ok().and_then(|length| rest.get(..length));
    let taken = taken.ok_or_else(|| damaged(TOO_SHORT))?.to_vec();
    input.advance(length);
    Ok(taken)
}

/// The error of a stored state that cannot be read.
pub(crate) fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

/// The same, because it ends too early.
pub(crate) fn cut(_: std::io::Error) -> Error {
    damaged(TOO_SHORT)
}

/// The sort order of values: NULL, then booleans, numbers, texts, and nested values.
pub fn order_values(a: &Value<'_>, b: &Value<'_>) -> Ordering {
    let rank = |value: &Value<'_>| match value {
        Value::Null => 0,
        Value::Boolean(_) => 1,
        Value::Integer(_) | Value::Double(_) => 2,
        Value::Text(_) => 3,
        Value::Nested(_) | Value::List(_) => 4,
    };
    rank(a).cmp(&rank(b)).then_with(|| a.compare(b).unwrap_or(Ordering::Equal))
}

/// The sort order of tuples of one length: by the first values, then by the second, …
pub(crate) fn order_tuples(a: &[Value<'_>], b: &[Value<'_>]) -> Ordering {
    a.iter().zip(b).map(|(a, b)| order_values(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[Value<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_tuple(&mut bytes, values).unwrap();
        bytes
    }

    #[test]
    fn tuples_have_the_same_bytes_if_and_only_if_they_are_equal() {
        let text = |text: &'static str| Value::Text(text.into());
        assert_ne!(bytes(&[text("a|b"), text("c")]), bytes(&[text("a"), text("b|c")]));
        assert_ne!(bytes(&[text("1")]), bytes(&[Value::Integer(1)]));
        assert_ne!(bytes(&[text("null")]), bytes(&[Value::Null]));
        assert_ne!(bytes(&[text("")]), bytes(&[Value::Null]));
        assert_eq!(bytes(&[Value::Double(1.0)]), bytes(&[Value::Integer(1)]));
        assert_eq!(bytes(&[Value::Double(-0.0)]), bytes(&[Value::Integer(0)]));
        assert_eq!(write_tuple(&mut Vec::new(), &[SOMETHING_NESTED]), Err(Nested));
    }

    #[test]
    fn tuples_are_read_as_they_were_written_and_nothing_else_is() {
        let values =
            [Value::Null, Value::Boolean(true), Value::Integer(-7), Value::Double(1.5), Value::Text("é|".into())];
        let written = bytes(&values);
        assert_eq!(read_tuple(&written).unwrap(), values);
        for length in 1..written.len() {
            if let Ok(read) = read_tuple(&written[..length]) {
                assert_eq!(bytes(&read), written[..length]);
            }
        }
        assert!(read_tuple(&[9]).is_err());
        assert!(read_tuple(&[TEXT, 255, 255, 255, 255, 255, 255, 255, 255, 0]).is_err());
    }

    #[test]
    fn values_are_sorted_by_kind_and_then_by_value() {
        let sorted = [
            Value::Null,
            Value::Boolean(false),
            Value::Boolean(true),
            Value::Integer(2),
            Value::Double(9.5),
            Value::Integer(10),
            Value::Text("10".into()),
            Value::Text("9".into()),
        ];
        assert!(sorted.windows(2).all(|pair| order_values(&pair[0], &pair[1]).is_lt()));
    }
}
