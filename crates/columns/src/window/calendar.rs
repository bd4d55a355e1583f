//! Windows of days and months by the clocks of a place.

use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use super::extent::WindowExtent;
use crate::nearest;

/// Windows of so many days or months that follow each other, from midnight to midnight of a time zone. Days without midnight begin
/// at their first moment; a day has 23 or 25 hours where clocks change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalendarWindows {
    /// The length of each.
    pub step: CalendarStep,
    /// The zone whose clocks count.
    pub zone: TimeZone,
    /// The time from midnight to the beginning of a window.
    pub offset_ms: i64,
}

/// The length of a window in the calendar, above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalendarStep {
    /// Days, counted from Monday, 1970-01-05, so that seven are a week.
    Days(u16),
    /// Months, counted from January of the year 0.
    Months(u16),
}

/// The Monday from which days are counted.
const MONDAY: Date = date(1970, 1, 5);

impl CalendarWindows {
    /// Windows from midnight to midnight of the zone with this name; `None` if there is none.
    pub fn of_zone(step: CalendarStep, zone: &str) -> Option<Self> {
        Some(Self { step, zone: TimeZone::get(zone).ok()?, offset_ms: 0 })
    }

    /// The name of the zone.
    pub fn zone_name(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// The zone whose name is most like this one, if one is.
    pub fn nearest_zone(zone: &str) -> Option<String> {
        let names: Vec<String> = jiff::tz::db().available().map(|name| name.as_str().to_owned()).collect();
        nearest(zone, names.iter().map(String::as_str)).map(str::to_owned)
    }

    /// The window of a time; `None` beyond the calendar, which has the years -9999 to 9999.
    pub(super) fn window(&self, time_ms: i64) -> Option<WindowExtent> {
        let time = Timestamp::from_millisecond(time_ms.checked_sub(self.offset_ms)?).ok()?;
        let day = self.zone.to_datetime(time).date();
        let (first, next) = match self.step {
            CalendarStep::Days(days) => {
                let days = i32::from(days.max(1));
                let past = day.since(MONDAY).ok()?.get_days().rem_euclid(days);
                let first = day.checked_sub(Span::new().days(past)).ok()?;
                (first, first.checked_add(Span::new().days(days)).ok()?)
            }
            CalendarStep::Months(months) => {
                let months = i32::from(months.max(1));
                let number = i32::from(day.year()) * 12 + i32::from(day.month()) - 1;
                let past = number.rem_euclid(months);
                let first = day.first_of_month().checked_sub(Span::new().months(past)).ok()?;
                (first, first.checked_add(Span::new().months(months)).ok()?)
            }
        };
        let begin_ms = |day: Date| {
            let begin = day.to_zoned(self.zone.clone()).ok()?.timestamp();
            begin.as_millisecond().checked_add(self.offset_ms)
        };
        Some(WindowExtent { start_ms: begin_ms(first)?, end_ms: begin_ms(next)? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn windows(step: CalendarStep, zone: &str) -> CalendarWindows {
        CalendarWindows { step, zone: TimeZone::get(zone).unwrap(), offset_ms: 0 }
    }

    fn bounds(windows: &CalendarWindows, time: &str) -> (String, String) {
        let time: Timestamp = time.parse().unwrap();
        let WindowExtent { start_ms, end_ms } = windows.window(time.as_millisecond()).unwrap();
        let text = |ms| Timestamp::from_millisecond(ms).unwrap().to_string();
        (text(start_ms), text(end_ms))
    }

    #[test]
    fn days_weeks_months_and_years_begin_at_midnight_of_the_zone() {
        let both = |start: &str, end: &str| (start.to_owned(), end.to_owned());
        let berlin = |step| windows(step, "Europe/Berlin");
        let day = berlin(CalendarStep::Days(1));
        assert_eq!(bounds(&day, "2026-01-01T12:00:00Z"), both("2025-12-31T23:00:00Z", "2026-01-01T23:00:00Z"));
        assert_eq!(bounds(&day, "2026-01-01T23:00:00Z"), both("2026-01-01T23:00:00Z", "2026-01-02T23:00:00Z"));
        // Clocks go forward on 2026-03-29, and back on 2026-10-25.
        assert_eq!(bounds(&day, "2026-03-29T12:00:00Z"), both("2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"));
        assert_eq!(bounds(&day, "2026-10-25T12:00:00Z"), both("2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"));
        let week = windows(CalendarStep::Days(7), "UTC");
        assert_eq!(bounds(&week, "2026-11-29T23:59:59Z"), both("2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"));
        assert_eq!(bounds(&week, "1969-12-31T00:00:00Z"), both("1969-12-29T00:00:00Z", "1970-01-05T00:00:00Z"));
        let month = berlin(CalendarStep::Months(1));
        assert_eq!(bounds(&month, "2026-02-28T23:30:00Z"), both("2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"));
        let quarter = berlin(CalendarStep::Months(3));
        assert_eq!(bounds(&quarter, "2026-05-05T00:00:00Z"), both("2026-03-31T22:00:00Z", "2026-06-30T22:00:00Z"));
        let year = windows(CalendarStep::Months(12), "Asia/Kolkata");
        assert_eq!(bounds(&year, "2026-05-05T00:00:00Z"), both("2025-12-31T18:30:00Z", "2026-12-31T18:30:00Z"));
        let six = CalendarWindows { offset_ms: 6 * 3_600_000, ..berlin(CalendarStep::Days(1)) };
        assert_eq!(bounds(&six, "2026-01-01T03:00:00Z"), both("2025-12-31T05:00:00Z", "2026-01-01T05:00:00Z"));
    }

    proptest! {
        #[test]
        fn each_time_is_in_its_window_and_windows_touch(
            time_ms in -4_000_000_000_000..8_000_000_000_000_i64, days in 1..40_u16, months in 1..30_u16,
            zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kathmandu"]),
        ) {
            for step in [CalendarStep::Days(days), CalendarStep::Months(months)] {
                let windows = windows(step, zone);
                let window = windows.window(time_ms).unwrap();
                prop_assert!(window.start_ms <= time_ms && time_ms < window.end_ms, "{window:?}");
                for inside in [window.start_ms, window.end_ms - 1] {
                    prop_assert_eq!(windows.window(inside), Some(window));
                }
                prop_assert_eq!(windows.window(window.end_ms).unwrap().start_ms, window.end_ms);
            }
        }

        #[test]
        fn no_time_is_too_much(time_ms in any::<i64>()) {
            let _ = windows(CalendarStep::Months(7), "Europe/Berlin").window(time_ms);
        }
    }
}
