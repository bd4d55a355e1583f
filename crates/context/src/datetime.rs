//! Points in time as NGSI writes them: ISO 8601, always shown in UTC with milliseconds.

const MS_PER_MINUTE: i64 = 60_000;
const MS_PER_DAY: i64 = 86_400_000;

/// Renders as `YYYY-MM-DDThh:mm:ss.sssZ`.
pub(crate) fn render(at_ms: i64) -> String {
    let (days, in_day) = (at_ms.div_euclid(MS_PER_DAY), at_ms.rem_euclid(MS_PER_DAY));
    let (year, month, day) = civil(days);
    let (minutes, ms) = (in_day / MS_PER_MINUTE, in_day % MS_PER_MINUTE);
    let (hour, minute, second) = (minutes / 60, minutes % 60, ms / 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
}

/// Reads `YYYY-MM-DD`, with `T<time>`, with a zone after the time. `None` if it is nothing of the kind.
pub(crate) fn parse(text: &str) -> Option<i64> {
    if !text.is_ascii() {
        return None;
    }
    let (date, rest) = text.split_at_checked(10)?;
    let day_ms = parse_date(date)? * MS_PER_DAY;
    if rest.is_empty() {
        return Some(day_ms);
    }
    let rest = rest.strip_prefix('T')?;
    let zone_at = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
    let (time, zone) = rest.split_at(zone_at);
    Some(day_ms + parse_time(time)? - parse_zone(zone)? * MS_PER_MINUTE)
}

fn parse_date(text: &str) -> Option<i64> {
    let parts = [number(text, 0, 4)?, number(text, 5, 2)?, number(text, 8, 2)?];
    let [year, month, day] = parts;
    let days = days_of(year, month, day);
    (text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-' && civil(days) == (year, month, day)).then_some(days)
}

/// Milliseconds since midnight.
fn parse_time(text: &str) -> Option<i64> {
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
    if hour > 23 || minute > 59 || second > 59 || (fraction.is_some() && digits.len() < 6) {
        return None;
    }
    let ms = match fraction {
        None => 0,
        Some(fraction) if !fraction.is_empty() && fraction.bytes().all(|c| c.is_ascii_digit()) => {
            number(&format!("{fraction:0<3}"), 0, 3)?
        }
        Some(_) => return None,
    };
    Some((hour * 60 + minute) * MS_PER_MINUTE + second * 1_000 + ms)
}

/// Minutes east of Greenwich.
fn parse_zone(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first() {
        None => return Some(0),
        Some(b'Z') => return (text.len() == 1).then_some(0),
        Some(b'+') => (1, &text[1..]),
        Some(_) => (-1, &text[1..]),
    };
    let minutes = match rest.len() {
        2 => 0,
        4 => number(rest, 2, 2)?,
        5 if rest.as_bytes()[2] == b':' => number(rest, 3, 2)?,
        _ => return None,
    };
    let hours = number(rest, 0, 2)?;
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 60 + minutes))
}

fn number(text: &str, at: usize, digits: usize) -> Option<i64> {
    let text = text.get(at..at + digits)?;
    text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Days since 1970-01-01 of a day in the proleptic Gregorian calendar. Years begin in March, so that a leap day is last.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, in_era) = (year.div_euclid(400), year.rem_euclid(400));
    let in_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + in_era * 365 + in_era / 4 - in_era / 100 + in_year - 719_468
}

/// The inverse of [`days_of`].
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, in_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
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
            ("2017-06-17T07:21:24-0230", "2017-06-17T09:51:24.000Z"),
            ("1969-12-31T23:59:59.999+00", "1969-12-31T23:59:59.999Z"),
            ("0001-01-01", "0001-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(parse(given).map(render).as_deref(), Some(shown), "{given}");
        }
    }

    #[test]
    fn what_is_no_point_in_time_is_refused() {
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
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
