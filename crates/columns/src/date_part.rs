//! The parts of a time, in UTC.

use jiff::civil::{Date, DateTime};
use jiff::tz::Offset;

use crate::timestamp::{civil, milliseconds};

/// A part of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatePart {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    DayOfWeek,
    DayOfYear,
    Hour,
    Minute,
    Second,
    Millisecond,
    Epoch,
}

const NAMES: [(&str, DatePart); 12] = [
    ("YEAR", DatePart::Year),
    ("QUARTER", DatePart::Quarter),
    ("MONTH", DatePart::Month),
    ("WEEK", DatePart::Week),
    ("DAY", DatePart::Day),
    ("DAY_OF_WEEK", DatePart::DayOfWeek),
    ("DAY_OF_YEAR", DatePart::DayOfYear),
    ("HOUR", DatePart::Hour),
    ("MINUTE", DatePart::Minute),
    ("SECOND", DatePart::Second),
    ("MILLISECOND", DatePart::Millisecond),
    ("EPOCH", DatePart::Epoch),
];

impl DatePart {
    /// The part of that name, in any case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, part)| *part)
    }

    /// The names of all parts; of those that begin at a time, if `to_truncate`.
    pub(crate) fn names(to_truncate: bool) -> Vec<&'static str> {
        let named = NAMES.iter().filter(|(_, part)| !to_truncate || part.begins_at_a_time());
        named.map(|(name, _)| *name).collect()
    }

    fn begins_at_a_time(self) -> bool {
        !matches!(self, Self::DayOfWeek | Self::DayOfYear | Self::Epoch)
    }

    /// This part of a time; `None` beyond the calendar.
    pub(crate) fn extract(self, time_ms: i64) -> Option<i64> {
        let time = civil(time_ms)?;
        Some(match self {
            Self::Year => time.year().into(),
            Self::Quarter => quarter(time).into(),
            Self::Month => time.month().into(),
            Self::Week => time.date().iso_week_date().week().into(),
            Self::Day => time.day().into(),
            Self::DayOfWeek => time.weekday().to_monday_one_offset().into(),
            Self::DayOfYear => time.date().day_of_year().into(),
            Self::Hour => time.hour().into(),
            Self::Minute => time.minute().into(),
            Self::Second => time.second().into(),
            Self::Millisecond => time.millisecond().into(),
            Self::Epoch => time_ms.div_euclid(1000),
        })
    }

    /// The start of the part that the time is in; `None` beyond the calendar.
    pub(crate) fn truncate(self, time_ms: i64) -> Option<i64> {
        let whole = |unit_ms: i64| Some(time_ms - time_ms.rem_euclid(unit_ms));
        let time = civil(time_ms)?;
        let start =
            |date: Date| milliseconds(Offset::UTC.to_timestamp(date.to_datetime(jiff::civil::Time::midnight())).ok()?);
        match self {
            Self::Year => start(Date::new(time.year(), 1, 1).ok()?),
            Self::Quarter => start(Date::new(time.year(), quarter(time) * 3 - 2, 1).ok()?),
            Self::Month => start(time.date().first_of_month()),
            Self::Week => {
                let days = i64::from(time.weekday().to_monday_zero_offset());
                Some(time_ms - time_ms.rem_euclid(DAY_MS) - days * DAY_MS)
            }
            Self::Day => whole(DAY_MS),
            Self::Hour => whole(3_600_000),
            Self::Minute => whole(60_000),
            Self::Second => whole(1000),
            Self::Millisecond => Some(time_ms),
            Self::DayOfWeek | Self::DayOfYear | Self::Epoch => None,
        }
    }
}

const DAY_MS: i64 = 86_400_000;

fn quarter(time: DateTime) -> i8 {
    (time.month() - 1) / 3 + 1
}
