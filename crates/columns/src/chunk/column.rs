//! The values of one field in the records of a chunk, as far as they were read.

use super::selection::Selection;
use crate::hash::hash_text;
use crate::{Unreadable, Value};

/// Integers up to this size are doubles too, exactly.
pub(super) const EXACT_MAX: u64 = 1 << 53;

/// The values of a field, by record and by type.
#[derive(Debug)]
pub(super) struct Column<'a> {
    values: Vec<Value<'a>>,
    /// The records that have been looked at.
    pub(super) known: Selection,
    /// The known records whose value cannot be read.
    pub(super) failed: Selection,
    pub(super) nulls: Selection,
    pub(super) booleans: Selection,
    /// The records whose value is TRUE.
    pub(super) truths: Selection,
    pub(super) texts: Selection,
    pub(super) integers: Selection,
    /// The records whose value is a double, or an integer that is exact as a double.
    pub(super) doubles: Selection,
    /// The numbers, with room up to a multiple of 64.
    pub(super) integer: Vec<i64>,
    pub(super) double: Vec<f64>,
    /// The hashes of the texts, with the same room.
    pub(super) hash: Vec<u64>,
}

impl<'a> Column<'a> {
    /// An unread column for `count` records.
    pub(super) fn new(count: usize) -> Self {
        let lanes = count.next_multiple_of(u64::BITS as usize);
        Self {
            values: vec![Value::Null; count],
            known: Selection::NONE,
            failed: Selection::NONE,
            nulls: Selection::NONE,
            booleans: Selection::NONE,
            truths: Selection::NONE,
            texts: Selection::NONE,
            integers: Selection::NONE,
            doubles: Selection::NONE,
            integer: vec![0; lanes],
            double: vec![0.0; lanes],
            hash: vec![0; lanes],
        }
    }

    /// Adds the value of a record.
    pub(super) fn set(&mut self, record: usize, value: Result<Value<'a>, Unreadable>) {
        self.known.insert(record);
        let Ok(value) = value else {
            self.failed.insert(record);
            return;
        };
        match &value {
            Value::Null => self.nulls.insert(record),
            Value::Boolean(truth) => {
                self.booleans.insert(record);
                if *truth {
                    self.truths.insert(record);
                }
            }
            Value::Integer(integer) => {
                self.integers.insert(record);
                self.integer[record] = *integer;
                if integer.unsigned_abs() <= EXACT_MAX {
                    self.doubles.insert(record);
                    self.double[record] = *integer as f64;
                }
            }
            Value::Double(double) => {
                self.doubles.insert(record);
                self.double[record] = *double;
            }
            Value::Text(text) => {
                self.texts.insert(record);
                self.hash[record] = hash_text(text.as_bytes());
            }
            Value::Nested(_) | Value::List(_) => {}
        }
        self.values[record] = value;
    }

    /// Has these records not been looked at.
    pub(super) fn forget(&mut self, records: Selection) {
        for set in [
            &mut self.known,
            &mut self.failed,
            &mut self.nulls,
            &mut self.booleans,
            &mut self.truths,
            &mut self.texts,
            &mut self.integers,
            &mut self.doubles,
        ] {
            *set -= records;
        }
    }

    /// The value of a record that has been looked at and can be read.
    #[inline]
    pub(super) fn value(&self, record: usize) -> &Value<'a> {
        &self.values[record]
    }

    /// The text of a record that holds one.
    #[inline]
    pub(super) fn text(&self, record: usize) -> &str {
        match &self.values[record] {
            Value::Text(text) => text,
            _ => "",
        }
    }
}
