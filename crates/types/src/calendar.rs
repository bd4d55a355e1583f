//! The calendar: milliseconds since 1970 as people and JSON write them, always in UTC.

use jiff::SignedDuration;
use jiff::civil::{DateTime, date};

const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

/// `ms` after 1970-01-01T00:00:00Z as ISO 8601: `YYYY-MM-DDThh:mm:ss.sssZ`.
///
/// A time outside the calendar's range, years -9999 to 9999, becomes the first or last moment of the range.
pub fn iso_time(ms: i64) -> String {
    format!("{:.3}Z", date_time(ms))
}

/// The date and time of day in UTC, `ms` after 1970-01-01T00:00:00Z. Outside the calendar it is
/// the first or last moment.
pub fn date_time(ms: i64) -> DateTime {
    EPOCH.saturating_add(SignedDuration::from_millis(ms))
}

/// Milliseconds from 1970-01-01T00:00:00Z to a date and time of day in UTC.
pub fn ms_of(time: DateTime) -> i64 {
    let since_epoch = time.duration_since(EPOCH);
    since_epoch.as_secs() * 1_000 + i64::from(since_epoch.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_in_time_is_shown_with_milliseconds_and_ends_with_the_calendar() {
        for (ms, shown) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_825_600_120, "2000-02-29T12:00:00.120Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (253_402_300_800_000, "9999-12-31T23:59:59.999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
            (i64::MIN, "-009999-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(iso_time(ms), shown, "{ms}");
        }
    }

    #[test]
    fn milliseconds_and_the_calendar_are_inverse() {
        for ms in [0, -1, 1, 951_825_600_120, -62_135_596_800_000, 253_402_300_799_999] {
            assert_eq!(ms_of(EPOCH + SignedDuration::from_millis(ms)), ms);
        }
    }
}
