//! Holds what a restarted engine serves against what it owes.

use std::collections::{HashMap, HashSet};

use millstream_log::{AckLevel, Error, Log, Partition, Topic, UpTo};
use millstream_testkit::conformance::ReadRecord;
use millstream_types::{BatchLimits, Epoch, Offset, Position, TopicPartition};

use crate::oracle::{Ending, Expected, Ledger, Oracle, Place, is_compacted, level_of};
use crate::state::{LastOfKeys, Reading};

/// The end of the last life, or the worst end of several lives that nobody has looked at since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Crash {
    /// The process died; the machine lived on.
    Kill,
    /// The machine went.
    PowerLoss,
}

impl Crash {
    fn spares(self, level: AckLevel) -> bool {
        match self {
            Self::Kill => level >= AckLevel::Written,
            Self::PowerLoss => level >= AckLevel::Synced,
        }
    }
}

/// All records from `from` on, with the epoch of their batch.
pub(crate) fn read(partition: &dyn Partition, from: Offset, up_to: UpTo) -> Result<Vec<(Epoch, ReadRecord)>, Error> {
    let undecodable = |source| Error::Batch { partition: partition.id().clone(), source };
    let (mut found, mut next) = (Vec::new(), from);
    loop {
        let batches = partition.read(next, 64 << 10, up_to)?;
        let Some(last) = batches.last() else { return Ok(found) };
        // A batch that was compacted may end before it did: from memory it comes whole again.
        let from = std::mem::replace(&mut next, last.last_offset().next());
        for batch in &batches {
            let inflated = batch.inflated(&BatchLimits::default()).map_err(undecodable)?;
            for record in inflated.records() {
                let record = record.map_err(undecodable)?;
                if record.offset >= from {
                    found.push((batch.epoch(), ReadRecord::from(record)));
                }
            }
        }
    }
}

/// Checks everything that the engine serves right after a start. Violations are left with the oracle.
pub(crate) fn check(oracle: &Oracle, log: &dyn Log, crash: Crash, now_ms: i64) {
    check_topics(oracle, log);
    let mut present = HashSet::new();
    let mut read = HashMap::new();
    for topic in log.topics() {
        for partition in 0..topic.config.partitions {
            match check_partition(oracle, log, &topic, partition, &mut present) {
                Ok(found) => drop(read.insert((topic.id, partition), found)),
                Err(e) => oracle.violated(format!("{}/{partition} cannot be read: {e}", topic.name)),
            }
        }
    }
    let mut ledger = oracle.ledger();
    let mut may_return = HashSet::new();
    let topics = log.topics();
    let expiring: HashSet<_> =
        topics.iter().filter(|topic| topic.config.retention.is_some()).map(|topic| topic.id).collect();
    for topic in log.topics() {
        if level_of(&topic.config).is_some() {
            for partition in 0..topic.config.partitions {
                let found = read.remove(&(topic.id, partition)).unwrap_or_default();
                let loss = Loss { topic: &topic, partition, found, crash, now_ms };
                may_return.extend(loss.check(&mut ledger, &present));
            }
        }
    }
    check_atomic(&mut ledger, log, &present);
    let positions = last_positions(&ledger, &present);
    for (serial, record) in (0..).zip(&mut ledger.records) {
        // Of what retention may have taken, nobody can tell where it stood unless somebody was told.
        let may_return =
            may_return.contains(&serial) || (record.offset.is_none() && expiring.contains(&record.place.0));
        record.gone = !present.contains(&serial) && !record.compacted && !may_return;
    }
    drop(ledger);
    for topic in log.topics() {
        for partition in 0..topic.config.partitions {
            // Only now: before, it would vouch for what is missing.
            if let Ok(handle) = log.partition(&TopicPartition::new(topic.name.clone(), partition)) {
                let level = level_of(&topic.config);
                oracle.ends((topic.id, partition), handle.offsets(), level);
                // Whatever was recovered is durable, whatever its level was.
                oracle.ends((topic.id, partition), handle.offsets(), level.map(|_| AckLevel::Synced));
            }
        }
    }
    check_positions(oracle, log, &positions);
}

/// The topics are those that were created and not deleted, and what is in doubt is settled for good.
fn check_topics(oracle: &Oracle, log: &dyn Log) {
    let mut ledger = oracle.ledger();
    let names: Vec<_> = ledger.topics.keys().cloned().collect();
    for name in names {
        let found = match log.topic(&name) {
            Some(topic) => Expected::Present(Some(topic.id), topic.config.clone()),
            None => Expected::Absent,
        };
        let matches = |expected: &Expected| match (expected, &found) {
            (Expected::Present(None, expected), Expected::Present(_, found)) => expected == found,
            (expected, found) => expected == found,
        };
        if !ledger.topics[&name].iter().any(matches) {
            let violation = format!("topic {name} is {found:?}, expected {:?}", ledger.topics[&name]);
            ledger.violations.push(violation);
        }
        ledger.topics.insert(name, vec![found]);
    }
    for topic in log.topics() {
        if !ledger.topics.contains_key(&topic.name) {
            ledger.violations.push(format!("topic {} was never created", topic.name));
        }
    }
}

