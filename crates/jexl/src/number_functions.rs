//! Functions of numbers.

use serde_json::Value;

use crate::input::Input;
use crate::number::number;

const PLACES_MAX: usize = 100;
/// Logarithms are rounded to nine decimals, as Orion shows them.
const LOG_DECIMALS: f64 = 1e9;

/// `number|round`: to the nearest whole number; a half goes away from 0.
pub(crate) fn round(input: Input<'_, '_>) -> Option<Value> {
    input.number().map(|value| number(value.round()))
}

/// `number|floor`
pub(crate) fn floor(input: Input<'_, '_>) -> Option<Value> {
    input.number().map(|value| number(value.floor()))
}

/// `number|ceil`
pub(crate) fn ceil(input: Input<'_, '_>) -> Option<Value> {
    input.number().map(|value| number(value.ceil()))
}

/// `number|toFixed(places)`: rounded to that many decimals, at most 100; a number, not a text.
pub(crate) fn to_fixed(input: Input<'_, '_>) -> Option<Value> {
    let (value, places) = (input.number()?, input.whole_argument(0)?);
    if places > PLACES_MAX {
        return None;
    }
    format!("{value:.places$}").parse().ok().map(number)
}

/// `number|log`: the natural logarithm; null unless the number is above 0.
pub(crate) fn log(input: Input<'_, '_>) -> Option<Value> {
    logarithm(input.number()?.ln())
}

/// `number|log10`
pub(crate) fn log10(input: Input<'_, '_>) -> Option<Value> {
    logarithm(input.number()?.log10())
}

/// `number|log2`
pub(crate) fn log2(input: Input<'_, '_>) -> Option<Value> {
    logarithm(input.number()?.log2())
}

fn logarithm(value: f64) -> Option<Value> {
    Some(number((value * LOG_DECIMALS).round() / LOG_DECIMALS))
}

/// `number|sqrt`: null below 0.
pub(crate) fn sqrt(input: Input<'_, '_>) -> Option<Value> {
    input.number().map(|value| number(value.sqrt()))
}
