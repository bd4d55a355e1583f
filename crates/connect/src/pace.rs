//! How fast something may come: a rate, and as much at once as it allows in a second.

use std::collections::HashMap;
use std::time::Duration;

use crate::usage::Amount;

/// Names that are kept until those that have rested are first removed.
const SWEPT_FROM: usize = 1_024;
const SECOND: Duration = Duration::from_secs(1);

/// What may come in a second; `None` is without limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(crate) messages: Option<u64>,
    /// As they are metered.
    pub(crate) bytes: Option<u64>,
}

impl Rates {
    pub(crate) fn is_unlimited(self) -> bool {
        self == Self::default()
    }
}

/// A rate that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooFast {
    pub(crate) unit: Unit,
    /// The rate.
    pub(crate) per_second: u64,
    /// How long to wait.
    pub(crate) wait: Duration,
}

/// What a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Messages,
    Bytes,
    Connects,
}

/// Of one sender and one unit. Costs one moment: when the sender would have rested if all it has sent were spread evenly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Line(Fine);

/// Nanoseconds, times [`FINE`]: so that what many small steps leave out does not come to one of them.
type Fine = u128;
const FINE: Fine = 1 << 32;

const fn fine(time: Duration) -> Fine {
    time.as_nanos() * FINE
}

impl Line {
    /// Where it stands after `count` more at `now`. What is one piece and more than a second's worth passes after a rest.
    ///
    /// # Errors
    /// How long to wait.
    fn after(self, now: Duration, count: u64, per_second: u64, is_one: bool) -> Result<Self, Duration> {
        if count == 0 {
            return Ok(self);
        }
        if per_second == 0 {
            return Err(SECOND);
        }
        let (now, second) = (fine(now), fine(SECOND));
        let cost = Fine::from(count) * second / Fine::from(per_second);
        let burst = if is_one { second.max(cost) } else { second };
        let rested = self.0.max(now) + cost;
        match rested.saturating_sub(now + burst) {
            0 => Ok(Self(rested)),
            wait => Err(Duration::from_nanos(u64::try_from(wait.div_ceil(FINE)).unwrap_or(u64::MAX))),
        }
    }
}

/// Of one sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    messages: Line,
    bytes: Line,
}

impl Pace {
    /// Takes so much more at `now`.
    ///
    /// # Errors
    /// Takes nothing, and tells which rate is exceeded.
    pub(crate) fn take(&mut self, now: Duration, amount: Amount, rates: Rates) -> Result<(), TooFast> {
        let is_one = amount.messages == 1;
        let after = |line: Line, unit, count, limit: Option<u64>| match limit {
            None => Ok(line),
            Some(per_second) => {
                let after = line.after(now, count, per_second, is_one);
                after.map_err(|wait| TooFast { unit, per_second, wait })
            }
        };
        let messages = after(self.messages, Unit::Messages, amount.messages.into(), rates.messages)?;
        let bytes = after(self.bytes, Unit::Bytes, amount.bytes, rates.bytes)?;
        *self = Self { messages, bytes };
        Ok(())
    }

    /// Takes one connect more at `now`.
    ///
    /// # Errors
    /// Takes nothing, and tells how long to wait.
    pub(crate) fn take_connect(&mut self, now: Duration, per_second: Option<u64>) -> Result<(), TooFast> {
        let one = Amount { messages: 1, bytes: 0 };
        let taken = self.take(now, one, Rates { messages: per_second, bytes: None });
        taken.map_err(|too_fast| TooFast { unit: Unit::Connects, ..too_fast })
    }

    fn rested(self) -> Fine {
        self.messages.0.max(self.bytes.0)
    }
}

/// Of all senders that have sent within the last second.
#[derive(Debug, Default)]
pub(crate) struct Paces {
    of: HashMap<Box<str>, Pace>,
    swept_at: usize,
}

