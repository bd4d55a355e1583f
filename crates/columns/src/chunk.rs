//! A chunk of some hundred records during matching. Fields are read on demand, all needed fields of a record in one pass,
//! and stay as columns for the next reader.
//!
//! A payload is JSON or it has no fields. Finding fields does not prove that it is JSON, so a match must pass
//! [`Chunk::check_whole`] first: once for each matching record, not for each record. The fields of a payload that turns out
//! not to be JSON are forgotten.

mod column;
mod condition_results;
mod evaluate;
mod numbers;
mod selection;
mod truth;

use millstream_types::{PartitionId, RecordView};

use self::column::Column;
pub use self::condition_results::{ConditionId, ConditionResults};
pub use self::evaluate::ChunkRow;
pub use self::selection::Selection;
pub use self::truth::Truth;
use crate::field_table::FieldTable;
use crate::scan::is_json;
use crate::{EvalError, Field, Value};

/// Most values of one chunk for which room is made: of records with very many fields fewer are looked at together.
const VALUES_MAX: usize = 1 << 16;

/// The payload of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkPayload<'a> {
    /// The record has no payload.
    None,
    /// The payload is JSON; without white space around it.
    Json(&'a [u8]),
    /// The payload is not JSON.
    Damaged(&'a [u8]),
}

/// Records that are matched together, at most [`Selection::END`].
pub struct Chunk<'a, 'c> {
    views: &'c [RecordView<'a>],
    partition: PartitionId,
    now_ms: i64,
    /// The fields that the conditions read.
    pub table: &'c FieldTable,
    /// Payloads that are known to be JSON, all of them.
    whole: Selection,
    /// Payloads that are known not to be JSON: they have no fields.
    damaged: Selection,
    /// By record: where its fields begin in `found`, once it has been read.
    read: Vec<Option<u32>>,
    found: Vec<Option<&'a [u8]>>,
    visited: Vec<bool>,
    /// By the stream's numbers of the fields.
    columns: Vec<Option<Box<Column<'a>>>>,
    /// The results of conditions that several filters share.
    pub known: &'c mut ConditionResults,
}

impl<'a, 'c> Chunk<'a, 'c> {
    /// The number of records in a chunk, for queries with that many fields.
    pub fn size(fields: usize) -> usize {
        (VALUES_MAX / fields.max(1)).clamp(1, Selection::END)
    }

