//! `aggregate`: values over the records of a key in windows.
//!
//! A window is given when event time has come to its end, right after the record that has brought it there, and once more for
//! each record that comes late, up to `allowed_lateness`. A job that completes gives the windows that are open.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_columns::{AggregateState, KeyWindows, Value, WindowExtent, WindowShape, WindowState, WindowTimes};

use super::keyed::{KeyedInput, KeyedMade, KeyedOperator, KeyedOutput, MADE_MAX, key_parts, record_key};
use crate::Error;
use crate::batch::{MadeRecord, MadeRows, NO_TIME};
use crate::document::{Node, NodeType, Role, WindowKind};
use crate::expression::{Aggregates, RecordError, RowFrame};
use crate::object;
use crate::state::{KeyedState, StateMemory, StateValue, TellChange};

pub(crate) const AGGREGATE: NodeType = NodeType {
    name: "aggregate",
    role: Role::Transform,
    summary: "Makes a record of the records of a key in each window: `aggregates` over `window`.",
    keys: &[],
    can_end: false,
    keeps_state: true,
};

/// The figures of the records of a pane.
#[derive(Debug)]
struct PaneFigures(AggregateState);

impl WindowState for PaneFigures {
    fn merge(&mut self, other: &Self) {
        self.0.merge(&other.0);
    }
}

/// The windows of a key.
#[derive(Debug, Default)]
struct KeyState {
    windows: KeyWindows<PaneFigures>,
    /// The time of its timer, which is not stored.
    armed_ms: Option<i64>,
}

/// Memory of the timer of a key.
const TIMER_BYTES: u64 = 48;

impl StateValue for KeyState {
    fn encode(&self, out: &mut Vec<u8>) {
        self.windows.write(out, |pane, out| out.extend_from_slice(&pane.0.write()));
    }

    fn heap_bytes(&self) -> u64 {
        TIMER_BYTES + self.windows.states().map(|pane| 16 + pane.0.size_bytes() as u64).sum::<u64>()
    }
}

pub(super) struct Aggregate {
    plan: Plan,
    known: KeyedState<KeyState>,
    /// The keys that wait for a time.
    timers: BTreeMap<i64, Vec<Arc<[u8]>>>,
    time_ms: i64,
    /// Keys whose windows are given at the end, once it has begun.
    ending: Option<Vec<Arc<[u8]>>>,
}

/// The shape of the windows, and the form of their records.
struct Plan {
    shape: WindowShape,
    lateness_ms: i64,
    aggregates: Aggregates,
    /// The names of the members that the key gives.
    key_names: Vec<String>,
}

/// The place of a call in the stream: the row that causes records, and the watermark.
#[derive(Clone, Copy)]
struct Cause {
    input: u32,
    watermark_ms: i64,
}

