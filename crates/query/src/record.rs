//! One record while it is matched: fields are read when the first is asked for, all in one pass.
//!
//! A payload is JSON or it has no fields. Finding fields does not prove that it is JSON, so whoever would act on a
//! record asks [`LazyRecord::check_whole`] first: that is once for each record that matches, not for each that is read.

use millstream_columns::{Field, Unreadable, Value};
use millstream_types::{PartitionId, RecordView};
use serde::de::IgnoredAny;

use crate::fields::FieldTable;
use crate::rows::write_opaque;

/// Buffers that the records of a batch share.
#[derive(Debug, Default)]
pub(crate) struct Scratch<'a> {
    found: Vec<Option<&'a [u8]>>,
    visited: Vec<bool>,
    /// What has been read of the fields, so that many queries that ask for one read it once.
    values: Vec<Option<Result<Value<'a>, Unreadable>>>,
}

/// What is known about the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Payload {
    /// Nothing that contradicts JSON.
    Plausible,
    /// All of it is JSON.
    Whole,
    /// It is not JSON: it has no fields.
    Damaged,
}

pub(crate) struct LazyRecord<'a, 's> {
    view: RecordView<'a>,
    partition: PartitionId,
    now_ms: i64,
    table: &'s FieldTable,
    scratch: &'s mut Scratch<'a>,
    payload: Payload,
    read: bool,
}

impl<'a, 's> LazyRecord<'a, 's> {
    /// Takes a record.
    pub(crate) fn new(
        view: RecordView<'a>,
        partition: PartitionId,
        now_ms: i64,
        table: &'s FieldTable,
        scratch: &'s mut Scratch<'a>,
    ) -> Self {
        scratch.values.clear();
        scratch.values.resize(table.end(), None);
        Self { view, partition, now_ms, table, scratch, payload: Payload::Plausible, read: false }
    }

    /// Finds all fields in the payload.
    fn read(&mut self) {
        if std::mem::replace(&mut self.read, true) {
            return;
        }
        let Scratch { found, visited, values } = &mut *self.scratch;
        found.clear();
        found.resize(self.table.end(), None);
        let Some(payload) = self.view.value.filter(|_| !self.table.tree().is_empty()) else {
            return;
        };
        if self.table.tree().find(payload, visited, found).is_err() {
            self.payload = Payload::Damaged;
            values.fill(None);
        } else if !payload.trim_ascii_start().starts_with(b"{") {
            self.check_whole();
        }
    }

    /// Makes sure that the payload is JSON as a whole before somebody acts on it.
    pub(crate) fn check_whole(&mut self) {
        if self.payload != Payload::Plausible {
            return;
        }
        let is_json =
            |payload| std::str::from_utf8(payload).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
        self.payload = if self.view.value.is_none_or(is_json) { Payload::Whole } else { Payload::Damaged };
        if self.payload == Payload::Damaged {
            self.scratch.values.fill(None);
        }
    }

    /// Whether the payload is known not to be JSON.
    pub(crate) fn is_damaged(&self) -> bool {
        self.payload == Payload::Damaged
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// The bytes of a payload field.
    fn raw(&mut self, slot: u32) -> Option<&'a [u8]> {
        if self.payload != Payload::Damaged {
            self.read();
        }
        if self.payload == Payload::Damaged { None } else { self.scratch.found[slot as usize] }
    }

    /// The value of a field.
    pub(crate) fn value(&mut self, slot: u32) -> Result<Value<'a>, Unreadable> {
        if let Some(Some(known)) = self.scratch.values.get(slot as usize) {
            return known.clone();
        }
        let value = match self.table.field(slot) {
            None => Ok(Value::Null),
            Some(Field::Payload(_)) => self.raw(slot).map_or(Ok(Value::Null), Value::read),
            Some(field) => field.of_record(&self.view, Some(self.partition)),
        };
        if let Some(place) = self.scratch.values.get_mut(slot as usize) {
            *place = Some(value.clone());
        }
        value
    }

    /// Writes a field as JSON; what stands in the payload byte for byte.
    pub(crate) fn write_value(&mut self, slot: u32, out: &mut Vec<u8>) -> Result<(), Unreadable> {
        if let Some(Field::Payload(_)) = self.table.field(slot) {
            out.extend_from_slice(self.raw(slot).unwrap_or(b"null"));
            return Ok(());
        }
        self.value(slot)?.write_json(out);
        Ok(())
    }

    /// Writes the payload: byte for byte if it is JSON. It has been checked before.
    pub(crate) fn write_payload(&self, out: &mut Vec<u8>) {
        match self.view.value {
            None => out.extend_from_slice(b"null"),
            Some(payload) if self.is_damaged() => write_opaque(out, payload),
            Some(payload) => out.extend_from_slice(payload.trim_ascii()),
        }
    }
}
