//! The engine's duties: everything that was sent, answered and seen, over all lives of one data directory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use millstream_log::{AckLevel, Appended, Error, Offsets, PositionCommit, Storage, Topic, TopicConfig};
use millstream_testkit::conformance::ReadRecord;
use millstream_types::{Epoch, Offset, Position, TopicId, TopicName};
use parking_lot::{Mutex, MutexGuard};

use crate::record::{Change, is_as_sent, serial_of};
use crate::state::LastOfKeys;

/// A partition over all lives: a topic created anew is another one.
pub(crate) type Place = (TopicId, u32);

/// The way in which an append ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Not yet.
    Open,
    /// The call failed: nothing of it may ever be seen.
    Refused,
    /// Answered with an error: whole or absent.
    InDoubt,
    /// Answered with its offsets.
    Answered,
}

pub(crate) struct Entry {
    pub(crate) place: Place,
    pub(crate) serials: Range<u64>,
}

pub(crate) struct Append {
    pub(crate) level: AckLevel,
    pub(crate) entries: Vec<Entry>,
    pub(crate) commits: Vec<PositionCommit>,
    pub(crate) ending: Ending,
    pub(crate) at_ms: i64,
}

/// The knowledge about one record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) append: usize,
    pub(crate) place: Place,
    pub(crate) offset: Option<(Offset, Epoch)>,
    /// A crash has taken it, rightly: it must not come back.
    pub(crate) gone: bool,
    /// The content of the record, in a compacted topic.
    pub(crate) change: Option<Change>,
    /// Compaction has taken it, rightly: its producer goes on behind it.
    pub(crate) compacted: bool,
}

/// The knowledge about one partition.
#[derive(Default)]
pub(crate) struct History {
    /// Every offset that anybody was ever told, and the record that stands there.
    pub(crate) placed: BTreeMap<Offset, u64>,
    /// By level, the offset below which everything has it.
    pub(crate) secured: HashMap<AckLevel, Offset>,
    pub(crate) epoch: Option<Epoch>,
    /// Behind the last record that a reader of the stable part has seen.
    pub(crate) stable: Option<(Epoch, Offset)>,
    /// The highest offset below which somebody has asked to trim.
    pub(crate) trim_asked: Offset,
    /// And was told that it is done.
    pub(crate) trim_done: Offset,
}

impl History {
    pub(crate) fn secure(&mut self, level: AckLevel, below: Offset) {
        let secured = self.secured.entry(level).or_default();
        *secured = below.max(*secured);
    }
}

/// A state that may be found under a topic's name after a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expected {
    Absent,
    /// Created with this configuration, by a call that returned its id, or has not returned.
    Present(Option<TopicId>, TopicConfig),
}

#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) appends: Vec<Append>,
    pub(crate) records: Vec<Known>,
    pub(crate) partitions: HashMap<Place, History>,
    pub(crate) topics: HashMap<TopicName, Vec<Expected>>,
    /// The compacted ones.
    pub(crate) compacted: HashSet<TopicId>,
    pub(crate) violations: Vec<String>,
}

#[derive(Clone, Default)]
pub(crate) struct Oracle(Arc<Mutex<Ledger>>);

