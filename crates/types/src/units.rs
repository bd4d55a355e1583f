//! Durations and sizes as people write them, such as `7d`, `90m`, `1GiB`, `500MB`.

use std::time::Duration;

/// The form of a duration, for errors.
pub const DURATION_RULE: &str = "use milliseconds, or a number with ms, s, m, h or d, such as 7d";
/// The form of a size, for errors.
pub const SIZE_RULE: &str = "use bytes, or a number with KiB, MiB, GiB, TiB, KB, MB, GB or TB, such as 1GiB";
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
fn parse(text: &str, units: &[(&str, u64)], rule: &'static str) -> Result<u64, &'static str> {
    let text = text.trim();
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let count: u64 = digits.parse().map_err(|_| rule)?;
    let unit = unit.trim_start();
    let scale = if unit.is_empty() { 1 } else { units.iter().find(|(name, _)| *name == unit).ok_or(rule)?.1 };
    count.checked_mul(scale).ok_or(rule)
}

/// Parses a duration: a number with a unit, or of milliseconds.
///
/// # Errors
/// [`DURATION_RULE`] if the text is none.
pub fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    parse(text, &DURATION_UNITS, DURATION_RULE).map(Duration::from_millis)
}

/// Parses a size: a number with a unit, or of bytes.
///
/// # Errors
/// [`SIZE_RULE`] if the text is none.
pub fn parse_size(text: &str) -> Result<u64, &'static str> {
    parse(text, &SIZE_UNITS, SIZE_RULE)
}

/// Formats a duration in the largest unit that shows it exactly.
pub fn format_duration(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let unit = DURATION_UNITS.iter().find(|(_, scale)| ms >= *scale && ms % scale == 0);
    unit.map_or_else(|| format!("{ms}ms"), |(name, scale)| format!("{}{name}", ms / scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_read_as_written_and_show_again() {
        for (given, ms, shown) in
            [("7d", 604_800_000, "7d"), ("90m", 5_400_000, "90m"), ("120 m", 7_200_000, "2h"), ("0", 0, "0ms")]
        {
            assert_eq!(parse_duration(given).map(|d| d.as_millis()), Ok(ms), "{given}");
            assert_eq!(format_duration(parse_duration(given).unwrap()), shown);
        }
        for (given, expected) in [("1GiB", 1 << 30), ("500 MB", 500_000_000), ("7", 7)] {
            assert_eq!(parse_size(given), Ok(expected), "{given}");
        }
        for wrong in ["7 days", "", "-1s", "1.5", "99999999999999999d"] {
            assert_eq!(parse_duration(wrong), Err(DURATION_RULE), "{wrong}");
            assert_eq!(parse_size(wrong), Err(SIZE_RULE), "{wrong}");
        }
    }
}
