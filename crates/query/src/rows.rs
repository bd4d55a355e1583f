//! Result rows as JSON, many in one buffer.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_types::Grant;

/// Some result rows of one query, in the order of their records. Each row is one JSON value.
#[derive(Clone, Default)]
pub struct RowBatch {
    json: Vec<u8>,
    /// Where each row ends in `json`.
    ends: Vec<usize>,
    /// The memory that it takes from where it waits for its client until it is gone.
    held: Option<Arc<Grant>>,
}

impl RowBatch {
    /// How many rows.
    pub fn row_count(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// What the rows take.
    pub fn size_bytes(&self) -> usize {
        self.json.len() + self.ends.len() * size_of::<usize>()
    }

    /// The JSON of each row.
    pub fn rows(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.json[start..*end])
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

    /// The memory that it takes, to be kept as long as its rows are in another form.
    pub fn held(&self) -> Option<Arc<Grant>> {
        self.held.clone()
    }

    /// Keeps `memory` as long as it lives.
    pub(crate) fn hold(&mut self, memory: Grant) {
        self.held = Some(Arc::new(memory));
    }

    /// Keeps the first `row_count` rows.
    pub(crate) fn truncate(&mut self, row_count: usize) {
        self.ends.truncate(row_count);
        self.json.truncate(self.ends.last().copied().unwrap_or(0));
    }

    /// Adds what `write` writes as a row; if it fails, nothing.
    pub(crate) fn try_push<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let written = write(&mut self.json);
        match written {
            Ok(()) => self.ends.push(self.json.len()),
            Err(_) => self.json.truncate(self.ends.last().copied().unwrap_or(0)),
        }
        written
    }
}

impl fmt::Debug for RowBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rows().map(String::from_utf8_lossy)).finish()
    }
}

/// Writes a text as JSON.
pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing to memory cannot fail");
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