impl Oracle {
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock()
    }

    /// Takes note of an append that is about to be made, and numbers its records.
    pub(crate) fn sending(
        &self,
        level: AckLevel,
        counts: &[(Place, u64)],
        commits: Vec<PositionCommit>,
        at_ms: i64,
    ) -> (usize, Vec<Range<u64>>) {
        let mut ledger = self.ledger();
        let append = ledger.appends.len();
        let mut entries = Vec::new();
        for (place, count) in counts {
            let first = ledger.records.len() as u64;
            let is_change = ledger.compacted.contains(&place.0);
            let known = Known { append, place: *place, offset: None, gone: false, change: None, compacted: false };
            let change = |serial| is_change.then(|| Change::of(serial));
            ledger.records.extend((first..first + count).map(|serial| Known { change: change(serial), ..known }));
            entries.push(Entry { place: *place, serials: first..first + count });
        }
        let serials = entries.iter().map(|entry| entry.serials.clone()).collect();
        ledger.appends.push(Append { level, entries, commits, ending: Ending::Open, at_ms });
        (append, serials)
    }

    /// Takes note that an append is about to be made once more. How it had ended.
    pub(crate) fn resending(&self, append: usize) -> Ending {
        let mut ledger = self.ledger();
        let mut ending = ledger.appends[append].ending;
        let serials: Vec<u64> = ledger.appends[append].entries.iter().flat_map(|entry| entry.serials.clone()).collect();
        for serial in serials {
            let known = &mut ledger.records[serial as usize];
            // What a crash has taken gets another place, and another answer; what is there keeps its own.
            if std::mem::take(&mut known.gone) {
                known.offset = None;
                ending = if ending == Ending::Answered { Ending::InDoubt } else { ending };
            }
        }
        if matches!(ending, Ending::Refused | Ending::InDoubt) {
            ledger.appends[append].ending = Ending::Open;
        }
        ending
    }

    /// The call failed: the append ends as `ending` says, unless an earlier call for it is under way or answered.
    pub(crate) fn refused(&self, append: usize, ending: Ending) {
        let known = &mut self.ledger().appends[append].ending;
        if *known == Ending::Open {
            *known = ending;
        }
    }

    pub(crate) fn answered(&self, append: usize, level: AckLevel, answer: Result<Vec<Appended>, Error>) {
        let mut ledger = self.ledger();
        let Ok(appended) = answer else {
            if ledger.appends[append].ending != Ending::Answered {
                ledger.appends[append].ending = Ending::InDoubt;
            }
            return;
        };
        ledger.appends[append].ending = Ending::Answered;
        let entries: Vec<_> =
            ledger.appends[append].entries.iter().map(|entry| (entry.place, entry.serials.clone())).collect();
        if appended.len() != entries.len() {
            let violation = format!("append {append} has {} entries and {} answers", entries.len(), appended.len());
            ledger.violations.push(violation);
        }
        for ((place, serials), appended) in entries.into_iter().zip(appended) {
            if appended.last.0 + 1 - appended.first.0 != serials.end - serials.start {
                ledger.violations.push(format!("{serials:?} were answered with {appended:?}"));
            }
            for (offset, serial) in (appended.first.0..=appended.last.0).zip(serials) {
                ledger.place(place, Offset(offset), appended.epoch, serial);
            }
            ledger.partitions.entry(place).or_default().secure(level, appended.last.next());
        }
    }

    /// Takes note of a record that was read, and of what it contradicts.
    pub(crate) fn seen(&self, place: Place, epoch: Epoch, stored: &ReadRecord) -> Option<u64> {
        let mut ledger = self.ledger();
        let Some(serial) = serial_of(stored).filter(|serial| *serial < ledger.records.len() as u64) else {
            ledger.violations.push(format!("{place:?} {}: a record that nobody has sent", stored.offset));
            return None;
        };
        let known = ledger.records[serial as usize];
        if !is_as_sent(stored, serial, known.change.is_some()) {
            ledger.violations.push(format!("{place:?} {}: record {serial} is not as it was sent", stored.offset));
        }
        if known.place != place {
            ledger
                .violations
                .push(format!("{place:?} {}: record {serial} was sent to {:?}", stored.offset, known.place));
        }
        if ledger.appends[known.append].ending == Ending::Refused {
            ledger.violations.push(format!("{place:?} {}: record {serial} was refused", stored.offset));
        }
        if known.gone && known.change.is_none() {
            ledger.violations.push(format!("{place:?} {}: record {serial} was lost and came back", stored.offset));
        }
        // What a pass takes comes back if the power goes before `meta` says so.
        let known = &mut ledger.records[serial as usize];
        (known.gone, known.compacted) = (false, false);
        ledger.place(place, stored.offset, epoch, serial);
        Some(serial)
    }

    /// The same in a compacted topic, where the last record of each key counts.
    pub(crate) fn seen_change(
        &self,
        place: Place,
        epoch: Epoch,
        stored: &ReadRecord,
        last: &mut LastOfKeys,
    ) -> Option<u64> {
        let serial = self.seen(place, epoch, stored)?;
        if let Some(change) = self.ledger().records[serial as usize].change {
            last.insert(change.key, stored.offset);
        }
        Some(serial)
    }

    /// Takes note of a partition's ends. `level` is its topic's, `None` for topics in memory.
    pub(crate) fn ends(&self, place: Place, offsets: Offsets, level: Option<AckLevel>) {
        let mut ledger = self.ledger();
        if offsets.first > offsets.stable || offsets.stable > offsets.tail {
            ledger.violations.push(format!("{place:?}: {offsets:?} are not in order"));
        }
        let history = ledger.partitions.entry(place).or_default();
        if let Some(level) = level {
            history.secure(level, offsets.stable);
        }
    }

    pub(crate) fn read_as_stable(&self, place: Place, epoch: Epoch, next: Offset) {
        self.ledger().partitions.entry(place).or_default().stable = Some((epoch, next));
    }

    /// Takes note that somebody asks to trim a partition, and then of the answer.
    pub(crate) fn trimming(&self, place: Place, before: Offset) {
        let mut ledger = self.ledger();
        let history = ledger.partitions.entry(place).or_default();
        history.trim_asked = before.max(history.trim_asked);
    }

    pub(crate) fn trimmed(&self, place: Place, before: Offset, first: Offset) {
        let mut ledger = self.ledger();
        let history = ledger.partitions.entry(place).or_default();
        history.trim_done = before.max(history.trim_done);
        if first < before {
            ledger.violations.push(format!("{place:?} begins at {first} after it was trimmed below {before}"));
        }
    }

    /// A position that a reader may commit: behind a record that it has read as stable.
    pub(crate) fn position(&self, place: Place) -> Option<Position> {
        let (epoch, offset) = self.ledger().partitions.get(&place)?.stable?;
        Some(Position { topic: place.0, epoch, offset })
    }

    pub(crate) fn violated(&self, violation: String) {
        self.ledger().violations.push(violation);
    }

    // --- Topics. Calls for one name come from one thread.

    /// Before a call: what it may leave behind if it does not return.
    pub(crate) fn changing(&self, name: &TopicName, to: Expected) {
        let mut ledger = self.ledger();
        let possible = ledger.topics.entry(name.clone()).or_insert_with(|| vec![Expected::Absent]);
        possible.push(to);
    }

    /// After a call that returned.
    pub(crate) fn changed(&self, name: &TopicName, topic: Option<&Topic>) {
        let now = topic.map_or(Expected::Absent, |topic| Expected::Present(Some(topic.id), topic.config.clone()));
        let mut ledger = self.ledger();
        ledger.topics.insert(name.clone(), vec![now]);
        ledger.compacted.extend(topic.filter(|topic| is_compacted(&topic.config)).map(|topic| topic.id));
    }
}

impl Ledger {
    fn place(&mut self, place: Place, offset: Offset, epoch: Epoch, serial: u64) {
        let known = &mut self.records[serial as usize];
        let before = *known.offset.get_or_insert((offset, epoch));
        if before != (offset, epoch) {
            let violation =
                format!("{place:?}: record {serial} stood at {before:?} and stands at {:?}", (offset, epoch));
            self.violations.push(violation);
        }
        let other = *self.partitions.entry(place).or_default().placed.entry(offset).or_insert(serial);
        if other != serial {
            let violation = format!("{place:?}: offset {offset} was given to record {other} and to {serial}");
            self.violations.push(violation);
        }
    }
}

pub(crate) fn is_compacted(config: &TopicConfig) -> bool {
    config.cleanup.compacts()
}

/// The level that a topic's stable offset has; `None` if it keeps nothing.
pub(crate) fn level_of(config: &TopicConfig) -> Option<AckLevel> {
    (config.storage == Storage::Disk).then_some(config.level)
}
