//! `alarm`: tells when a condition holds for a key, when it no longer does, and when a key is silent.
//!
//! ```text
//!             raise              `for` is over
//!   normal ──────────► pending ──────────────► raised ◄─────────┐ raise
//!      ▲ ◄─────────────── │ not raise             │ clear        │
//!      │                                          ▼              │
//!      └──────────────────────────────────── clearing ───────────┘
//!                `clear_for` is over
//! ```
//!
//! Beside that a key is present or absent. An absent key is not judged: a pending alarm ends, one that was clearing is raised.
//!
//! Always true
//! - All that is due for a key at the time of one of its records is done before the record is looked at.
//! - The list of open alarms has those that are raised, clearing or absent, and no others.

mod open_alarms;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use millstream_types::iso_time;
use serde_json::{Map, Value};

use self::open_alarms::OpenAlarm;
pub(crate) use self::open_alarms::OpenAlarms;
use self::state::{AlarmCondition, AlarmState};
use super::keyed::{KeyedInput, KeyedMade, KeyedOperator, KeyedOutput, MADE_MAX, StoredValue, record_key, write_key};
use crate::Error;
use crate::batch::{MadeRecord, MadeRows, NO_TIME};
use crate::document::{Key, KeyType, Node, NodeType, Role, duration_ms};
use crate::expression::{Condition, FieldScope, KeyExpressions, RecordError, RowFrame};
use crate::object;
use crate::state::{KeyedState, StateMemory, TellChange};

pub(crate) const ALARM: NodeType = NodeType {
    name: "alarm",
    role: Role::Transform,
    summary: "Sends a record when a condition begins or ends to hold for a key, and when a key is silent or comes back.",
    keys: &[
        condition("raise", "The condition of the alarm. A record on which it is unknown says nothing about it."),
        condition("clear", "The condition on which a raised alarm ends; without it, that `raise` is false."),
        duration("for", "The time for which `raise` must hold, by the records' own times, before the alarm is raised."),
        duration("clear_for", "The time for which `clear` must hold before the alarm ends."),
        duration("absent_after", "The silence after which a key is absent."),
        duration("forget_after", "The silence after which a key is forgotten, and with it its alarm."),
        Key {
            name: "severity",
            value: KeyType::Expression,
            is_required: false,
            default: None,
            doc: "A value of the records that raise the alarm. If it changes while the alarm is raised, `raised` is sent again.",
        },
    ],
    can_end: false,
    keeps_state: true,
};

const fn condition(name: &'static str, doc: &'static str) -> Key {
    Key { name, value: KeyType::Condition, is_required: false, default: None, doc }
}

const fn duration(name: &'static str, doc: &'static str) -> Key {
    Key { name, value: KeyType::Duration, is_required: false, default: None, doc }
}

/// The alarms of one instance.
pub(super) struct Alarm {
    node: Arc<str>,
    raise: Option<Condition>,
    clear: Option<Condition>,
    severity: Option<KeyExpressions>,
    times: AlarmTimes,
    known: KeyedState<AlarmState>,
    /// Each key that waits for a time, once.
    timers: BTreeSet<(i64, Arc<[u8]>)>,
    time_ms: i64,
    open: Arc<OpenAlarms>,
}

/// The times of a document, in milliseconds.
struct AlarmTimes {
    hold_ms: i64,
    clear_ms: i64,
    absent_ms: Option<i64>,
    forget_ms: Option<i64>,
}

/// The judgement of the conditions on one row.
#[derive(Clone, Copy, Default)]
struct RowVerdict<'a> {
    raise: Option<bool>,
    clear: Option<bool>,
    severity: Option<&'a [u8]>,
}

/// The judgement of a batch, by row.
struct Judgement {
    verdicts: Vec<RowVerdict<'static>>,
    /// As JSON; empty without one.
    severities: Vec<Vec<u8>>,
    failed: Vec<RecordError>,
}

/// A record of a key.
#[derive(Clone, Copy)]
struct SeenRecord<'a> {
    time_ms: i64,
    payload: Option<&'a [u8]>,
}

/// The change of an alarm, as it is sent.
struct AlarmEvent<'a> {
    word: &'static str,
    at_ms: i64,
    /// The time from which on it was so.
    since_ms: i64,
    key: &'a [u8],
}

/// The place of a call in the stream: the row that causes records, and the watermark.
#[derive(Clone, Copy)]
struct Cause {
    input: u32,
    watermark_ms: i64,
}

