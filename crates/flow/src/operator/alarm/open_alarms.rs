//! The open alarms of a run, for the API: those of all its `alarm` nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_types::iso_time;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::state::{AlarmCondition, AlarmState};
use crate::operator::keyed::key_as_json;

/// The open alarms by node and key. Each instance has its own keys.
#[derive(Debug, Default)]
pub(crate) struct OpenAlarms {
    alarms: Mutex<BTreeMap<AlarmKey, OpenAlarm>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct AlarmKey {
    node: Arc<str>,
    key: Box<[u8]>,
}

/// An alarm that is raised or clearing, or whose key is absent.
#[derive(Debug, Clone)]
pub(super) struct OpenAlarm {
    state: &'static str,
    since_ms: i64,
    /// Since when it has been raised, if it is clearing or absent.
    raised_ms: Option<i64>,
    severity: Option<Arc<[u8]>>,
    record: Option<Arc<[u8]>>,
}

impl OpenAlarm {
    /// The alarm of this state.
    pub(super) fn of(state: &AlarmState) -> Self {
        let (word, since_ms, raised_ms) = match state.condition {
            AlarmCondition::Raised { since_ms } if state.is_absent => ("absent", state.seen_ms, Some(since_ms)),
            _ if state.is_absent => ("absent", state.seen_ms, None),
            AlarmCondition::Raised { since_ms } => ("raised", since_ms, None),
            AlarmCondition::Clearing { since_ms, raised_ms } => ("clearing", since_ms, Some(raised_ms)),
            AlarmCondition::Pending { since_ms } => ("pending", since_ms, None),
            AlarmCondition::Normal => ("normal", state.seen_ms, None),
        };
        let (severity, record) = (state.severity.clone(), state.record.clone());
        Self { state: word, since_ms, raised_ms, severity, record }
    }

    fn size_bytes(&self) -> usize {
        let bytes = |part: &Option<Arc<[u8]>>| part.as_ref().map_or(0, |part| part.len());
        size_of::<Self>() + bytes(&self.severity) + bytes(&self.record)
    }

    fn describe_at(&self, place: &AlarmKey) -> Value {
        let mut told = self.describe();
        (told["node"], told["key"]) = ((*place.node).into(), key_as_json(&place.key));
        told
    }

    pub(super) fn describe(&self) -> Value {
        let mut told = json!({"state": self.state, "since": iso_time(self.since_ms)});
        if let Some(raised_ms) = self.raised_ms {
            told["raised_since"] = iso_time(raised_ms).into();
        }
        if let Some(severity) = &self.severity {
            told["severity"] = value(severity);
        }
        if let Some(record) = &self.record {
            told["record"] = value(record);
        }
        told
    }
}

/// JSON as a value; a text if it is none.
fn value(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap_or_else(|_| String::from_utf8_lossy(json).into())
}

impl OpenAlarms {
    pub(super) fn set(&self, node: &Arc<str>, key: &[u8], alarm: OpenAlarm) {
        self.alarms.lock().insert(AlarmKey { node: Arc::clone(node), key: key.into() }, alarm);
    }

    pub(super) fn remove(&self, node: &Arc<str>, key: &[u8]) {
        self.alarms.lock().remove(&AlarmKey { node: Arc::clone(node), key: key.into() });
    }

    /// The number of alarms, and the first `max` of them by node and key, as many as have about `max_bytes` together.
    pub(crate) fn describe(&self, max: usize, max_bytes: &mut usize) -> (usize, Vec<Value>) {
        let mut fits = |place: &AlarmKey, alarm: &OpenAlarm| {
            let had_room = *max_bytes > 0;
            *max_bytes = max_bytes.saturating_sub(place.key.len() + alarm.size_bytes());
            had_room
        };
        let open = self.alarms.lock();
        let count = open.len();
        let first = open.iter().take(max).take_while(|(place, alarm)| fits(place, alarm));
        let alarms: Vec<(AlarmKey, OpenAlarm)> = first.map(|(place, alarm)| (place.clone(), alarm.clone())).collect();
        drop(open);
        (count, alarms.iter().map(|(place, alarm)| alarm.describe_at(place)).collect())
    }
}
