//! Alarms, as operators of Orion know them: what goes wrong with somebody has a line in the log when it begins and one when
//! it is over, and none in between.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Alarms that are remembered at once; further ones have their line each time.
const ACTIVE_MAX: usize = 1_000;

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    /// A receiver does not answer.
    Notification,
    /// A broker does not take messages.
    MqttConnection,
}

impl Alarm {
    const fn name(self) -> &'static str {
        match self {
            Self::Notification => "NotificationError",
            Self::MqttConnection => "MqttConnectionError",
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    active: Mutex<BTreeSet<(Alarm, String)>>,
    count: AtomicUsize,
    /// There is a line each time.
    are_repeated: bool,
}

impl Alarms {
    pub(crate) fn new(are_repeated: bool) -> Self {
        Self { are_repeated, ..Self::default() }
    }

    /// It goes wrong with `whom`; whether that has its line.
    pub(crate) fn raise(&self, alarm: Alarm, whom: &str, why: &str) -> bool {
        let is_new = {
            let mut active = self.active.lock();
            let is_new = !active.contains(&(alarm, whom.to_owned()));
            if is_new && active.len() < ACTIVE_MAX {
                active.insert((alarm, whom.to_owned()));
            }
            self.count.store(active.len(), Ordering::Release);
            is_new
        };
        let has_line = is_new || self.are_repeated;
        if has_line {
            tracing::warn!(alarm = alarm.name(), of = whom, why, "alarm raised");
        }
        has_line
    }

    /// It goes well with `whom`; whether it did not before.
    pub(crate) fn release(&self, alarm: Alarm, whom: &str) -> bool {
        // As it is nearly always.
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let was_there = {
            let mut active = self.active.lock();
            let was_there = active.remove(&(alarm, whom.to_owned()));
            self.count.store(active.len(), Ordering::Release);
            was_there
        };
        if was_there {
            tracing::warn!(alarm = alarm.name(), of = whom, "alarm released");
        }
        was_there
    }

    /// Those that are raised.
    pub(crate) fn active(&self) -> Vec<String> {
        self.active.lock().iter().map(|(alarm, whom)| format!("{} {whom}", alarm.name())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_raised_once_and_released_once() {
        let alarms = Alarms::new(false);
        assert!(alarms.raise(Alarm::Notification, "http://a", "refused"));
        assert!(!alarms.raise(Alarm::Notification, "http://a", "refused"), "it has its line");
        assert!(alarms.raise(Alarm::MqttConnection, "a:1", "refused"));
        assert_eq!(alarms.active(), ["NotificationError http://a", "MqttConnectionError a:1"]);
        assert!(!alarms.release(Alarm::Notification, "http://b"));
        assert!(alarms.release(Alarm::Notification, "http://a"));
        assert!(!alarms.release(Alarm::Notification, "http://a"));
        assert!(alarms.raise(Alarm::Notification, "http://a", "refused"), "it begins again");
        let repeated = Alarms::new(true);
        assert!(
            repeated.raise(Alarm::Notification, "http://a", "x")
                && repeated.raise(Alarm::Notification, "http://a", "x")
        );
        for n in 0..=ACTIVE_MAX {
            alarms.raise(Alarm::Notification, &n.to_string(), "x");
        }
        assert_eq!(alarms.active().len(), ACTIVE_MAX, "bounded");
    }
}
