//! Values as filters compare them: by JSON kind, with dates as points in time.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

use crate::model::datetime;

/// A value that is neither an array nor an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Number(f64),
    /// A `DateTime`, in milliseconds since 1970, however it is written.
    Date(i64),
    Text(Cow<'a, str>),
    Bool(bool),
}

impl Scalar<'_> {
    /// The order of two values; `None` if their kinds differ or have no order.
    pub(crate) fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.partial_cmp(b),
            (Self::Date(a), Self::Date(b)) => Some(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }

    /// The kind allows ranges and comparisons.
    pub(crate) fn has_order(&self) -> bool {
        matches!(self, Self::Number(_) | Self::Date(_) | Self::Text(_))
    }
}

/// The result of a filter's path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PathValue<'a> {
    One(Scalar<'a>),
    /// The scalars of an array.
    Many(Vec<Scalar<'a>>),
    /// An object: it exists and equals nothing.
    Object,
    /// A `DateTime` that is null: it exists and matches no comparison.
    NullDate,
}

/// The type's values are points in time.
pub(crate) fn is_date(kind: &str) -> bool {
    matches!(kind, "DateTime" | "ISO8601")
}

impl<'a> PathValue<'a> {
    /// The value with the canonical JSON `text` of an attribute or metadata item of type `kind`.
    pub(crate) fn of_text(kind: &str, text: &'a str) -> Self {
        if is_date(kind) {
            let at_ms = unquoted(text).and_then(|text| datetime::parse(&text));
            return at_ms.map_or(Self::NullDate, |at_ms| Self::One(Scalar::Date(at_ms)));
        }
        let one = match text.as_bytes().first() {
            Some(b'n') => Scalar::Null,
            Some(b't') => Scalar::Bool(true),
            Some(b'f') => Scalar::Bool(false),
            Some(b'"') => Scalar::Text(unquoted(text).unwrap_or_default()),
            Some(b'[' | b'{') => return serde_json::from_str(text).map_or(Self::Object, |value| Self::of_json(&value)),
            _ => match text.parse() {
                Ok(number) => Scalar::Number(number),
                Err(_) => Scalar::Null,
            },
        };
        Self::One(one)
    }

    pub(crate) fn of_json(value: &Value) -> PathValue<'static> {
        match value {
            Value::Array(items) => PathValue::Many(items.iter().filter_map(scalar).collect()),
            other => scalar(other).map_or(PathValue::Object, PathValue::One),
        }
    }
}

fn scalar(value: &Value) -> Option<Scalar<'static>> {
    match value {
        Value::Null => Some(Scalar::Null),
        Value::Bool(value) => Some(Scalar::Bool(*value)),
        Value::Number(number) => number.as_f64().map(Scalar::Number),
        Value::String(text) => Some(Scalar::Text(Cow::Owned(text.clone()))),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// The content of the JSON string `text`; `None` if it is no string.
pub(crate) fn unquoted(text: &str) -> Option<Cow<'_, str>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') { serde_json::from_str(text).ok().map(Cow::Owned) } else { Some(Cow::Borrowed(inner)) }
}
