//! A producer with transactions, and the one beside it without.

use std::collections::BTreeMap;
use std::sync::mpsc;

use millstream_log::{AckLevel, Done, EndTransaction, Error, KafkaLog, Partition, PositionCommit};
use millstream_testkit::sim::Rng;
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Position, Record, RecordBatch};

use super::Life;
use super::model::{Fate, Model, PLAIN, Sent, Serial, Transaction};
use crate::crew::{Awaited, Drive};

/// Of a hundred transactions that could be committed, so many are.
const COMMITTED_PERCENT: u64 = 65;

pub(super) struct Producer {
    number: usize,
    id: i64,
    epoch: i16,
    /// By partition, what comes next.
    sequences: BTreeMap<usize, i32>,
    current: Option<usize>,
    /// The current one was open when the power went, and something of it, or behind it, may be missing.
    must_end: bool,
}

/// The group whose position a producer's transactions commit.
pub(super) fn group(number: usize) -> String {
    format!("group-{number}")
}

impl Producer {
    pub(super) fn new(number: usize, rng: &mut Rng) -> Self {
        let (id, epoch) = (1_000 + rng.below(1_000) as i64 * 10 + number as i64, rng.below(3) as i16);
        Self { number, id, epoch, sequences: BTreeMap::new(), current: None, must_end: false }
    }

    /// After a crash, once it is known what is left.
    pub(super) fn restarted(&mut self, model: &Model) {
        let state = model.state();
        let mine = || (0..).zip(&state.transactions).filter(|(_, one)| one.producer == self.number);
        let open = mine().find(|(_, one)| matches!(one.fate, Fate::Open | Fate::Ending { .. }));
        self.must_end = open.is_some_and(|(number, one)| {
            one.records.iter().any(|sent| !sent.answered) || mine().any(|(later, _)| later > number)
        });
        self.current = open.map(|(number, _)| number);
    }

    pub(super) fn act(&mut self, life: &Life, awaited: &Awaited, rng: &mut Rng) {
        let current = *self.current.get_or_insert_with(|| begun(&life.model, self.number));
        let is_ending = life.model.state().transactions[current].fate != Fate::Open;
        if self.must_end || is_ending || rng.chance(25) {
            self.end(current, life, awaited, rng);
        } else {
            self.send(current, life, awaited, rng);
        }
    }

    fn send(&mut self, current: usize, life: &Life, awaited: &Awaited, rng: &mut Rng) {
        let target = rng.below(life.partitions.len() as u64) as usize;
        let count = 1 + rng.below(4) as u32;
        let first = {
            let records = &mut life.model.state().transactions[current].records;
            let first = records.len() as u32;
            records.extend((0..count).map(|_| Sent { partition: target, offset: None, answered: false }));
            first
        };
        let sequence = self.sequences.get(&target).copied().unwrap_or(0);
        let serials = (first..first + count).map(|index| Serial { transaction: current as u64, index });
        let producer = millstream_types::Producer { id: self.id, epoch: self.epoch, base_sequence: sequence };
        let (batch, done, answered) = request(serials, Some(producer), target, &life.model);
        match life.partitions[target].append_batch(batch, AckLevel::Memory, done) {
            Ok(()) => {
                self.sequences.insert(target, sequence + count as i32);
                if rng.chance(30) {
                    wait(answered, awaited, life);
                }
            }
            Err(e) => {
                life.model.state().transactions[current].records.truncate(first as usize);
                life.accept::<()>(Err(e));
            }
        }
    }

    /// As a client flushes before it commits, and as a coordinator aborts what it cannot know to be whole.
    fn end(&mut self, current: usize, life: &Life, awaited: &Awaited, rng: &mut Rng) {
        let level = *rng.pick(&[AckLevel::Memory, AckLevel::Written, AckLevel::Synced, AckLevel::Synced]).unwrap();
        if !self.must_end && !flushed(current, life) {
            return;
        }
        let (touched, commit, position) = {
            let mut state = life.model.state();
            let one = &mut state.transactions[current];
            let is_whole = one.records.iter().all(|sent| sent.answered);
            let commit = match one.fate {
                Fate::Ending { commit } => commit,
                _ => is_whole && rng.chance(COMMITTED_PERCENT),
            };
            one.fate = Fate::Ending { commit };
            if one.position.is_none() && rng.chance(70) {
                one.position = Some(position_now(&*life.partitions[0]));
            }
            (touched(&one.records, rng, life.partitions.len()), commit, one.position)
        };
        let epoch = if self.must_end { self.epoch + 1 } else { self.epoch };
        let note = Serial { transaction: current as u64, index: u32::from(commit) }.bytes();
        let end = EndTransaction {
            producer_id: self.id,
            producer_epoch: epoch,
            partitions: touched.iter().map(|partition| life.partitions[*partition].id().clone()).collect(),
            commit,
            positions: position.into_iter().map(|position| self.commit(position, life)).collect(),
            records: vec![(life.notes.clone(), vec![Record { value: Some(&note), ..Record::default() }])],
        };
        let (sender, answered) = mpsc::channel();
        let told = life.model.clone();
        let done = Done::call(move |result| {
            if result.is_ok() && level == AckLevel::Synced {
                told.state().transactions[current].fate = Fate::Ended { commit };
            }
            sender.send(()).ok();
        });
        if life.accept(life.log.end_transaction(&end, level, done)).is_none() {
            return;
        }
        if rng.chance(50) {
            wait(answered, awaited, life);
        }
        if self.must_end {
            self.epoch = epoch;
            self.sequences.clear();
        }
        (self.current, self.must_end) = (None, false);
    }

