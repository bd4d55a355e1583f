//! The state of one key of an `alarm`, and its stored form.
//!
//! | bytes | |
//! | --- | --- |
//! | 8 | time of the key's last record |
//! | 1 | condition: 0 normal, 1 pending, 2 raised, 3 clearing |
//! | 8, 8 | since when, and since when it was raised (0 unless clearing) |
//! | 1 | 1 for a key that is absent |
//! | 4, n | severity as JSON; length 0 for none |
//! | rest | the record; none if there are no bytes |
//!
//! Integers are big endian; times are milliseconds since 1970-01-01T00:00:00Z.

use std::sync::Arc;

use crate::state::StateValue;

/// Memory of the timer of a key, and of its place in the list.
const BESIDE_BYTES: u64 = 240;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AlarmCondition {
    Normal,
    /// The condition holds, not yet for long enough.
    Pending {
        since_ms: i64,
    },
    Raised {
        since_ms: i64,
    },
    /// The condition no longer holds, not yet for long enough.
    Clearing {
        since_ms: i64,
        raised_ms: i64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AlarmState {
    /// The time of the latest record.
    pub(super) seen_ms: i64,
    pub(super) condition: AlarmCondition,
    pub(super) is_absent: bool,
    /// As JSON.
    pub(super) severity: Option<Arc<[u8]>>,
    /// The record with which the condition came to be as it is.
    pub(super) record: Option<Arc<[u8]>>,
    /// The time of its timer, which is not stored.
    pub(super) armed_ms: Option<i64>,
}

impl AlarmState {
    pub(super) fn new(seen_ms: i64) -> Self {
        Self {
            seen_ms,
            condition: AlarmCondition::Normal,
            is_absent: false,
            severity: None,
            record: None,
            armed_ms: None,
        }
    }

    /// `true` for an alarm that belongs to the list.
    pub(super) fn is_open(&self) -> bool {
        self.is_absent || matches!(self.condition, AlarmCondition::Raised { .. } | AlarmCondition::Clearing { .. })
    }

    /// `true` if the list shows both alike.
    pub(super) fn shows_as(&self, other: &Self) -> bool {
        (self.condition, self.is_absent, &self.severity) == (other.condition, other.is_absent, &other.severity)
    }

    /// The alarm has ended, or never was one.
    pub(super) fn settle(&mut self) {
        (self.condition, self.severity, self.record) = (AlarmCondition::Normal, None, None);
    }

    /// Nothing is known of the key any more.
    pub(super) fn be_absent(&mut self) {
        self.is_absent = true;
        match self.condition {
            AlarmCondition::Pending { .. } => self.settle(),
            AlarmCondition::Clearing { raised_ms, .. } => {
                self.condition = AlarmCondition::Raised { since_ms: raised_ms };
            }
            AlarmCondition::Normal | AlarmCondition::Raised { .. } => {}
        }
    }
}

impl AlarmState {
    /// The state of a stored form; `None` if it is none.
    pub(super) fn decode(stored: &[u8]) -> Option<Self> {
        let (seen, rest) = stored.split_first_chunk()?;
        let (tag, rest) = rest.split_first()?;
        let (since, rest) = rest.split_first_chunk()?;
        let (raised, rest) = rest.split_first_chunk()?;
        let (is_absent, rest) = rest.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (severity, record) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        let (since_ms, raised_ms) = (i64::from_be_bytes(*since), i64::from_be_bytes(*raised));
        let some = |bytes: &[u8]| (!bytes.is_empty()).then(|| bytes.into());
        Some(Self {
            seen_ms: i64::from_be_bytes(*seen),
            condition: match tag {
                0 => AlarmCondition::Normal,
                1 => AlarmCondition::Pending { since_ms },
                2 => AlarmCondition::Raised { since_ms },
                3 => AlarmCondition::Clearing { since_ms, raised_ms },
                _ => return None,
            },
            is_absent: *is_absent == 1,
            severity: some(severity),
            record: some(record),
            armed_ms: None,
        })
    }
}

impl StateValue for AlarmState {
    fn encode(&self, out: &mut Vec<u8>) {
        let (tag, since_ms, raised_ms) = match self.condition {
            AlarmCondition::Normal => (0, 0, 0),
            AlarmCondition::Pending { since_ms } => (1, since_ms, 0),
            AlarmCondition::Raised { since_ms } => (2, since_ms, 0),
            AlarmCondition::Clearing { since_ms, raised_ms } => (3, since_ms, raised_ms),
        };
        out.extend_from_slice(&self.seen_ms.to_be_bytes());
        out.push(tag);
        out.extend_from_slice(&since_ms.to_be_bytes());
        out.extend_from_slice(&raised_ms.to_be_bytes());
        out.push(u8::from(self.is_absent));
        let severity = self.severity.as_deref().unwrap_or_default();
        out.extend_from_slice(&(severity.len() as u32).to_be_bytes());
        out.extend_from_slice(severity);
        out.extend_from_slice(self.record.as_deref().unwrap_or_default());
    }

    fn heap_bytes(&self) -> u64 {
        let bytes = |part: &Option<Arc<[u8]>>| part.as_ref().map_or(0, |part| part.len() as u64);
        BESIDE_BYTES + bytes(&self.severity) + bytes(&self.record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_stored_byte_for_byte_and_broken_ones_are_refused() {
        let state = AlarmState {
            seen_ms: 0x0102,
            condition: AlarmCondition::Clearing { since_ms: 3, raised_ms: 4 },
            is_absent: true,
            severity: Some(b"\"high\""[..].into()),
            record: Some(b"{}"[..].into()),
            armed_ms: None,
        };
        let mut stored = Vec::new();
        state.encode(&mut stored);
        let expected = b"\0\0\0\0\0\0\x01\x02\x03\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\x01\0\0\0\x06\"high\"{}";
        assert_eq!(stored, expected);
        assert_eq!(AlarmState::decode(&stored), Some(state));
        for end in 0..30 {
            assert_eq!(AlarmState::decode(&stored[..end]), None, "{end}");
        }
        stored[8] = 4;
        assert_eq!(AlarmState::decode(&stored), None);
        let normal = AlarmState::new(5);
        stored.clear();
        normal.encode(&mut stored);
        assert_eq!(AlarmState::decode(&stored), Some(normal));
    }
}
