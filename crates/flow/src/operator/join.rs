//! `join`: two streams put together by key, for records whose times are close enough.
//!
//! A record is joined with the kept records of the other side as it comes, and is kept itself until event time has passed the
//! last moment at which a partner may come. So each pair is given once, by the later one to come. For an outer join, a record
//! that is dropped without a partner gives a result of its own then.
//!
//! Always true
//! - A kept record is in the order of its key and side, and nothing else is.
//! - All that is due at the watermark in front of a row is done before the row is looked at.

mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use millstream_types::iso_time;
use serde_json::{Value, json};

use self::state::{KeptRecord, KeyRecords, Place, entry_key, read_entry_key};
use super::keyed::{KeyedInput, KeyedMade, KeyedOperator, KeyedOutput, MADE_MAX, StoredValue, key_parts, record_key};
use crate::Error;
use crate::batch::{FieldSet, MadeRecord, MadeRows, NO_TIME};
use crate::document::{JoinInput, JoinSetting, JoinSide, Key, KeyType, Node, NodeType, Role, Section};
use crate::expression::{EvalFailure, RecordError};
use crate::object;
use crate::state::{KeyedState, StateMemory, TellChange};

pub(crate) const JOIN: NodeType = NodeType {
    name: "join",
    role: Role::Transform,
    summary: "Makes a record of each pair of records of its two inputs that have the same key and times close enough.",
    keys: &[
        required("left", KeyType::Name, "The input whose records are the left ones."),
        required("right", KeyType::Name, "The other input."),
        required(
            "on",
            KeyType::ExpressionsByInput,
            "The key of the records of both inputs, or of each by its name. Records with equal keys belong together; NULL is equal to nothing.",
        ),
        required(
            "within",
            KeyType::DurationOr(&WITHIN),
            "The longest time between two records of a pair, both ways; or the times of the right record, seen from the left one: from `before` it to `after` it.",
        ),
        Key {
            name: "kind",
            value: KeyType::OneOf(&["inner", "left", "right", "full"]),
            is_required: false,
            default: Some("inner"),
            doc: "The input whose records give a result with null on the other side if no partner comes: `left`, `right`, both (`full`), none (`inner`).",
        },
        Key {
            name: "as",
            value: KeyType::Labels,
            is_required: false,
            default: None,
            doc: "The members of the result that have the records, by input; an input that is left out has its own name.",
        },
    ],
    can_end: false,
    keeps_state: true,
};

static WITHIN: Section = Section {
    name: "within",
    path: "transforms.<name>.config.within",
    doc: "The times of the right records that belong to a left one.",
    keys: &[&[
        bound(
            "before",
            "The time by which a right record may be older than the left one; `-5m`: it must be five minutes younger.",
        ),
        bound(
            "after",
            "The time by which a right record may be younger than the left one; `-5m`: it must be five minutes older.",
        ),
    ]],
};

const fn bound(name: &'static str, doc: &'static str) -> Key {
    Key { name, value: KeyType::SignedDuration, is_required: false, default: Some("0s"), doc }
}

const fn required(name: &'static str, value: KeyType, doc: &'static str) -> Key {
    Key { name, value, is_required: true, default: None, doc }
}

/// Bytes of a record and its key, less than the log takes as a record of the job's state.
const KEPT_MAX_BYTES: usize = (1 << 20) - 1_024;

/// Room for the records of one call.
#[derive(Clone, Copy)]
struct Room {
    records: usize,
    bytes: usize,
}

impl Room {
    const OF_A_CALL: Self = Self { records: MADE_MAX, bytes: 1 << 20 };
    const UNBOUNDED: Self = Self { records: usize::MAX, bytes: usize::MAX };

    fn is_used_up(self, made: &MadeRows) -> bool {
        made.len() >= self.records || made.size_bytes() >= self.bytes
    }
}

/// The kept records of one instance.
pub(super) struct Join {
    setting: JoinSetting,
    records: KeyedState<KeptRecord>,
    /// The order of the records of each key.
    keys: HashMap<Arc<[u8]>, KeyRecords>,
    /// The keys whose first record is dropped at a time.
    timers: BTreeMap<i64, Vec<Arc<[u8]>>>,
    time_ms: i64,
    /// The partners that the next row has got in the call before.
    given: usize,
}