    fn commit(&self, position: Position, life: &Life) -> PositionCommit {
        let partition = life.partitions[0].id().clone();
        PositionCommit { group: group(self.number), partition, position, metadata: String::new() }
    }
}

/// The number of a transaction that begins.
pub(super) fn begun(model: &Model, producer: usize) -> usize {
    let (records, position) = (Vec::new(), None);
    let state = &mut *model.state();
    state.transactions.push(Transaction { producer, fate: Fate::Open, records, position, seen: false });
    state.transactions.len() - 1
}

/// The partitions that a transaction ends in: those it was sent to, and perhaps one where nothing has arrived.
fn touched(records: &[Sent], rng: &mut Rng, partitions: usize) -> Vec<usize> {
    let mut touched: Vec<_> = records.iter().map(|sent| sent.partition).collect();
    if rng.chance(20) {
        touched.push(rng.below(partitions as u64) as usize);
    }
    touched.sort_unstable();
    touched.dedup();
    touched
}

pub(super) fn position_now(partition: &dyn Partition) -> Position {
    let ends = partition.offsets();
    Position { topic: partition.topic().id, epoch: ends.epoch, offset: ends.high }
}

/// Waits until everything is answered. `false` if it is not, or if the power has gone.
fn flushed(current: usize, life: &Life) -> bool {
    let all_answered = || life.model.state().transactions[current].records.iter().all(|sent| sent.answered);
    let is_settled = life.drive.until(|| all_answered() || life.files.is_off());
    if !is_settled && matches!(life.drive, Drive::Threads) {
        life.model.violated(format!("transaction {current} was not answered"));
    }
    all_answered()
}

/// Waits for an answer, or lets the caller's next call do so.
pub(super) fn wait(answered: mpsc::Receiver<()>, awaited: &Awaited, life: &Life) {
    if !awaited.wait_for(answered, &life.drive) {
        life.model.violated("an append was not answered".to_owned());
    }
}

/// A batch, and what takes note of its answer.
fn request(
    serials: impl Iterator<Item = Serial>,
    producer: Option<millstream_types::Producer>,
    partition: usize,
    model: &Model,
) -> (RecordBatch, Done<millstream_log::Appended>, mpsc::Receiver<()>) {
    let serials: Vec<_> = serials.collect();
    let mut builder = BatchBuilder::default();
    for serial in &serials {
        builder.push(&Record { value: Some(&serial.bytes()), ..Record::default() });
    }
    if let Some(producer) = producer {
        builder.set_producer(producer);
        builder.set_transactional();
    }
    let (sender, answered) = mpsc::channel();
    let told = model.clone();
    let done = Done::call(move |result: Result<millstream_log::Appended, Error>| {
        if let Ok(appended) = result {
            let mut state = told.state();
            for (serial, at) in serials.iter().zip(appended.first.0..) {
                state.place(*serial, partition, Offset(at));
                if let Some(sent) = state.sent(*serial) {
                    sent.answered = true;
                }
            }
        }
        sender.send(()).ok();
    });
    (builder.seal(Offset(0), Epoch(0), Compression::None), done, answered)
}

/// Appends a record of no transaction in between.
pub(super) fn write_plain(life: &Life, awaited: &Awaited, rng: &mut Rng) {
    life.clock.advance(std::time::Duration::from_millis(rng.below(20)));
    let partition = rng.below(life.partitions.len() as u64) as usize;
    let index = {
        let plain = &mut life.model.state().plain;
        plain.push(Sent { partition, offset: None, answered: false });
        plain.len() as u32 - 1
    };
    let serial = Serial { transaction: PLAIN, index };
    let (batch, done, answered) = request(std::iter::once(serial), None, partition, &life.model);
    if life.accept(life.partitions[partition].append_batch(batch, AckLevel::Synced, done)).is_some() && rng.chance(50) {
        wait(answered, awaited, life);
    }
}
