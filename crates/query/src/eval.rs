//! Whether a record satisfies a condition, one record at a time, in three-valued logic.

use crate::aggregate::write_input;
use crate::compiled::{Column, Compiled, Operand, Test};
use crate::nested;
use crate::record::LazyRecord;
use crate::value::{Failure, Value};

/// TRUE, FALSE, or NULL.
type Truth = Option<bool>;

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Match,
    NoMatch,
    /// Something that had to be read cannot be.
    Error,
}

/// What an expression is evaluated on: its fields by number.
pub(crate) trait Row<'a> {
    /// The value of a field.
    fn field(&mut self, field: usize) -> Result<Value<'a>, Failure>;
    /// What NOW means.
    fn now_ms(&self) -> i64;
}

/// A record as one query sees it: with its own numbers for fields.
struct Fields<'q, 'r, 'a, 's> {
    record: &'r mut LazyRecord<'a, 's>,
    slots: &'q [u32],
}

/// No record: the values of a group.
struct Group<'a> {
    values: &'a [Value<'static>],
    now_ms: i64,
}

impl Compiled {
    /// Whether all conjuncts are TRUE. After a match the payload is known to be JSON or not.
    pub(crate) fn verdict(&self, slots: &[u32], record: &mut LazyRecord<'_, '_>) -> Verdict {
        if self.tests_null {
            record.check_whole();
        }
        let damaged_before = record.is_damaged();
        let verdict = self.verdict_as_read(slots, record);
        if verdict == Verdict::NoMatch {
            // What a damaged payload seemed to hold could only have helped, as nothing asks for NULL.
            return verdict;
        }
        record.check_whole();
        if record.is_damaged() && !damaged_before { self.verdict_as_read(slots, record) } else { verdict }
    }

    fn verdict_as_read(&self, slots: &[u32], record: &mut LazyRecord<'_, '_>) -> Verdict {
        let fields = &mut Fields { record, slots };
        for test in &self.conjuncts {
            match test.truth(fields) {
                Ok(Some(true)) => {}
                Ok(_) => return Verdict::NoMatch,
                Err(_) => return Verdict::Error,
            }
        }
        Verdict::Match
    }

    /// Writes the result row of a record that matches.
    pub(crate) fn write_row(
        &self,
        slots: &[u32],
        record: &mut LazyRecord<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        if let Some(inputs) = &self.inputs {
            let fields = &mut Fields { record, slots };
            return inputs.iter().try_for_each(|input| {
                write_input(out, &input.value(fields)?);
                Ok(())
            });
        }
        let Some(columns) = &self.columns else {
            record.write_payload(out);
            return Ok(());
        };
        out.push(b'{');
        for Column { value, prefix } in columns {
            out.extend_from_slice(prefix);
            match value {
                Operand::Field(field) => record.write_value(slots[*field], out)?,
                computed => computed.value(&mut Fields { record: &mut *record, slots })?.write_json(out),
            }
        }
        out.push(b'}');
        Ok(())
    }
}

impl<'a> Row<'a> for Fields<'_, '_, 'a, '_> {
    fn field(&mut self, field: usize) -> Result<Value<'a>, Failure> {
        Ok(self.record.value(self.slots[field])?)
    }

    fn now_ms(&self) -> i64 {
        self.record.now_ms()
    }
}

impl<'a> Row<'a> for Group<'a> {
    fn field(&mut self, field: usize) -> Result<Value<'a>, Failure> {
        Ok(match &self.values[field] {
            Value::Text(text) => Value::Text(text.as_ref().into()),
            other => other.clone(),
        })
    }

    fn now_ms(&self) -> i64 {
        self.now_ms
    }
}

impl Operand {
    /// The value for a group with these values.
    pub(crate) fn value_of_group<'v>(
        &'v self,
        values: &'v [Value<'static>],
        now_ms: i64,
    ) -> Result<Value<'v>, Failure> {
        self.value(&mut Group { values, now_ms })
    }

    pub(crate) fn value<'v, 'a: 'v>(&'v self, row: &mut impl Row<'a>) -> Result<Value<'v>, Failure> {
        match self {
            Self::Field(field) => row.field(*field),
            Self::Constant(Value::Text(text)) => Ok(Value::Text(text.as_ref().into())),
            Self::Constant(value) => Ok(value.clone()),
            Self::Now => Ok(Value::Integer(row.now_ms())),
            Self::Test(test) => Ok(test.truth(row)?.map_or(Value::Null, Value::Boolean)),
            Self::Formula(formula) => formula.value(row),
        }
    }
}

impl Test {
    /// Whether it is TRUE for a group with these values.
    pub(crate) fn holds_for_group(&self, values: &[Value<'static>], now_ms: i64) -> Result<bool, Failure> {
        Ok(self.truth(&mut Group { values, now_ms })? == Some(true))
    }

    fn truth<'a>(&self, row: &mut impl Row<'a>) -> Result<Truth, Failure> {
        match self {
            Self::Truth(operand) => Ok(match operand.value(row)? {
                Value::Boolean(value) => Some(value),
                _ => None,
            }),
            Self::Compare(comparison, left, right) => {
                let left = left.value(row)?;
                Ok(left.compare(&right.value(row)?).map(|order| comparison.holds(order)))
            }
            Self::In(value, list) => {
                let value = value.value(row)?;
                any(list, |item| Ok(value.compare(&item.value(row)?).map(|order| order.is_eq())))
            }
            Self::Quantified { comparison, every, value, list } => {
                let value = value.value(row)?;
                let Some(list) = nested::list(&list.value(row)?)? else { return Ok(None) };
                let holds = |item: &Value<'_>| value.compare(item).map(|order| comparison.holds(order));
                // All hold unless one does not.
                let found = any(&list, |item| Ok(holds(item).map(|holds| holds != *every)))?;
                Ok(found.map(|found| found != *every))
            }
            Self::Rlike(operand, pattern) => Ok(match operand.value(row)? {
                Value::Text(text) => Some(pattern.matches(&text)),
                _ => None,
            }),
            Self::IsNull(operand) => Ok(Some(operand.value(row)? == Value::Null)),
            Self::Not(part) => Ok(part.truth(row)?.map(|truth| !truth)),
            Self::And(parts) => Ok(any(parts, |part| Ok(part.truth(row)?.map(|truth| !truth)))?.map(|truth| !truth)),
            Self::Or(parts) => any(parts, |part| part.truth(row)),
            Self::Xor(left, right) => {
                let left = left.truth(row)?;
                Ok(left.zip(right.truth(row)?).map(|(left, right)| left != right))
            }
        }
    }
}

/// Kleene's OR over `parts`, up to the first that is TRUE.
fn any<T>(parts: &[T], mut truth: impl FnMut(&T) -> Result<Truth, Failure>) -> Result<Truth, Failure> {
    let mut any = Some(false);
    for part in parts {
        match truth(part)? {
            Some(true) => return Ok(Some(true)),
            Some(false) => {}
            None => any = None,
        }
    }
    Ok(any)
}