impl Aggregate {
    /// # Errors
    /// [`Error::Plan`] for what the document's checks should have refused.
    pub(super) fn new(node: &Node, memory: StateMemory) -> Result<Self, Error> {
        let refuse = |key: &str, message: String| Error::plan(&node.name, key, message);
        let window = node.window.as_ref().ok_or_else(|| refuse("window", "it is not there".to_owned()))?;
        let text = node.aggregates.as_deref().unwrap_or_default();
        let aggregates = Aggregates::parse(text, &node.key_by, &node.params);
        let shape = match window.kind {
            WindowKind::Sliding { size_ms, slide_ms } => {
                WindowShape::Time { size_ms, slide_ms, offset_ms: window.offset_ms }
            }
            WindowKind::Session { gap_ms } => WindowShape::Session { gap_ms },
            WindowKind::Global => WindowShape::Global,
        };
        Ok(Self {
            plan: Plan {
                shape,
                lateness_ms: window.allowed_lateness_ms,
                aggregates: aggregates.map_err(|message| refuse("aggregates", message))?,
                key_names: node.key_by.clone(),
            },
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
            let Self { plan, known, .. } = self;
            let is_due = known.get(&key).is_some_and(|state| state.armed_ms == Some(at_ms));
            if !is_due {
                continue;
            }
            known.change(&key, KeyState::default, |state| {
                let give = |window: WindowExtent, figures: &PaneFigures| plan.send(&key, window, figures, cause, made);
                state.windows.give_due(&plan.shape, at_ms, || plan.fresh(), give);
                state.windows.forget(&plan.shape, at_ms.saturating_sub(plan.lateness_ms));
                state.armed_ms = None;
            })?;
            self.settle(&key);
        }
        self.time_ms = time_ms;
        Ok(true)
    }

    /// Arms the timer of a key, or forgets the key.
    fn settle(&mut self, key: &Arc<[u8]>) {
        let Some(state) = self.known.get_mut(key) else { return };
        if state.windows.is_empty() {
            return self.known.remove(key);
        }
        let next_ms = state.windows.next_ms(&self.plan.shape, self.plan.lateness_ms);
        // A timer that is due too soon is set anew once it is: a session that grows has one, and not one for each record.
        if let Some(at_ms) = next_ms.filter(|at_ms| state.armed_ms.is_none_or(|armed_ms| *at_ms < armed_ms)) {
            state.armed_ms = next_ms;
            self.timers.entry(at_ms).or_default().push(Arc::clone(key));
        }
    }

    /// Adds a record; `false` if it is too late for all its windows.
    fn see(
        &mut self,
        key: &[u8],
        time_ms: i64,
        inputs: &[Value<'_>],
        cause: Cause,
        made: &mut MadeRows,
    ) -> Result<bool, Error> {
        let Self { plan, known, time_ms: due_ms, .. } = self;
        let times = WindowTimes { due_ms: *due_ms, gone_ms: due_ms.saturating_sub(plan.lateness_ms) };
        let mut is_taken = false;
        let key = known.change(key, KeyState::default, |state| {
            let Some(figures) = state.windows.state(&plan.shape, time_ms, times.gone_ms, || plan.fresh()) else {
                return;
            };
            is_taken = true;
            // A nested value cannot be compared, and is left out.
            let _ = figures.0.add(inputs);
            let give = |window: WindowExtent, figures: &PaneFigures| plan.send(key, window, figures, cause, made);
            state.windows.give_again(&plan.shape, time_ms, times, || plan.fresh(), give);
        })?;
        self.settle(&key);
        Ok(is_taken)
    }
}

impl Plan {
    fn fresh(&self) -> PaneFigures {
        PaneFigures(self.aggregates.state())
    }

    fn send(&self, key: &[u8], window: WindowExtent, figures: &PaneFigures, cause: Cause, made: &mut MadeRows) {
        let Cause { input, watermark_ms } = cause;
        // The last moment of the window; that of all records has none.
        let time_ms = match self.shape {
            WindowShape::Time { .. } => window.end_ms.saturating_sub(1),
            WindowShape::Session { .. } => window.end_ms,
            WindowShape::Global => watermark_ms.max(0),
        };
        let record = MadeRecord { input, key: &record_key(key), time_ms, watermark_ms };
        let values: Vec<Value<'static>> = key_parts(key).map(key_value).collect();
        made.push(record, |out| {
            out.push(b'{');
            for (name, part) in self.key_names.iter().zip(key_parts(key)) {
                object::begin_member(name, out);
                out.extend_from_slice(part);
            }
            self.aggregates.write(&values, &figures.0, time_ms, out);
            if self.shape != WindowShape::Global {
                object::begin_member("window", out);
                out.push(b'{');
                object::begin_member("start", out);
                object::write_time(out, window.start_ms);
                object::begin_member("end", out);
                object::write_time(out, window.end_ms);
                out.push(b'}');
            }
            out.push(b'}');
        });
    }
}

/// A part of a key, for expressions. An object or list is its text.
fn key_value(part: &[u8]) -> Value<'static> {
    Value::read(part).map_or(Value::Null, Value::into_owned)
}

impl KeyedOperator for Aggregate {
    fn apply(&mut self, input: &KeyedInput<'_>) -> Result<KeyedOutput, Error> {
        let batch = input.batch;
        let frame = RowFrame { batch, input: None, errors: None, now_ms: input.now_ms };
        let mut rows = Vec::with_capacity(batch.len());
        let mut made = KeyedMade::default();
        // Inputs borrow from the batch, so they are read before any of them is added.
        self.plan.aggregates.each(frame, |row, inputs| match inputs {
            Ok(inputs) => rows.push(Some(inputs.iter().cloned().map(Value::into_owned).collect::<Vec<_>>())),
            Err(failure) => {
                made.failed.push(failure.of_row(row as u32, self.plan.aggregates.text()));
                rows.push(None);
            }
        });
        for (row, key) in input.rows.iter() {
            let cause = Cause { input: row, watermark_ms: self.time_ms };
            let mut all_done = self.advance_to(batch.watermark_ms(row as usize), cause, &mut made.rows)?;
            if input.may_begin(row as usize) && (!all_done || made.rows.len() >= MADE_MAX) {
                made.rest = Some(row);
                break;
            }
            // Rows of one input row stay together.
            while !all_done {
                all_done = self.advance_by(batch.watermark_ms(row as usize), cause, &mut made.rows, usize::MAX)?;
            }
            let Some(inputs) = &rows[row as usize] else { continue };
            let time_ms = batch.time_ms(row as usize);
            if time_ms == NO_TIME && self.plan.shape != WindowShape::Global {
                let message = "the record has no event time, and a window needs one; see event_time of its source";
                made.failed.push(RecordError { row, code: "no_event_time", message: message.to_owned() });
                continue;
            }
            let cause = Cause { input: row, watermark_ms: self.time_ms };
            made.late += u64::from(!self.see(key, time_ms, inputs, cause, &mut made.rows)?);
        }
        Ok(KeyedOutput::Made(made))
    }