/// The offsets that were found in a partition.
#[derive(Default)]
struct Found {
    first: Offset,
    end: Offset,
    last_of_keys: LastOfKeys,
}

/// Reads a partition and adds the records that are there to `present`.
fn check_partition(
    oracle: &Oracle,
    log: &dyn Log,
    topic: &Topic,
    partition: u32,
    present: &mut HashSet<u64>,
) -> Result<Found, Error> {
    let place = (topic.id, partition);
    let handle = log.partition(&TopicPartition::new(topic.name.clone(), partition))?;
    // What is found is compared: compaction must not go on meanwhile.
    let _hold = handle.hold("verdict", Offset::ZERO);
    let mut last_of_keys = LastOfKeys::new();
    check_ends(oracle, place, handle.offsets());
    let (offsets, stored, readable) = loop {
        let offsets = handle.offsets();
        let stable = read(&*handle, offsets.first, UpTo::Stable);
        let tail = stable.and_then(|stable| Ok((stable, read(&*handle, offsets.first, UpTo::Tail)?.len())));
        match tail {
            // A pass of retention that began before the hold moves the first offset meanwhile.
            Err(Error::Trimmed { .. }) if handle.offsets().first > offsets.first => {}
            tail => break tail.map(|(stable, count)| (offsets, stable, count))?,
        }
    };
    if readable != stored.len() {
        oracle.violated(format!("{place:?}: something is recovered and not stable"));
    }
    for (index, (epoch, record)) in stored.iter().enumerate() {
        if let Some((before_epoch, before)) = index.checked_sub(1).map(|before| &stored[before]) {
            let follows = match epoch.cmp(before_epoch) {
                std::cmp::Ordering::Less => false,
                std::cmp::Ordering::Equal if !is_compacted(&topic.config) => record.offset == before.offset.next(),
                std::cmp::Ordering::Equal => record.offset > before.offset,
                std::cmp::Ordering::Greater => record.offset > before.offset,
            };
            if !follows {
                oracle.violated(format!(
                    "{place:?}: {} of epoch {epoch} follows {} of epoch {before_epoch}",
                    record.offset, before.offset
                ));
            }
        }
        if *epoch >= offsets.epoch {
            oracle.violated(format!("{place:?}: {} has epoch {epoch}, as records to come", record.offset));
        }
        present.extend(oracle.seen_change(place, *epoch, record, &mut last_of_keys));
    }
    if let Some((epoch, last)) = stored.last().filter(|_| level_of(&topic.config) == Some(AckLevel::Synced)) {
        oracle.read_as_stable(place, *epoch, last.offset.next());
    }
    let end = stored.last().map_or(offsets.first, |(_, last)| last.offset.next());
    Ok(Found { first: offsets.first, end, last_of_keys })
}

/// Epochs ascend from life to life, and the next offset lies above all that were ever handed out.
fn check_ends(oracle: &Oracle, place: Place, offsets: millstream_log::Offsets) {
    let mut ledger = oracle.ledger();
    let history = ledger.partitions.entry(place).or_default();
    let before = history.epoch.replace(offsets.epoch);
    let highest = history.placed.keys().next_back().copied();
    if before.is_some_and(|before| before >= offsets.epoch) {
        ledger.violations.push(format!("{place:?}: epoch {} after {before:?}", offsets.epoch));
    }
    if highest.is_some_and(|highest| highest >= offsets.tail) {
        ledger.violations.push(format!("{place:?}: tail {}, and {highest:?} was handed out", offsets.tail));
    }
}

struct Loss<'a> {
    topic: &'a Topic,
    partition: u32,
    found: Found,
    crash: Crash,
    now_ms: i64,
}

