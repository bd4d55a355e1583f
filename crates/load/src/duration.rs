//! Parses durations such as `500ms`, `10s`, `1.5m`, `2h` and `0`.

use std::time::Duration;

/// Longest duration that is accepted: about three years.
const DURATION_MAX_S: f64 = 1e8;

pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 500ms, 10s, 5m or 1h");
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        "" if number == 0.0 => 0.0,
        _ => return Err(wrong()),
    };
    if (0.0..=DURATION_MAX_S).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_carry_a_unit_unless_they_are_zero() {
        for (text, expected) in [
            ("500ms", Some(500)),
            ("10s", Some(10_000)),
            ("1.5m", Some(90_000)),
            ("1h", Some(3_600_000)),
            ("0", Some(0)),
            ("10", None),
            ("-1s", None),
            ("s", None),
            ("1e300h", None),
            ("1d", None),
        ] {
            assert_eq!(parse(text).ok().map(|duration| duration.as_millis()), expected, "{text}");
        }
    }
}
