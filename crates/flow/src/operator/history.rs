//! `map` with functions that look back at the earlier records of a key, such as `LAG(temp)`.
//!
//! The results are members of the rows, from which the node's select list is computed.
//!
//! Always true
//! - A record is judged by the records of its key before it, and by the watermark in front of it: how input is cut into batches
//!   changes nothing.
//! - A key without a record for the time `ttl` is forgotten, whether or not its memory has been freed before.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use millstream_columns::HistoryState;
use millstream_types::iso_time;
use serde_json::{Value, json};

use super::keyed::{KeyedInput, KeyedOperator, KeyedOutput, StoredValue};
use crate::Error;
use crate::batch::{Batch, MadeRows, NO_TIME};
use crate::document::{Key, KeyType, Node, NodeType, Role, duration_ms};
use crate::expression::{HistoryValues, RowFrame};
use crate::state::{KeyedState, StateMemory, StateValue, TellChange};

pub(crate) const MAP: NodeType = NodeType {
    name: "map",
    role: Role::Transform,
    summary: "Makes a new record of each, by `select`, which may look back at the earlier records of a key.",
    keys: &[Key {
        name: "ttl",
        value: KeyType::Duration,
        is_required: false,
        default: None,
        doc: "The time, by the records' own times, after which a key without records is forgotten by functions that look back; without it none is.",
    }],
    can_end: false,
    keeps_state: false,
};

/// The part of the records of a key that is known.
#[derive(Debug)]
struct KeyHistory {
    /// The time of the latest record.
    last_ms: i64,
    /// Of each call.
    states: Box<[HistoryState]>,
    /// The time of its timer, which is not stored.
    armed_ms: Option<i64>,
}

/// Memory of the timer of a key.
const TIMER_BYTES: u64 = 120;

impl KeyHistory {
    /// The history of a stored form; `None` if it is none.
    fn decode(stored: &[u8]) -> Option<Self> {
        let (last, mut rest) = stored.split_first_chunk()?;
        let mut states = Vec::new();
        while !rest.is_empty() {
            states.push(HistoryState::read(&mut rest)?);
        }
        Some(Self { last_ms: i64::from_be_bytes(*last), states: states.into(), armed_ms: None })
    }
}

/// The stored form: the time, 8 bytes, big endian, and the states.
impl StateValue for KeyHistory {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.last_ms.to_be_bytes());
        self.states.iter().for_each(|state| state.write(out));
    }

    fn heap_bytes(&self) -> u64 {
        TIMER_BYTES + self.states.iter().map(|state| state.size_bytes() as u64).sum::<u64>()
    }
}

/// The keys of one instance.
pub(super) struct History {
    values: HistoryValues,
    /// `None` if no key is forgotten.
    ttl_ms: Option<i64>,
    known: KeyedState<KeyHistory>,
    /// Each known key once, if keys are forgotten.
    timers: BTreeSet<(i64, Arc<[u8]>)>,
}

impl History {
    /// # Errors
    /// A select list that the document's checks should have refused.
    pub(super) fn new(node: &Node, memory: StateMemory) -> Result<Self, Error> {
        let refuse = |message: String| Error::plan(&node.name, "select", message);
        let values = HistoryValues::parse(node.select.as_deref().unwrap_or_default(), &node.params).map_err(refuse)?;
        let ttl = node.config.get("ttl").and_then(Value::as_str).and_then(duration_ms);
        Ok(Self {
            values: values.ok_or_else(|| refuse("nothing in it looks back".to_owned()))?,
            ttl_ms: ttl.map(|ttl_ms| i64::try_from(ttl_ms).unwrap_or(i64::MAX)),
            known: KeyedState::new(memory),
            timers: BTreeSet::new(),
        })
    }
}

/// The time at which a key is forgotten; `None` for never.
fn end_ms(last_ms: i64, ttl_ms: Option<i64>) -> Option<i64> {
    last_ms.checked_add(ttl_ms?)
}

