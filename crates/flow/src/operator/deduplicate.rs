//! `deduplicate`: the first record of each key within a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_types::iso_time;
use serde_json::{Map, Value, json};

use super::keyed::{KeyedInput, KeyedOperator, KeyedOutput, StoredValue};
use crate::Error;
use crate::batch::{MadeRows, NO_TIME};
use crate::document::{Key, KeyType, NodeType, Role, duration_ms};
use crate::state::{KeyedState, StateMemory, StateValue, TellChange};

pub(crate) const DEDUPLICATE: NodeType = NodeType {
    name: "deduplicate",
    role: Role::Transform,
    summary: "Passes the first record of each key, and drops later ones of that key for the time `ttl`.",
    keys: &[Key {
        name: "ttl",
        value: KeyType::Duration,
        is_required: true,
        default: None,
        doc: "The time, by the records' own times, for which a key is known after a record of it has passed.",
    }],
    can_end: false,
    keeps_state: true,
};

/// The time of the record of a key that has passed, milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Passed(i64);

impl StateValue for Passed {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_be_bytes());
    }

    fn heap_bytes(&self) -> u64 {
        BY_TIME_BYTES
    }
}

/// Memory of a key among the keys by time.
const BY_TIME_BYTES: u64 = 80;

/// The keys that are known.
///
/// A record is dropped if its own time lies within `ttl` of the record of its key that has passed, whichever is the later one.
/// A key is forgotten once the watermark is two times `ttl` behind its record: how input is cut into batches changes nothing, and
/// other keys and partitions matter only to records that are more than `ttl` late.
pub(super) struct Deduplicate {
    ttl_ms: i64,
    known: KeyedState<Passed>,
    /// The known keys, by the time of their records.
    by_time: BTreeMap<i64, Vec<Arc<[u8]>>>,
}

impl Deduplicate {
    pub(super) fn new(config: &Map<String, Value>, memory: StateMemory) -> Self {
        let ttl = config.get("ttl").and_then(Value::as_str).and_then(duration_ms).unwrap_or_default();
        let ttl_ms = i64::try_from(ttl).unwrap_or(i64::MAX);
        Self { ttl_ms, known: KeyedState::new(memory), by_time: BTreeMap::new() }
    }

    fn passes(&mut self, key: &[u8], time_ms: i64) -> Result<bool, Error> {
        if self.known.get(key).is_some_and(|passed| time_ms.abs_diff(passed.0) < self.ttl_ms.unsigned_abs()) {
            return Ok(false);
        }
        let key = self.known.set(key, Passed(time_ms))?;
        self.by_time.entry(time_ms).or_default().push(key);
        Ok(true)
    }

    /// Forgets the keys whose records are old once event time has come to `reached_ms`.
    fn forget(&mut self, reached_ms: i64) {
        let oldest_ms = reached_ms.saturating_sub(self.ttl_ms.saturating_mul(2));
        while let Some(first) = self.by_time.first_entry().filter(|first| *first.key() < oldest_ms) {
            let (time_ms, keys) = first.remove_entry();
            for key in keys {
                // A later record of the key may have passed since.
                if self.known.get(&key) == Some(&Passed(time_ms)) {
                    self.known.remove(&key);
                }
            }
        }
    }
}

impl KeyedOperator for Deduplicate {
    fn apply(&mut self, input: &KeyedInput<'_>) -> Result<KeyedOutput, Error> {
        let KeyedInput { batch, rows, .. } = input;
        let mut passed = Vec::with_capacity(batch.len());
        for (row, key) in rows.iter() {
            let time_ms = match batch.time_ms(row as usize) {
                NO_TIME => batch.timestamp_ms(row as usize),
                time_ms => time_ms,
            };
            self.forget(batch.watermark_ms(row as usize));
            if self.passes(key, time_ms)? {
                passed.push(row);
            }
        }
        Ok(KeyedOutput::Passed(passed))
    }

    /// Frees the memory of keys that are forgotten.
    fn advance(&mut self, time_ms: i64, _: &mut MadeRows) -> Result<bool, Error> {
        self.forget(time_ms);
        Ok(true)
    }

    fn take_changes(&mut self, tell: &mut TellChange<'_>) {
        self.known.take_changes(tell);
    }

    fn restore(&mut self, key: &[u8], stored: &[u8]) -> Result<(), Error> {
        let passed = stored.try_into().ok().map(|time| Passed(i64::from_be_bytes(time)));
        let key = self.known.restore(key, stored, passed)?;
        if let Some(Passed(time_ms)) = self.known.get(&key) {
            self.by_time.entry(*time_ms).or_default().push(key);
        }
        Ok(())
    }

    fn digest(&self) -> u64 {
        self.known.digest()
    }

    fn describe(&self, _: &[u8], stored: &[StoredValue]) -> Option<Value> {
        let [(_, stored)] = stored else { return None };
        let passed_ms = i64::from_be_bytes((**stored).try_into().ok()?);
        let until_ms = passed_ms.saturating_add(self.ttl_ms);
        Some(json!({"passed": iso_time(passed_ms), "until": iso_time(until_ms)}))
    }

    fn keys(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{RowTime, SourceBatch};
    use crate::document::JoinSide;
    use crate::operator::keyed::KeyedRows;

    /// Key, time, and the watermark in front.
    type Reading = (&'static str, i64, i64);

    /// The rows that pass.
    fn passed(operator: &mut Deduplicate, rows: &[Reading]) -> Vec<u32> {
        let (mut source, mut keyed) = (SourceBatch::default(), KeyedRows::default());
        for (number, (key, time_ms, _)) in (0..).zip(rows) {
            source.push(number, None, *time_ms, |out| out.extend_from_slice(b"{}"));
            keyed.push(number as u32, key.as_bytes());
        }
        let batch = source.finish();
        let batch = batch.with_times(|row| RowTime { time_ms: rows[row].1, watermark_ms: rows[row].2 });
        let input = KeyedInput { batch: &batch, rows: &keyed, inputs: None, now_ms: 0, side: JoinSide::Left };
        let KeyedOutput::Passed(passed) = operator.apply(&input).unwrap() else { unreachable!() };
        passed
    }

    fn of_a_second() -> Deduplicate {
        let config = json!({"ttl": "1s"});
        Deduplicate::new(config.as_object().unwrap(), StateMemory::unbounded("once"))
    }

    #[test]
    fn a_sender_that_is_ahead_makes_no_key_forgotten() {
        let mut once = of_a_second();
        let rows = [("a", 0, 0), ("b", 60_000, 0), ("a", 500, 0), ("a", 1_000, 500)];
        assert_eq!(passed(&mut once, &rows), [0, 1, 3]);
        assert_eq!(once.keys(), 2);
        assert_eq!(passed(&mut once, &[("a", 1_500, 3_000), ("a", 1_500, 3_001)]), [1]);
        once.advance(62_001, &mut MadeRows::default()).unwrap();
        assert_eq!(once.keys(), 0);
    }
}
