//! Whether a record satisfies a condition, one record at a time, in three-valued logic.

use crate::aggregate::write_input;
use crate::compiled::{Column, Compiled, Operand, Test};
use crate::record::LazyRecord;
use crate::value::{Unreadable, Value};

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

/// A record as one query sees it: with its own numbers for fields.
enum Fields<'q, 'r, 'a, 's> {
    Record {
        record: &'r mut LazyRecord<'a, 's>,
        slots: &'q [u32],
    },
    /// No record: the values of a group.
    Group {
        values: &'a [Value<'static>],
        now_ms: i64,
    },
}

impl<'a> Fields<'_, '_, 'a, '_> {
    fn value(&mut self, field: usize) -> Result<Value<'a>, Unreadable> {
        match self {
            Self::Record { record, slots } => record.value(slots[field]),
            Self::Group { values, .. } => Ok(match &values[field] {
                Value::Text(text) => Value::Text(text.as_ref().into()),
                other => other.clone(),
            }),
        }
    }

    fn now_ms(&self) -> i64 {
        match self {
            Self::Record { record, .. } => record.now_ms(),
            Self::Group { now_ms, .. } => *now_ms,
        }
    }
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
        let fields = &mut Fields::Record { record, slots };
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
    ) -> Result<(), Unreadable> {
        if let Some(inputs) = &self.inputs {
            let fields = &mut Fields::Record { record, slots };
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
                computed => computed.value(&mut Fields::Record { record: &mut *record, slots })?.write_json(out),
            }
        }
        out.push(b'}');
        Ok(())
    }
}

impl Operand {
    /// The value for a group with these values.
    pub(crate) fn value_of_group<'v>(
        &'v self,
        values: &'v [Value<'static>],
        now_ms: i64,
    ) -> Result<Value<'v>, Unreadable> {
        self.value(&mut Fields::Group { values, now_ms })
    }

    fn value<'v, 'a: 'v>(&'v self, fields: &mut Fields<'_, '_, 'a, '_>) -> Result<Value<'v>, Unreadable> {
        match self {
            Self::Field(field) => fields.value(*field),
            Self::Constant(Value::Text(text)) => Ok(Value::Text(text.as_ref().into())),
            Self::Constant(value) => Ok(value.clone()),
            Self::Now => Ok(Value::Integer(fields.now_ms())),
            Self::Test(test) => Ok(test.truth(fields)?.map_or(Value::Null, Value::Boolean)),
        }
    }
}

impl Test {
    /// Whether it is TRUE for a group with these values.
    pub(crate) fn holds_for_group(&self, values: &[Value<'static>], now_ms: i64) -> Result<bool, Unreadable> {
        Ok(self.truth(&mut Fields::Group { values, now_ms })? == Some(true))
    }

    fn truth(&self, fields: &mut Fields<'_, '_, '_, '_>) -> Result<Truth, Unreadable> {
        match self {
            Self::Truth(operand) => Ok(match operand.value(fields)? {
                Value::Boolean(value) => Some(value),
                _ => None,
            }),
            Self::Compare(comparison, left, right) => {
                let left = left.value(fields)?;
                Ok(left.compare(&right.value(fields)?).map(|order| comparison.holds(order)))
            }
            Self::In(value, list) => {
                let value = value.value(fields)?;
                any(list, |item| Ok(value.compare(&item.value(fields)?).map(|order| order.is_eq())))
            }
            Self::Rlike(operand, pattern) => Ok(match operand.value(fields)? {
                Value::Text(text) => Some(pattern.matches(&text)),
                _ => None,
            }),
            Self::IsNull(operand) => Ok(Some(operand.value(fields)? == Value::Null)),
            Self::Not(part) => Ok(part.truth(fields)?.map(|truth| !truth)),
            Self::And(parts) => Ok(any(parts, |part| Ok(part.truth(fields)?.map(|truth| !truth)))?.map(|truth| !truth)),
            Self::Or(parts) => any(parts, |part| part.truth(fields)),
        }
    }
}

/// Kleene's OR over `parts`, up to the first that is TRUE.
fn any<T>(parts: &[T], mut truth: impl FnMut(&T) -> Result<Truth, Unreadable>) -> Result<Truth, Unreadable> {
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
