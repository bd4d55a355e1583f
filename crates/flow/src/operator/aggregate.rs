//! `aggregate`: values over the records of a key in windows.
//!
//! A window is given when event time has come to its end, right after the record that has brought it there, and once more for
//! each record that comes late, up to `allowed_lateness`; or when its triggers say so. A job that completes gives the windows that
//! are open.

mod key_state;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millstream_columns::{TriggeringRecord, Value};

use self::key_state::{GivenWindow, KeyState, WINDOWS_MAX_BYTES};
use self::plan::{AggregatePlan, Cause};
use super::keyed::{KeyedInput, KeyedMade, KeyedOperator, KeyedOutput, MADE_MAX, StoredValue};
use crate::Error;
use crate::batch::{MadeRows, NO_TIME};
use crate::document::{Node, NodeType, Role};
use crate::expression::{RecordError, RowFrame};
use crate::state::{KeyedState, StateMemory, TellChange};

pub(crate) const AGGREGATE: NodeType = NodeType {
    name: "aggregate",
    role: Role::Transform,
    summary: "Makes a record of the records of a key in each window: `aggregates` over `window`.",
    keys: &[],
    can_end: false,
    keeps_state: true,
};

pub(super) struct Aggregate {
    plan: AggregatePlan,
    known: KeyedState<KeyState>,
    /// The keys that wait for a time.
    timers: BTreeMap<i64, Vec<Arc<[u8]>>>,
    time_ms: i64,
    /// The triggers by the clock.
    clocks: Vec<ClockTrigger>,
    /// Keys whose windows are given at the end, once it has begun.
    ending: Option<Vec<Arc<[u8]>>>,
}

/// A trigger by the clock.
struct ClockTrigger {
    number: usize,
    every_ms: i64,
    /// The keys that may have windows for it.
    keys: BTreeSet<Arc<[u8]>>,
    /// The time of the clock at which it gives them; `None` before anybody has asked for it.
    due_ms: Option<i64>,
}

/// The result of adding a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Taken,
    /// It is too late for all its windows.
    Late,
    /// Its key has as much as can be stored.
    TooLarge,
}

/// The bytes that a value may add to a window, about.
fn size_bytes(value: &Value<'_>) -> u64 {
    match value {
        Value::Text(text) => text.len() as u64,
        Value::Nested(json) => json.len() as u64,
        Value::List(list) => list.iter().map(size_bytes).sum(),
        _ => size_of::<Value<'_>>() as u64,
    }
}

impl ClockTrigger {
    /// Waits to give the windows of a key.
    fn see(&mut self, key: &Arc<[u8]>) {
        if !self.keys.contains(key) {
            self.keys.insert(Arc::clone(key));
        }
    }
}

impl Aggregate {
    /// # Errors
    /// [`Error::Plan`] for what the document's checks should have refused.
    pub(super) fn new(node: &Node, memory: StateMemory) -> Result<Self, Error> {
        let plan = AggregatePlan::new(node)?;
        let clock = |(number, every_ms)| ClockTrigger { number, every_ms, keys: BTreeSet::new(), due_ms: None };
        Ok(Self {
            clocks: plan.intervals.iter().copied().map(clock).collect(),
            plan,
            known: KeyedState::new(memory),
            timers: BTreeMap::new(),
            time_ms: NO_TIME,
            ending: None,
        })
    }

    /// Gives the windows that are due for all keys up to a time, as far as they fit in one call; `true` if all is done.
    fn advance_to(&mut self, time_ms: i64, cause: Cause, made: &mut MadeRows) -> Result<bool, Error> {
        self.advance_by(time_ms, cause, made, MADE_MAX)
    }

    /// As [`Self::advance_to`], with another number of records.
    fn advance_by(&mut self, time_ms: i64, cause: Cause, made: &mut MadeRows, made_max: usize) -> Result<bool, Error> {
        let time_ms = time_ms.max(self.time_ms);
        while let Some(mut first) = self.timers.first_entry().filter(|first| *first.key() <= time_ms) {
            if made.len() >= made_max {
                return Ok(false);
            }
            let at_ms = *first.key();
            let Some(key) = first.get_mut().pop() else {
                first.remove();
                continue;
            };
            let is_due = self.known.get(&key).is_some_and(|state| state.armed_ms == Some(at_ms));
            if is_due {
                self.change(&key, |plan, state| {
                    state.armed_ms = None;
                    state.advance(plan, at_ms, |given| plan.give(&key, given, cause, made));
                })?;
            }
        }
        self.time_ms = time_ms;
        Ok(true)
    }

    /// Changes a key, and arms its timer or forgets it.
    fn change(&mut self, key: &[u8], change: impl FnOnce(&AggregatePlan, &mut KeyState)) -> Result<Arc<[u8]>, Error> {
        let Self { plan, known, timers, .. } = self;
        let (mut is_empty, mut timer_ms) = (false, None);
        let key = known.change(
            key,
            || KeyState::new(plan),
            |state| {
                change(plan, state);
                is_empty = state.is_empty();
                timer_ms = state.arm(plan);
            },
        )?;
        if is_empty {
            known.remove(&key);
        } else if let Some(at_ms) = timer_ms {
            timers.entry(at_ms).or_default().push(Arc::clone(&key));
        }
        Ok(key)
    }

