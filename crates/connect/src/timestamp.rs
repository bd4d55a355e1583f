//! A moment as people write it: RFC 3339, to the millisecond.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const DAY_MS: i64 = 86_400_000;

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(pub(crate) i64);

/// Text that is no moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{value}' is no date and time with an offset; write it like 2026-01-31T08:30:00Z or 2026-01-31T08:30:00+01:00"
)]
pub(crate) struct NoTimestamp {
    value: String,
}

impl FromStr for Timestamp {
    type Err = NoTimestamp;

    fn from_str(text: &str) -> Result<Self, NoTimestamp> {
        parse(text).map(Self).ok_or_else(|| NoTimestamp { value: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<i64> {
    let (year, rest) = number(text, 4)?;
    let (month, rest) = number(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = number(rest.strip_prefix('-')?, 2)?;
    let (hour, rest) = number(rest.strip_prefix(['T', 't'])?, 2)?;
    let (minute, rest) = number(rest.strip_prefix(':')?, 2)?;
    let (second, rest) = number(rest.strip_prefix(':')?, 2)?;
    let (fraction_ms, rest) = fraction(rest)?;
    let is_legal = (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !is_legal {
        return None;
    }
    let of_day_ms = ((hour * 60 + minute) * 60 + second) * 1000 + fraction_ms;
    Some(days_since_1970(year, month, day) * DAY_MS + of_day_ms - offset_ms(rest)?)
}

/// `digits` digits and what follows them.
fn number(text: &str, digits: usize) -> Option<(i64, &str)> {
    let (head, rest) = text.split_at_checked(digits)?;
    if !head.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((head.parse().ok()?, rest))
}

/// Milliseconds of an optional fraction of a second; further digits are cut off.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(rest) = text.strip_prefix('.') else { return Some((0, text)) };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let millis =
        rest.bytes().take(digits).chain(*b"000").take(3).fold(0, |ms, digit| ms * 10 + i64::from(digit - b'0'));
    (digits > 0).then_some((millis, &rest[digits..]))
}

/// `Z`, `+01:00` or `+0100`.
fn offset_ms(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, rest) = number(&text[1..], 2)?;
    let (minutes, rest) = number(rest.strip_prefix(':').unwrap_or(rest), 2)?;
    (rest.is_empty() && hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60_000)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    days_since_1970(year + month / 12, month % 12 + 1, 1) - days_since_1970(year, month, 1)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. The year is counted from March, so that the leap day is
/// its last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // Five months from March on have 153 days, and so have the next five.
    365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, ms) = (self.0.div_euclid(DAY_MS), self.0.rem_euclid(DAY_MS));
        // A year has 365 or 366 days: this one is never too late.
        let mut year = 1970 + days.div_euclid(if days < 0 { 365 } else { 366 });
        while days_since_1970(year + 1, 1, 1) <= days {
            year += 1;
        }
        let month = (1..=12).rev().find(|month| days_since_1970(year, *month, 1) <= days).unwrap_or(1);
        let day = days - days_since_1970(year, month, 1) + 1;
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if ms % 1000 != 0 { write!(f, ".{:03}Z", ms % 1000) } else { f.write_str("Z") }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn moments_are_read_with_any_offset_and_to_the_millisecond() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600_000),
            ("2017-12-24T19:00:00+01:00", 1_514_138_400_000),
            ("2017-12-24T19:00:00+0100", 1_514_138_400_000),
            ("2017-12-24t10:30:00.1-07:30", 1_514_138_400_100),
            ("1969-12-31T23:59:59.999999Z", -1),
        ] {
            assert_eq!(text.parse(), Ok(Timestamp(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_refused_with_its_text() {
        for text in [
            "",
            "2026-01-31",
            "2026-01-31T08:30:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-31T24:00:00Z",
            "2026-01-31T08:60:00Z",
            "2026-01-31T08:30:00.Z",
            "2026-01-31T08:30:00+1",
            "2026-01-31T08:30:00Zx",
            "2026-01-31T08:30:00é",
            "+026-01-31T08:30:00Z",
        ] {
            assert!(text.parse::<Timestamp>().unwrap_err().to_string().contains(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_moment_reads_back(ms in -60_000_000_000_000_i64..200_000_000_000_000) {
            prop_assert_eq!(Timestamp(ms).to_string().parse(), Ok(Timestamp(ms)));
        }
    }
}
