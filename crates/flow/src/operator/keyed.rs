//! Operators that keep a value for each key.

use crate::Error;
use crate::batch::Batch;
use crate::state::TellChange;

/// The work of a keyed operator in one instance, with its state.
pub(crate) trait KeyedOperator: Send {
    /// Works on rows, each with its key; the rows that pass, in order.
    ///
    /// # Errors
    /// There is no memory for more state. The state is that of a part of the batch.
    fn apply(&mut self, batch: &Batch, rows: &KeyedRows) -> Result<Vec<u32>, Error>;
    /// Tells the last value, or its end, of each key that was changed since the last call.
    fn take_changes(&mut self, tell: &mut TellChange<'_>);
    /// Takes a stored value over.
    ///
    /// # Errors
    /// It is no stored value, or there is no memory for it.
    fn restore(&mut self, key: &[u8], stored: &[u8]) -> Result<(), Error>;
    /// The number of keys that have a value.
    fn keys(&self) -> usize;
}

/// The keys of rows of a batch, in their order.
#[derive(Debug, Default)]
pub(crate) struct KeyedRows {
    keys: Vec<u8>,
    /// Each row, and the end of its key.
    rows: Vec<(u32, usize)>,
}

impl KeyedRows {
    /// Adds the key of a row.
    pub(crate) fn push(&mut self, row: u32, key: &[u8]) {
        self.keys.extend_from_slice(key);
        self.rows.push((row, self.keys.len()));
    }

    /// The rows and their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut start = 0;
        self.rows.iter().map(move |(row, end)| (*row, &self.keys[std::mem::replace(&mut start, *end)..*end]))
    }
}