    /// Adds a record, if its windows can take it.
    fn see(
        &mut self,
        key: &[u8],
        record: TriggeringRecord,
        inputs: &[Value<'_>],
        cause: Cause,
        made: &mut MadeRows,
    ) -> Result<Seen, Error> {
        let mut seen = Seen::TooLarge;
        let key = self.change(key, |plan, state| {
            if state.has_room(inputs.iter().map(size_bytes).sum()) {
                let is_taken = state.add(plan, record, inputs, |given| plan.give(key, given, cause, made));
                seen = if is_taken { Seen::Taken } else { Seen::Late };
            }
        })?;
        if seen == Seen::Taken {
            self.clocks.iter_mut().for_each(|clock| clock.see(&key));
        }
        Ok(seen)
    }

    /// The cause of records that no record causes.
    fn cause(&self) -> Cause {
        Cause { input: 0, time_ms: self.time_ms, watermark_ms: self.time_ms }
    }
}

impl AggregatePlan {
    fn give(&self, key: &[u8], given: GivenWindow<'_>, cause: Cause, made: &mut MadeRows) {
        match given {
            GivenWindow::Timed(window, figures) => self.send(key, window, figures, cause, made),
            GivenWindow::Triggered(trigger, window, figures) => {
                self.send_by(trigger, key, window, figures, cause, made)
            }
        }
    }

    /// The triggers that each row fires by itself, as bits; `None` for rows on which a condition fails, which are added to `failed`.
    fn fired(&self, frame: RowFrame<'_>, failed: &mut Vec<RecordError>) -> Vec<Option<u32>> {
        let mut fired = vec![Some(0); frame.batch.len()];
        for (number, condition) in &self.conditions {
            condition.each(frame, |row, truth| match truth {
                Ok(truth) => fired[row] = fired[row].map(|bits| bits | u32::from(truth) << number),
                Err(failure) => {
                    fired[row] = None;
                    failed.push(failure.of_row(row as u32, condition.text()));
                }
            });
        }
        fired
    }
}

impl KeyedOperator for Aggregate {
    fn apply(&mut self, input: &KeyedInput<'_>) -> Result<KeyedOutput, Error> {
        let batch = input.batch;
        let frame = RowFrame { batch, input: None, errors: None, now_ms: input.now_ms };
        let mut rows = Vec::with_capacity(batch.len());
        let mut made = KeyedMade::default();
        let fired = self.plan.fired(frame, &mut made.failed);
        // Inputs borrow from the batch, so they are read before any of them is added.
        self.plan.aggregates.each(frame, |row, inputs| match inputs {
            _ if fired[row].is_none() => rows.push(None),
            Ok(inputs) => rows.push(Some(inputs.iter().cloned().map(Value::into_owned).collect::<Vec<_>>())),
            Err(failure) => {
                made.failed.push(failure.of_row(row as u32, self.plan.aggregates.text()));
                rows.push(None);
            }
        });
        for (row, key) in input.rows.iter() {
            let cause = Cause { input: row, ..self.cause() };
            let mut all_done = self.advance_to(batch.watermark_ms(row as usize), cause, &mut made.rows)?;
            if input.may_begin(row as usize) && (!all_done || made.rows.len() >= MADE_MAX) {
                made.rest = Some(row);
                break;
            }
            // Rows of one input row stay together.
            while !all_done {
                all_done = self.advance_by(batch.watermark_ms(row as usize), cause, &mut made.rows, usize::MAX)?;
            }
            let Some((inputs, fires)) = rows[row as usize].as_ref().zip(fired[row as usize]) else { continue };
            let time_ms = batch.time_ms(row as usize);
            if time_ms == NO_TIME && self.plan.needs_time() {
                let message = "the record has no event time, and a window needs one; see event_time of its source";
                made.failed.push(RecordError { row, code: "no_event_time", message: message.to_owned() });
                continue;
            }
            let cause = Cause { input: row, time_ms, watermark_ms: self.time_ms };
            let record = TriggeringRecord { time_ms, now_ms: self.time_ms, fires };
            match self.see(key, record, inputs, cause, &mut made.rows)? {
                Seen::Taken => {}
                Seen::Late => made.late.push(row),
                Seen::TooLarge => {
                    let message = format!(
                        "the open windows of its key would have more than {WINDOWS_MAX_BYTES} bytes, the most that can be \
                         stored; set a LIMIT to ARRAY_AGG, or let windows be shorter"
                    );
                    made.failed.push(RecordError { row, code: "window_too_large", message });
                }
            }
        }
        Ok(KeyedOutput::Made(made))
    }

    fn advance(&mut self, time_ms: i64, made: &mut MadeRows) -> Result<bool, Error> {
        self.advance_to(time_ms, self.cause(), made)
    }

