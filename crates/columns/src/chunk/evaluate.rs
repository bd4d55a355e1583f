//! Conditions over the records of a chunk: each condition is evaluated for all its records before the next one.
//!
//! The results are those of [`Predicate::truth`] for single records, and conditions that have no columnar form are evaluated
//! like that. A part of AND and OR is not evaluated for a record that an earlier part has decided.

use super::Chunk;
use super::numbers::{Numbers, is_number};
use super::selection::Selection;
use super::truth::Truth;
use crate::hash::hash_text;
use crate::{Comparison, EvalError, Operand, Predicate, Row, Value};

/// A record of a chunk as a query sees it: with its own numbers for fields.
pub struct ChunkRow<'q, 'a, 'c> {
    /// The chunk of the record.
    pub chunk: &'q mut Chunk<'a, 'c>,
    /// The numbers of the fields in the chunk's table.
    pub slots: &'q [u32],
    /// The number of the record in the chunk.
    pub record: usize,
}

impl<'a> Row<'a> for ChunkRow<'_, 'a, '_> {
    fn field(&mut self, field: usize) -> Result<Value<'a>, EvalError> {
        self.chunk.value(self.slots[field], self.record)
    }

    fn now_ms(&self) -> i64 {
        self.chunk.now_ms()
    }
}

impl Chunk<'_, '_> {
    /// Evaluates the condition for `records`; `slots` numbers its fields.
    pub fn truth(&mut self, test: &Predicate, slots: &[u32], records: Selection) -> Truth {
        match test {
            Predicate::Not(part) => self.truth(part, slots, records).negated(),
            Predicate::Or(parts) => self.any(parts, slots, records, |truth| truth),
            Predicate::And(parts) => self.any(parts, slots, records, Truth::negated).negated(),
            Predicate::IsNull(Operand::Predicate(test)) => self.truth(test, slots, records).is_null(records),
            Predicate::IsNull(Operand::Field(field)) => {
                let nulls = self.nulls(slots[*field], records);
                let failed = self.failed(slots[*field], records);
                Truth { yes: nulls, no: records - nulls - failed, failed }
            }
            Predicate::Truth(Operand::Predicate(test)) => self.truth(test, slots, records),
            Predicate::Truth(Operand::Field(field)) => {
                self.compare(Comparison::Equal, *field, &Value::Boolean(true), slots, records)
            }
            Predicate::Compare(comparison, Operand::Field(field), Operand::Constant(value)) => {
                self.compare(*comparison, *field, value, slots, records)
            }
            Predicate::Compare(comparison, Operand::Constant(value), Operand::Field(field)) => {
                self.compare(comparison.mirrored(), *field, value, slots, records)
            }
            Predicate::Compare(comparison, left, right) if is_number(left) && is_number(right) => {
                self.look_at_numbers(left, slots, records);
                self.look_at_numbers(right, slots, records);
                self.compare_numbers(*comparison, left, right, slots, test, records)
            }
            Predicate::In(Operand::Field(field), list) => self.within(*field, list, slots, test, records),
            Predicate::Rlike(Operand::Field(field), pattern) => {
                self.of_texts(slots[*field], records, |text| pattern.matches(text))
            }
            _ => self.one_by_one(test, slots, records),
        }
    }

    /// One record at a time.
    fn one_by_one(&mut self, test: &Predicate, slots: &[u32], records: Selection) -> Truth {
        let mut truth = Truth::default();
        for record in records.records() {
            match test.truth(&mut ChunkRow { chunk: self, slots, record }) {
                Ok(Some(true)) => truth.yes.insert(record),
                Ok(Some(false)) => truth.no.insert(record),
                Ok(None) => {}
                Err(_) => truth.failed.insert(record),
            }
        }
        truth
    }

    /// Kleene's OR over the parts, each transformed by `look`.
    fn any(&mut self, parts: &[Predicate], slots: &[u32], records: Selection, look: impl Fn(Truth) -> Truth) -> Truth {
        let mut truth = Truth { no: records, ..Truth::default() };
        let mut open = records;
        for part in parts {
            if open.is_empty() {
                break;
            }
            let part = look(self.truth(part, slots, open));
            truth.yes |= part.yes;
            truth.failed |= part.failed;
            // Neither TRUE nor NULL so far.
            truth.no -= open - part.no;
            open -= part.yes | part.failed;
        }
        truth
    }

