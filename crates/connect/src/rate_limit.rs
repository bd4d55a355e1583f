//! Rate limits per second, with a burst of one second's worth.

use std::collections::HashMap;
use std::time::Duration;

/// Number of senders at which idle ones are first removed.
const SWEPT_FROM: usize = 1_024;
const SECOND: Duration = Duration::from_secs(1);

/// Limits per second; `None` means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(crate) messages: Option<u64>,
    /// Payload bytes, as the tenant meters them.
    pub(crate) bytes: Option<u64>,
}

impl Rates {
    pub(crate) fn is_unlimited(self) -> bool {
        self == Self::default()
    }
}

/// The messages that one device sends together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    pub(crate) messages: u32,
    /// Payload bytes, as the tenant meters them.
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooFast {
    pub(crate) unit: RateUnit,
    pub(crate) per_second: u64,
    /// Time after which the same amount passes.
    pub(crate) wait: Duration,
}

/// The unit that a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RateUnit {
    Messages,
    Bytes,
    Connects,
}

/// The theoretical arrival time (GCRA) of one sender and one unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ArrivalTime(Fine);

/// Nanoseconds times [`FINE`], so that rounding errors of many small steps do not add up to one step.
type Fine = u128;
const FINE: Fine = 1 << 32;

const fn fine(time: Duration) -> Fine {
    time.as_nanos() * FINE
}

impl ArrivalTime {
    /// The arrival time after `count` more units at `now`. A single message over one second's worth passes when idle.
    ///
    /// # Errors
    /// Returns the time to wait if the rate is exceeded.
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

/// The rate limit of one sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RateLimit {
    messages: ArrivalTime,
    bytes: ArrivalTime,
}

impl RateLimit {
    /// Takes `amount` from the rates at `now`.
    ///
    /// # Errors
    /// Names the exceeded rate and takes nothing.
    pub(crate) fn take(&mut self, now: Duration, amount: Amount, rates: Rates) -> Result<(), TooFast> {
        let is_one = amount.messages == 1;
        let after = |arrival: ArrivalTime, unit, count, limit: Option<u64>| match limit {
            None => Ok(arrival),
            Some(per_second) => {
                let after = arrival.after(now, count, per_second, is_one);
                after.map_err(|wait| TooFast { unit, per_second, wait })
            }
        };
        let messages = after(self.messages, RateUnit::Messages, amount.messages.into(), rates.messages)?;
        let bytes = after(self.bytes, RateUnit::Bytes, amount.bytes, rates.bytes)?;
        *self = Self { messages, bytes };
        Ok(())
    }

    /// Takes one connect at `now`.
    ///
    /// # Errors
    /// Names the time to wait and takes nothing.
    pub(crate) fn take_connect(&mut self, now: Duration, per_second: Option<u64>) -> Result<(), TooFast> {
        let one = Amount { messages: 1, bytes: 0 };
        let taken = self.take(now, one, Rates { messages: per_second, bytes: None });
        taken.map_err(|too_fast| TooFast { unit: RateUnit::Connects, ..too_fast })
    }

    fn rested(self) -> Fine {
        self.messages.0.max(self.bytes.0)
    }
}

/// The rate limits of all senders of the last second.
#[derive(Debug, Default)]
pub(crate) struct SenderRateLimits {
    of: HashMap<Box<str>, RateLimit>,
    swept_at: usize,
}

impl SenderRateLimits {
    /// The rate limit of the sender `name`.
    pub(crate) fn of(&mut self, name: &str, now: Duration) -> &mut RateLimit {
        if !self.of.contains_key(name) {
            if self.of.len() >= self.swept_at.max(SWEPT_FROM) {
                // An idle sender has the same state as a new one.
                self.of.retain(|_, rate_limit| rate_limit.rested() > fine(now));
                self.swept_at = self.of.len() * 2;
            }
            self.of.insert(name.into(), RateLimit::default());
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
        let mut rate_limit = RateLimit::default();
        let mut take = |ms, messages, per_second| {
            let rates = Rates { messages: Some(per_second), bytes: None };
            rate_limit.take(at(ms), Amount { messages, bytes: 1 << 40 }, rates).map_err(|too_fast| too_fast.wait)
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
    fn the_byte_rate_is_exact_and_a_message_larger_than_a_second_of_it_waits_for_a_rest() {
        let mut rate_limit = RateLimit::default();
        let mut take = |ms, messages, bytes| {
            let rates = Rates { messages: Some(1_000), bytes: Some(1_000) };
            rate_limit
                .take(at(ms), Amount { messages, bytes }, rates)
                .map_err(|too_fast| (too_fast.unit, too_fast.wait))
        };
        take(0, 2, 999).unwrap();
        assert_eq!(take(0, 1, 2), Err((RateUnit::Bytes, at(1))));
        take(0, 1, 1).unwrap();
        take(0, 1, 0).unwrap();
        assert_eq!(take(999, 2, 1_000), Err((RateUnit::Bytes, at(1))));
        take(1_000, 2, 1_000).unwrap();
        assert_eq!(take(1_500, 1, 3_000), Err((RateUnit::Bytes, at(500))), "one that is larger waits for a rest");
        assert_eq!(
            take(2_000, 2, 3_000),
            Err((RateUnit::Bytes, at(2_000))),
            "and two that are so together are not one"
        );
        take(2_000, 1, 3_000).unwrap();
        assert_eq!(take(3_999, 1, 1), Err((RateUnit::Bytes, at(2))), "then all that it took is waited for");
        take(4_001, 1, 1).unwrap();
    }

    #[test]
    fn rates_that_are_no_whole_part_of_a_second_are_kept_to_the_unit() {
        for per_second in [3, 7, 333, 999_983, 3_000_000_007] {
            for step in [1, per_second / 3, per_second].into_iter().filter(|step| per_second / step < 1_000_000) {
                let mut arrival = ArrivalTime::default();
                let mut passed = 0;
                for count in std::iter::repeat_n(step, 1_000_000).chain([1; 3]) {
                    if let Ok(after) = arrival.after(Duration::ZERO, count, per_second, false) {
                        (arrival, passed) = (after, passed + count);
                    }
                }
                assert_eq!(passed, per_second, "in steps of {step}");
            }
        }
    }

    #[test]
    fn a_message_that_one_rate_refuses_does_not_use_the_other_rate() {
        let mut rate_limit = RateLimit::default();
        let rates = Rates { messages: Some(2), bytes: Some(10) };
        for _ in 0..5 {
            assert_eq!(
                rate_limit.take(at(0), Amount { messages: 2, bytes: 11 }, rates).unwrap_err().unit,
                RateUnit::Bytes
            );
        }
        rate_limit.take(at(0), Amount { messages: 2, bytes: 10 }, rates).unwrap();
        assert_eq!(
            rate_limit.take(at(0), Amount { messages: 1, bytes: 0 }, rates).unwrap_err().unit,
            RateUnit::Messages
        );
    }

    #[test]
    fn senders_do_not_share_and_those_that_rest_are_forgotten() {
        let mut sender_limits = SenderRateLimits::default();
        for number in 0..SWEPT_FROM {
            sender_limits.of(&number.to_string(), at(0)).take_connect(at(0), Some(1)).unwrap();
        }
        let again = sender_limits.of("0", at(0)).take_connect(at(0), Some(1));
        assert_eq!(again, Err(TooFast { unit: RateUnit::Connects, per_second: 1, wait: SECOND }));
        sender_limits.of("new", SECOND).take_connect(SECOND, Some(1)).unwrap();
        assert_eq!(sender_limits.of.len(), 1);
    }
}