    fn next_tick_ms(&mut self, now_ms: i64) -> Option<i64> {
        let due = |clock: &mut ClockTrigger| {
            if clock.keys.is_empty() {
                clock.due_ms = None;
                return None;
            }
            // On the grid of the interval, so that all instances have the same times.
            let next_ms = || now_ms.saturating_sub(now_ms.rem_euclid(clock.every_ms)).saturating_add(clock.every_ms);
            Some(*clock.due_ms.get_or_insert_with(next_ms))
        };
        self.clocks.iter_mut().filter_map(due).min()
    }

    fn tick(&mut self, now_ms: i64, made: &mut MadeRows) -> Result<bool, Error> {
        let cause = self.cause();
        for number in 0..self.clocks.len() {
            if self.clocks[number].due_ms.is_none_or(|due_ms| due_ms > now_ms) {
                continue;
            }
            while let Some(key) = self.clocks[number].keys.pop_first() {
                let trigger = self.clocks[number].number;
                if self.known.get(&key).is_some_and(|state| state.waits_for(trigger)) {
                    self.change(&key, |plan, state| {
                        state.tick(plan, trigger, |given| plan.give(&key, given, cause, made));
                    })?;
                }
                if made.len() >= MADE_MAX && !self.clocks[number].keys.is_empty() {
                    return Ok(false);
                }
            }
            self.clocks[number].due_ms = None;
        }
        Ok(true)
    }

    fn finish(&mut self, made: &mut MadeRows) -> Result<bool, Error> {
        let cause = self.cause();
        let Self { plan, known, ending, .. } = self;
        let ending = ending.get_or_insert_with(|| known.keys_in_order());
        while let Some(key) = ending.pop() {
            known.change(
                &key,
                || KeyState::new(plan),
                |state| {
                    state.finish(plan, |given| plan.give(&key, given, cause, made));
                },
            )?;
            if made.len() >= MADE_MAX {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn delay_ms(&self) -> i64 {
        self.plan.delay_ms
    }

    fn take_changes(&mut self, tell: &mut TellChange<'_>) {
        self.known.take_changes(tell);
    }

    fn restore(&mut self, key: &[u8], stored: &[u8]) -> Result<(), Error> {
        let key = self.known.restore(key, stored, KeyState::read(&self.plan, stored))?;
        let Self { plan, known, timers, clocks, .. } = self;
        let Some(state) = known.get_mut(&key) else { return Ok(()) };
        clocks.iter_mut().filter(|clock| state.waits_for(clock.number)).for_each(|clock| clock.see(&key));
        if let Some(at_ms) = state.arm(plan) {
            timers.entry(at_ms).or_default().push(key);
        }
        Ok(())
    }

    fn digest(&self) -> u64 {
        self.known.digest()
    }

    fn describe(&self, key: &[u8], stored: &[StoredValue]) -> Option<serde_json::Value> {
        let [(_, stored)] = stored else { return None };
        Some(serde_json::json!({"windows": KeyState::read(&self.plan, stored)?.describe(&self.plan, key)}))
    }

    fn keys(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::document::{Document, DocumentContext};

    fn aggregate(window: serde_json::Value) -> Aggregate {
        let document = json!({
            "version": 1, "kind": "Job", "name": "sums",
            "sources": {"in": {"type": "list", "config": {"records": []}}},
            "transforms": {"sums": {
                "type": "aggregate", "inputs": ["in"], "key_by": "k", "window": window, "aggregates": "COUNT(*) AS n",
            }},
            "sinks": {"out": {"type": "blackhole", "inputs": ["sums"]}},
        });
        let context = DocumentContext { catalogue: crate::catalogue(), ..DocumentContext::default() };
        let document = Document::read(&document.to_string(), &context).unwrap();
        let node = document.nodes.iter().find(|node| node.name == "sums").unwrap();
        Aggregate::new(node, StateMemory::unbounded("sums")).unwrap()
    }

    #[test]
    fn a_key_has_one_timer_however_many_records_its_windows_get() {
        for window in [
            json!({"type": "session", "gap": "1m"}),
            json!({"type": "tumbling", "size": "1m"}),
            json!({"type": "sliding", "size": "1m", "slide": "1s"}),
        ] {
            let mut sums = aggregate(window.clone());
            let mut made = MadeRows::default();
            for time_ms in (0..3_600_000).step_by(1_000) {
                let cause = sums.cause();
                assert!(sums.advance_to(time_ms, cause, &mut made).unwrap() || made.len() >= MADE_MAX);
                made = MadeRows::default();
                let record = TriggeringRecord { time_ms, now_ms: sums.time_ms, fires: 0 };
                assert_eq!(sums.see(b"\"a\"\n", record, &[], cause, &mut made).unwrap(), Seen::Taken);
                let timers: usize = sums.timers.values().map(Vec::len).sum();
                assert!(timers <= 2, "{timers} timers at {time_ms} of {window}");
            }
        }
    }
}
