//! Durations and sizes in JSON: a number, or a text with a unit.

use std::time::Duration;

use millstream_types::{DURATION_RULE, SIZE_RULE, parse_duration, parse_size};
use serde_json::Value;

/// Parses a duration: milliseconds as a number, or text with a unit.
pub(crate) fn duration(given: &Value) -> Result<Duration, &'static str> {
    match given {
        Value::Number(number) => number.as_u64().map(Duration::from_millis).ok_or(DURATION_RULE),
        Value::String(text) => parse_duration(text),
        _ => Err(DURATION_RULE),
    }
}

/// Parses a size: bytes as a number, or text with a unit.
pub(super) fn bytes(given: &Value) -> Result<u64, &'static str> {
    match given {
        Value::Number(number) => number.as_u64().ok_or(SIZE_RULE),
        Value::String(text) => parse_size(text),
        _ => Err(SIZE_RULE),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_milliseconds_and_bytes_and_texts_have_units() {
        for (given, expected) in [(json!(1500), 1_500), (json!("2s"), 2_000)] {
            assert_eq!(duration(&given).map(|duration| duration.as_millis()), Ok(expected), "{given}");
        }
        assert_eq!((bytes(&json!(7)), bytes(&json!("1KiB"))), (Ok(7), Ok(1024)));
        for wrong in [json!("7 days"), json!(1.5), json!(-1), json!(null)] {
            assert_eq!(duration(&wrong), Err(DURATION_RULE), "{wrong}");
            assert_eq!(bytes(&wrong), Err(SIZE_RULE), "{wrong}");
        }
    }
}