/// The event time of a row, in its place that of its record.
fn time_ms(batch: &Batch, row: usize) -> i64 {
    match batch.time_ms(row) {
        NO_TIME => batch.timestamp_ms(row),
        time_ms => time_ms,
    }
}

impl KeyedOperator for History {
    fn apply(&mut self, input: &KeyedInput<'_>) -> Result<KeyedOutput, Error> {
        let KeyedInput { batch, rows, now_ms, .. } = *input;
        let Self { values, ttl_ms, known, timers } = self;
        let frame = RowFrame { batch, input: None, errors: None, now_ms };
        let joined = values.apply(
            frame,
            rows.iter(),
            |row| input.may_begin(row),
            |row, key, found, tell| {
                let time_ms = time_ms(batch, row);
                let reached_ms = time_ms.max(batch.watermark_ms(row));
                let new = || KeyHistory { last_ms: time_ms, states: values.new_states(), armed_ms: None };
                let mut timer_ms = None;
                let key = known.change(key, new, |history| {
                    if end_ms(history.last_ms, *ttl_ms).is_some_and(|end_ms| end_ms <= reached_ms) {
                        *history = KeyHistory { armed_ms: history.armed_ms, ..new() };
                    }
                    history.last_ms = history.last_ms.max(time_ms);
                    for (call, (state, value)) in history.states.iter_mut().zip(found).enumerate() {
                        state.see(value, time_ms, |result| tell(call, result));
                    }
                    if history.armed_ms.is_none() {
                        timer_ms = end_ms(history.last_ms, *ttl_ms);
                        history.armed_ms = timer_ms;
                    }
                })?;
                timers.extend(timer_ms.map(|at_ms| (at_ms, key)));
                Ok(())
            },
        );
        joined.map(|(joined, failed)| KeyedOutput::Joined(joined, failed))
    }

    /// Frees the memory of keys that are forgotten.
    fn advance(&mut self, time_ms: i64, _: &mut MadeRows) -> Result<bool, Error> {
        while let Some((_, key)) = self.timers.first().filter(|(at_ms, _)| *at_ms <= time_ms).cloned() {
            self.timers.pop_first();
            let Some(history) = self.known.get_mut(&key) else { continue };
            history.armed_ms = end_ms(history.last_ms, self.ttl_ms).filter(|end_ms| *end_ms > time_ms);
            match history.armed_ms {
                // A later record has come since.
                Some(end_ms) => drop(self.timers.insert((end_ms, key))),
                None => self.known.remove(&key),
            }
        }
        Ok(true)
    }

    fn watches_silence(&self) -> bool {
        true
    }

    fn next_time_ms(&self) -> Option<i64> {
        self.timers.first().map(|(at_ms, _)| *at_ms)
    }

    fn take_changes(&mut self, tell: &mut TellChange<'_>) {
        self.known.take_changes(tell);
    }

    fn restore(&mut self, key: &[u8], stored: &[u8]) -> Result<(), Error> {
        let key = self.known.restore(key, stored, KeyHistory::decode(stored))?;
        if !self.known.get(&key).is_some_and(|history| self.values.fit(&history.states)) {
            return Err(self.known.unreadable());
        }
        let Some(history) = self.known.get_mut(&key) else { return Ok(()) };
        history.armed_ms = end_ms(history.last_ms, self.ttl_ms);
        self.timers.extend(history.armed_ms.map(|at_ms| (at_ms, key)));
        Ok(())
    }

    fn digest(&self) -> u64 {
        self.known.digest()
    }

    fn describe(&self, _: &[u8], stored: &[StoredValue]) -> Option<Value> {
        let [(_, stored)] = stored else { return None };
        let history = KeyHistory::decode(stored).filter(|history| self.values.fit(&history.states))?;
        Some(json!({"last": iso_time(history.last_ms), "values": self.values.describe(&history.states)}))
    }

    fn keys(&self) -> usize {
        self.known.len()
    }
}
