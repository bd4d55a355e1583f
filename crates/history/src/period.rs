//! Periods of time as ISO 8601 writes durations: months and years by the calendar, everything in UTC.

use jiff::{Span, ToSpan};
use millstream_types::{date_time, ms_of};

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
/// A Monday, from which weeks are counted if nobody says otherwise.
const MONDAY_MS: i64 = -3 * DAY_MS;

/// A duration that time is divided by, from an origin on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Periods {
    length: Length,
    origin_ms: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    /// All of time is one period.
    Whole,
    Ms(i64),
    /// By the calendar; a month that lacks the origin's day begins on its last one.
    Months(i64),
}

impl Periods {
    /// Reads `PnYnMnWnDTnHnMnS`. Calendar months and fixed times cannot be mixed; `P0D` is one period for all. `None`
    /// if it is nothing of the kind. Periods begin at `origin_ms`; without it whole weeks on Mondays, others at 1970-01-01.
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

    /// The number of the period in which a moment lies.
    pub(crate) fn number(&self, ms: i64) -> i64 {
        match self.length {
            Length::Whole => 0,
            Length::Ms(length) => (ms.saturating_sub(self.origin_ms)).div_euclid(length),
            Length::Months(length) => {
                let (at, origin) = (date_time(ms), date_time(self.origin_ms));
                let months = i64::from(at.year()) * 12 + i64::from(at.month());
                let since = months - i64::from(origin.year()) * 12 - i64::from(origin.month());
                let number = since.div_euclid(length);
                // In the month in which a period begins, the moment may lie before its beginning.
                if ms < self.start_ms(number) { number - 1 } else { number }
            }
        }
    }

    /// When a period begins; the one before it ends then. `None` if all of time is one period.
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
    fn what_is_no_duration_is_refused() {
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
