//! Some hundred records while they are matched: fields are read when somebody asks for them, all fields of a record in one
//! pass, and kept as columns, so that whoever asks next has them.
//!
//! A payload is JSON or it has no fields. Finding fields does not prove that it is JSON, so whoever would act on a
//! record asks [`Chunk::check_whole`] first: that is once for each record that matches, not for each that is read.
//! What was found out about a payload that then turns out not to be JSON is forgotten.

mod column;
mod numbers;
mod selection;
mod truth;

use millstream_columns::{Failure, Field, Value};
use millstream_types::{PartitionId, RecordView};
use serde::de::IgnoredAny;

use self::column::Column;
pub(crate) use self::selection::Selection;
pub(crate) use self::truth::{RowOf, Truth};
use crate::conditions::Known;
use crate::fields::FieldTable;
use crate::rows::write_opaque;

/// Most values of one chunk for which room is made: of records with very many fields fewer are looked at together.
const VALUES_MAX: usize = 1 << 16;

/// Records that are matched together, at most [`Selection::END`].
pub(crate) struct Chunk<'a, 'c> {
    views: &'c [RecordView<'a>],
    partition: PartitionId,
    now_ms: i64,
    pub(crate) table: &'c FieldTable,
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
    /// What is known of conditions that several filters have.
    pub(crate) known: &'c mut Known,
}

impl<'a, 'c> Chunk<'a, 'c> {
    /// How many records are matched together if their queries have so many fields.
    pub(crate) fn size(fields: usize) -> usize {
        (VALUES_MAX / fields.max(1)).clamp(1, Selection::END)
    }

    /// Takes records; `now_ms` is what NOW means.
    pub(crate) fn new(
        views: &'c [RecordView<'a>],
        partition: PartitionId,
        now_ms: i64,
        table: &'c FieldTable,
        known: &'c mut Known,
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

    /// All records.
    pub(crate) fn all(&self) -> Selection {
        Selection::first(self.views.len())
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// The payloads that are known not to be JSON.
    pub(crate) fn damaged(&self) -> Selection {
        self.damaged
    }

    /// Makes sure that these payloads are JSON as a whole before somebody acts on them. Those that have now been found not
    /// to be.
    pub(crate) fn check_whole(&mut self, records: Selection) -> Selection {
        let unknown = records - self.whole - self.damaged;
        if unknown.is_empty() {
            return unknown;
        }
        let is_json =
            |payload| std::str::from_utf8(payload).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
        let whole = unknown.filter(|record| self.views[record].value.is_none_or(is_json));
        self.whole |= whole;
        self.damage(unknown - whole);
        unknown - whole
    }

    /// These are not JSON, so what they seemed to hold does not count.
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

    /// Makes sure that what the field holds in these records is in its column.
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

    /// What has been looked at of a field.
    fn column(&self, slot: u32) -> Option<&Column<'a>> {
        self.columns.get(slot as usize)?.as_deref()
    }

    /// Of these records those in which the field is NULL.
    pub(crate) fn nulls(&mut self, slot: u32, records: Selection) -> Selection {
        self.look_at(slot, records);
        self.column(slot).map_or(records, |column| column.nulls & records)
    }

    /// The value of a field of one record.
    pub(crate) fn value(&mut self, slot: u32, record: usize) -> Result<Value<'a>, Failure> {
        if self.column(slot).is_none_or(|column| !column.known.contains(record)) {
            self.look_at(slot, Selection::one(record));
        }
        match self.column(slot) {
            Some(column) if column.failed.contains(record) => Err(Failure::Unreadable),
            Some(column) => Ok(column.value(record).clone()),
            None => Ok(Value::Null),
        }
    }

    /// Writes a field of one record as JSON; what stands in the payload byte for byte.
    pub(crate) fn write_value(&mut self, slot: u32, record: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
        if let Some(Field::Payload(_)) = self.table.field(slot) {
            out.extend_from_slice(self.raw(slot, record).unwrap_or(b"null"));
            return Ok(());
        }
        self.value(slot, record)?.write_json(out);
        Ok(())
    }

    /// Writes the payload of a record: byte for byte if it is JSON. It has been checked before.
    pub(crate) fn write_payload(&self, record: usize, out: &mut Vec<u8>) {
        match self.views[record].value {
            None => out.extend_from_slice(b"null"),
            Some(payload) if self.damaged.contains(record) => write_opaque(out, payload),
            Some(payload) => out.extend_from_slice(payload.trim_ascii()),
        }
    }
}