/// The place of a call in the stream: the row that causes records, and the watermark.
#[derive(Clone, Copy)]
struct Cause {
    input: u32,
    watermark_ms: i64,
}

/// A record that comes in.
#[derive(Clone, Copy)]
struct SeenRecord<'a> {
    side: JoinSide,
    key: &'a [u8],
    time_ms: i64,
    payload: &'a [u8],
}

/// The outcome for a record that comes in.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Done,
    /// It has no partner, and one that there was may be gone.
    Late,
    /// It has further partners, for another call.
    Unfinished,
}

impl JoinSetting {
    fn input(&self, side: JoinSide) -> &JoinInput {
        match side {
            JoinSide::Left => &self.left,
            JoinSide::Right => &self.right,
        }
    }

    /// The first and the last time of partners of a record.
    fn partners_ms(&self, side: JoinSide, time_ms: i64) -> (i64, i64) {
        let (before_ms, after_ms) = match side {
            JoinSide::Left => (self.before_ms, self.after_ms),
            JoinSide::Right => (self.after_ms, self.before_ms),
        };
        (time_ms.saturating_sub(before_ms), time_ms.saturating_add(after_ms))
    }

    /// The time at which no partner of a record can come any more.
    fn due_ms(&self, side: JoinSide, time_ms: i64) -> i64 {
        self.partners_ms(side, time_ms).1.saturating_add(1)
    }

    /// The time by which results may lie behind the watermark.
    fn delay_ms(&self) -> i64 {
        let of_side = |side| if self.input(side).gives_unmatched { self.partners_ms(side, 0).1.max(0) } else { 0 };
        of_side(JoinSide::Left).max(of_side(JoinSide::Right))
    }

    /// Sends a result with the record of one side, and that of the other if it has a partner.
    fn send(&self, record: &SeenRecord<'_>, partner: Option<&KeptRecord>, cause: Cause, made: &mut MadeRows) {
        let SeenRecord { side, key, time_ms, payload } = *record;
        let (own, other) = (Some(payload), partner.map(|partner| &partner.payload[..]));
        let (left, right) = match side {
            JoinSide::Left => (own, other),
            JoinSide::Right => (other, own),
        };
        let record = MadeRecord {
            input: cause.input,
            key: &record_key(key),
            time_ms: partner.map_or(time_ms, |partner| partner.time_ms.max(time_ms)),
            watermark_ms: cause.watermark_ms.saturating_sub(self.delay_ms()),
        };
        made.push(record, |out| {
            out.push(b'{');
            for (input, record) in [(&self.left, left), (&self.right, right)] {
                object::begin_member(&input.member, out);
                out.extend_from_slice(record.unwrap_or(b"null"));
            }
            out.push(b'}');
        });
    }
}

impl JoinSide {
    fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }
}

impl Join {
    /// # Errors
    /// [`Error::Plan`] for what the document's checks should have refused.
    pub(super) fn new(node: &Node, memory: StateMemory) -> Result<Self, Error> {
        let missing = || Error::plan(&node.name, "config", "it does not name two inputs".to_owned());
        Ok(Self {
            setting: node.join.clone().ok_or_else(missing)?,
            records: KeyedState::new(memory),
            keys: HashMap::new(),
            timers: BTreeMap::new(),
            time_ms: NO_TIME,
            given: 0,
        })
    }

    /// Drops the records whose partners can no longer come, as far as there is room for their results; `true` if all is done.
    fn advance_to(&mut self, time_ms: i64, cause: Cause, room: Room, made: &mut MadeRows) -> Result<bool, Error> {
        let time_ms = time_ms.max(self.time_ms);
        while let Some(mut first) = self.timers.first_entry().filter(|first| *first.key() <= time_ms) {
            if room.is_used_up(made) {
                return Ok(false);
            }
            let at_ms = *first.key();
            let Some(key) = first.get_mut().pop() else {
                first.remove();
                continue;
            };
            let Self { setting, records, keys, .. } = self;
            let Some(known) = keys.get_mut(&key).filter(|known| known.armed_ms == Some(at_ms)) else { continue };
            known.armed_ms = None;
            for side in [JoinSide::Left, JoinSide::Right] {
                let of_side = known.of_mut(side);
                while let Some(place) = of_side.front().filter(|place| setting.due_ms(side, place.time_ms) <= time_ms) {
                    if room.is_used_up(made) {
                        break;
                    }
                    let kept = records.get(&place.entry).filter(|kept| !kept.is_matched);
                    if let Some(KeptRecord { time_ms, payload, .. }) = kept
                        && setting.input(side).gives_unmatched
                    {
                        setting.send(&SeenRecord { side, key: &key, time_ms: *time_ms, payload }, None, cause, made);
                    }
                    records.remove(&place.entry);
                    of_side.pop_front();
                }
            }
            self.settle(&key);
        }
        self.time_ms = time_ms;
        Ok(true)
    }