    /// Of these records those in which the field cannot be read.
    fn failed(&mut self, slot: u32, records: Selection) -> Selection {
        self.look_at(slot, records);
        self.column(slot).map_or(Selection::NONE, |column| column.failed & records)
    }

    /// `field comparison value`.
    fn compare(
        &mut self,
        comparison: Comparison,
        field: usize,
        value: &Value<'static>,
        slots: &[u32],
        records: Selection,
    ) -> Truth {
        let slot = slots[field];
        self.look_at(slot, records);
        match value {
            Value::Text(text) => match comparison {
                Comparison::Equal => self.equal_texts(slot, records, text),
                Comparison::NotEqual => self.equal_texts(slot, records, text).negated(),
                _ => self.of_texts(slot, records, |found| comparison.holds(found.as_bytes().cmp(text.as_bytes()))),
            },
            Value::Boolean(value) => {
                let Some(column) = self.column(slot) else { return Truth::default() };
                let holds = |found: bool| comparison.holds(found.cmp(value));
                let (truths, lies) = (column.truths, column.booleans - column.truths);
                let of = |found: bool, set| if holds(found) { set } else { Selection::NONE };
                let yes = of(true, truths) | of(false, lies);
                Truth { yes, no: column.booleans - yes, failed: column.failed }.within(records)
            }
            Value::Integer(_) | Value::Double(_) => {
                let failed = self.failed(slot, records);
                let (left, right) = (Numbers::of_field(slot, self), Numbers::of_constant(value));
                let (truth, rest) = left.compare(comparison, &right, records - failed);
                truth.joined(self.by_value(slot, rest, comparison, value)).joined(Truth { failed, ..Truth::default() })
            }
            _ => Truth { failed: self.failed(slot, records), ..Truth::default() },
        }
    }

    /// A field that can be read compared with a value, one record at a time.
    fn by_value(&self, slot: u32, records: Selection, comparison: Comparison, value: &Value<'static>) -> Truth {
        let mut truth = Truth::default();
        let Some(column) = self.column(slot) else { return truth };
        for record in records.records() {
            match column.value(record).compare(value) {
                Some(order) if comparison.holds(order) => truth.yes.insert(record),
                Some(_) => truth.no.insert(record),
                None => {}
            }
        }
        truth
    }

    /// Compares numbers whose fields were read.
    fn compare_numbers(
        &mut self,
        comparison: Comparison,
        left: &Operand,
        right: &Operand,
        slots: &[u32],
        test: &Predicate,
        records: Selection,
    ) -> Truth {
        let (left, right) = (Numbers::of(left, slots, self), Numbers::of(right, slots, self));
        let (truth, rest) = left.compare(comparison, &right, records);
        if rest.is_empty() { truth } else { truth.joined(self.one_by_one(test, slots, rest)) }
    }

    /// `field IN (list)`.
    fn within(&mut self, field: usize, list: &[Operand], slots: &[u32], test: &Predicate, records: Selection) -> Truth {
        if list.iter().any(|item| item.constant().is_none()) {
            return self.one_by_one(test, slots, records);
        }
        let mut truth = Truth { no: records, ..Truth::default() };
        for value in list.iter().filter_map(Operand::constant) {
            let open = records - truth.yes - truth.failed;
            let equal = self.compare(Comparison::Equal, field, value, slots, open);
            truth.yes |= equal.yes;
            truth.failed |= equal.failed;
            truth.no -= open - equal.no;
        }
        truth
    }

    /// Tests the text in a field; NULL without a text.
    fn of_texts(&mut self, slot: u32, records: Selection, passes: impl Fn(&str) -> bool) -> Truth {
        self.look_at(slot, records);
        let Some(column) = self.column(slot) else { return Truth::default() };
        let texts = column.texts & records;
        let yes = texts.filter(|record| passes(column.text(record)));
        Truth { yes, no: texts - yes, failed: column.failed & records }
    }

    /// Compares a field that was read with a text; NULL without a text.
    fn equal_texts(&self, slot: u32, records: Selection, text: &str) -> Truth {
        let Some(column) = self.column(slot) else { return Truth::default() };
        let (texts, hash) = (column.texts & records, hash_text(text.as_bytes()));
        let candidates = texts.filter_lanes(|record| column.hash[record] == hash);
        let yes = candidates.filter(|record| column.text(record) == text);
        Truth { yes, no: texts - yes, failed: column.failed & records }
    }
}
