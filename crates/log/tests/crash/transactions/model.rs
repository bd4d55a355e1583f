//! A model of the engine's duties for every transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_types::{Offset, Position};
use parking_lot::{Mutex, MutexGuard};

use super::Outcome;

/// The identity in a record: its transaction, and its number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Serial {
    pub(super) transaction: u64,
    pub(super) index: u32,
}

/// The transaction of records that belong to none.
pub(super) const PLAIN: u64 = u64::MAX;

impl Serial {
    pub(super) fn bytes(self) -> Vec<u8> {
        let mut bytes = self.transaction.to_le_bytes().to_vec();
        bytes.extend(self.index.to_le_bytes());
        // Of different lengths, so that batches are cut at different places.
        bytes.resize(12 + (self.index as usize * 37) % 300, 7);
        bytes
    }

    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let transaction = u64::from_le_bytes(value.get(..8)?.try_into().ok()?);
        Some(Self { transaction, index: u32::from_le_bytes(value.get(8..12)?.try_into().ok()?) })
    }
}

/// The state of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nobody has tried to end it.
    Open,
    /// An end was asked for, and may have taken place.
    Ending { commit: bool },
    /// It has ended, and every crash leaves that so.
    Ended { commit: bool },
    /// A crash has taken all of it, rightly; or it was left open by an owner, or aborted without a note.
    Void,
}

/// A record that was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    /// Number of the partition among those of the life.
    pub(super) partition: usize,
    /// The offset of the record, once it was answered or read; an answer says that it is durable.
    pub(super) offset: Option<Offset>,
    pub(super) answered: bool,
}

#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) producer: usize,
    pub(super) fate: Fate,
    pub(super) records: Vec<Sent>,
    /// The position that the commit gives to the producer's group.
    pub(super) position: Option<Position>,
    /// A reader of what is stable has seen records of it, where that outlives power loss.
    pub(super) seen: bool,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) transactions: Vec<Transaction>,
    /// Records without a transaction, by their index.
    pub(super) plain: Vec<Sent>,
    pub(super) violations: Vec<String>,
}

impl State {
    pub(super) fn sent(&mut self, serial: Serial) -> Option<&mut Sent> {
        let records = match serial.transaction {
            PLAIN => &mut self.plain,
            number => &mut self.transactions.get_mut(usize::try_from(number).ok()?)?.records,
        };
        records.get_mut(serial.index as usize)
    }

    /// Takes note of where a record stands, and of a place that contradicts an earlier one.
    pub(super) fn place(&mut self, serial: Serial, partition: usize, at: Offset) {
        let Some(sent) = self.sent(serial) else {
            self.violations.push(format!("{at} of partition {partition} holds {serial:?}, which nobody has sent"));
            return;
        };
        let before = *sent.offset.get_or_insert(at);
        if before != at || sent.partition != partition {
            let violation = format!(
                "{serial:?} was sent to {} and stood at {before}; it stands in {partition} at {at}",
                sent.partition
            );
            self.violations.push(violation);
        }
    }
}

#[derive(Clone, Default)]
pub(crate) struct Model(Arc<Mutex<State>>);

impl Model {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    pub(super) fn violated(&self, violation: String) {
        self.state().violations.push(violation);
    }

    pub(super) fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.state().violations)
    }

    pub(super) fn count(&self, outcome: &mut Outcome) {
        for transaction in &self.state().transactions {
            match transaction.fate {
                Fate::Ended { commit: true } => outcome.committed += 1,
                Fate::Ended { commit: false } => outcome.aborted += 1,
                Fate::Open | Fate::Ending { .. } => outcome.left_open += 1,
                Fate::Void => outcome.void += 1,
            }
        }
    }
}

/// The records of one transaction that are expected in each partition, by offset where that is known.
pub(super) fn by_partition(records: &[Sent]) -> BTreeMap<usize, Vec<u32>> {
    let mut found: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for (index, sent) in (0..).zip(records) {
        found.entry(sent.partition).or_default().push(index);
    }
    found
}
