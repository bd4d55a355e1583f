//! Alarms, as operators of Orion know them: what goes wrong with somebody has a line in the log when it begins and one when
//! it is over, and none in between.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;

/// Alarms of one kind that are remembered at once; further ones have no line.
const ACTIVE_MAX: usize = 1_000;

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// The log takes nothing.
    Database,
    /// A client sends what cannot be taken.
    BadInput,
    /// A receiver does not answer.
    Notification,
    /// A broker does not take messages.
    MqttConnection,
}

impl Alarm {
    pub(crate) const ALL: [Self; 4] = [Self::Database, Self::BadInput, Self::Notification, Self::MqttConnection];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Database => "DatabaseError",
            Self::BadInput => "BadInput",
            Self::Notification => "NotificationError",
            Self::MqttConnection => "MqttConnectionError",
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    kinds: [Kind; Alarm::ALL.len()],
    /// There is a line each time.
    are_repeated: bool,
}

/// The alarms of one kind.
#[derive(Debug, Default)]
struct Kind {
    active: RwLock<BTreeSet<String>>,
    /// How many those are.
    count: AtomicUsize,
    raised: AtomicU64,
    released: AtomicU64,
}

/// How many alarms of one kind there are, and were since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) active: usize,
    pub(crate) raised: u64,
    pub(crate) released: u64,
}

impl Alarms {
    pub(crate) fn new(are_repeated: bool) -> Self {
        Self { are_repeated, ..Self::default() }
    }

    /// It goes wrong with `whom`; whether that has its line.
    pub(crate) fn raise(&self, alarm: Alarm, whom: &str, why: &str) -> bool {
        let has_line = self.kinds[alarm as usize].raise(alarm, whom) || self.are_repeated;
        if has_line {
            tracing::warn!(alarm = alarm.name(), of = whom, why, "alarm raised");
        }
        has_line
    }

    /// It goes well with `whom`; whether it did not before.
    pub(crate) fn release(&self, alarm: Alarm, whom: &str) -> bool {
        let was_there = self.has_any(alarm) && self.kinds[alarm as usize].release(whom);
        if was_there {
            tracing::warn!(alarm = alarm.name(), of = whom, "alarm released");
        }
        was_there
    }

    /// Whether there is anybody with whom this goes wrong; nearly always there is not.
    pub(crate) fn has_any(&self, alarm: Alarm) -> bool {
        self.kinds[alarm as usize].count.load(Ordering::Acquire) > 0
    }

    /// What there is of each kind, in the order of [`Alarm::ALL`].
    pub(crate) fn tally(&self) -> [Tally; Alarm::ALL.len()] {
        self.kinds.each_ref().map(|kind| Tally {
            active: kind.count.load(Ordering::Acquire),
            raised: kind.raised.load(Ordering::Relaxed),
            released: kind.released.load(Ordering::Relaxed),
        })
    }

    /// Those that are raised.
    pub(crate) fn active(&self) -> Vec<String> {
        let of_kind = |alarm: Alarm| {
            let active = self.kinds[alarm as usize].active.read();
            active.iter().map(|whom| format!("{} {whom}", alarm.name()).trim_end().to_owned()).collect::<Vec<_>>()
        };
        Alarm::ALL.into_iter().flat_map(of_kind).collect()
    }
}

impl Kind {
    /// Whether it is new and there is room for it.
    fn raise(&self, alarm: Alarm, whom: &str) -> bool {
        if self.active.read().contains(whom) {
            return false;
        }
        let mut active = self.active.write();
        if active.len() >= ACTIVE_MAX || !active.insert(whom.to_owned()) {
            return false;
        }
        if active.len() == ACTIVE_MAX {
            tracing::warn!(
                alarm = alarm.name(),
                limit = ACTIVE_MAX,
                "so many alarms are raised; further ones have no line"
            );
        }
        self.count.store(active.len(), Ordering::Release);
        self.raised.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn release(&self, whom: &str) -> bool {
        if !self.active.read().contains(whom) {
            return false;
        }
        let mut active = self.active.write();
        let was_there = active.remove(whom);
        self.count.store(active.len(), Ordering::Release);
        self.released.fetch_add(u64::from(was_there), Ordering::Relaxed);
        was_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_raised_once_and_released_once() {
        let alarms = Alarms::new(false);
        assert!(alarms.raise(Alarm::MqttConnection, "a:1", "refused"));
        assert!(alarms.raise(Alarm::Notification, "http://a", "refused"));
        assert!(!alarms.raise(Alarm::Notification, "http://a", "refused"), "it has its line");
        assert!(alarms.raise(Alarm::Database, "", "full"));
        assert!(alarms.raise(Alarm::BadInput, "http://a", "400"), "of another kind");
        let active = ["DatabaseError", "BadInput http://a", "NotificationError http://a", "MqttConnectionError a:1"];
        assert_eq!(alarms.active(), active);
        assert!(!alarms.release(Alarm::Notification, "http://b"));
        assert!(alarms.release(Alarm::Notification, "http://a"));
        assert!(!alarms.release(Alarm::Notification, "http://a"));
        assert!(alarms.raise(Alarm::Notification, "http://a", "refused"), "it begins again");
        assert_eq!(alarms.tally()[Alarm::Notification as usize], Tally { active: 1, raised: 2, released: 1 });
        let repeated = Alarms::new(true);
        assert!((0..2).all(|_| repeated.raise(Alarm::Notification, "http://a", "x")));
    }

    #[test]
    fn there_are_so_many_of_a_kind_and_no_more() {
        let alarms = Alarms::new(false);
        for n in 0..ACTIVE_MAX {
            assert!(alarms.raise(Alarm::BadInput, &n.to_string(), "x"));
        }
        assert!(!alarms.raise(Alarm::BadInput, "one more", "x"), "nobody fills the log by giving many addresses");
        assert_eq!(alarms.active().len(), ACTIVE_MAX);
        assert!(alarms.raise(Alarm::Notification, "http://a", "x"), "others have their own room");
        assert!(alarms.release(Alarm::BadInput, "7") && alarms.raise(Alarm::BadInput, "one more", "x"));
    }
}
