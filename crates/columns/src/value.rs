//! The values of expressions, and their comparison.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use crate::Type;

/// A value of a record or of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// A missing value, or JSON's null.
    Null,
    /// The value TRUE or FALSE.
    Boolean(bool),
    /// A number without fraction and exponent that fits 64 bits.
    Integer(i64),
    /// Any other number; always finite.
    Double(f64),
    /// A text, without its escapes.
    Text(Cow<'a, str>),
    /// An object or array as JSON, as in the payload. It is not NULL, but neither equal to nor less than any value.
    Nested(Cow<'a, [u8]>),
    /// A list that the query builds, as an array.
    List(Vec<Value<'a>>),
}

/// A value that exists and cannot be read: its record is no match, and is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// A number beyond the largest double, or no number at all.
    Number,
    /// A text with an invalid escape, or with bytes that are not UTF-8.
    Text,
}

/// The error of an expression for one record: the record is no match, and is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvalError {
    /// A value that the expression reads is unreadable.
    Unreadable,
    /// The divisor of a division is zero.
    DivisionByZero,
    /// An integer beyond 64 bits, or a double beyond the largest.
    Overflow,
    /// A text, boolean or list in arithmetic, for rows that refuse it.
    NotANumber,
    /// A value that cannot be converted to the type of the CAST.
    Cast,
    /// A text that is not a time of its pattern, or a time beyond the calendar.
    Time,
    /// A text that a function would make longer than 16 MiB.
    TextTooLong,
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreadable => "a value that it reads cannot be read",
            Self::DivisionByZero => "it divides by zero",
            Self::Overflow => "a number is beyond 64 bits, or beyond the largest double",
            Self::NotANumber => "it calculates with a value that is no number; CAST it, or test it with TYPEOF",
            Self::Cast => "a value cannot be cast to the type that is asked for",
            Self::Time => "a text is not a time of its pattern, or a time is beyond the years -9999 to 9999",
            Self::TextTooLong => "a function would make a text of more than 16 MiB",
        })
    }
}

impl std::error::Error for EvalError {}

impl From<Unreadable> for EvalError {
    fn from(_: Unreadable) -> Self {
        Self::Unreadable
    }
}