impl Paces {
    /// That of the sender `name`.
    pub(crate) fn of(&mut self, name: &str, now: Duration) -> &mut Pace {
        if !self.of.contains_key(name) {
            if self.of.len() >= self.swept_at.max(SWEPT_FROM) {
                // Who has rested is as good as new.
                self.of.retain(|_, pace| pace.rested() > fine(now));
                self.swept_at = self.of.len() * 2;
            }
            self.of.insert(name.into(), Pace::default());
        }
        self.of.entry(name.into()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_second_of_messages_may_come_at_once_and_then_one_an_interval() {
        let mut pace = Pace::default();
        let mut take = |ms, messages, per_second| {
            let rates = Rates { messages: Some(per_second), bytes: None };
            pace.take(at(ms), Amount { messages, bytes: 1 << 40 }, rates).map_err(|too_fast| too_fast.wait)
        };
        take(0, 9, 10).unwrap();
        assert_eq!(take(0, 2, 10), Err(at(100)));
        take(0, 1, 10).unwrap();
        assert_eq!(take(50, 1, 10), Err(at(50)));
        take(100, 1, 10).unwrap();
        assert_eq!(take(5_000, 1, 0), Err(SECOND), "none at all");
        take(5_000, 10, 10).unwrap();
        assert_eq!(take(5_000, 1, 10), Err(at(100)));
    }

    #[test]
    fn bytes_come_at_their_rate_to_the_byte_and_what_is_larger_than_a_second_of_them_after_a_rest() {
        let mut pace = Pace::default();
        let mut take = |ms, messages, bytes| {
            let rates = Rates { messages: Some(1_000), bytes: Some(1_000) };
            pace.take(at(ms), Amount { messages, bytes }, rates).map_err(|too_fast| (too_fast.unit, too_fast.wait))
        };
        take(0, 2, 999).unwrap();
        assert_eq!(take(0, 1, 2), Err((Unit::Bytes, at(1))));
        take(0, 1, 1).unwrap();
        take(0, 1, 0).unwrap();
        assert_eq!(take(999, 2, 1_000), Err((Unit::Bytes, at(1))));
        take(1_000, 2, 1_000).unwrap();
        assert_eq!(take(1_500, 1, 3_000), Err((Unit::Bytes, at(500))), "one that is larger waits for a rest");
        assert_eq!(take(2_000, 2, 3_000), Err((Unit::Bytes, at(2_000))), "and two that are so together are not one");
        take(2_000, 1, 3_000).unwrap();
        assert_eq!(take(3_999, 1, 1), Err((Unit::Bytes, at(2))), "then all that it took is waited for");
        take(4_001, 1, 1).unwrap();
    }

    #[test]
    fn rates_that_are_no_whole_part_of_a_second_are_kept_to_the_unit() {
        for per_second in [3, 7, 333, 999_983, 3_000_000_007] {
            for step in [1, per_second / 3, per_second].into_iter().filter(|step| per_second / step < 1_000_000) {
                let mut line = Line::default();
                let mut passed = 0;
                for count in std::iter::repeat_n(step, 1_000_000).chain([1; 3]) {
                    if let Ok(after) = line.after(Duration::ZERO, count, per_second, false) {
                        (line, passed) = (after, passed + count);
                    }
                }
                assert_eq!(passed, per_second, "in steps of {step}");
            }
        }
    }

    #[test]
    fn what_one_rate_refuses_is_no_use_of_the_other() {
        let mut pace = Pace::default();
        let rates = Rates { messages: Some(2), bytes: Some(10) };
        for _ in 0..5 {
            assert_eq!(pace.take(at(0), Amount { messages: 2, bytes: 11 }, rates).unwrap_err().unit, Unit::Bytes);
        }
        pace.take(at(0), Amount { messages: 2, bytes: 10 }, rates).unwrap();
        assert_eq!(pace.take(at(0), Amount { messages: 1, bytes: 0 }, rates).unwrap_err().unit, Unit::Messages);
    }

    #[test]
    fn senders_do_not_share_and_those_that_rest_are_forgotten() {
        let mut paces = Paces::default();
        for number in 0..SWEPT_FROM {
            paces.of(&number.to_string(), at(0)).take_connect(at(0), Some(1)).unwrap();
        }
        let again = paces.of("0", at(0)).take_connect(at(0), Some(1));
        assert_eq!(again, Err(TooFast { unit: Unit::Connects, per_second: 1, wait: SECOND }));
        paces.of("new", SECOND).take_connect(SECOND, Some(1)).unwrap();
        assert_eq!(paces.of.len(), 1);
    }
}
