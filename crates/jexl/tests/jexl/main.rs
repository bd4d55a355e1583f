//! The language by its public interface: a table for each sentence of its rules.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod comparison;
mod functions;
mod grammar;
mod limits;
mod null_rule;
mod properties;

use millstream_jexl::Expression;
use serde_json::{Map, Value};

/// The time of `now` in tests: 2024-08-01T08:15:29.750Z.
const NOW_MS: i64 = 1_722_500_129_750;

/// The value of an expression with the members of `names` as its names; null if it is no expression.
fn value_of(text: &str, names: &Value) -> Value {
    let none = Map::new();
    let names = names.as_object().unwrap_or(&none);
    Expression::parse(text).map_or(Value::Null, |expression| expression.evaluate(names, NOW_MS))
}

/// Checks one row of a table: an expression, and its value.
fn check(names: &Value, rows: &[(&str, Value)]) {
    for (text, expected) in rows {
        assert_eq!(value_of(text, names).to_string(), expected.to_string(), "{text}");
    }
}
