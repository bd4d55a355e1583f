//! The changes that the checkpoint lacks.

use std::collections::HashMap;

use bytes::Bytes;
use millstream_types::{Epoch, Grant, Offset};

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
    /// Set after a failed write: a later write would lack the changes of the failed one.
    abandoned: bool,
}

impl Dirty {
    pub(crate) fn take(&mut self, records: Vec<StateRecord>, epoch: Epoch, next: Offset) {
        if self.abandoned {
            return;
        }
        for (key, value) in records {
            self.bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
            self.records.insert(key, value);
        }
        self.reflected = Some((epoch, next));
    }

    /// Keeps the memory of changes for as long as they are held.
    pub(crate) fn hold(&mut self, memory: Grant) {
        match &mut self.memory {
            _ if self.abandoned => {}
            Some(held) => held.merge(memory),
            None => self.memory = Some(memory),
        }
    }

    /// Bytes held for the checkpoint, including those being written.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes + self.writing_bytes
    }

    /// `true` if the checkpoint gets no more changes, after a failed write.
    pub(crate) fn is_behind(&self) -> bool {
        self.abandoned
    }

    /// Takes all changes to write them; their bytes count as held until [`Dirty::written`].
    pub(crate) fn drain(&mut self) -> Self {
        let (abandoned, writing_bytes) = (self.abandoned, self.bytes);
        std::mem::replace(self, Self { abandoned, writing_bytes, ..Self::default() })
    }

    /// Releases the bytes of the changes that were drained.
    pub(crate) fn written(&mut self) {
        self.writing_bytes = 0;
    }

    /// Drops all changes for the checkpoint. It stays as it is, and the next start reads more of the log.
    pub(crate) fn abandon(&mut self) {
        *self = Self { abandoned: true, ..Self::default() };
    }
}
