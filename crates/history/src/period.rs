//! Periods of ISO 8601 durations. Months and years follow the calendar; all times are UTC.

use jiff::{Span, ToSpan};
use millstream_types::{date_time, ms_of};

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
/// A Monday, the default origin of weeks.
const MONDAY_MS: i64 = -3 * DAY_MS;

/// Consecutive periods of one length, counted from an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Periods {
    length: Length,
    origin_ms: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    /// One period for all times.
    Whole,
    Ms(i64),
    /// Calendar months; if a month lacks the origin's day, its period starts on the month's last day.
    Months(i64),
}

impl Periods {
    /// Parses `PnYnMnWnDTnHnMnS`. Months cannot be combined with days or times, and `P0D` is one period for all
    /// times. Without `origin_ms`, whole weeks start on Mondays and other periods count from 1970-01-01. Returns
    /// `None` for any other text.
    pub(crate) fn read(text: &str, origin_ms: Option<i64>) -> Option<Self> {
        if !text.starts_with('P') {
            return None;
        }
        let span: Span = text.parse().ok()?;
        let months = i64::from(span.get_years()) * 12 + i64::from(span.get_months());
        let days = i64::from(span.get_weeks()) * 7 + i64::from(span.get_days());
        let seconds = i64::from(span.get_hours()) * 3_600 + span.get_minutes() * 60 + span.get_seconds();
        let ms = seconds.checked_mul(1_000)?.checked_add(span.get_milliseconds())?.checked_add(days * DAY_MS)?;
        let length = match (months, ms) {
            (0, 0) => Length::Whole,
            (0, ms) if ms > 0 => Length::Ms(ms),
            (months, 0) if months > 0 => Length::Months(months),
            _ => return None,
        };
        let default = if matches!(length, Length::Ms(ms) if ms % (7 * DAY_MS) == 0) { MONDAY_MS } else { 0 };
        Some(Self { length, origin_ms: origin_ms.unwrap_or(default) })
    }

    /// Returns the number of the period that contains `ms`.
    pub(crate) fn number(&self, ms: i64) -> i64 {
        match self.length {
            Length::Whole => 0,
            Length::Ms(length) => (ms.saturating_sub(self.origin_ms)).div_euclid(length),
            Length::Months(length) => {
                let (at, origin) = (date_time(ms), date_time(self.origin_ms));
                let months = i64::from(at.year()) * 12 + i64::from(at.month());
                let since = months - i64::from(origin.year()) * 12 - i64::from(origin.month());
                let number = since.div_euclid(length);
                // The time may be in the start month, but before the start.
                if ms < self.start_ms(number) { number - 1 } else { number }
            }
        }
    }

    /// Returns the start of a period, which is the end of the previous one; `None` if there is only one period.
    pub(crate) fn start(&self, number: i64) -> Option<i64> {
        (self.length != Length::Whole).then(|| self.start_ms(number))
    }

    fn start_ms(&self, number: i64) -> i64 {
        match self.length {
            Length::Whole => 0,
            Length::Ms(length) => self.origin_ms.saturating_add(number.saturating_mul(length)),
            Length::Months(length) => {
                let months = number.saturating_mul(length).clamp(-19_998 * 12, 19_998 * 12);
                ms_of(date_time(self.origin_ms).saturating_add(months.months()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::change::moment;

    fn at(text: &str) -> i64 {
        moment(text).unwrap()
    }

    #[test]
    fn a_moment_lies_in_the_period_that_begins_at_or_before_it() {
        for (duration, origin, moment, start, end) in [
            ("PT1H", None, "2026-03-01T10:59:59.999Z", "2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z"),
            ("PT1H", None, "2026-03-01T11:00:00Z", "2026-03-01T11:00:00Z", "2026-03-01T12:00:00Z"),
            (
                "PT1H",
                Some("2026-03-01T10:30:00Z"),
                "2026-03-01T11:29:00Z",
                "2026-03-01T10:30:00Z",
                "2026-03-01T11:30:00Z",
            ),
            ("PT15M", None, "1969-12-31T23:59:00Z", "1969-12-31T23:45:00Z", "1970-01-01"),
            ("PT0.5S", None, "2026-03-01T00:00:00.7Z", "2026-03-01T00:00:00.5Z", "2026-03-01T00:00:01Z"),
            ("P1D", None, "2026-03-01T10:00:00Z", "2026-03-01", "2026-03-02"),
            ("P1W", None, "2026-11-22T10:00:00Z", "2026-11-16", "2026-11-23"),
            ("P1M", None, "2026-02-28T23:59:59Z", "2026-02-01", "2026-03-01"),
            ("P1M", None, "2024-02-29T23:59:59Z", "2024-02-01", "2024-03-01"),
            ("P1M", Some("2026-01-31"), "2026-02-27T10:00:00Z", "2026-01-31", "2026-02-28"),
            ("P1M", Some("2026-01-31"), "2026-02-28T10:00:00Z", "2026-02-28", "2026-03-31"),
            ("P3M", None, "2026-05-05", "2026-04-01", "2026-07-01"),
            ("P1Y", None, "1969-05-05", "1969-01-01", "1970-01-01"),
            ("P1Y6M", None, "1971-08-01", "1971-07-01", "1973-01-01"),
        ] {
            let periods = Periods::read(duration, origin.map(at)).unwrap();
            let number = periods.number(at(moment));
            let found = (periods.start(number), periods.start(number + 1));
            assert_eq!(found, (Some(at(start)), Some(at(end))), "{duration} {origin:?} {moment}");
        }
        let whole = Periods::read("P0D", None).unwrap();
        assert_eq!((whole.number(i64::MIN), whole.number(5), whole.start(0)), (0, 0, None));
    }

    #[test]
    fn an_invalid_duration_is_refused() {
        for text in ["", "P", "1H", "PT", "PT-1H", "-PT1H", "P1M1D", "hour", "P1X", "PT99999999999999999H"] {
            assert_eq!(Periods::read(text, None), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_moment_lies_in_its_period(
            length in prop::sample::select(vec!["PT1S", "PT7M", "P1D", "P1W", "P1M", "P5M", "P1Y"]),
            origin in prop::option::of(-4_000_000_000_000_i64..4_000_000_000_000),
            ms in -4_000_000_000_000_i64..4_000_000_000_000,
        ) {
            let periods = Periods::read(length, origin).unwrap();
            let number = periods.number(ms);
            prop_assert!(periods.start(number).unwrap() <= ms && ms < periods.start(number + 1).unwrap());
        }
    }
}