impl Loss<'_> {
    /// Checks that missing records may be missing: their level does not outlive the crash, or retention, a trim or
    /// compaction has taken them. Returns the records that retention is about to take, which a crash may yet bring
    /// back.
    fn check(&self, ledger: &mut Ledger, present: &HashSet<u64>) -> Vec<u64> {
        let place = (self.topic.id, self.partition);
        let Some(history) = ledger.partitions.get(&place) else { return Vec::new() };
        let secured = history.secured.iter().filter(|(level, _)| self.crash.spares(**level)).map(|(_, below)| *below);
        let secured = secured.max().unwrap_or_default();
        let (trim_asked, trim_done) = (history.trim_asked, history.trim_done);
        let missing: Vec<_> = history
            .placed
            .iter()
            .filter(|(_, serial)| !present.contains(serial) && !ledger.records[**serial as usize].gone)
            // One that was lost before and sent again stands elsewhere since.
            .filter(|(offset, serial)| ledger.records[**serial as usize].offset.is_some_and(|(at, _)| at == **offset))
            .map(|(offset, serial)| (*offset, *serial))
            .collect();
        let first = self.found.first;
        let moves_by_itself = self.topic.config.retention.is_some();
        if first < trim_done || (first > trim_asked && !moves_by_itself) {
            let violation =
                format!("{place:?} begins at {first}, was trimmed to {trim_done}, and asked to {trim_asked}");
            ledger.violations.push(violation);
        }
        if is_compacted(&self.topic.config) {
            self.check_state(ledger, secured, &missing);
            return Vec::new();
        }
        for (offset, serial) in missing.iter().copied() {
            let append = &ledger.appends[ledger.records[serial as usize].append];
            let expired =
                self.topic.config.retention.is_some_and(|kept| append.at_ms + kept.as_millis() as i64 <= self.now_ms);
            if offset < secured && !(offset < first && (expired || offset < trim_asked)) {
                let violation = format!(
                    "{}/{} (first {first}): record {serial} at {offset} is lost; it was answered at {:?}, everything below {secured} outlives {:?}",
                    self.topic.name, self.partition, append.level, self.crash
                );
                ledger.violations.push(violation);
            }
        }
        let expires = missing.iter().filter(|(offset, _)| moves_by_itself && *offset < first);
        expires.map(|(_, serial)| *serial).collect()
    }

    /// Of a compacted partition only the last records of its keys are owed. What lies below a record that is there was
    /// not lost: then compaction has taken it.
    fn check_state(&self, ledger: &mut Ledger, secured: Offset, missing: &[(Offset, u64)]) {
        let below = secured.max(self.found.end);
        let deletions_until_ms = self.now_ms - self.topic.config.delete_retention.as_millis() as i64;
        let place = (self.topic.id, self.partition);
        Reading { place, found: &self.found.last_of_keys, below, deletions_until_ms }.check(ledger);
        for (_, serial) in missing.iter().filter(|(offset, _)| *offset < below) {
            ledger.records[*serial as usize].compacted = true;
        }
    }
}

/// Of an append all entries are there or none. (Topics that are gone, or whose records expire or are trimmed, do not count, nor does
/// what compaction may have taken before anybody was told of it.)
fn check_atomic(ledger: &mut Ledger, log: &dyn Log, present: &HashSet<u64>) {
    let topics = log.topics();
    let lasting = |place: Place| {
        let is_trimmed = ledger.partitions.get(&place).is_some_and(|history| history.trim_asked > Offset::ZERO);
        let topic = topics.iter().find(|topic| topic.id == place.0);
        topic.is_some_and(|topic| topic.config.retention.is_none() && level_of(&topic.config).is_some()) && !is_trimmed
    };
    let mut torn = Vec::new();
    for (number, append) in ledger.appends.iter().enumerate() {
        let serials: Vec<u64> = append
            .entries
            .iter()
            .filter(|entry| lasting(entry.place))
            .flat_map(|entry| entry.serials.clone())
            .collect();
        let survived = |serial: &u64| present.contains(serial) || ledger.records[*serial as usize].compacted;
        let is_unsure = |serial: &u64| {
            let known = &ledger.records[*serial as usize];
            known.change.is_some_and(|change| change.deletes || known.offset.is_none())
        };
        let there = serials.iter().filter(|serial| survived(serial)).count();
        let lost = serials.iter().filter(|serial| !survived(serial) && !is_unsure(serial)).count();
        if there != 0 && lost != 0 {
            torn.push(format!("append {number} ({:?}): {there} records are there, {lost} are not", append.ending));
        }
        if append.ending == Ending::Open {
            torn.push(format!("append {number} was never answered"));
        }
    }
    ledger.violations.append(&mut torn);
}

type Commit = (String, TopicPartition);

/// For each group and partition the position that the last surviving append has committed, if any has.
fn last_positions(ledger: &Ledger, present: &HashSet<u64>) -> HashMap<Commit, Option<Position>> {
    let mut positions = HashMap::new();
    for append in &ledger.appends {
        let survived = append.entries.iter().any(|entry| present.contains(&entry.serials.start));
        for commit in &append.commits {
            let last = positions.entry((commit.group.clone(), commit.partition.clone())).or_insert(None);
            if survived {
                *last = Some(commit.position);
            }
        }
    }
    positions
}

fn check_positions(oracle: &Oracle, log: &dyn Log, positions: &HashMap<Commit, Option<Position>>) {
    for ((group, partition), expected) in positions {
        let committed = log.committed(group, partition).ok().flatten();
        if committed != *expected {
            oracle.violated(format!("{group} stands at {committed:?} of {partition}, expected {expected:?}"));
        }
        let (Some(position), Ok(handle)) = (committed, log.partition(partition)) else { continue };
        if position.offset > handle.offsets().stable {
            oracle.violated(format!("{group} stands at {position:?} of {partition}, beyond {:?}", handle.offsets()));
        }
        match handle.resume(position) {
            Ok(offset) if offset == position.offset => {}
            other => oracle.violated(format!("{group} cannot resume at {position:?} of {partition}: {other:?}")),
        }
    }
}
