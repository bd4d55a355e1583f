use serde_json::{Number, Value};

/// Whole numbers below this are exact as floating-point numbers, and shown without a fraction.
const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

/// A number as JSON: whole ones without a fraction, and null for what JSON cannot say, such as 1/0.
pub(crate) fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < EXACT_BELOW {
        return Value::from(value as i64);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}
