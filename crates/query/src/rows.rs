//! Result rows as JSON, many in one buffer.

use std::fmt;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_columns::write_text;
use millstream_types::{Grant, MemoryBudget};

/// Some result rows, in the order of their records. Each row is one JSON value. Queries that ask the same share one
/// encoding; a clone shares it too.
#[derive(Clone, Default)]
pub struct RowBatch {
    shared: Arc<SharedRows>,
    /// The number of the first rows that count.
    row_count: usize,
}

#[derive(Default)]
struct SharedRows {
    rows: Rows,
    /// The memory grant, from the first wait for a client until all copies are dropped.
    held: OnceLock<Arc<Grant>>,
}

/// Rows that are being written.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    json: Vec<u8>,
    /// The end of each row in `json`.
    ends: Vec<usize>,
    /// Evaluation errors, by the number of rows before them; ascending.
    errors: Vec<(usize, u64)>,
}

impl Rows {
    /// Adds the row that `write` writes.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.json);
        self.ends.push(self.json.len());
    }

    /// As [`Self::push`]; `write` returns true if a value of the row could not be computed, which counts before the row.
    pub(crate) fn push_evaluated(&mut self, write: impl FnOnce(&mut Vec<u8>) -> bool) {
        let has_failed = write(&mut self.json);
        self.count_errors(u64::from(has_failed));
        self.ends.push(self.json.len());
    }

    /// Counts evaluation errors behind the last row.
    pub(crate) fn count_errors(&mut self, count: u64) {
        match self.errors.last_mut() {
            Some((row_count, errors)) if *row_count == self.ends.len() => *errors += count,
            _ if count > 0 => self.errors.push((self.ends.len(), count)),
            _ => {}
        }
    }
}

impl From<Rows> for RowBatch {
    fn from(rows: Rows) -> Self {
        let row_count = rows.ends.len();
        Self { shared: Arc::new(SharedRows { rows, held: OnceLock::new() }), row_count }
    }
}

impl RowBatch {
    /// The number of rows in the batch.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// True if the batch has no rows.
    pub fn is_empty(&self) -> bool {
        self.row_count == 0
    }

    /// The size of the rows in bytes.
    pub fn size_bytes(&self) -> usize {
        self.ends().last().copied().unwrap_or(0) + self.row_count * size_of::<usize>()
    }

    fn ends(&self) -> &[usize] {
        &self.shared.rows.ends[..self.row_count]
    }

    /// The JSON of each row.
    pub fn rows(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends().iter().copied());
        starts.zip(self.ends()).map(|(start, end)| &self.shared.rows.json[start..*end])
    }

    /// Appends the rows to `out`, with commas between them.
    pub fn write_list(&self, out: &mut Vec<u8>) {
        for (i, row) in self.rows().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(row);
        }
    }

    /// `{"records": […]}`.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = b"{\"records\":[".to_vec();
        self.write_list(&mut json);
        json.extend_from_slice(b"]}");
        json
    }

    /// Takes memory for all rows from `memory`, unless another client has done so. False if there is none left.
    pub(crate) fn hold(&self, memory: &MemoryBudget) -> bool {
        if self.shared.held.get().is_some() {
            return true;
        }
        let Rows { json, ends, errors } = &self.shared.rows;
        let grant = memory.take((json.len() + size_of_val(&**ends) + size_of_val(&**errors)) as u64);
        grant.is_some_and(|grant| self.shared.held.set(Arc::new(grant)).is_ok())
    }

    /// The evaluation errors of all rows, and of the records between and behind them.
    pub(crate) fn evaluation_errors(&self) -> u64 {
        self.shared.rows.errors.iter().map(|(_, errors)| errors).sum()
    }

    /// The evaluation errors up to the row with this number, which is the last that was asked for.
    pub(crate) fn evaluation_errors_up_to(&self, row_count: usize) -> u64 {
        let errors = &self.shared.rows.errors;
        errors.iter().take_while(|(before, _)| *before < row_count).map(|(_, errors)| errors).sum()
    }

    /// Keeps the first `row_count` rows.
    pub(crate) fn truncate(&mut self, row_count: usize) {
        self.row_count = self.row_count.min(row_count);
    }
}

impl fmt::Debug for RowBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rows().map(String::from_utf8_lossy)).finish()
    }
}

/// Writes a payload that is no JSON as JSON: a text, or `{"$base64": …}` if it is not even UTF-8.
pub(crate) fn write_opaque(out: &mut Vec<u8>, payload: &[u8]) {
    match std::str::from_utf8(payload) {
        Ok(text) => write_text(out, text),
        Err(_) => {
            out.extend_from_slice(b"{\"$base64\":\"");
            out.extend_from_slice(BASE64.encode(payload).as_bytes());
            out.extend_from_slice(b"\"}");
        }
    }
}