    /// Arms the timer of a key, or forgets the key.
    fn settle(&mut self, key: &Arc<[u8]>) {
        let Some(known) = self.keys.get_mut(key) else { return };
        let due = |side| Some(self.setting.due_ms(side, known.of(side).front()?.time_ms));
        let Some(at_ms) = [JoinSide::Left, JoinSide::Right].into_iter().filter_map(due).min() else {
            self.keys.remove(key);
            return;
        };
        if known.armed_ms.is_none_or(|armed_ms| at_ms < armed_ms) {
            known.armed_ms = Some(at_ms);
            self.timers.entry(at_ms).or_default().push(Arc::clone(key));
        }
    }

    /// Joins a record with the kept ones of the other side, and keeps it for those that are still to come.
    fn see(&mut self, record: &SeenRecord<'_>, cause: Cause, room: Room, made: &mut MadeRows) -> Result<Seen, Error> {
        let Self { setting, records, keys, time_ms: now_ms, given, .. } = self;
        let SeenRecord { side, key, time_ms, .. } = *record;
        let is_null = key_parts(key).any(|part| part == b"null");
        let mut partners = std::mem::take(given);
        if let Some(known) = keys.get(key).filter(|_| !is_null) {
            let others = known.of(side.other());
            let (from_ms, until_ms) = setting.partners_ms(side, time_ms);
            let first = others.partition_point(|place| place.time_ms < from_ms);
            let end = others.partition_point(|place| place.time_ms <= until_ms).max(first);
            for place in others.range((first + partners).min(end)..end) {
                if room.is_used_up(made) {
                    *given = partners;
                    return Ok(Seen::Unfinished);
                }
                partners += 1;
                let Some(partner) = records.get(&place.entry) else { continue };
                setting.send(record, Some(partner), cause, made);
                if setting.input(side.other()).gives_unmatched && !partner.is_matched {
                    records.change(&place.entry, KeptRecord::default, |partner| partner.is_matched = true)?;
                }
            }
        }
        let is_matched = partners > 0;
        let is_due = setting.due_ms(side, time_ms) <= *now_ms;
        if !is_null && !is_due {
            self.keep(record, is_matched)?;
        } else if is_due && time_ms < *now_ms && !is_matched {
            return Ok(Seen::Late);
        } else if setting.input(side).gives_unmatched && !is_matched {
            setting.send(record, None, cause, made);
        }
        Ok(Seen::Done)
    }

    fn keep(&mut self, record: &SeenRecord<'_>, is_matched: bool) -> Result<(), Error> {
        let SeenRecord { side, key, time_ms, payload } = *record;
        let number = self.keys.get(key).map_or(0, KeyRecords::next_number);
        let kept = KeptRecord { time_ms, is_matched, payload: payload.into(), key_bytes: key.len() };
        let entry = self.records.set(&entry_key(key, side, number), kept)?;
        self.put_in_order(key, side, Place { time_ms, number, entry });
        Ok(())
    }

    fn put_in_order(&mut self, key: &[u8], side: JoinSide, place: Place) {
        let known = self.keys.get_key_value(key).map(|(known, _)| Arc::clone(known));
        let key = known.unwrap_or_else(|| key.into());
        self.keys.entry(Arc::clone(&key)).or_default().add(side, place);
        self.settle(&key);
    }
}

