//! The operators, by the rules of Mozilla's library for Rust, which is what Orion uses.
//!
//! Only values of one kind go together; the exceptions are `==` and `!=`, for which values of two kinds are unlike.

use std::borrow::Cow;

use serde_json::Value;

use crate::budget::Budget;
use crate::limits::VALUE_DEPTH_MAX;
use crate::number::number;

/// Two numbers that differ by less are equal, as in Orion. The order by `<` and `>` is exact.
const EQUAL_WITHIN: f64 = 0.000_001;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
}

/// False are: null, false, 0 and the empty text. Empty arrays and objects are true.
pub(crate) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(value) => value.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

impl Operator {
    /// Returns the result; `None` if the values do not fit the operator, or too little is left of the budget.
    pub(crate) fn apply(self, left: Cow<'_, Value>, right: &Value, budget: &mut Budget) -> Option<Value> {
        match (self, &*left, right) {
            (Self::Equal, left, right) => are_equal(left, right, budget, VALUE_DEPTH_MAX).map(Value::Bool),
            (Self::NotEqual, left, right) => {
                are_equal(left, right, budget, VALUE_DEPTH_MAX).map(|equal| Value::Bool(!equal))
            }
            (Self::In, left, right) => is_in(left, right, budget).map(Value::Bool),
            (_, Value::Number(left), Value::Number(right)) => self.of_numbers(left.as_f64()?, right.as_f64()?),
            (Self::Add, Value::String(first), Value::String(second)) => {
                // A text that was made here grows in place.
                let copied = if matches!(left, Cow::Owned(_)) { 0 } else { first.len() };
                budget.bytes(copied + second.len())?;
                match left.into_owned() {
                    Value::String(joined) => Some(Value::String(joined + second)),
                    _ => None,
                }
            }
            (_, Value::String(left), Value::String(right)) => self.of_texts(left, right, budget),
            _ => None,
        }
    }

    fn of_numbers(self, left: f64, right: f64) -> Option<Value> {
        Some(match self {
            Self::Greater => Value::Bool(left > right),
            Self::GreaterOrEqual => Value::Bool(left >= right),
            Self::Less => Value::Bool(left < right),
            Self::LessOrEqual => Value::Bool(left <= right),
            Self::Add => number(left + right),
            Self::Subtract => number(left - right),
            Self::Multiply => number(left * right),
            Self::Divide => number(left / right),
            Self::FloorDivide => number((left / right).floor()),
            Self::Remainder => number(left % right),
            Self::Power => number(left.powf(right)),
            Self::Equal | Self::NotEqual | Self::In => return None,
        })
    }

    fn of_texts(self, left: &str, right: &str, budget: &mut Budget) -> Option<Value> {
        budget.bytes(left.len().min(right.len()))?;
        match self {
            Self::Greater => Some(Value::Bool(left > right)),
            Self::GreaterOrEqual => Some(Value::Bool(left >= right)),
            Self::Less => Some(Value::Bool(left < right)),
            Self::LessOrEqual => Some(Value::Bool(left <= right)),
            _ => None,
        }
    }
}

fn are_equal(left: &Value, right: &Value, budget: &mut Budget, depth: usize) -> Option<bool> {
    budget.bytes(1)?;
    let deeper = depth.checked_sub(1)?;
    match (left, right) {
        (Value::Null, Value::Null) => Some(true),
        (Value::Bool(left), Value::Bool(right)) => Some(left == right),
        (Value::Number(left), Value::Number(right)) => Some((left.as_f64()? - right.as_f64()?).abs() < EQUAL_WITHIN),
        (Value::String(left), Value::String(right)) => {
            budget.bytes(left.len().min(right.len()))?;
            Some(left == right)
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (left, right) in left.iter().zip(right) {
                if !are_equal(left, right, budget, deeper)? {
                    return Some(false);
                }
            }
            Some(true)
        }
        (Value::Object(left), Value::Object(right)) if left.len() == right.len() => {
            for (name, left) in left {
                budget.bytes(name.len())?;
                let Some(right) = right.get(name) else { return Some(false) };
                if !are_equal(left, right, budget, deeper)? {
                    return Some(false);
                }
            }
            Some(true)
        }
        _ => Some(false),
    }
}

/// A text is in a longer text and in an object that has it as a name; any value is in an array that holds it.
fn is_in(left: &Value, right: &Value, budget: &mut Budget) -> Option<bool> {
    match (left, right) {
        (Value::String(part), Value::String(whole)) => {
            budget.bytes(part.len() + whole.len())?;
            Some(whole.contains(&**part))
        }
        (Value::String(name), Value::Object(members)) => {
            budget.bytes(name.len())?;
            Some(members.contains_key(&**name))
        }
        (Value::Number(_), Value::Number(_)) => Some(false),
        (left, Value::Array(items)) => {
            for item in items {
                if are_equal(left, item, budget, VALUE_DEPTH_MAX)? {
                    return Some(true);
                }
            }
            Some(false)
        }
        _ => None,
    }
}
