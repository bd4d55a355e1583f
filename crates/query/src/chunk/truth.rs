//! Conditions over the records of a chunk: for each condition all records that are asked about, before the next.
//!
//! What one record at a time gives is the rule (`millstream_columns`), and what is not compared in columns is evaluated
//! like that. As there, a part of AND and OR is not asked about a record that a part before it has decided.

use millstream_columns::{Comparison, Failure, Operand, Row, Test, Value};

use super::numbers::{Numbers, is_number};
use super::{Chunk, Selection};
use crate::hash::hash_text;

/// Where a condition is TRUE, where FALSE, and where it has no value; elsewhere it is NULL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Truth {
    pub(crate) yes: Selection,
    pub(crate) no: Selection,
    pub(crate) failed: Selection,
}

/// A record of a chunk as a query sees it: with its own numbers for fields.
pub(crate) struct RowOf<'q, 'a, 'c> {
    pub(crate) chunk: &'q mut Chunk<'a, 'c>,
    pub(crate) slots: &'q [u32],
    pub(crate) record: usize,
}

impl<'a> Row<'a> for RowOf<'_, 'a, '_> {
    fn field(&mut self, field: usize) -> Result<Value<'a>, Failure> {
        self.chunk.value(self.slots[field], self.record)
    }

    fn now_ms(&self) -> i64 {
        self.chunk.now_ms()
    }
}

impl Truth {
    #[inline]
    fn negated(self) -> Self {
        Self { yes: self.no, no: self.yes, failed: self.failed }
    }

    /// Of the condition that this one is NULL.
    #[inline]
    fn is_null(self, records: Selection) -> Self {
        let values = self.yes | self.no;
        Self { yes: records - values - self.failed, no: values, failed: self.failed }
    }

    /// This for its records, `other` for its own.
    #[inline]
    pub(crate) fn joined(self, other: Self) -> Self {
        Self { yes: self.yes | other.yes, no: self.no | other.no, failed: self.failed | other.failed }
    }

    /// Of these records only.
    #[inline]
    pub(crate) fn within(self, records: Selection) -> Self {
        Self { yes: self.yes & records, no: self.no & records, failed: self.failed & records }
    }
}

impl Chunk<'_, '_> {
    /// What the condition, whose fields have these numbers, is in `records`.
    pub(crate) fn truth(&mut self, test: &Test, slots: &[u32], records: Selection) -> Truth {
        match test {
            Test::Not(part) => self.truth(part, slots, records).negated(),
            Test::Or(parts) => self.any(parts, slots, records, |truth| truth),
            Test::And(parts) => self.any(parts, slots, records, Truth::negated).negated(),
            Test::IsNull(Operand::Test(test)) => self.truth(test, slots, records).is_null(records),
            Test::IsNull(Operand::Field(field)) => {
                let nulls = self.nulls(slots[*field], records);
                let failed = self.failed(slots[*field], records);
                Truth { yes: nulls, no: records - nulls - failed, failed }
            }
            Test::Truth(Operand::Test(test)) => self.truth(test, slots, records),
            Test::Truth(Operand::Field(field)) => {
                self.compare(Comparison::Equal, *field, &Value::Boolean(true), slots, records)
            }
            Test::Compare(comparison, Operand::Field(field), Operand::Constant(value)) => {
                self.compare(*comparison, *field, value, slots, records)
            }
            Test::Compare(comparison, Operand::Constant(value), Operand::Field(field)) => {
                self.compare(comparison.mirrored(), *field, value, slots, records)
            }
            Test::Compare(comparison, left, right) if is_number(left) && is_number(right) => {
                self.look_at_numbers(left, slots, records);
                self.look_at_numbers(right, slots, records);
                self.compare_numbers(*comparison, (left, right), slots, test, records)
            }
            Test::In(Operand::Field(field), list) => self.within(*field, list, slots, test, records),
            Test::Rlike(Operand::Field(field), pattern) => {
                self.of_texts(slots[*field], records, |text| pattern.matches(text))
            }
            _ => self.one_by_one(test, slots, records),
        }
    }

    /// One record at a time.
    fn one_by_one(&mut self, test: &Test, slots: &[u32], records: Selection) -> Truth {
        let mut truth = Truth::default();
        for record in records.records() {
            match test.truth(&mut RowOf { chunk: self, slots, record }) {
                Ok(Some(true)) => truth.yes.insert(record),
                Ok(Some(false)) => truth.no.insert(record),
                Ok(None) => {}
                Err(_) => truth.failed.insert(record),
            }
        }
        truth
    }

    /// Kleene's OR over what `look` makes of the parts.
    fn any(&mut self, parts: &[Test], slots: &[u32], records: Selection, look: impl Fn(Truth) -> Truth) -> Truth {
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

    /// Numbers compared whose fields have been looked at.
    fn compare_numbers(
        &mut self,
        comparison: Comparison,
        (left, right): (&Operand, &Operand),
        slots: &[u32],
        test: &Test,
        records: Selection,
    ) -> Truth {
        let (left, right) = (Numbers::of(left, slots, self), Numbers::of(right, slots, self));
        let (truth, rest) = left.compare(comparison, &right, records);
        if rest.is_empty() { truth } else { truth.joined(self.one_by_one(test, slots, rest)) }
    }

    /// `field IN (list)`.
    fn within(&mut self, field: usize, list: &[Operand], slots: &[u32], test: &Test, records: Selection) -> Truth {
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

    /// Whether the text in a field passes; NULL where there is none.
    fn of_texts(&mut self, slot: u32, records: Selection, passes: impl Fn(&str) -> bool) -> Truth {
        self.look_at(slot, records);
        let Some(column) = self.column(slot) else { return Truth::default() };
        let texts = column.texts & records;
        let yes = texts.filter(|record| passes(column.text(record)));
        Truth { yes, no: texts - yes, failed: column.failed & records }
    }

    /// Whether a field that has been looked at holds this text; NULL where there is none.
    fn equal_texts(&self, slot: u32, records: Selection, text: &str) -> Truth {
        let Some(column) = self.column(slot) else { return Truth::default() };
        let (texts, hash) = (column.texts & records, hash_text(text.as_bytes()));
        let candidates = texts.filter_lanes(|record| column.hash[record] == hash);
        let yes = candidates.filter(|record| column.text(record) == text);
        Truth { yes, no: texts - yes, failed: column.failed & records }
    }
}
