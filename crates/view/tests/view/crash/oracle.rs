//! The knowledge about all lives on one disk, and the rules for a recovered state.
//!
//! For a counter of commands: it stands where its last told move stands, its moves are 1, 2, 3 … without a gap (state
//! record and published record of a command stand and fall together), and no answer that was given lies above it.
//!
//! For a counter of derived pieces, where `applied` is what its owner's recovered state says of a source: it is exactly
//! the sum over the records below `applied`, whether the log still has them or not (a `written` record may be lost
//! after it was applied; the state is `synced`), and, once the follower has caught up, over those that the log has at
//! or above it. A record that was lost before it was applied is never counted: its offset is not given again.

use std::collections::{BTreeMap, BTreeSet};

use millstream_log::{Log, UpTo};
use millstream_types::{BatchLimits, Offset, TopicPartition};
use millstream_view::{SourcePartition, Views};

use super::workload::{BINS, MOVES, PARTS, SLOTS, moves};
use crate::common::{Shelf, pieces, telemetry};

/// A record that was handed to the telemetry topic, for one of the bins in its key.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) partition: u32,
    pub(crate) offset: Offset,
    pub(crate) key: String,
    pub(crate) bin: String,
    pub(crate) pieces: i64,
}

impl Sent {
    fn count(&self, bins: &mut BTreeMap<String, i64>) {
        *bins.entry(self.bin.clone()).or_default() += self.pieces;
    }
}

/// The knowledge about a slot, which one thread sets and clears in turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) answered: Option<i64>,
    /// The value that a command without an answer may have left.
    pub(crate) perhaps: Option<Option<i64>>,
}

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) sent: Vec<Sent>,
    /// Of each part: answers, ascending by time of arrival.
    pub(crate) answers: BTreeMap<String, Vec<i64>>,
    pub(crate) submitted: BTreeMap<String, i64>,
    pub(crate) slots: BTreeMap<String, Slot>,
}

/// Records that a crash has taken out of the log.
pub(crate) struct Lost {
    /// Those whose effect is there all the same, for ever.
    pub(crate) applied: usize,
    /// Those that will never have one.
    pub(crate) unapplied: usize,
}

impl Oracle {
    /// Checks a state that has just been recovered, before anything follows.
    pub(crate) fn check_recovered(&mut self, views: &Views<Shelf>, log: &dyn Log) -> Lost {
        self.check_commands(views, log);
        let stored = self.stored(log);
        let applied: Vec<bool> = self.sent.iter().map(|sent| sent.offset < applied(views, log, sent)).collect();
        let mut expected = BTreeMap::new();
        self.sent.iter().zip(&applied).filter(|(_, applied)| **applied).for_each(|(sent, _)| sent.count(&mut expected));
        assert_eq!(bins(views), expected, "derived pieces right after recovery");
        let fate = || applied.iter().zip(&stored);
        let lost = Lost {
            applied: fate().filter(|(applied, stored)| **applied && !**stored).count(),
            unapplied: fate().filter(|(applied, stored)| !**applied && !**stored).count(),
        };
        // What was lost unapplied is out of the story: its offset lies below what will be applied next.
        let mut counts = fate().map(|(applied, stored)| *applied || *stored).collect::<Vec<_>>().into_iter();
        self.sent.retain(|_| counts.next().unwrap_or(true));
        lost
    }

    /// Checks a state after the follower has caught up, when nothing has been lost since recovery.
    pub(crate) fn check_caught_up(&self, views: &Views<Shelf>) {
        let mut expected = BTreeMap::new();
        self.sent.iter().for_each(|sent| sent.count(&mut expected));
        assert_eq!(bins(views), expected, "derived pieces after catching up");
    }

