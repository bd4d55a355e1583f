//! Parses and formats durations and sizes such as `7d`, `90m`, `1GiB`, `500MB`.

use std::time::Duration;

use serde_json::Value;

const DURATION_RULE: &str = "use milliseconds, or a number with ms, s, m, h or d, such as 7d";
const SIZE_RULE: &str = "use bytes, or a number with KiB, MiB, GiB, TiB, KB, MB, GB or TB, such as 1GiB";
const DURATION_UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Parses a number of `units`; the error is the rule.
fn parse(given: &Value, units: &[(&str, u64)], rule: &'static str) -> Result<u64, &'static str> {
    let text = match given {
        Value::Number(number) => return number.as_u64().ok_or(rule),
        Value::String(text) => text.trim(),
        _ => return Err(rule),
    };
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let count: u64 = digits.parse().map_err(|_| rule)?;
    let unit = unit.trim_start();
    let scale = if unit.is_empty() { 1 } else { units.iter().find(|(name, _)| *name == unit).ok_or(rule)?.1 };
    count.checked_mul(scale).ok_or(rule)
}

/// Parses a duration: milliseconds as a number, or text with a unit.
pub(crate) fn duration(given: &Value) -> Result<Duration, &'static str> {
    parse(given, &DURATION_UNITS, DURATION_RULE).map(Duration::from_millis)
}

/// Parses a size: bytes as a number, or text with a unit.
pub(super) fn bytes(given: &Value) -> Result<u64, &'static str> {
    parse(given, &SIZE_UNITS, SIZE_RULE)
}

/// Formats a duration in the largest unit that shows it exactly.
pub(super) fn show_duration(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let unit = DURATION_UNITS.iter().find(|(_, scale)| ms >= *scale && ms % scale == 0);
    unit.map_or_else(|| format!("{ms}ms"), |(name, scale)| format!("{}{name}", ms / scale))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_and_sizes_read_as_written_and_show_again() {
        for (given, ms, shown) in [
            (json!("7d"), 604_800_000, "7d"),
            (json!("90m"), 5_400_000, "90m"),
            (json!("120 m"), 7_200_000, "2h"),
            (json!(1500), 1_500, "1500ms"),
            (json!("0"), 0, "0ms"),
        ] {
            assert_eq!(duration(&given).map(|d| d.as_millis()), Ok(ms), "{given}");
            assert_eq!(show_duration(duration(&given).unwrap()), shown);
        }
        for (given, expected) in [(json!("1GiB"), 1 << 30), (json!("500 MB"), 500_000_000), (json!(7), 7)] {
            assert_eq!(bytes(&given), Ok(expected), "{given}");
        }
        for wrong in [json!("7 days"), json!(""), json!("-1s"), json!(1.5), json!(null), json!("99999999999999999d")] {
            assert_eq!(duration(&wrong), Err(DURATION_RULE), "{wrong}");
            assert_eq!(bytes(&wrong), Err(SIZE_RULE), "{wrong}");
        }
    }
}
