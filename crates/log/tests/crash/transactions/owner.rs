//! An owner with a fenced writer: what it leaves open is void once the next of its name begins, or the log opens again.

use std::sync::Arc;
use std::sync::mpsc;

use millstream_log::{AckLevel, AtomicAppend, Done, Error, Log, PositionCommit, Writer};
use millstream_testkit::sim::Rng;
use millstream_types::Record;

use super::Life;
use super::model::{Fate, Sent, Serial};
use super::producer::{begun, group, position_now, wait};
use crate::crew::Awaited;

/// Chances of a hundred calls.
const COMMIT_PERCENT: u64 = 20;
const ABORT_PERCENT: u64 = 8;
const SUCCESSOR_PERCENT: u64 = 8;

pub(super) struct Owner {
    number: usize,
    writer: Option<Arc<dyn Writer>>,
    current: Option<usize>,
}

impl Owner {
    pub(super) fn new(number: usize) -> Self {
        Self { number, writer: None, current: None }
    }

    /// After a crash: nothing of what was open is left.
    pub(super) fn restarted(&mut self) {
        (self.writer, self.current) = (None, None);
    }

    pub(super) fn act(&mut self, life: &Life, awaited: &Awaited, rng: &mut Rng) {
        let Some(writer) = self.writer.clone() else {
            if life.drive.may_wait() {
                self.writer = self.successor(life);
            }
            return;
        };
        let current = *self.current.get_or_insert_with(|| begun(&life.model, self.number));
        let chance = rng.below(100);
        if chance < SUCCESSOR_PERCENT && life.drive.may_wait() {
            if let Some(next) = self.successor(life) {
                is_refused(&*writer, life, rng);
                self.writer = Some(next);
            }
        } else if chance < SUCCESSOR_PERCENT + ABORT_PERCENT {
            if life.accept(writer.abort()).is_some() {
                life.model.state().transactions[current].fate = Fate::Void;
                self.current = None;
            }
        } else if chance < SUCCESSOR_PERCENT + ABORT_PERCENT + COMMIT_PERCENT {
            self.commit(&*writer, current, (life, awaited), rng);
        } else {
            append(&*writer, current, life, rng);
        }
    }

    /// The next writer of the name. All that the one before has left is decided then: commits are there, the rest is void.
    fn successor(&mut self, life: &Life) -> Option<Arc<dyn Writer>> {
        let next = life.accept(life.log.writer(&group(self.number)))?;
        let state = &mut *life.model.state();
        for one in state.transactions.iter_mut().filter(|one| one.producer == self.number) {
            one.fate = match one.fate {
                Fate::Open => Fate::Void,
                Fate::Ending { commit } => Fate::Ended { commit },
                fate => fate,
            };
        }
        self.current = None;
        Some(next)
    }

    fn commit(&mut self, writer: &dyn Writer, current: usize, (life, awaited): (&Life, &Awaited), rng: &mut Rng) {
        let level = *rng.pick(&[AckLevel::Memory, AckLevel::Written, AckLevel::Synced, AckLevel::Synced]).unwrap();
        let (position, is_durable) = {
            let mut state = life.model.state();
            let one = &mut state.transactions[current];
            one.fate = Fate::Ending { commit: true };
            one.position = rng.chance(70).then(|| position_now(&*life.partitions[0]));
            (one.position, level == AckLevel::Synced || !one.records.is_empty())
        };
        let note = Serial { transaction: current as u64, index: 1 }.bytes();
        let last = AtomicAppend {
            records: vec![(life.notes.clone(), vec![Record { value: Some(&note), ..Record::default() }])],
            positions: position.into_iter().map(|position| self.position(position, life)).collect(),
        };
        let (sender, answered) = mpsc::channel();
        let told = life.model.clone();
        let done = Done::call(move |result| {
            if result.is_ok() && is_durable {
                told.state().transactions[current].fate = Fate::Ended { commit: true };
            }
            sender.send(()).ok();
        });
        if life.accept(writer.commit(&last, level, done)).is_none() {
            // Nothing was committed, and what is open stays so.
            life.model.state().transactions[current].fate = Fate::Open;
            return;
        }
        self.current = None;
        if rng.chance(50) {
            wait(answered, awaited, life);
        }
    }

    fn position(&self, position: millstream_types::Position, life: &Life) -> PositionCommit {
        let partition = life.partitions[0].id().clone();
        PositionCommit { group: group(self.number), partition, position, metadata: String::new() }
    }
}

fn append(writer: &dyn Writer, current: usize, life: &Life, rng: &mut Rng) {
    let partition = rng.below(life.partitions.len() as u64) as usize;
    let count = 1 + rng.below(4) as u32;
    let records = &mut life.model.state().transactions[current].records;
    let first = records.len() as u32;
    records.extend((0..count).map(|_| Sent { partition, offset: None, answered: false }));
    let values: Vec<_> =
        (first..first + count).map(|index| Serial { transaction: current as u64, index }.bytes()).collect();
    let sent: Vec<_> = values.iter().map(|value| Record { value: Some(value), ..Record::default() }).collect();
    let taken = writer.append(life.partitions[partition].id(), &sent);
    if taken.is_err() {
        records.truncate(first as usize);
    }
    life.accept(taken);
}

/// A fenced writer adds nothing, whatever it tries.
fn is_refused(writer: &dyn Writer, life: &Life, rng: &mut Rng) {
    let partition = life.partitions[rng.below(life.partitions.len() as u64) as usize].id();
    let nobodys = Serial { transaction: u64::MAX - 1, index: 0 }.bytes();
    let record = Record { value: Some(&nobodys), ..Record::default() };
    let commit = AtomicAppend { records: vec![(partition.clone(), vec![record])], positions: Vec::new() };
    let outcomes =
        [writer.append(partition, &[record]), writer.commit(&commit, AckLevel::Memory, Done::ignore()), writer.abort()];
    for outcome in outcomes {
        if !matches!(outcome, Err(Error::Fenced { .. })) && !life.files.is_off() {
            life.model.violated(format!("a fenced writer is answered {outcome:?}"));
        }
    }
}