impl Alarm {
    /// # Errors
    /// An expression that the document's checks should have refused.
    pub(super) fn new(node: &Node, memory: StateMemory, open: Arc<OpenAlarms>) -> Result<Self, Error> {
        let Node { name, config, params, .. } = node;
        let text = |key: &str| config.get(key).and_then(Value::as_str);
        let refuse = |key: &'static str| move |message: String| Error::plan(name, &format!("config.{key}"), message);
        let condition = |key: &'static str| {
            let parsed = text(key).map(|text| Condition::parse(text, FieldScope::Record, params));
            parsed.transpose().map_err(refuse(key))
        };
        let severity = text("severity").map(|text| KeyExpressions::parse(&[text.to_owned()], params));
        Ok(Self {
            node: name.as_str().into(),
            raise: condition("raise")?,
            clear: condition("clear")?,
            severity: severity.transpose().map_err(refuse("severity"))?,
            times: AlarmTimes::of(config),
            known: KeyedState::new(memory),
            timers: BTreeSet::new(),
            time_ms: NO_TIME,
            open,
        })
    }

    /// Judges the rows of a batch; the errors of those on which a condition has no value.
    fn judge(&self, input: &KeyedInput<'_>) -> Judgement {
        let frame = RowFrame { batch: input.batch, input: None, errors: None, now_ms: input.now_ms };
        let mut verdicts = vec![RowVerdict::default(); input.batch.len()];
        let mut failed = Vec::new();
        for (condition, is_raise) in [(&self.raise, true), (&self.clear, false)] {
            let Some(condition) = condition else { continue };
            condition.each_truth(frame, |row, truth| match truth {
                Ok(truth) if is_raise => verdicts[row].raise = truth,
                Ok(truth) => verdicts[row].clear = truth,
                Err(failure) => failed.push(failure.of_row(row as u32, condition.text())),
            });
        }
        if self.clear.is_none() {
            verdicts.iter_mut().for_each(|verdict| verdict.clear = verdict.raise.map(|raises| !raises));
        }
        let mut severities = vec![Vec::new(); input.batch.len()];
        if let Some(severity) = &self.severity {
            let raising: Vec<u32> =
                (0..).zip(&verdicts).filter(|(_, verdict)| verdict.raise == Some(true)).map(|(row, _)| row).collect();
            severity.each(&input.batch.select(raising.iter().copied()), |at, found| match found {
                Ok(found) => severities[raising[at] as usize] = found.strip_suffix(b"\n").unwrap_or(found).to_vec(),
                Err(failure) => failed.push(failure.of_row(raising[at], severity.text())),
            });
        }
        failed.sort_by_key(|error| error.row);
        failed.dedup_by_key(|error| error.row);
        Judgement { verdicts, severities, failed }
    }

    /// Takes a record of a key into account.
    fn see(
        &mut self,
        key: &[u8],
        record: SeenRecord<'_>,
        verdict: RowVerdict<'_>,
        cause: Cause,
        made: &mut MadeRows,
    ) -> Result<(), Error> {
        let SeenRecord { time_ms, payload } = record;
        let mut state = match self.known.get(key) {
            // An older record says nothing about how it is now.
            Some(known) if time_ms < known.seen_ms => return Ok(()),
            Some(known) => {
                let mut state = known.clone();
                if self.fall_due(key, &mut state, time_ms, cause, made) { state } else { AlarmState::new(time_ms) }
            }
            None => AlarmState::new(time_ms),
        };
        let mut tell = |state: &AlarmState, word, since_ms| {
            let event = AlarmEvent { word, at_ms: time_ms, since_ms, key };
            self.send(&event, state, cause, made);
        };
        if std::mem::take(&mut state.is_absent) {
            let last_ms = state.seen_ms;
            let mut returned = state.clone();
            returned.record = payload.map(Arc::from);
            tell(&returned, "returned", last_ms);
        }
        state.seen_ms = time_ms;
        let raises = verdict.raise == Some(true);
        let severity = verdict.severity.filter(|severity| !severity.is_empty());
        match state.condition {
            AlarmCondition::Normal if raises => {
                state.condition = AlarmCondition::Pending { since_ms: time_ms };
                (state.severity, state.record) = (severity.map(Arc::from), payload.map(Arc::from));
            }
            AlarmCondition::Pending { .. } if verdict.raise == Some(false) => state.settle(),
            AlarmCondition::Raised { since_ms } if verdict.clear == Some(true) => {
                state.condition = AlarmCondition::Clearing { since_ms: time_ms, raised_ms: since_ms };
                state.record = payload.map(Arc::from);
            }
            AlarmCondition::Clearing { raised_ms, .. }
                if verdict.clear != Some(true) && (raises || verdict.clear.is_some()) =>
            {
                state.condition = AlarmCondition::Raised { since_ms: raised_ms };
            }
            _ => {}
        }
        let is_new_severity = raises && severity.is_some() && severity != state.severity.as_deref();
        if is_new_severity && !matches!(state.condition, AlarmCondition::Normal | AlarmCondition::Clearing { .. }) {
            state.severity = severity.map(Arc::from);
            if let AlarmCondition::Raised { since_ms } = state.condition {
                state.record = payload.map(Arc::from);
                tell(&state, "raised", since_ms);
            }
        }
        let is_kept = self.fall_due(key, &mut state, time_ms, cause, made);
        self.keep(key, state, is_kept)
    }

    /// Does what is due for a key up to a time; `false` once the key is forgotten.
    fn fall_due(&self, key: &[u8], state: &mut AlarmState, until_ms: i64, cause: Cause, made: &mut MadeRows) -> bool {
        while let Some((at_ms, due)) = self.times.next(state).filter(|(at_ms, _)| *at_ms <= until_ms) {
            let (word, since_ms) = match due {
                Due::Raise(since_ms) => {
                    state.condition = AlarmCondition::Raised { since_ms };
                    ("raised", since_ms)
                }
                Due::Clear(raised_ms) => ("cleared", raised_ms),
                Due::Absence => {
                    state.be_absent();
                    ("absent", state.seen_ms)
                }
                Due::End => {
                    if state.is_open() {
                        let event = AlarmEvent { word: "forgotten", at_ms, since_ms: state.seen_ms, key };
                        self.send(&event, state, cause, made);
                    }
                    return false;
                }
            };
            self.send(&AlarmEvent { word, at_ms, since_ms, key }, state, cause, made);
            if let Due::Clear(_) = due {
                state.settle();
            }
        }
        true
    }

    fn send(&self, event: &AlarmEvent<'_>, state: &AlarmState, cause: Cause, made: &mut MadeRows) {
        let AlarmEvent { word, at_ms, since_ms, key } = *event;
        let Cause { input, watermark_ms } = cause;
        let record = MadeRecord { input, key: &record_key(key), time_ms: at_ms, watermark_ms };
        made.push(record, |out| {
            out.push(b'{');
            object::begin_member("alarm", out);
            object::write_text(out, &self.node);
            object::begin_member("event", out);
            object::write_text(out, word);
            object::begin_member("key", out);
            write_key(key, out);
            object::begin_member("at", out);
            object::write_time(out, at_ms);
            object::begin_member("since", out);
            object::write_time(out, since_ms);
            if let Some(severity) = &state.severity {
                object::begin_member("severity", out);
                out.extend_from_slice(severity);
            }
            if let Some(record) = state.record.as_ref().filter(|_| word != "absent" && word != "forgotten") {
                object::begin_member("record", out);
                out.extend_from_slice(record);
            }
            out.push(b'}');
        });
    }

    /// Keeps the state of a key, if there is anything to be kept, and its place in the list.
    fn keep(&mut self, key: &[u8], state: AlarmState, is_kept: bool) -> Result<(), Error> {
        let former = self.known.get(key);
        let (armed_ms, was_open) = (former.and_then(|state| state.armed_ms), former.is_some_and(AlarmState::is_open));
        let is_kept = is_kept && (state.condition != AlarmCondition::Normal || self.times.watches_silence());
        if !is_kept {
            if let Some(at_ms) = armed_ms {
                self.timers.remove(&(at_ms, key.into()));
            }
            if was_open {
                self.open.remove(&self.node, key);
            }
            self.known.remove(key);
            return Ok(());
        }
        let is_told = former.is_some_and(|former| former.shows_as(&state));
        if !is_told && (was_open || state.is_open()) {
            match state.is_open() {
                true => self.open.set(&self.node, key, OpenAlarm::of(&state)),
                false => self.open.remove(&self.node, key),
            }
        }
        let next_ms = self.times.next(&state).map(|(at_ms, _)| at_ms);
        // A timer that is due too soon is set anew once it is; only a sooner one needs to be set now.
        let armed = match (armed_ms, next_ms) {
            (Some(armed_ms), Some(next_ms)) if armed_ms <= next_ms => Some(armed_ms),
            (_, next_ms) => next_ms,
        };
        let key = self.known.set(key, AlarmState { armed_ms: armed, ..state })?;
        if armed != armed_ms {
            if let Some(at_ms) = armed_ms {
                self.timers.remove(&(at_ms, Arc::clone(&key)));
            }
            self.timers.extend(armed.map(|at_ms| (at_ms, key)));
        }
        Ok(())
    }

    /// Does what is due for all keys up to a time, as far as it fits in one call; `true` if all is done.
    fn advance_to(&mut self, time_ms: i64, cause: Cause, made: &mut MadeRows) -> Result<bool, Error> {
        self.advance_by(time_ms, cause, made, MADE_MAX)
    }

    /// As [`Self::advance_to`], with another number of records.
    fn advance_by(&mut self, time_ms: i64, cause: Cause, made: &mut MadeRows, made_max: usize) -> Result<bool, Error> {
        let time_ms = time_ms.max(self.time_ms);
        while let Some((at_ms, key)) = self.timers.first().filter(|(at_ms, _)| *at_ms <= time_ms).cloned() {
            if made.len() >= made_max {
                return Ok(false);
            }
            self.timers.pop_first();
            let Some(known) = self.known.get_mut(&key) else { continue };
            known.armed_ms = None;
            let mut state = known.clone();
            // One step at a time: what is due later comes behind what is due for other keys.
            let is_kept = self.fall_due(&key, &mut state, at_ms, cause, made);
            self.keep(&key, state, is_kept)?;
        }
        self.time_ms = time_ms;
        Ok(true)
    }
}

