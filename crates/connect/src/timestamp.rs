//! Time stamps in RFC 3339 format, to the millisecond.

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time};
use millstream_types::{iso_time, ms_of};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A time stamp in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(pub(crate) i64);

/// The error for text that is no valid time stamp.
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
    let date = Date::new(year, month, day).ok()?;
    let time = Time::new(hour, minute, second, fraction_ms * 1_000_000).ok()?;
    Some(ms_of(DateTime::from_parts(date, time).checked_sub(offset(rest)?).ok()?))
}

/// Splits off a number of `digits` digits.
fn number<N: FromStr>(text: &str, digits: usize) -> Option<(N, &str)> {
    let (head, rest) = text.split_at_checked(digits)?;
    if !head.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((head.parse().ok()?, rest))
}

/// Milliseconds of an optional fraction of a second; further digits are cut off.
fn fraction(text: &str) -> Option<(i32, &str)> {
    let Some(rest) = text.strip_prefix('.') else { return Some((0, text)) };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let millis =
        rest.bytes().take(digits).chain(*b"000").take(3).fold(0, |ms, digit| ms * 10 + i32::from(digit - b'0'));
    (digits > 0).then_some((millis, &rest[digits..]))
}

/// `Z`, `+01:00` or `+0100`.
fn offset(text: &str) -> Option<SignedDuration> {
    if text.eq_ignore_ascii_case("z") {
        return Some(SignedDuration::ZERO);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, rest): (i64, _) = number(&text[1..], 2)?;
    let (minutes, rest): (i64, _) = number(rest.strip_prefix(':').unwrap_or(rest), 2)?;
    let is_legal = rest.is_empty() && hours < 24 && minutes < 60;
    is_legal.then(|| SignedDuration::from_mins(sign * (hours * 60 + minutes)))
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = iso_time(self.0);
        match text.strip_suffix(".000Z") {
            Some(whole_seconds) => write!(f, "{whole_seconds}Z"),
            None => f.write_str(&text),
        }
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
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ] {
            assert_eq!(text.parse(), Ok(Timestamp(ms)), "{text}");
        }
    }

    #[test]
    fn an_invalid_timestamp_is_refused_with_its_text() {
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
            "9999-12-31T23:59:59-01:00",
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
