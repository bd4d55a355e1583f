//! The days that a file covers: one day, or all days of a calendar month or year (UTC). Points of long ago share files, so
//! that the number of files grows with the bytes and not with the days.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use millstream_types::{date_time, ms_of};
use serde::{Deserialize, Serialize};

use crate::point::DAY_MS;

/// Most files of each span, but years, that a flush writes for one type.
pub(crate) const PERIODS_MAX: usize = 8;

/// The length of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Span {
    #[default]
    Day,
    Month,
    Year,
}

impl Span {
    pub(crate) fn is_day(&self) -> bool {
        *self == Self::Day
    }
}

/// A day, month or year of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct FilePeriod {
    /// Days since 1970-01-01.
    pub(crate) first_day: i32,
    pub(crate) span: Span,
}

/// The directory of a tenant, a type and a period.
pub(crate) type FileDirectory = (Arc<str>, Arc<str>, FilePeriod);

impl FilePeriod {
    /// Returns the period of a length that contains a day.
    pub(crate) fn of(span: Span, day: i32) -> Self {
        let date = date_time(i64::from(day) * DAY_MS).date();
        let first = match span {
            Span::Day => return Self { first_day: day, span },
            Span::Month => date.first_of_month(),
            Span::Year => date.first_of_year(),
        };
        Self { first_day: day_of(first), span }
    }

    pub(crate) fn days(&self) -> Range<i32> {
        let date = date_time(i64::from(self.first_day) * DAY_MS).date();
        let last = match self.span {
            Span::Day => self.first_day,
            Span::Month => day_of(date.last_of_month()),
            Span::Year => day_of(date.last_of_year()),
        };
        self.first_day..last + 1
    }

    /// Formats the period for directory names: `2026-01-31`, `2026-01` or `2026`.
    pub(crate) fn name(&self) -> String {
        let mut name = date_time(i64::from(self.first_day) * DAY_MS).date().to_string();
        let cut_bytes = match self.span {
            Span::Day => 0,
            Span::Month => "-01".len(),
            Span::Year => "-01-01".len(),
        };
        name.truncate(name.len() - cut_bytes);
        name
    }
}

fn day_of(date: jiff::civil::Date) -> i32 {
    crate::point::day(ms_of(date.to_datetime(jiff::civil::Time::midnight())))
}

/// Divides days among files: the newest days have files of their own, days before them share those of months, and all
/// others those of years.
pub(crate) fn periods_of(days: &BTreeSet<i32>, coarsest: Span) -> BTreeMap<i32, FilePeriod> {
    let mut months = BTreeSet::new();
    let newest_first = days.iter().rev().enumerate().map(|(number, day)| {
        let month = FilePeriod::of(Span::Month.min(coarsest), *day);
        let period = if number < PERIODS_MAX {
            FilePeriod::of(Span::Day, *day)
        } else if coarsest < Span::Year || months.contains(&month) || months.len() < PERIODS_MAX {
            months.insert(month);
            month
        } else {
            FilePeriod::of(Span::Year, *day)
        };
        (*day, period)
    });
    newest_first.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_few_days_have_files_of_their_own_and_many_share_months_and_years() {
        let names = |days: Range<i32>, coarsest| {
            let periods: BTreeSet<FilePeriod> = periods_of(&days.collect(), coarsest).into_values().collect();
            periods.iter().map(FilePeriod::name).collect::<Vec<_>>()
        };
        // 20454 is 2026-01-01.
        assert_eq!(names(20_454..20_456, Span::Year), ["2026-01-01", "2026-01-02"]);
        let of_700_days = names(20_454 - 700..20_454, Span::Year);
        assert_eq!(of_700_days.len(), 18, "{of_700_days:?}");
        assert_eq!((&*of_700_days[0], &*of_700_days[2]), ("2024", "2025-05"), "{of_700_days:?}");
        assert_eq!(of_700_days.last().unwrap(), "2025-12-31");
        assert_eq!(names(20_454 - 700..20_454, Span::Month).len(), 8 + 23);
        assert_eq!(names(20_454 - 700..20_454, Span::Day).len(), 700);
    }

    proptest! {
        #[test]
        fn a_day_lies_in_its_periods(day in -3_000_000_i32..2_900_000) {
            for span in [Span::Day, Span::Month, Span::Year] {
                let period = FilePeriod::of(span, day);
                prop_assert!(period.days().contains(&day));
                let (first, last) = (period.days().start, period.days().end - 1);
                prop_assert_eq!((FilePeriod::of(span, first), FilePeriod::of(span, last)), (period, period));
                prop_assert_ne!(FilePeriod::of(span, last + 1), period);
            }
        }
    }
}