impl AlarmTimes {
    fn of(config: &Map<String, Value>) -> Self {
        let time = |key: &str| {
            let found = config.get(key).and_then(Value::as_str).and_then(duration_ms)?;
            Some(i64::try_from(found).unwrap_or(i64::MAX))
        };
        Self {
            hold_ms: time("for").unwrap_or_default(),
            clear_ms: time("clear_for").unwrap_or_default(),
            absent_ms: time("absent_after"),
            forget_ms: time("forget_after"),
        }
    }

    /// A key has a state for as long as it is known, and not only while its alarm is open.
    fn watches_silence(&self) -> bool {
        self.absent_ms.is_some()
    }

    /// The next thing that time alone brings, and its time.
    fn next(&self, state: &AlarmState) -> Option<(i64, Due)> {
        // A time beyond all numbers never comes.
        let due = |since_ms: i64, after_ms: i64, due: Due| Some((since_ms.checked_add(after_ms)?, due));
        let condition = match state.condition {
            AlarmCondition::Pending { since_ms } => due(since_ms, self.hold_ms, Due::Raise(since_ms)),
            AlarmCondition::Clearing { since_ms, raised_ms } => due(since_ms, self.clear_ms, Due::Clear(raised_ms)),
            AlarmCondition::Normal | AlarmCondition::Raised { .. } => None,
        };
        let absent_ms = self.absent_ms.filter(|_| !state.is_absent);
        let absence = absent_ms.and_then(|after_ms| due(state.seen_ms, after_ms, Due::Absence));
        let end = self.forget_ms.and_then(|after_ms| due(state.seen_ms, after_ms, Due::End));
        [condition, absence, end].into_iter().flatten().min_by_key(|(at_ms, _)| *at_ms)
    }
}

