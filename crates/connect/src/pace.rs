//! How fast messages may come: a rate, and as many at once as it allows in a second.

use std::collections::HashMap;
use std::time::Duration;

/// Names that are kept until those that have rested are first removed.
const SWEPT_FROM: usize = 1_024;
const SECOND: Duration = Duration::from_secs(1);

/// Of one sender. Costs one moment: when the sender would have rested if all it has sent were spread evenly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    rested: Duration,
}

impl Pace {
    /// Takes `messages` more at `now`.
    ///
    /// # Errors
    /// Takes nothing, and tells how long to wait.
    pub(crate) fn take(&mut self, now: Duration, messages: u32, per_second: u64) -> Result<(), Duration> {
        if per_second == 0 {
            return Err(SECOND);
        }
        let interval = SECOND / u32::try_from(per_second).unwrap_or(u32::MAX);
        let burst = SECOND.max(interval);
        let rested = self.rested.max(now) + interval * messages;
        match rested.saturating_sub(now + burst) {
            Duration::ZERO => {
                self.rested = rested;
                Ok(())
            }
            wait => Err(wait),
        }
    }
}

/// Of all senders that have sent within the last second.
#[derive(Debug, Default)]
pub(crate) struct Paces {
    of: HashMap<Box<str>, Pace>,
    swept_at: usize,
}

impl Paces {
    /// As [`Pace::take`], for the sender `name`.
    pub(crate) fn take(&mut self, name: &str, now: Duration, messages: u32, per_second: u64) -> Result<(), Duration> {
        if let Some(pace) = self.of.get_mut(name) {
            return pace.take(now, messages, per_second);
        }
        if self.of.len() >= self.swept_at.max(SWEPT_FROM) {
            // Who has rested is as good as new.
            self.of.retain(|_, pace| pace.rested > now);
            self.swept_at = self.of.len() * 2;
        }
        self.of.entry(name.into()).or_default().take(now, messages, per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_messages_may_come_at_once_and_then_one_an_interval() {
        let mut pace = Pace::default();
        let at = Duration::from_millis;
        pace.take(at(0), 9, 10).unwrap();
        assert_eq!(pace.take(at(0), 2, 10), Err(at(100)));
        pace.take(at(0), 1, 10).unwrap();
        assert_eq!(pace.take(at(50), 1, 10), Err(at(50)));
        pace.take(at(100), 1, 10).unwrap();
        assert_eq!(pace.take(at(5_000), 1, 0), Err(SECOND), "none at all");
        pace.take(at(5_000), 10, 10).unwrap();
        assert_eq!(pace.take(at(5_000), 1, 10), Err(at(100)));
    }

    #[test]
    fn senders_do_not_share_and_those_that_rest_are_forgotten() {
        let mut paces = Paces::default();
        for number in 0..SWEPT_FROM {
            paces.take(&number.to_string(), Duration::ZERO, 1, 1).unwrap();
        }
        assert!(paces.take("0", Duration::ZERO, 1, 1).is_err());
        paces.take("new", Duration::from_secs(1), 1, 1).unwrap();
        assert_eq!(paces.of.len(), 1);
    }
}
