//! Functions of texts.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::value::{EvalError, Value};

/// Longest text that a function makes: a short expression could otherwise take all memory.
const TEXT_MAX_BYTES: usize = 16 << 20;

/// Appends a text, number or boolean to `text`; false for NULL, lists and maps.
pub(crate) fn append(text: &mut String, value: &Value<'_>) -> Result<bool, EvalError> {
    match value {
        Value::Null | Value::Nested(_) | Value::List(_) => return Ok(false),
        Value::Text(part) => text.push_str(part),
        // Writing to a text cannot fail.
        Value::Boolean(part) => drop(write!(text, "{part}")),
        Value::Integer(part) => drop(write!(text, "{part}")),
        Value::Double(part) => drop(write!(text, "{part:?}")),
    }
    if text.len() > TEXT_MAX_BYTES { Err(EvalError::TextTooLong) } else { Ok(true) }
}

pub(crate) fn trimmed(text: Cow<'_, str>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
    }
}

/// At most `length` characters from the character `from` on, which counts from 1, or from the end if negative. Characters
/// outside of the text are left out.
pub(crate) fn substring(text: Cow<'_, str>, from: i64, length: i64) -> Cow<'_, str> {
    let count = text.chars().count() as i64;
    let start = if from < 0 { count.saturating_add(from) } else { from.saturating_sub(1) };
    if start < 0 || start >= count || length <= 0 {
        return Cow::Borrowed("");
    }
    let end = start.saturating_add(length).min(count);
    let byte = |place: i64| {
        text.char_indices().nth(usize::try_from(place).unwrap_or(usize::MAX)).map_or(text.len(), |(byte, _)| byte)
    };
    Cow::Owned(text[byte(start)..byte(end)].to_owned())
}

/// The parts between the separators.
pub(crate) fn split<'a>(text: Cow<'a, str>, separator: &str) -> Value<'a> {
    Value::List(match text {
        text if separator.is_empty() => vec![Value::Text(text)],
        Cow::Borrowed(text) => text.split(separator).map(|part| Value::Text(part.into())).collect(),
        Cow::Owned(text) => text.split(separator).map(|part| Value::Text(part.to_owned().into())).collect(),
    })
}

/// The text with `to` in place of each `from`; unchanged if `from` is empty.
pub(crate) fn replace<'a>(text: Cow<'a, str>, from: &str, to: &str) -> Result<Cow<'a, str>, EvalError> {
    if from.is_empty() || !text.contains(from) {
        return Ok(text);
    }
    let growth = to.len().saturating_sub(from.len());
    if growth > 0 && text.len().saturating_add(growth.saturating_mul(text.matches(from).count())) > TEXT_MAX_BYTES {
        return Err(EvalError::TextTooLong);
    }
    Ok(Cow::Owned(text.replace(from, to)))
}