/// A change that time brings.
#[derive(Clone, Copy)]
enum Due {
    /// The condition has held since then.
    Raise(i64),
    /// The alarm that was raised then ends.
    Clear(i64),
    Absence,
    End,
}

impl KeyedOperator for Alarm {
    fn apply(&mut self, input: &KeyedInput<'_>) -> Result<KeyedOutput, Error> {
        let Judgement { verdicts, severities, failed } = self.judge(input);
        let mut made = KeyedMade { failed, ..KeyedMade::default() };
        let batch = input.batch;
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
            if made.failed.binary_search_by_key(&row, |error| error.row).is_ok() {
                continue;
            }
            let time_ms = batch.time_ms(row as usize);
            if time_ms == NO_TIME {
                let message = "the record has no event time, and an alarm needs one; see event_time of its source";
                let at = made.failed.partition_point(|error| error.row < row);
                made.failed.insert(at, RecordError { row, code: "no_event_time", message: message.to_owned() });
                continue;
            }
            let severity = Some(&severities[row as usize][..]);
            let verdict = RowVerdict { severity, ..verdicts[row as usize] };
            let cause = Cause { input: row, watermark_ms: self.time_ms };
            let record = SeenRecord { time_ms, payload: batch.payload(row as usize) };
            self.see(key, record, verdict, cause, &mut made.rows)?;
        }
        Ok(KeyedOutput::Made(made))
    }

    fn advance(&mut self, time_ms: i64, made: &mut MadeRows) -> Result<bool, Error> {
        let cause = Cause { input: 0, watermark_ms: self.time_ms };
        self.advance_to(time_ms, cause, made)
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
        let key = self.known.restore(key, stored, AlarmState::decode(stored))?;
        let Some(state) = self.known.get_mut(&key) else { return Ok(()) };
        state.armed_ms = self.times.next(state).map(|(at_ms, _)| at_ms);
        self.timers.extend(state.armed_ms.map(|at_ms| (at_ms, Arc::clone(&key))));
        if state.is_open() {
            self.open.set(&self.node, &key, OpenAlarm::of(state));
        }
        Ok(())
    }

    fn digest(&self) -> u64 {
        self.known.digest()
    }

    fn describe(&self, _: &[u8], stored: &[StoredValue]) -> Option<Value> {
        let [(_, stored)] = stored else { return None };
        let state = AlarmState::decode(stored)?;
        let mut told = OpenAlarm::of(&state).describe();
        told["last"] = iso_time(state.seen_ms).into();
        Some(told)
    }

    fn keys(&self) -> usize {
        self.known.len()
    }
}
