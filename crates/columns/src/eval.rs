//! The value of an expression for one record, in three-valued logic.

use crate::nested;
use crate::operand::{Operand, Predicate};
use crate::value::{EvalError, Value};

/// A record for evaluation: its fields by number.
pub trait Row<'a> {
    /// The value of a field.
    ///
    /// # Errors
    /// [`EvalError`] if the field cannot be read.
    fn field(&mut self, field: usize) -> Result<Value<'a>, EvalError>;
    /// The time of evaluation in ms, the value of NOW.
    fn now_ms(&self) -> i64;
    /// `true` if arithmetic with a value that is neither a number nor NULL is an error; else it gives NULL.
    fn refuses_arithmetic_on_others(&self) -> bool {
        false
    }
}

/// A row of given values instead of a record.
struct FieldValues<'a> {
    values: &'a [Value<'static>],
    now_ms: i64,
}

impl<'a> Row<'a> for FieldValues<'a> {
    fn field(&mut self, field: usize) -> Result<Value<'a>, EvalError> {
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
    /// The value for the given values of the fields.
    ///
    /// # Errors
    /// [`EvalError`] if the expression has no value.
    pub fn value_of_given<'v>(&'v self, values: &'v [Value<'static>], now_ms: i64) -> Result<Value<'v>, EvalError> {
        self.value(&mut FieldValues { values, now_ms })
    }

    /// The value for the record `row`.
    ///
    /// # Errors
    /// [`EvalError`] if the expression has no value for it.
    pub fn value<'v, 'a: 'v>(&'v self, row: &mut impl Row<'a>) -> Result<Value<'v>, EvalError> {
        match self {
            Self::Field(field) => row.field(*field),
            Self::Constant(Value::Text(text)) => Ok(Value::Text(text.as_ref().into())),
            Self::Constant(value) => Ok(value.clone()),
            Self::Now => Ok(Value::Integer(row.now_ms())),
            Self::Predicate(test) => Ok(test.truth(row)?.map_or(Value::Null, Value::Boolean)),
            Self::Formula(formula) => formula.value(row),
        }
    }
}

impl Predicate {
    /// True if the condition is TRUE for the given values of the fields.
    ///
    /// # Errors
    /// [`EvalError`] if the condition has no value.
    pub fn holds_for_given(&self, values: &[Value<'static>], now_ms: i64) -> Result<bool, EvalError> {
        Ok(self.truth(&mut FieldValues { values, now_ms })? == Some(true))
    }

    /// The truth of the condition for `row`; `None` is NULL.
    ///
    /// # Errors
    /// [`EvalError`] if the condition has no value.
    pub fn truth<'a>(&self, row: &mut impl Row<'a>) -> Result<Option<bool>, EvalError> {
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
                let Some(list) = nested::list(list.value(row)?)? else { return Ok(None) };
                let holds = |item: &Value<'_>| value.compare(item).map(|order| comparison.holds(order));
                // ALL is the negation of ANY with the negated comparison.
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
fn any<T>(
    parts: &[T],
    mut truth: impl FnMut(&T) -> Result<Option<bool>, EvalError>,
) -> Result<Option<bool>, EvalError> {
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
