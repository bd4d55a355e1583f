//! Builds a batch row by row, for operators that write payloads themselves.

use std::sync::Arc;

use super::base::{Base, BaseRow};
use super::shape::BUFFER_BYTES;
use super::{Batch, View};

/// Builds a batch row by row, in one buffer. Its rows have JSON objects as payloads.
#[derive(Debug)]
pub struct BatchWriter {
    from: Batch,
    payloads: Vec<u8>,
    rows: Vec<BaseRow>,
}

impl BatchWriter {
    pub(super) fn new(from: &Batch) -> Self {
        Self {
            from: from.clone(),
            payloads: Vec::with_capacity(from.base.size_bytes().min(BUFFER_BYTES)),
            rows: Vec::with_capacity(from.len()),
        }
    }

    /// Appends a row that descends from row `from`; `write` appends its payload, a JSON object, to the buffer. If it
    /// fails, there is no row.
    pub fn push<E>(&mut self, from: usize, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let start = self.payloads.len();
        match write(&mut self.payloads) {
            Ok(()) => {
                let span = start as u32..self.payloads.len() as u32;
                self.rows.push(BaseRow::new(self.from.record_number(from), Some(span)));
                Ok(())
            }
            Err(error) => {
                self.payloads.truncate(start);
                Err(error)
            }
        }
    }

    /// Appends a row without a payload that descends from row `from`.
    pub(crate) fn push_null(&mut self, from: usize) {
        self.rows.push(BaseRow::new(self.from.record_number(from), None));
    }

    /// The number of rows so far.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// `true` before the first row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The batch of all rows.
    pub fn finish(self) -> Batch {
        let view = Arc::new(View::all(self.rows.len()));
        let base = Arc::new(Base::new(self.payloads.into(), self.rows));
        Batch { base, shape: None, view, has_objects: true, ..self.from }
    }
}