    /// Takes records; `now_ms` is what NOW means.
    pub fn new(
        views: &'c [RecordView<'a>],
        partition: PartitionId,
        now_ms: i64,
        table: &'c FieldTable,
        known: &'c mut ConditionResults,
    ) -> Self {
        known.clear();
        Self {
            views,
            partition,
            now_ms,
            table,
            whole: Selection::NONE,
            damaged: Selection::NONE,
            read: Vec::new(),
            found: Vec::new(),
            visited: Vec::new(),
            columns: Vec::new(),
            known,
        }
    }

    /// The selection of all records.
    pub fn all(&self) -> Selection {
        Selection::first(self.views.len())
    }

    /// The time of evaluation, NOW.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// The payloads that are known not to be JSON.
    pub fn damaged(&self) -> Selection {
        self.damaged
    }

    /// Checks that these payloads are JSON as a whole. Returns those that are now known not to be.
    pub fn check_whole(&mut self, records: Selection) -> Selection {
        let unknown = records - self.whole - self.damaged;
        if unknown.is_empty() {
            return unknown;
        }
        let whole = unknown.filter(|record| self.views[record].value.is_none_or(is_json));
        self.whole |= whole;
        self.damage(unknown - whole);
        unknown - whole
    }

    /// Checks the payloads that nobody has read yet: those whose first and last bytes cannot be JSON are damaged.
    pub fn check_ends(&mut self) {
        let unknown = self.all() - self.whole - self.damaged;
        let odd = unknown.filter(|record| self.views[record].value.is_some_and(|payload| !has_ends_of_json(payload)));
        self.check_whole(odd);
    }

    /// Marks these payloads as damaged, so that their fields do not count.
    fn damage(&mut self, records: Selection) {
        if records.is_empty() {
            return;
        }
        self.damaged |= records;
        for (slot, column) in self.columns.iter_mut().enumerate() {
            if let (Some(column), Some(Field::Payload(_))) = (column, self.table.field(slot as u32)) {
                column.forget(records);
            }
        }
        self.known.forget(records);
    }

    /// Finds all fields in the payload of a record.
    fn read(&mut self, record: usize) {
        if self.read.is_empty() {
            self.read.resize(self.views.len(), None);
        }
        if self.read[record].is_some() {
            return;
        }
        let start = self.found.len();
        self.read[record] = Some(start as u32);
        self.found.resize(start + self.table.end(), None);
        let Some(payload) = self.views[record].value.filter(|_| !self.table.tree().is_empty()) else {
            return;
        };
        if self.table.tree().find(payload, &mut self.visited, &mut self.found[start..]).is_err() {
            self.damage(Selection::one(record));
        } else if !payload.trim_ascii_start().starts_with(b"{") {
            self.check_whole(Selection::one(record));
        }
    }

    /// The bytes of a payload field.
    fn raw(&mut self, slot: u32, record: usize) -> Option<&'a [u8]> {
        if !self.damaged.contains(record) {
            self.read(record);
        }
        if self.damaged.contains(record) {
            return None;
        }
        let start = self.read.get(record).copied().flatten()?;
        self.found.get(start as usize + slot as usize).copied().flatten()
    }

    /// Reads the field of these records into its column.
    fn look_at(&mut self, slot: u32, records: Selection) {
        let place = slot as usize;
        if place >= self.columns.len() {
            self.columns.resize_with(self.table.end().max(place + 1), || None);
        }
        let count = self.views.len();
        let known = self.columns[place].get_or_insert_with(|| Box::new(Column::new(count))).known;
        for record in (records - known).records() {
            let value = match self.table.field(slot) {
                None => Ok(Value::Null),
                Some(Field::Payload(_)) => self.raw(slot, record).map_or(Ok(Value::Null), Value::read),
                Some(field) => field.of_record(&self.views[record], Some(self.partition)),
            };
            if let Some(column) = &mut self.columns[place] {
                column.set(record, value);
            }
        }
    }

    /// The values of a field, as far as they were read.
    fn column(&self, slot: u32) -> Option<&Column<'a>> {
        self.columns.get(slot as usize)?.as_deref()
    }

    /// The records among `records` in which the field is NULL.
    pub fn nulls(&mut self, slot: u32, records: Selection) -> Selection {
        self.look_at(slot, records);
        self.column(slot).map_or(records, |column| column.nulls & records)
    }

    /// The value of a field of one record.
    ///
    /// # Errors
    /// [`EvalError`] if the field cannot be read.
    pub fn value(&mut self, slot: u32, record: usize) -> Result<Value<'a>, EvalError> {
        if self.column(slot).is_none_or(|column| !column.known.contains(record)) {
            self.look_at(slot, Selection::one(record));
        }
        match self.column(slot) {
            Some(column) if column.failed.contains(record) => Err(EvalError::Unreadable),
            Some(column) => Ok(column.value(record).clone()),
            None => Ok(Value::Null),
        }
    }

    /// Writes a field of one record as JSON, with the bytes of the payload.
    ///
    /// # Errors
    /// [`EvalError`] if a field of the metadata cannot be read.
    pub fn write_value(&mut self, slot: u32, record: usize, out: &mut Vec<u8>) -> Result<(), EvalError> {
        if let Some(Field::Payload(_)) = self.table.field(slot) {
            out.extend_from_slice(self.raw(slot, record).unwrap_or(b"null"));
            return Ok(());
        }
        self.value(slot, record)?.write_json(out);
        Ok(())
    }

    /// The payload of a record, which has been checked before.
    #[inline]
    pub fn payload(&self, record: usize) -> ChunkPayload<'a> {
        match self.views[record].value {
            None => ChunkPayload::None,
            Some(payload) if self.damaged.contains(record) => ChunkPayload::Damaged(payload),
            Some(payload) => ChunkPayload::Json(payload.trim_ascii()),
        }
    }
}

/// True if a payload begins and ends like an object or an array.
fn has_ends_of_json(payload: &[u8]) -> bool {
    let payload = payload.trim_ascii();
    matches!((payload.first(), payload.last()), (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']')))
}
