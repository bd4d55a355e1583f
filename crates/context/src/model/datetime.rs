//! Parses the ISO 8601 forms of points in time that NGSI clients write.

use std::str::FromStr;

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time};
use millstream_types::ms_of;

/// Parses `YYYY-MM-DD`, with `T<time>`, with a zone after the time, to milliseconds since 1970. `None` if the text has
/// another form, or if the zone moves the time out of the calendar.
pub(crate) fn parse(text: &str) -> Option<i64> {
    if !text.is_ascii() {
        return None;
    }
    let (date, rest) = text.split_at_checked(10)?;
    let date = parse_date(date)?;
    if rest.is_empty() {
        return Some(ms_of(DateTime::from(date)));
    }
    let rest = rest.strip_prefix('T')?;
    let zone_at = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
    let (time, zone) = rest.split_at(zone_at);
    let local = DateTime::from_parts(date, parse_time(time)?);
    Some(ms_of(local.checked_sub(parse_zone(zone)?).ok()?))
}

fn parse_date(text: &str) -> Option<Date> {
    let date = Date::new(number(text, 0, 4)?, number(text, 5, 2)?, number(text, 8, 2)?).ok()?;
    (text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-').then_some(date)
}

fn parse_time(text: &str) -> Option<Time> {
    let (clock, fraction) = text.split_once('.').map_or((text, None), |(clock, fraction)| (clock, Some(fraction)));
    let digits: String = match clock.len() {
        2 | 4 | 6 => clock.to_owned(),
        5 | 8 => {
            let parts: Vec<&str> = clock.split(':').collect();
            parts.iter().all(|part| part.len() == 2).then(|| parts.concat())?
        }
        _ => return None,
    };
    let part = |at| if digits.len() > at { number(&digits, at, 2) } else { Some(0) };
    let (hour, minute, second) = (part(0)?, part(2)?, part(4)?);
    let ms: i32 = match fraction {
        None => 0,
        Some(_) if digits.len() < 6 => return None,
        Some(fraction) if !fraction.is_empty() && fraction.bytes().all(|c| c.is_ascii_digit()) => {
            number(&format!("{fraction:0<3}"), 0, 3)?
        }
        Some(_) => return None,
    };
    Time::new(hour, minute, second, ms * 1_000_000).ok()
}

/// Parses the offset from UTC, positive to the east. A point may stand for the colon, as Orion takes it.
fn parse_zone(text: &str) -> Option<SignedDuration> {
    let (sign, rest) = match text.as_bytes().first() {
        None => return Some(SignedDuration::ZERO),
        Some(b'Z') => return (text.len() == 1).then_some(SignedDuration::ZERO),
        Some(b'+') => (1, &text[1..]),
        Some(_) => (-1, &text[1..]),
    };
    let minutes = match rest.len() {
        2 => 0,
        4 => number(rest, 2, 2)?,
        5 if matches!(rest.as_bytes()[2], b':' | b'.') => number(rest, 3, 2)?,
        _ => return None,
    };
    let hours: i64 = number(rest, 0, 2)?;
    (hours <= 23 && minutes <= 59).then_some(SignedDuration::from_mins(sign * (hours * 60 + minutes)))
}

fn number<N: FromStr>(text: &str, at: usize, digits: usize) -> Option<N> {
    let text = text.get(at..at + digits)?;
    text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use millstream_types::iso_time;

    use super::*;

    #[test]
    fn a_point_in_time_is_shown_in_utc_with_milliseconds() {
        for (given, shown) in [
            ("2013-01-01", "2013-01-01T00:00:00.000Z"),
            ("2050-04-05T14:00:00.00Z", "2050-04-05T14:00:00.000Z"),
            ("2016-02-29T23", "2016-02-29T23:00:00.000Z"),
            ("2016-02-29T2359", "2016-02-29T23:59:00.000Z"),
            ("2016-02-29T23:59:58.5", "2016-02-29T23:59:58.500Z"),
            ("2016-02-29T235958.123456Z", "2016-02-29T23:59:58.123Z"),
            ("2017-06-17T07:21:24.238Z", "2017-06-17T07:21:24.238Z"),
            ("2017-06-17T07:21:24+02:00", "2017-06-17T05:21:24.000Z"),
            ("2017-06-17T07:21:24+01.00", "2017-06-17T06:21:24.000Z"),
            ("2017-06-17T07:21:24-0230", "2017-06-17T09:51:24.000Z"),
            ("1969-12-31T23:59:59.999+00", "1969-12-31T23:59:59.999Z"),
            ("0001-01-01", "0001-01-01T00:00:00.000Z"),
            ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(parse(given).map(iso_time).as_deref(), Some(shown), "{given}");
        }
    }

    #[test]
    fn an_invalid_date_time_is_refused() {
        for text in [
            "",
            "2013",
            "2013-13-01",
            "2013-02-29",
            "2013-01-01 10:00",
            "2013-01-01T",
            "2013-01-01T24:00",
            "2013-01-01T10:60",
            "2013-01-01T1:00",
            "2013-01-01T10:00:00.",
            "2013-01-01T10:00.5",
            "2013-01-01Z",
            "2013-01-01T10Z1",
            "2013-01-01T10+1",
            "2013-01-01T10+24:00",
            "2013/01/01",
            "2013-01-01T10:00:00+ab",
            "2013-01-01Tä",
            "+013-01-01",
            "9999-12-31T23:59:59-01:00",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