    /// Tells for each sent record if it is in the log; no other record is there.
    fn stored(&self, log: &dyn Log) -> Vec<bool> {
        let mut there = BTreeMap::new();
        for partition in 0..BINS {
            for (offset, key, value) in read(log, &TopicPartition::new(telemetry(), partition)) {
                there.insert((partition, offset), (key, value.len() as i64));
            }
        }
        let stored: Vec<bool> = self
            .sent
            .iter()
            .map(|sent| match there.get(&(sent.partition, sent.offset)) {
                Some(found) => {
                    assert_eq!(*found, (sent.key.clone(), sent.pieces), "{sent:?}");
                    true
                }
                None => false,
            })
            .collect();
        let known: BTreeSet<(u32, Offset)> = self.sent.iter().map(|sent| (sent.partition, sent.offset)).collect();
        there.retain(|place, _| !known.contains(place));
        assert!(there.is_empty(), "records that nobody sent: {there:?}");
        stored
    }

    /// Checks what commands have left in a state that has just been recovered.
    pub(crate) fn check_commands(&mut self, views: &Views<Shelf>, log: &dyn Log) {
        self.check_parts(views, log);
        self.check_slots(views);
    }

    fn check_parts(&self, views: &Views<Shelf>, log: &dyn Log) {
        let mut told: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for (_, name, count) in read(log, &TopicPartition::new(moves(), 0)) {
            told.entry(name).or_default().push(count.parse().unwrap());
        }
        for number in 0..PARTS {
            let name = format!("part-{number}");
            let told = told.remove(&name).unwrap_or_default();
            let count = told.len() as i64;
            assert_eq!(told, (1..=count).collect::<Vec<_>>(), "{MOVES} of {name}");
            assert_eq!(pieces(views, &name).unwrap_or(0), count, "{name}: state and {MOVES} differ");
            let highest = self.answers.get(&name).and_then(|answers| answers.iter().max()).copied().unwrap_or(0);
            assert!(count >= highest, "{name} stands at {count}, {highest} was answered");
            let submitted = self.submitted.get(&name).copied().unwrap_or(0);
            assert!(count <= submitted, "{name} stands at {count}, {submitted} were submitted");
        }
    }

    fn check_slots(&mut self, views: &Views<Shelf>) {
        for number in 0..SLOTS {
            let name = format!("slot-{number}");
            let found = pieces(views, &name);
            let slot = self.slots.entry(name.clone()).or_default();
            assert!(found == slot.answered || Some(found) == slot.perhaps, "{name} is {found:?}, known is {slot:?}");
            *slot = Slot { answered: found, perhaps: None };
        }
    }
}

/// Returns the offset up to which the owner of a record's bin has applied its source.
fn applied(views: &Views<Shelf>, log: &dyn Log, sent: &Sent) -> Offset {
    let topic = log.topic(&telemetry()).unwrap().id;
    let source = SourcePartition { topic, partition: millstream_types::PartitionId(sent.partition) };
    let owner = views.partition_of(sent.bin.as_bytes());
    views.snapshot(owner).sources.get(&source).copied().unwrap_or_default()
}

fn bins(views: &Views<Shelf>) -> BTreeMap<String, i64> {
    let all = views.snapshots();
    all.iter()
        .flat_map(|snapshot| snapshot.state.iter().filter(|(name, _)| name.starts_with("bin-")))
        .map(|(name, pieces)| (name.clone(), *pieces))
        .collect()
}

/// Offset, key and value of every record.
fn read(log: &dyn Log, partition: &TopicPartition) -> Vec<(Offset, String, String)> {
    let partition = log.partition(partition).unwrap();
    let mut next = partition.offsets().first;
    let mut all = Vec::new();
    loop {
        let batches = partition.read(next, 1 << 20, UpTo::Stable).unwrap();
        let Some(last) = batches.last() else { return all };
        next = last.next_offset();
        for batch in &batches {
            for record in batch.inflated(&BatchLimits::default()).unwrap().records() {
                let record = record.unwrap();
                let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
                all.push((record.offset, text(record.key), text(record.value)));
            }
        }
    }
}
