//! What the checkpoint does not have yet.

use std::collections::HashMap;

use bytes::Bytes;
use millstream_types::{Epoch, Offset};

use crate::state_record::StateRecord;

/// Changes since the checkpoint was last written, the newest of each key.
#[derive(Default)]
pub(crate) struct Dirty {
    pub(crate) records: HashMap<Bytes, Option<Bytes>>,
    bytes: usize,
    /// Bytes that were taken out to be written and are not yet.
    writing_bytes: usize,
    pub(crate) reflected: Option<(Epoch, Offset)>,
    /// Set once a write has failed: one that came after it would lack what the failed one held.
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

    /// Bytes that are held for the checkpoint, those that are being written included.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes + self.writing_bytes
    }

    /// Everything so far, to be written; counts as held until [`Dirty::written`].
    pub(crate) fn drain(&mut self) -> Self {
        let (abandoned, writing_bytes) = (self.abandoned, self.bytes);
        std::mem::replace(self, Self { abandoned, writing_bytes, ..Self::default() })
    }

    /// What was drained has been written and is gone.
    pub(crate) fn written(&mut self) {
        self.writing_bytes = 0;
    }

    /// Nothing is kept for the checkpoint any more: it stays as it is, and the next start reads more of the log.
    pub(crate) fn abandon(&mut self) {
        *self = Self { abandoned: true, ..Self::default() };
    }
}