    fn advance(&mut self, time_ms: i64, made: &mut MadeRows) -> Result<bool, Error> {
        self.advance_to(time_ms, Cause { input: 0, watermark_ms: self.time_ms }, made)
    }

    fn finish(&mut self, made: &mut MadeRows) -> Result<bool, Error> {
        let cause = Cause { input: 0, watermark_ms: self.time_ms };
        let Self { plan, known, ending, .. } = self;
        let ending = ending.get_or_insert_with(|| known.keys_in_order());
        while let Some(key) = ending.pop() {
            known.change(&key, KeyState::default, |state| {
                let give = |window: WindowExtent, figures: &PaneFigures| plan.send(&key, window, figures, cause, made);
                state.windows.give_all(&plan.shape, || plan.fresh(), give);
            })?;
            if made.len() >= MADE_MAX {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn take_changes(&mut self, tell: &mut TellChange<'_>) {
        self.known.take_changes(tell);
    }

    fn restore(&mut self, key: &[u8], stored: &[u8]) -> Result<(), Error> {
        let aggregates = &self.plan.aggregates;
        let windows = KeyWindows::read(stored, |pane| aggregates.read(pane).map(PaneFigures));
        let key = self.known.restore(key, windows.map(|windows| KeyState { windows, armed_ms: None }))?;
        self.settle(&key);
        Ok(())
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
                let cause = Cause { input: 0, watermark_ms: sums.time_ms };
                assert!(sums.advance_to(time_ms, cause, &mut made).unwrap() || made.len() >= MADE_MAX);
                made = MadeRows::default();
                assert!(sums.see(b"\"a\"\n", time_ms, &[], cause, &mut made).unwrap());
                let timers: usize = sums.timers.values().map(Vec::len).sum();
                assert!(timers <= 2, "{timers} timers at {time_ms} of {window}");
            }
        }
    }
}
