//! Alarms as Orion's operators know them: the log has a line when an alarm begins and a line when it
//! ends, and none in between.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;

/// Active alarms of one kind; further ones are neither kept nor logged.
const ACTIVE_MAX: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// The log cannot store records.
    Database,
    /// A client sends invalid requests.
    BadInput,
    Notification,
    /// A broker does not accept messages.
    MqttConnection,
    /// Brokers of Kafka do not accept records.
    KafkaConnection,
}

impl Alarm {
    pub(crate) const ALL: [Self; 5] =
        [Self::Database, Self::BadInput, Self::Notification, Self::MqttConnection, Self::KafkaConnection];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Database => "DatabaseError",
            Self::BadInput => "BadInput",
            Self::Notification => "NotificationError",
            Self::MqttConnection => "MqttConnectionError",
            Self::KafkaConnection => "KafkaConnectionError",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Alarms {
    kinds: [AlarmKind; Alarm::ALL.len()],
    /// Every occurrence has a log line.
    are_repeated: bool,
}

#[derive(Debug, Default)]
struct AlarmKind {
    active: RwLock<BTreeSet<String>>,
    count: AtomicUsize,
    raised: AtomicU64,
    released: AtomicU64,
}

/// Active alarms of one kind and their totals since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AlarmCounts {
    pub(crate) active: usize,
    pub(crate) raised: u64,
    pub(crate) released: u64,
}

impl Alarms {
    pub(crate) fn new(are_repeated: bool) -> Self {
        Self { are_repeated, ..Self::default() }
    }

    /// Raises an alarm for `whom`; returns true if it is logged.
    pub(crate) fn raise(&self, alarm: Alarm, whom: &str, why: &str) -> bool {
        let has_line = self.kinds[alarm as usize].raise(alarm, whom) || self.are_repeated;
        if has_line {
            tracing::warn!(alarm = alarm.name(), of = whom, why, "alarm raised");
        }
        has_line
    }

    /// Releases the alarm for `whom`; returns true if it was active.
    pub(crate) fn release(&self, alarm: Alarm, whom: &str) -> bool {
        let was_there = self.has_any(alarm) && self.kinds[alarm as usize].release(whom);
        if was_there {
            tracing::warn!(alarm = alarm.name(), of = whom, "alarm released");
        }
        was_there
    }

    /// An alarm of this kind is active. Cheap: nearly always there is none.
    pub(crate) fn has_any(&self, alarm: Alarm) -> bool {
        self.kinds[alarm as usize].count.load(Ordering::Acquire) > 0
    }

    /// The counts of each kind, in the order of [`Alarm::ALL`].
    pub(crate) fn tally(&self) -> [AlarmCounts; Alarm::ALL.len()] {
        self.kinds.each_ref().map(|kind| AlarmCounts {
            active: kind.count.load(Ordering::Acquire),
            raised: kind.raised.load(Ordering::Relaxed),
            released: kind.released.load(Ordering::Relaxed),
        })
    }

    pub(crate) fn active(&self) -> Vec<String> {
        let of_kind = |alarm: Alarm| {
            let active = self.kinds[alarm as usize].active.read();
            active.iter().map(|whom| format!("{} {whom}", alarm.name()).trim_end().to_owned()).collect::<Vec<_>>()
        };
        Alarm::ALL.into_iter().flat_map(of_kind).collect()
    }
}

impl AlarmKind {
    /// The alarm is new and there is room for it.
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
        assert_eq!(alarms.tally()[Alarm::Notification as usize], AlarmCounts { active: 1, raised: 2, released: 1 });
        let repeated = Alarms::new(true);
        assert!((0..2).all(|_| repeated.raise(Alarm::Notification, "http://a", "x")));
    }

    #[test]
    fn alarms_of_each_kind_are_bounded() {
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
