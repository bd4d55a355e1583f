//! Holds what is served against what is owed.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use millstream_log::{Error, KafkaLog, KafkaPartition, Log, StoredBatches, UpTo};
use millstream_testkit::sim::Rng;
use millstream_types::{BatchLimits, Offset, RecordBatch};

use super::model::{Fate, PLAIN, Serial, State, by_partition};
use super::producer::group;
use super::{Life, OWNERS, PARTITIONS, PRODUCERS};

type Read = Vec<(Offset, Serial)>;

fn records(batches: &[RecordBatch], found: &mut Read) {
    for batch in batches {
        let batch = batch.inflated(&BatchLimits::default()).unwrap();
        for record in batch.records() {
            let record = record.unwrap();
            found.push((record.offset, Serial::read(record.value.unwrap()).unwrap()));
        }
    }
}

fn read_all(partition: &dyn KafkaPartition, up_to: UpTo) -> Result<Read, Error> {
    let (mut found, mut next) = (Vec::new(), partition.offsets().first);
    loop {
        let batches = partition.read(next, 16 << 10, up_to)?;
        let Some(last) = batches.last() else { return Ok(found) };
        next = last.next_offset();
        records(&batches, &mut found);
    }
}

/// Reads stored batches as a Kafka client with `read_committed` does.
fn as_a_client(stored: &StoredBatches) -> Read {
    let (mut found, mut aborting) = (Vec::new(), HashSet::new());
    let mut ahead = stored.aborted.iter().peekable();
    for batch in &stored.batches {
        while let Some(one) = ahead.next_if(|one| one.first <= batch.last_offset()) {
            aborting.insert(one.producer_id);
        }
        let producer = batch.producer().map(|producer| producer.id);
        if let Some(marker) = batch.marker() {
            if !marker.committed {
                aborting.remove(&marker.producer_id);
            }
        } else if !(batch.is_transactional() && producer.is_some_and(|id| aborting.contains(&id))) {
            records(std::slice::from_ref(batch), &mut found);
        }
    }
    found
}

/// Checks everything that is there right after a start, and settles what was in doubt.
pub(super) fn check(life: &Life) {
    settle(life);
    for (number, partition) in life.partitions.iter().enumerate() {
        if let Some(found) = life.accept(read_all(&**partition, UpTo::High)) {
            check_records(life, number, &found);
            check_ends(life, number, &found);
        }
    }
    check_positions(life);
}

/// The notes say which transactions have ended. Of those of a producer that have not, the first is open, and nothing of
/// later ones is left: they stood behind its end.
fn settle(life: &Life) {
    let notes = life.log.kafka_partition(&life.notes).and_then(|notes| read_all(&*notes, UpTo::Stable));
    let Some(notes) = life.accept(notes) else { return };
    let state = &mut *life.model.state();
    let mut noted = BTreeMap::new();
    for (_, note) in notes {
        if noted.insert(note.transaction, note.index == 1).is_some() {
            state.violations.push(format!("transaction {} has ended twice", note.transaction));
        }
    }
    let mut open = [false; PRODUCERS];
    for (number, one) in (0_u64..).zip(&mut state.transactions) {
        let noted = noted.remove(&number);
        let fate = match (one.fate, noted) {
            (Fate::Ended { commit } | Fate::Ending { commit }, Some(noted)) if commit == noted => {
                Fate::Ended { commit }
            }
            (Fate::Void, None) => Fate::Void,
            // What an owner left open is void once the log is open.
            (Fate::Open | Fate::Ending { .. }, None) if one.producer >= PRODUCERS => Fate::Void,
            (Fate::Open | Fate::Ending { .. }, None) if open[one.producer] => Fate::Void,
            (fate @ (Fate::Open | Fate::Ending { .. }), None) => {
                open[one.producer] = true;
                fate
            }
            (fate, noted) => {
                state.violations.push(format!("transaction {number} was {fate:?}, and its note says {noted:?}"));
                fate
            }
        };
        if one.seen && !matches!(fate, Fate::Ended { commit: true }) {
            state.violations.push(format!("transaction {number} was read as committed, and is {fate:?}"));
        }
        one.fate = fate;
    }
    if let Some((number, _)) = noted.first_key_value() {
        state.violations.push(format!("transaction {number} was noted, and nobody has ended it"));
    }
}

fn check_records(life: &Life, partition: usize, found: &Read) {
    let state = &mut *life.model.state();
    let mut present: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    for (at, serial) in found {
        state.place(*serial, partition, *at);
        if !present.entry(serial.transaction).or_default().insert(serial.index) {
            state.violations.push(format!("{serial:?} stands in partition {partition} twice"));
        }
        let fate = state.transactions.get(serial.transaction as usize).map(|one| one.fate);
        if serial.transaction != PLAIN && matches!(fate, None | Some(Fate::Void | Fate::Ended { commit: false })) {
            state.violations.push(format!("{serial:?} is read in partition {partition}, and is {fate:?}"));
        }
    }
    let all = (0..).zip(&state.transactions).map(|(number, one)| (number, one.fate, &one.records));
    let mut lost = Vec::new();
    for (number, fate, records) in all.chain([(PLAIN, Fate::Open, &state.plain)]) {
        let here = by_partition(records).remove(&partition).unwrap_or_default();
        let present = present.get(&number);
        for index in here {
            let owed = match fate {
                Fate::Ended { commit } => commit,
                Fate::Void => false,
                Fate::Open | Fate::Ending { .. } => records[index as usize].answered,
            };
            if owed && !present.is_some_and(|present| present.contains(&index)) {
                lost.push(format!(
                    "record {index} of transaction {number} ({fate:?}) is lost from partition {partition}"
                ));
            }
        }
    }
    state.violations.append(&mut lost);
    // What is there stays.
    for (_, serial) in found {
        if let Some(sent) = state.sent(*serial) {
            sent.answered = true;
        }
    }
}

