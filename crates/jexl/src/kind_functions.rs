//! Functions that tell the kind of a value, and that turn a value into one of another kind.

use serde_json::Value;

use crate::input::Input;
use crate::number::number;

/// `value|isNaN`: true for all that is no number, also for a text that reads like one.
pub(crate) fn is_nan(input: Input<'_, '_>) -> Option<Value> {
    Some(Value::Bool(!input.piped.is_number()))
}

/// `text|parseInt`: the whole number that the text is; a number loses its fraction.
pub(crate) fn parse_int(input: Input<'_, '_>) -> Option<Value> {
    match &*input.piped {
        Value::Number(value) => Some(number(value.as_f64()?.trunc())),
        Value::String(text) => {
            input.budget.bytes(text.len())?;
            text.parse::<i64>().ok().map(Value::from)
        }
        _ => None,
    }
}

/// `text|parseFloat`: the number that the text is.
pub(crate) fn parse_float(input: Input<'_, '_>) -> Option<Value> {
    match &*input.piped {
        Value::Number(value) => Some(number(value.as_f64()?)),
        Value::String(text) => {
            input.budget.bytes(text.len())?;
            text.parse().ok().map(number)
        }
        _ => None,
    }
}

/// `value|typeOf`
pub(crate) fn type_of(input: Input<'_, '_>) -> Option<Value> {
    let kind = match &*input.piped {
        Value::Null => "Null",
        Value::Bool(_) => "Boolean",
        Value::Number(_) => "Number",
        Value::String(_) => "String",
        Value::Array(_) => "Array",
        Value::Object(_) => "Object",
    };
    Some(Value::from(kind))
}

/// `value|toString`: a text as it is, any other value as JSON.
pub(crate) fn to_string(input: Input<'_, '_>) -> Option<Value> {
    input.budget.copy(&input.piped)?;
    match &*input.piped {
        Value::String(text) => Some(Value::from(&**text)),
        Value::Number(value) if value.is_f64() => Some(Value::from(number(value.as_f64()?).to_string())),
        value => {
            let text = value.to_string();
            input.budget.bytes(text.len())?;
            Some(Value::from(text))
        }
    }
}

/// `text|toJson`: the JSON that the text is.
pub(crate) fn to_json(input: Input<'_, '_>) -> Option<Value> {
    let text = input.piped.as_str()?;
    // One byte of JSON can be a value of its own.
    input.budget.bytes(text.len().saturating_mul(size_of::<Value>()))?;
    serde_json::from_str(text).ok()
}
