//! Periods of accounting in UTC, and the amount that a tenant may use in each.

use jiff::civil::{Date, Time};
use millstream_types::{date_time, ms_of};

const DAY_MS: i64 = 86_400_000;

/// A tenant's limit of usage in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rule {
    /// Highest usage in a period; `None` means unlimited.
    pub(crate) max: Option<u64>,
    /// The start of the limit; usage before it is unlimited.
    pub(crate) since_ms: Option<i64>,
    /// A period's length; `None` is a calendar month.
    pub(crate) days: Option<u32>,
    /// The start of the first period of days if the limit has no `since_ms`.
    pub(crate) created_ms: i64,
}

/// The limit in force at some time, and the period it holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Allowance {
    pub(crate) start_ms: i64,
    /// The first moment that does not belong to it.
    pub(crate) end_ms: i64,
    pub(crate) max: Option<u64>,
}

impl Rule {
    /// The period that `now_ms` lies in.
    pub(crate) fn at(&self, now_ms: i64) -> Allowance {
        let month = Month::of(now_ms);
        if let Some(since_ms) = self.since_ms.filter(|since_ms| now_ms < *since_ms) {
            let end_ms = since_ms.min(month.end_ms);
            return Allowance { start_ms: month.start_ms, end_ms, max: None };
        }
        match self.days {
            Some(days) => {
                let length_ms = i64::from(days.max(1)) * DAY_MS;
                let base_ms = self.since_ms.unwrap_or(self.created_ms);
                let start_ms = now_ms - now_ms.saturating_sub(base_ms).rem_euclid(length_ms);
                Allowance { start_ms, end_ms: start_ms.saturating_add(length_ms), max: self.max }
            }
            None => {
                let since_ms = self.since_ms.filter(|since_ms| *since_ms > month.start_ms);
                let max = self.max.map(|max| since_ms.map_or(max, |since_ms| month.share(max, since_ms)));
                Allowance { start_ms: since_ms.unwrap_or(month.start_ms), end_ms: month.end_ms, max }
            }
        }
    }
}

struct Month {
    start_ms: i64,
    end_ms: i64,
    days: u64,
}

impl Month {
    fn of(ms: i64) -> Self {
        let first = date_time(ms).date().first_of_month();
        let start_ms = midnight_ms(first);
        let days = u64::try_from(first.days_in_month()).unwrap_or(30);
        Self { start_ms, end_ms: start_ms + days as i64 * DAY_MS, days }
    }

    /// The part of `max` that is due to the days from that of `since_ms` on, that day included; rounded up.
    fn share(&self, max: u64, since_ms: i64) -> u64 {
        let days =
            (self.end_ms - since_ms).div_euclid(DAY_MS) as u128 + u128::from((self.end_ms - since_ms) % DAY_MS > 0);
        u64::try_from((u128::from(max) * days).div_ceil(u128::from(self.days))).unwrap_or(max)
    }
}

fn midnight_ms(date: Date) -> i64 {
    ms_of(date.to_datetime(Time::midnight()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::timestamp::Timestamp;

    fn ms(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().0
    }

    #[test]
    fn a_months_first_part_has_its_share_and_days_begin_where_the_limit_does() {
        let since = Some("2026-04-21T10:00:00Z");
        for (since, days, now, start, end, max) in [
            (None, None, "2026-02-10T00:00:00Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z", Some(300)),
            (since, None, "2026-04-20T00:00:00Z", "2026-04-01T00:00:00Z", "2026-04-21T10:00:00Z", None),
            (since, None, "2026-04-21T10:00:00Z", "2026-04-21T10:00:00Z", "2026-05-01T00:00:00Z", Some(100)),
            (since, None, "2026-05-01T00:00:00Z", "2026-05-01T00:00:00Z", "2026-06-01T00:00:00Z", Some(300)),
            (since, None, "2026-03-31T23:59:59Z", "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z", None),
            (since, Some(7), "2026-04-28T09:59:59Z", "2026-04-21T10:00:00Z", "2026-04-28T10:00:00Z", Some(300)),
            (since, Some(7), "2026-04-28T10:00:00Z", "2026-04-28T10:00:00Z", "2026-05-05T10:00:00Z", Some(300)),
            (None, Some(1), "2026-04-28T10:00:00Z", "2026-04-28T05:00:00Z", "2026-04-29T05:00:00Z", Some(300)),
            (
                Some("2026-04-01T00:00:00Z"),
                None,
                "2026-04-02T00:00:00Z",
                "2026-04-01T00:00:00Z",
                "2026-05-01T00:00:00Z",
                Some(300),
            ),
        ] {
            let created_ms = ms("2026-01-01T05:00:00Z");
            let rule = Rule { max: Some(300), since_ms: since.map(ms), days, created_ms };
            let expected = Allowance { start_ms: ms(start), end_ms: ms(end), max };
            assert_eq!(rule.at(ms(now)), expected, "{since:?} {days:?} {now}");
        }
    }

    proptest! {
        #[test]
        fn every_moment_lies_in_one_period_and_the_next_begins_where_it_ends(
            now_ms in 0_i64..4_000_000_000_000,
            since_ms in proptest::option::of(0_i64..4_000_000_000_000),
            days in proptest::option::of(1_u32..400),
        ) {
            let rule = Rule { max: Some(10), since_ms, days, created_ms: 0 };
            let period = rule.at(now_ms);
            prop_assert!(period.start_ms <= now_ms && now_ms < period.end_ms, "{period:?}");
            prop_assert_eq!(rule.at(period.end_ms - 1), period);
            let next = rule.at(period.end_ms);
            prop_assert!(next.start_ms == period.end_ms || since_ms.is_some_and(|since_ms| since_ms > now_ms), "{next:?}");
        }
    }
}
