//! The value of an expression for one record, in three-valued logic.

use crate::compiled::{Operand, Test};
use crate::nested;
use crate::value::{Failure, Value};

/// What an expression is evaluated on: its fields by number.
pub trait Row<'a> {
    /// The value of a field.
    ///
    /// # Errors
    /// It cannot be read.
    fn field(&mut self, field: usize) -> Result<Value<'a>, Failure>;
    /// What NOW means.
    fn now_ms(&self) -> i64;
}

/// No record: values that are given.
struct Given<'a> {
    values: &'a [Value<'static>],
    now_ms: i64,
}

impl<'a> Row<'a> for Given<'a> {
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
    /// The value where those of the fields are given.
    ///
    /// # Errors
    /// Why it has none.
    pub fn value_of_given<'v>(&'v self, values: &'v [Value<'static>], now_ms: i64) -> Result<Value<'v>, Failure> {
        self.value(&mut Given { values, now_ms })
    }

    /// Its value for `row`.
    ///
    /// # Errors
    /// Why it has none.
    pub fn value<'v, 'a: 'v>(&'v self, row: &mut impl Row<'a>) -> Result<Value<'v>, Failure> {
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
    /// Whether it is TRUE where the values of the fields are given.
    ///
    /// # Errors
    /// Why that cannot be told.
    pub fn holds_for_given(&self, values: &[Value<'static>], now_ms: i64) -> Result<bool, Failure> {
        Ok(self.truth(&mut Given { values, now_ms })? == Some(true))
    }

    /// Whether it holds for `row`; `None` is NULL.
    ///
    /// # Errors
    /// Why that cannot be told.
    pub fn truth<'a>(&self, row: &mut impl Row<'a>) -> Result<Option<bool>, Failure> {
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
fn any<T>(parts: &[T], mut truth: impl FnMut(&T) -> Result<Option<bool>, Failure>) -> Result<Option<bool>, Failure> {
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
