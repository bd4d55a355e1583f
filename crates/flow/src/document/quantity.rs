//! Durations such as `10s` and sizes such as `16MiB`.

use millstream_columns::CalendarStep;

/// The units of durations, in milliseconds.
const DURATIONS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
/// The units of sizes, in bytes.
const SIZES: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
/// The longest duration that a document may name: 366 days.
const DURATION_MAX_MS: u64 = 366 * 86_400_000;
/// The rule for durations, for messages.
pub(super) const DURATION_RULE: &str = "a whole number and one of the units ms, s, m, h, d, up to 366d, such as 10s";
/// The rule for sizes, for messages.
pub(super) const SIZE_RULE: &str = "a whole number and one of the units B, KiB, MiB, GiB, such as 16MiB";

/// The milliseconds of a duration as it is written in documents: a whole number and `ms`, `s`, `m`, `h` or `d`; at most 366 days.
pub fn duration_ms(text: &str) -> Option<u64> {
    quantity(text, &DURATIONS).filter(|ms| *ms <= DURATION_MAX_MS)
}

/// The milliseconds of a duration that may have `-` in front.
pub(super) fn signed_duration_ms(text: &str) -> Option<i64> {
    let (sign, length) = text.strip_prefix('-').map_or((1, text), |length| (-1, length));
    Some(sign * i64::try_from(duration_ms(length)?).ok()?)
}

/// The bytes of a size as it is written in documents: a whole number and `B`, `KiB`, `MiB` or `GiB`.
pub fn size_bytes(text: &str) -> Option<u64> {
    quantity(text, &SIZES)
}

/// The days or months of a length in the calendar: a whole number above 0 and `d`, `w`, `mo` or `y`; at most 366 days or as many months.
pub(super) fn calendar_step(text: &str) -> Option<CalendarStep> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (of, factor): (fn(u16) -> CalendarStep, u16) = match unit {
        "d" => (CalendarStep::Days, 1),
        "w" => (CalendarStep::Days, 7),
        "mo" => (CalendarStep::Months, 1),
        "y" => (CalendarStep::Months, 12),
        _ => return None,
    };
    digits.parse::<u16>().ok()?.checked_mul(factor).filter(|step| (1..=366).contains(step)).map(of)
}

/// The milliseconds of `1s..1m`, or twice those of `1s`; the second is not less than the first.
pub(super) fn duration_range_ms(text: &str) -> Option<(u64, u64)> {
    let (first, longest) = text.split_once("..").unwrap_or((text, text));
    let range = (duration_ms(first.trim())?, duration_ms(longest.trim())?);
    (range.0 <= range.1).then_some(range)
}

fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    digits.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_is_a_whole_number_and_a_unit() {
        for (text, ms) in [("10s", Some(10_000)), ("5ms", Some(5)), ("2h", Some(7_200_000)), ("1d", Some(86_400_000))] {
            assert_eq!(duration_ms(text), ms, "{text}");
        }
        for text in
            ["", "10", "s", "1.5s", "10 s", "-1s", "10S", "367d", "99999999999999999999s", "18446744073709551615d"]
        {
            assert_eq!(duration_ms(text), None, "{text}");
        }
        for (text, step) in [
            ("1d", Some(CalendarStep::Days(1))),
            ("2w", Some(CalendarStep::Days(14))),
            ("3mo", Some(CalendarStep::Months(3))),
            ("1y", Some(CalendarStep::Months(12))),
            ("0d", None),
            ("367d", None),
            ("1h", None),
            ("d", None),
            ("99999w", None),
        ] {
            assert_eq!(calendar_step(text), step, "{text}");
        }
        assert_eq!((signed_duration_ms("-5m"), signed_duration_ms("5m")), (Some(-300_000), Some(300_000)));
        assert_eq!((signed_duration_ms("--5m"), signed_duration_ms("-")), (None, None));
        assert_eq!(size_bytes("16MiB"), Some(16 << 20));
        assert_eq!(size_bytes("16MB"), None);
        assert_eq!(duration_range_ms("1s..1m"), Some((1_000, 60_000)));
        assert_eq!(duration_range_ms("2s"), Some((2_000, 2_000)));
        assert_eq!(duration_range_ms("1m..1s"), None);
    }
}
