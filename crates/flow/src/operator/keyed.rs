//! Operators that keep a value for each key.

use std::sync::Arc;

use serde_json::Value;

use crate::Error;
use crate::batch::{Batch, MadeRows};
use crate::document::JoinSide;
use crate::expression::{JoinedRows, RecordError};
use crate::state::TellChange;

/// Records that one call of an operator makes, about; a call ends once there are so many.
pub(super) const MADE_MAX: usize = 1_024;

/// The work of a keyed operator in one instance, with its state.
///
/// Event time comes in two ways: with the rows, each of which has the watermark in front of it, and by
/// [`KeyedOperator::advance`] between them. Work that is due at a time is done before the first row behind that time, so a result
/// does not depend on how input is cut into batches.
pub(crate) trait KeyedOperator: Send {
    /// Works on rows, each with its key, from the first one on.
    ///
    /// # Errors
    /// There is no memory for more state. The state is that of a part of the batch.
    fn apply(&mut self, input: &KeyedInput<'_>) -> Result<KeyedOutput, Error>;
    /// Event time has come to `time_ms` behind all rows so far. Makes the records that are due; `true` if there are no more.
    ///
    /// # Errors
    /// There is no memory for more state.
    fn advance(&mut self, _time_ms: i64, _made: &mut MadeRows) -> Result<bool, Error> {
        Ok(true)
    }
    /// The time of the clock at which [`KeyedOperator::tick`] has work; `None` for no time.
    fn next_tick_ms(&mut self, _now_ms: i64) -> Option<i64> {
        None
    }
    /// The clock has come to `now_ms`. Makes the records that are due by it; `true` if there are no more.
    ///
    /// # Errors
    /// There is no memory for more state.
    fn tick(&mut self, _now_ms: i64, _made: &mut MadeRows) -> Result<bool, Error> {
        Ok(true)
    }
    /// There will be no more rows, as the job completes. Makes the records that are due then; `true` if there are no more.
    ///
    /// # Errors
    /// There is no memory for more state.
    fn finish(&mut self, _made: &mut MadeRows) -> Result<bool, Error> {
        Ok(true)
    }
    /// `true` if time goes on for it while all sources are silent: with the clock, from the watermark on.
    fn watches_silence(&self) -> bool {
        false
    }
    /// For one that watches silence, the time at which [`KeyedOperator::advance`] may have work; `None` for no time.
    fn next_time_ms(&self) -> Option<i64> {
        None
    }
    /// The time by which records that the operator makes may lie behind the watermark.
    fn delay_ms(&self) -> i64 {
        0
    }
    /// Tells the last value, or its end, of each key that was changed since the last call.
    fn take_changes(&mut self, tell: &mut TellChange<'_>);
    /// Takes a stored value over.
    ///
    /// # Errors
    /// It is no stored value, or there is no memory for it.
    fn restore(&mut self, key: &[u8], stored: &[u8]) -> Result<(), Error>;
    /// The digest of all that was told as changed, or restored; see [`digest_of`](crate::state::digest_of).
    fn digest(&self) -> u64;
    /// The key of the records to which the value that is stored under `stored_key` belongs.
    fn key_of<'k>(&self, stored_key: &'k [u8]) -> &'k [u8] {
        stored_key
    }
    /// The stored keys and values of a key as JSON, for people; `None` if they are not of this operator.
    fn describe(&self, key: &[u8], stored: &[StoredValue]) -> Option<Value>;
    /// The number of keys that have a value.
    fn keys(&self) -> usize;
}

/// A value as it is stored, with its key.
pub(crate) type StoredValue = (Box<[u8]>, Box<[u8]>);

/// A batch for a keyed operator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyedInput<'a> {
    pub(crate) batch: &'a Batch,
    pub(crate) rows: &'a KeyedRows,
    /// The input row of each row; `None` if they are the same rows. A call ends in front of a row of another input row than the
    /// one before.
    pub(crate) inputs: Option<&'a [u32]>,
    /// The time of the clock, for expressions.
    pub(crate) now_ms: i64,
    /// The side from which the rows come to a join.
    pub(crate) side: JoinSide,
}

impl KeyedInput<'_> {
    /// `true` for a row at which another call may begin.
    pub(super) fn may_begin(&self, row: usize) -> bool {
        self.inputs.is_none_or(|inputs| row == 0 || inputs[row] != inputs[row - 1])
    }
}

/// The result of a keyed operator's work on a batch.
#[derive(Debug)]
pub(crate) enum KeyedOutput {
    /// These rows pass.
    Passed(Vec<u32>),
    Made(KeyedMade),
    /// These rows pass, with further members.
    Joined(JoinedRows, Vec<RecordError>),
}

/// Records that a keyed operator has made.
#[derive(Debug, Default)]
pub(crate) struct KeyedMade {
    pub(crate) rows: MadeRows,
    pub(crate) failed: Vec<RecordError>,
    /// Rows that came too late, in their order.
    pub(crate) late: Vec<u32>,
    /// The first row that is left for another call.
    pub(crate) rest: Option<u32>,
}

/// A keyed operator with the node that it works for.
pub(crate) struct KeyedNode {
    pub(crate) name: Arc<str>,
    pub(crate) operator: Box<dyn KeyedOperator>,
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

/// The values of a key as JSON texts.
pub(super) fn key_parts(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    key.strip_suffix(b"\n").unwrap_or(key).split(|byte| *byte == b'\n')
}

/// The key as JSON: its value, or the list of its values.
pub(super) fn write_key(key: &[u8], out: &mut Vec<u8>) {
    let mut parts = key_parts(key);
    let first = parts.next().unwrap_or_default();
    match parts.next() {
        None => out.extend_from_slice(first),
        Some(second) => {
            out.push(b'[');
            out.extend_from_slice(first);
            for part in std::iter::once(second).chain(parts) {
                out.push(b',');
                out.extend_from_slice(part);
            }
            out.push(b']');
        }
    }
}

/// The key of a value of state as JSON: its value, or the list of its values.
pub(crate) fn key_as_json(key: &[u8]) -> Value {
    let mut json = Vec::new();
    write_key(key, &mut json);
    serde_json::from_slice(&json).unwrap_or_else(|_| String::from_utf8_lossy(&json).into())
}

/// The key of a record that is made for a key: a text as it is, all else as JSON.
pub(super) fn record_key(key: &[u8]) -> Vec<u8> {
    let mut json = Vec::with_capacity(key.len());
    write_key(key, &mut json);
    match serde_json::from_slice::<String>(&json) {
        Ok(text) => text.into_bytes(),
        Err(_) => json,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_as_its_value_or_the_list_of_its_values() {
        let shown = |key: &[u8]| {
            let mut json = Vec::new();
            write_key(key, &mut json);
            (String::from_utf8(json).unwrap(), String::from_utf8(record_key(key)).unwrap())
        };
        let both = |json: &str, record: &str| (json.to_owned(), record.to_owned());
        assert_eq!(shown(b"\"a \\\"b\\\"\"\n"), both("\"a \\\"b\\\"\"", "a \"b\""));
        assert_eq!(shown(b"7\n"), both("7", "7"));
        assert_eq!(shown(b"null\n"), both("null", "null"));
        assert_eq!(shown(b"\"a\"\n7\n"), both("[\"a\",7]", "[\"a\",7]"));
    }
}