impl Value<'_> {
    /// Its type; NULL has none.
    pub fn kind(&self) -> Option<Type> {
        match self {
            Self::Null => None,
            Self::Boolean(_) => Some(Type::Boolean),
            Self::Integer(_) => Some(Type::Integer),
            Self::Double(_) => Some(Type::Double),
            Self::Text(_) => Some(Type::Text),
            Self::Nested(raw) if raw.first() == Some(&b'{') => Some(Type::Map),
            Self::Nested(_) | Self::List(_) => Some(Type::List),
        }
    }

    /// The same value without borrowed data.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Boolean(value) => Value::Boolean(value),
            Self::Integer(value) => Value::Integer(value),
            Self::Double(value) => Value::Double(value),
            Self::Text(text) => Value::Text(text.into_owned().into()),
            Self::List(list) => Value::List(list.into_iter().map(Value::into_owned).collect()),
            Self::Nested(raw) => Value::Nested(raw.into_owned().into()),
        }
    }

    /// The number as a double; `None` for other values.
    pub fn as_double(&self) -> Option<f64> {
        match self {
            Self::Integer(value) => Some(*value as f64),
            Self::Double(value) => Some(*value),
            _ => None,
        }
    }

    /// Java's hash code of a String, Integer or Long, Double or Boolean with that value.
    pub fn java_hash(&self) -> Option<i32> {
        let folded = |bits: u64| (bits ^ (bits >> 32)) as i32;
        match self {
            Self::Boolean(value) => Some(if *value { 1231 } else { 1237 }),
            Self::Integer(value) => Some(i32::try_from(*value).unwrap_or_else(|_| folded(*value as u64))),
            Self::Double(value) => Some(folded(value.to_bits())),
            Self::Text(text) => {
                Some(text.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit))))
            }
            Self::Null | Self::Nested(_) | Self::List(_) => None,
        }
    }

    /// Appends the value as JSON to `out`.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Nested(raw) => out.extend_from_slice(raw),
            Self::List(list) => {
                out.push(b'[');
                for (i, value) in list.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    value.write_json(out);
                }
                out.push(b']');
            }
            Self::Boolean(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
            Self::Integer(value) => serde_json::to_writer(out, value).expect("writing to memory cannot fail"),
            Self::Double(value) => serde_json::to_writer(out, value).expect("writing to memory cannot fail"),
            Self::Text(text) => write_text(out, text),
        }
    }

    /// The order of two values; `None` (NULL) if one is NULL or nested, or if their types differ.
    pub fn compare(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Self::Integer(a), Value::Integer(b)) => Some(a.cmp(b)),
            (Self::Integer(a), Value::Double(b)) => Some(compare_exactly(*a, *b)),
            (Self::Double(a), Value::Integer(b)) => Some(compare_exactly(*b, *a).reverse()),
            (Self::Double(a), Value::Double(b)) => a.partial_cmp(b),
            // The order of UTF-8 bytes is the order of code points.
            (Self::Text(a), Value::Text(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
            (Self::Boolean(a), Value::Boolean(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }
}

/// Appends a text as a JSON string to `out`.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing to memory cannot fail");
}

/// Compares without rounding the integer: 2^53 + 1 is more than 2^53 as a double.
fn compare_exactly(integer: i64, double: f64) -> Ordering {
    /// 2^63, the first double above every `i64`.
    const ABOVE_ALL: f64 = 9_223_372_036_854_775_808.0;
    if double >= ABOVE_ALL {
        return Ordering::Less;
    }
    if double < -ABOVE_ALL {
        return Ordering::Greater;
    }
    let whole = double.trunc();
    integer.cmp(&(whole as i64)).then(whole.total_cmp(&double))
}

/// A number in a canonical form for hashing: equal numbers have equal bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CanonicalNumber {
    /// A number that is a 64-bit integer.
    Integer(i64),
    /// The bits of a double that is no 64-bit integer.
    Double(u64),
}

impl CanonicalNumber {
    /// The canonical form of a double.
    pub fn of_double(value: f64) -> Self {
        let integer = value as i64;
        if compare_exactly(integer, value).is_eq() { Self::Integer(integer) } else { Self::Double(value.to_bits()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_by_their_exact_value() {
        let above = Value::Integer((1 << 53) + 1);
        assert_eq!(above.compare(&Value::Double(9_007_199_254_740_992.0)), Some(Ordering::Greater));
        assert_eq!(Value::Integer(i64::MAX).compare(&Value::Double(i64::MAX as f64)), Some(Ordering::Less));
        assert_eq!(Value::Integer(i64::MIN).compare(&Value::Double(i64::MIN as f64)), Some(Ordering::Equal));
        assert_eq!(Value::Double(-1.5).compare(&Value::Integer(-1)), Some(Ordering::Less));
        assert_eq!(Value::Double(1.5).compare(&Value::Integer(1)), Some(Ordering::Greater));
        assert_eq!(Value::Integer(0).compare(&Value::Double(-0.0)), Some(Ordering::Equal));
        assert_eq!(Value::Integer(1).compare(&Value::Text("1".into())), None);
    }

    #[test]
    fn equal_numbers_have_one_canonical_form_and_others_differ() {
        let numbers = [0.0, -0.0, 1.0, 1.5, 9_007_199_254_740_992.0, i64::MAX as f64, i64::MIN as f64, 1e300, -1e300];
        for a in numbers {
            for b in numbers {
                let same = CanonicalNumber::of_double(a) == CanonicalNumber::of_double(b);
                assert_eq!(same, a == b, "{a} {b}");
            }
        }
        assert_eq!(CanonicalNumber::of_double(-0.0), CanonicalNumber::Integer(0));
        assert_ne!(CanonicalNumber::of_double(i64::MAX as f64), CanonicalNumber::Integer(i64::MAX));
    }
}
