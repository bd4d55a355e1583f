//! The changes that the checkpoint lacks.

use std::collections::HashMap;
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::vec;

use bytes::Bytes;
use millstream_types::{Epoch, Grant, Offset};

use crate::Error;
use crate::view::StateRecord;

/// Memory of a record beside key and value: its slot in the map.
pub(crate) const RECORD_BYTES: usize = 96;

/// The memory of these records until they are written.
pub(crate) fn memory_bytes(records: &[StateRecord]) -> u64 {
    let sizes = records.iter().map(|(key, value)| RECORD_BYTES + key.len() + value.as_ref().map_or(0, Bytes::len));
    sizes.sum::<usize>() as u64
}

/// The newest change of each key since the last checkpoint.
#[derive(Default)]
pub(crate) struct Dirty {
    pub(crate) records: HashMap<Bytes, Option<Bytes>>,
    bytes: usize,
    /// Bytes that are being written to the checkpoint.
    writing_bytes: usize,
    pub(crate) reflected: Option<(Epoch, Offset)>,
    /// Returned once the changes are written or given up.
    memory: Option<Grant>,
    /// Set once changes were dropped: a later write would lack them.
    behind: Option<Behind>,
}

/// Until when the checkpoint gets no more changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    /// Its disk is full. Once there is room, what it lacks is read from the log.
    UntilRoom,
    /// A write has failed, and the store accepts nothing more.
    ForGood,
}

impl Dirty {
    pub(crate) fn take(&mut self, records: Vec<StateRecord>, epoch: Epoch, next: Offset) {
        if self.behind.is_some() {
            return;
        }
        for (key, value) in records {
            self.bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
            self.records.insert(key, value);
        }
        debug_assert!(self.reflected.is_none_or(|(_, before)| before <= next), "changes come in the order of the log");
        self.reflected = Some((epoch, next));
    }

    /// Keeps the memory of changes for as long as they are held.
    pub(crate) fn hold(&mut self, memory: Grant) {
        match &mut self.memory {
            _ if self.behind.is_some() => {}
            Some(held) => held.merge(memory),
            None => self.memory = Some(memory),
        }
    }

    /// Bytes held for the checkpoint, including those being written.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes + self.writing_bytes
    }

    /// Set if the checkpoint gets no more changes.
    pub(crate) fn behind(&self) -> Option<Behind> {
        self.behind
    }

    /// Takes all changes to write them; their bytes count as held until [`Dirty::written`].
    pub(crate) fn drain(&mut self) -> Self {
        debug_assert_eq!(self.writing_bytes, 0, "one write at a time");
        let (behind, writing_bytes) = (self.behind, self.bytes);
        std::mem::replace(self, Self { behind, writing_bytes, ..Self::default() })
    }

    /// Releases the bytes of the changes that were drained.
    pub(crate) fn written(&mut self) {
        self.writing_bytes = 0;
    }

    /// The changes of the keys from `start` on, in the order of the keys.
    pub(crate) fn listed(&self, start: &[u8]) -> Vec<StateRecord> {
        let from_start = self.records.iter().filter(|(key, _)| key[..] >= *start);
        let mut listed: Vec<_> = from_start.map(|(key, value)| (key.clone(), value.clone())).collect();
        listed.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        listed
    }

    /// Drops all changes for the checkpoint. It stays as it is, and the next start reads more of the log.
    pub(crate) fn fall_behind(&mut self, until: Behind) {
        *self = Self { behind: Some(until), ..Self::default() };
    }

    /// The checkpoint has what it lacked: further changes are for it.
    pub(crate) fn catch_up(&mut self) {
        self.behind = None;
    }
}

/// Looks at one key of the checkpoint and its entry.
pub(crate) type MergeVisit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Calls `visit` with the keys and entries that `older` passes on, in the order of the keys, and with those of `newer`,
/// which replace and remove older ones, until it breaks.
pub(crate) fn merge_newer(
    newer: Vec<StateRecord>,
    older: impl FnOnce(&mut MergeVisit<'_>) -> Result<(), Error>,
    mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<(), Error> {
    let mut newer = newer.into_iter().peekable();
    let mut flow = ControlFlow::Continue(());
    older(&mut |key, entry| {
        flow = visit_older(&mut newer, key, entry, &mut visit);
        flow
    })?;
    let mut behind = newer.filter_map(|(key, value)| Some((key, value?)));
    if flow.is_continue() {
        let _ = behind.try_for_each(|(key, value)| visit(&key, &value));
    }
    Ok(())
}

/// Calls `visit` with the changes of `newer` before `key`, and with what `key` has now.
fn visit_older(
    newer: &mut Peekable<vec::IntoIter<StateRecord>>,
    key: &[u8],
    entry: &[u8],
    visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> ControlFlow<()> {
    while let Some((before, value)) = newer.next_if(|(newer, _)| newer[..] < *key) {
        value.map_or(ControlFlow::Continue(()), |value| visit(&before, &value))?;
    }
    match newer.next_if(|(newer, _)| newer[..] == *key) {
        Some((_, Some(value))) => visit(key, &value),
        Some((_, None)) => ControlFlow::Continue(()),
        None => visit(key, entry),
    }
}