impl KeyedOperator for Join {
    fn apply(&mut self, input: &KeyedInput<'_>) -> Result<KeyedOutput, Error> {
        let (batch, side) = (input.batch, input.side);
        let found = (!batch.has_objects()).then(|| batch.find(&Arc::new(FieldSet::default())));
        let mut made = KeyedMade::default();
        for (row, key) in input.rows.iter() {
            let at = row as usize;
            // Rows of one input row stay together.
            let room = if input.may_begin(at) { Room::OF_A_CALL } else { Room::UNBOUNDED };
            let cause = Cause { input: row, watermark_ms: self.time_ms };
            let all_done = self.advance_to(batch.watermark_ms(at), cause, room, &mut made.rows)?;
            if !all_done || room.is_used_up(&made.rows) {
                made.rest = Some(row);
                break;
            }
            // A record without a value has no members that could be joined.
            let Some(payload) = batch.payload(at) else { continue };
            if found.as_ref().is_some_and(|found| batch.is_odd(found, at)) {
                made.failed.push(EvalFailure::NotAnObject.of_row(row, ""));
                continue;
            }
            let kept_bytes = payload.len() + key.len();
            if kept_bytes > KEPT_MAX_BYTES {
                let message = format!("the record has {kept_bytes} bytes, and a join keeps {KEPT_MAX_BYTES} at most");
                made.failed.push(RecordError { row, code: "record_too_large", message });
                continue;
            }
            let time_ms = batch.time_ms(at);
            if time_ms == NO_TIME {
                let message = "the record has no event time, and a join needs one; see event_time of its source";
                made.failed.push(RecordError { row, code: "no_event_time", message: message.to_owned() });
                continue;
            }
            let cause = Cause { input: row, watermark_ms: self.time_ms };
            match self.see(&SeenRecord { side, key, time_ms, payload }, cause, room, &mut made.rows)? {
                Seen::Done => {}
                Seen::Late => made.late.push(row),
                Seen::Unfinished => {
                    made.rest = Some(row);
                    break;
                }
            }
        }
        Ok(KeyedOutput::Made(made))
    }

    fn advance(&mut self, time_ms: i64, made: &mut MadeRows) -> Result<bool, Error> {
        let cause = Cause { input: 0, watermark_ms: self.time_ms };
        self.advance_to(time_ms, cause, Room::OF_A_CALL, made)
    }

    fn finish(&mut self, made: &mut MadeRows) -> Result<bool, Error> {
        self.advance(i64::MAX, made)
    }

    /// Records without a partner are to be told of, also if nothing else comes.
    fn watches_silence(&self) -> bool {
        [JoinSide::Left, JoinSide::Right].into_iter().any(|side| self.setting.input(side).gives_unmatched)
    }

    fn next_time_ms(&self) -> Option<i64> {
        self.timers.first_key_value().map(|(at_ms, _)| *at_ms)
    }

    fn delay_ms(&self) -> i64 {
        self.setting.delay_ms()
    }

    fn take_changes(&mut self, tell: &mut TellChange<'_>) {
        self.records.take_changes(tell);
    }

    fn restore(&mut self, stored_key: &[u8], stored: &[u8]) -> Result<(), Error> {
        let (key, side, number) = read_entry_key(stored_key).ok_or_else(|| self.records.unreadable())?;
        let kept = KeptRecord::decode(stored, key.len());
        let entry = self.records.restore(stored_key, stored, kept)?;
        let time_ms = self.records.get(&entry).map_or(NO_TIME, |kept| kept.time_ms);
        self.put_in_order(key, side, Place { time_ms, number, entry });
        Ok(())
    }

    fn digest(&self) -> u64 {
        self.records.digest()
    }

    fn key_of<'k>(&self, stored_key: &'k [u8]) -> &'k [u8] {
        read_entry_key(stored_key).map_or(stored_key, |(key, _, _)| key)
    }

    fn describe(&self, _: &[u8], stored: &[StoredValue]) -> Option<Value> {
        let (mut left, mut right, mut oldest_ms) = (0_u64, 0_u64, i64::MAX);
        for (stored_key, stored) in stored {
            let (key, side, _) = read_entry_key(stored_key)?;
            oldest_ms = oldest_ms.min(KeptRecord::decode(stored, key.len())?.time_ms);
            match side {
                JoinSide::Left => left += 1,
                JoinSide::Right => right += 1,
            }
        }
        Some(json!({"left": left, "right": right, "oldest": iso_time(oldest_ms)}))
    }

    fn keys(&self) -> usize {
        self.keys.len()
    }
}