/// The open transactions are those of which records are there, and the stable offset is the first of them.
fn check_ends(life: &Life, number: usize, found: &Read) {
    let partition = &*life.partitions[number];
    let (ends, listed) = (partition.offsets(), partition.transactions());
    let mut expected: BTreeMap<usize, Offset> = BTreeMap::new();
    {
        let state = life.model.state();
        for (at, serial) in found.iter().filter(|(_, serial)| serial.transaction != PLAIN) {
            if let Some(one) = state.transactions.get(serial.transaction as usize)
                && matches!(one.fate, Fate::Open | Fate::Ending { .. })
            {
                expected.entry(one.producer).or_insert(*at);
            }
        }
    }
    let mut firsts: Vec<_> = expected.into_values().collect();
    firsts.sort();
    let open: Vec<_> = listed.iter().map(|open| open.first).collect();
    if open != firsts {
        life.model.violated(format!("partition {number} has open transactions from {open:?}, expected {firsts:?}"));
    }
    let stable = firsts.first().copied().unwrap_or(ends.high);
    if ends.stable != stable || ends.high > ends.tail || ends.first > ends.stable {
        life.model.violated(format!("partition {number}: {ends:?}, expected {stable} to be stable"));
    }
    let below: Read = found.iter().filter(|(at, _)| *at < stable).copied().collect();
    for up_to in [UpTo::Stable, UpTo::Tail] {
        if life.accept(read_all(partition, up_to)).is_some_and(|read| read != below) {
            life.model.violated(format!("partition {number}: {up_to:?} is not what lies below {stable}"));
        }
    }
}

/// A group stands where the last committed transaction of its producer has put it.
fn check_positions(life: &Life) {
    let source = &life.partitions[0];
    for producer in 0..PRODUCERS + OWNERS {
        let expected = {
            let state = life.model.state();
            let mine = state.transactions.iter().filter(|one| one.producer == producer);
            mine.filter(|one| one.fate == Fate::Ended { commit: true }).filter_map(|one| one.position).next_back()
        };
        let committed = life.accept(life.log.committed(&group(producer), source.id())).flatten();
        if committed != expected {
            life.model.violated(format!("{} stands at {committed:?}, expected {expected:?}", group(producer)));
        }
        if let Some(position) = committed
            && source.resume(position).ok() != Some(position.offset)
        {
            life.model.violated(format!("{} cannot resume at {position:?}", group(producer)));
        }
    }
}

/// Reads while others write: by our own eyes and by those of a Kafka client, which must see the same.
pub(super) fn follow(life: &Life, rng: &mut Rng) {
    let number = rng.below(life.partitions.len() as u64) as usize;
    let partition = &*life.partitions[number];
    let ends = partition.offsets();
    if !(ends.first <= ends.stable && ends.stable <= ends.high && ends.high <= ends.tail) {
        life.model.violated(format!("{ends:?} are not in order"));
    }
    let from = Offset(ends.stable.0.saturating_sub(rng.below(80)).max(ends.first.0));
    let max_bytes = 1 + rng.below(8 << 10) as usize;
    let both = partition.read_stored(from, max_bytes, UpTo::Stable);
    let both = both.and_then(|stored| Ok((stored, partition.read(from, max_bytes, UpTo::Stable)?)));
    let Some((stored, batches)) = life.accept(both) else { return };
    let mut seen = Vec::new();
    records(&batches, &mut seen);
    let is_synced = number < PARTITIONS as usize;
    check_seen(&mut life.model.state(), &seen, is_synced);
    // Of the two, one may come from memory and reach further.
    let end = |batches: &[RecordBatch]| batches.last().map_or(from, RecordBatch::next_offset);
    let end = end(&stored.batches).min(end(&batches));
    seen.retain(|(at, _)| *at < end);
    let mut expected = as_a_client(&stored);
    expected.retain(|(at, _)| *at < end);
    if expected != seen {
        life.model.violated(format!("a client sees other records of partition {number} from {from} to {end}"));
    }
    let Some(batches) = life.accept(partition.read(from, max_bytes, UpTo::Tail)) else { return };
    let mut seen = Vec::new();
    records(&batches, &mut seen);
    check_seen(&mut life.model.state(), &seen, false);
}

/// Nothing of a transaction that nobody has committed; what is read as stable stays committed over power loss.
fn check_seen(state: &mut State, seen: &Read, is_stable: bool) {
    for (at, serial) in seen.iter().filter(|(_, serial)| serial.transaction != PLAIN) {
        let Some(one) = state.transactions.get_mut(serial.transaction as usize) else {
            state.violations.push(format!("{serial:?} is read, which nobody has sent"));
            continue;
        };
        one.seen |= is_stable;
        let fate = one.fate;
        if !matches!(fate, Fate::Ended { commit: true } | Fate::Ending { commit: true }) {
            state.violations.push(format!("{serial:?} is read at {at}, and is {fate:?}"));
        }
    }
}
