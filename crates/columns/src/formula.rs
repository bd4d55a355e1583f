//! Values that are computed of others, once their fields are numbered. A NULL operand gives NULL.

use std::borrow::Cow;

use crate::Type;
use crate::compiled::Operand;
use crate::eval::Row;
use crate::expr::Operator;
use crate::function::Function;
use crate::nested;
use crate::timestamp;
use crate::value::{Failure, Value};

/// A computation.
#[derive(Debug, Clone, PartialEq)]
pub enum Formula {
    /// The value as one of that type, else NULL.
    Hint(Type, Operand),
    /// The value made one of that type.
    Cast(Type, Operand),
    /// A number of two numbers.
    Arithmetic(Operator, Operand, Operand),
    /// A list of these.
    List(Vec<Operand>),
    /// The member or element that the second value names.
    Element(Operand, Operand),
    /// A function of these.
    Call(Function, Vec<Operand>),
}

impl Formula {
    /// What it is computed of.
    pub fn operands(&self) -> Vec<&Operand> {
        match self {
            Self::Hint(_, value) | Self::Cast(_, value) => vec![value],
            Self::Arithmetic(_, left, right) | Self::Element(left, right) => vec![left, right],
            Self::List(parts) | Self::Call(_, parts) => parts.iter().collect(),
        }
    }

    /// As [`Self::operands`].
    pub(crate) fn operands_mut(&mut self) -> Vec<&mut Operand> {
        match self {
            Self::Hint(_, value) | Self::Cast(_, value) => vec![value],
            Self::Arithmetic(_, left, right) | Self::Element(left, right) => vec![left, right],
            Self::List(parts) | Self::Call(_, parts) => parts.iter_mut().collect(),
        }
    }

    /// Whether it can give something else than NULL where an operand is NULL.
    pub fn looks_at_null(&self) -> bool {
        matches!(self, Self::List(_) | Self::Call(Function::If | Function::Filter, _))
    }

    /// Its value, if that is the same for every record.
    pub fn constant(&self) -> Option<Value<'static>> {
        struct NoRow;
        impl Row<'static> for NoRow {
            fn field(&mut self, _: usize) -> Result<Value<'static>, Failure> {
                Ok(Value::Null)
            }

            fn now_ms(&self) -> i64 {
                0
            }
        }
        let constants = self.operands().into_iter().all(|operand| matches!(operand, Operand::Constant(_)));
        let of_now = matches!(self, Self::Call(Function::UnixTimestamp, arguments) if arguments.is_empty());
        let value = if constants && !of_now { self.value(&mut NoRow).ok()? } else { return None };
        value.into_owned()
    }

    pub(crate) fn value<'v, 'a: 'v>(&'v self, row: &mut impl Row<'a>) -> Result<Value<'v>, Failure> {
        match self {
            Self::Hint(to, value) => Ok(hinted(value.value(row)?, *to)),
            Self::Cast(to, value) => cast(value.value(row)?, *to),
            Self::Arithmetic(operator, left, right) => {
                let left = left.value(row)?;
                arithmetic(*operator, &left, &right.value(row)?)
            }
            Self::List(parts) => {
                let parts: Result<_, _> = parts.iter().map(|part| part.value(row)).collect();
                Ok(Value::List(parts?))
            }
            Self::Element(of, key) => {
                let of = of.value(row)?;
                nested::element(of, &key.value(row)?)
            }
            Self::Call(Function::If, arguments) => match arguments.as_slice() {
                [condition, then, otherwise] => {
                    let holds = condition.value(row)? == Value::Boolean(true);
                    if holds { then.value(row) } else { otherwise.value(row) }
                }
                _ => Ok(Value::Null),
            },
            Self::Call(Function::UnixTimestamp, arguments) if arguments.is_empty() => {
                Ok(Value::Integer(row.now_ms().div_euclid(1000)))
            }
            Self::Call(function, arguments) => {
                let mut values = [None, None, None];
                for (argument, place) in arguments.iter().zip(&mut values) {
                    match argument.value(row)? {
                        Value::Null => return Ok(Value::Null),
                        value => *place = Some(value),
                    }
                }
                call(*function, values)
            }
        }
    }
}

/// The value if it is of type `to`: a whole number also as an integer, any number also as a double.
fn hinted(value: Value<'_>, to: Type) -> Value<'_> {
    match (to, value) {
        (Type::Integer, Value::Double(double)) => whole(double).map_or(Value::Null, Value::Integer),
        (Type::Double, Value::Integer(integer)) => Value::Double(integer as f64),
        (to, value) if value.kind().is_some_and(|kind| kind == to || to == Type::Number && kind.is_number()) => value,
        _ => Value::Null,
    }
}

/// The integer that equals `double`, if there is one.
fn whole(double: f64) -> Option<i64> {
    truncated(double).filter(|_| double.fract() == 0.0)
}

/// `double` without its fraction, if that fits.
fn truncated(double: f64) -> Option<i64> {
    /// 2^63, the first double above every `i64`.
    const ABOVE_ALL: f64 = 9_223_372_036_854_775_808.0;
    (-ABOVE_ALL..ABOVE_ALL).contains(&double).then_some(double as i64)
}

fn cast(value: Value<'_>, to: Type) -> Result<Value<'_>, Failure> {
    let integer = |integer: Option<i64>| integer.map(Value::Integer).ok_or(Failure::Cast);
    match (to, value) {
        (_, Value::Null) => Ok(Value::Null),
        (Type::Integer, Value::Integer(value)) => Ok(Value::Integer(value)),
        (Type::Integer, Value::Double(value)) => integer(truncated(value)),
        (Type::Integer, Value::Boolean(value)) => Ok(Value::Integer(i64::from(value))),
        (Type::Integer, Value::Text(text)) => integer(text.trim().parse().ok()),
        (Type::Double, Value::Double(value)) => Ok(Value::Double(value)),
        (Type::Double, Value::Integer(value)) => Ok(Value::Double(value as f64)),
        (Type::Double, Value::Boolean(value)) => Ok(Value::Double(f64::from(u8::from(value)))),
        (Type::Double, Value::Text(text)) => {
            text.trim().parse().ok().filter(|value: &f64| value.is_finite()).map(Value::Double).ok_or(Failure::Cast)
        }
        (Type::Boolean, Value::Boolean(value)) => Ok(Value::Boolean(value)),
        (Type::Boolean, Value::Integer(value)) => Ok(Value::Boolean(value != 0)),
        (Type::Boolean, Value::Double(value)) => Ok(Value::Boolean(value != 0.0)),
        (Type::Boolean, Value::Text(text)) => match text.trim().to_ascii_lowercase().as_str() {
            "true" => Ok(Value::Boolean(true)),
            "false" => Ok(Value::Boolean(false)),
            _ => Err(Failure::Cast),
        },
        (Type::Text, Value::Text(text)) => Ok(Value::Text(text)),
        (Type::Text, Value::Boolean(value)) => Ok(Value::Text(value.to_string().into())),
        (Type::Text, Value::Integer(value)) => Ok(Value::Text(value.to_string().into())),
        (Type::Text, Value::Double(value)) => Ok(Value::Text(format!("{value:?}").into())),
        _ => Err(Failure::Cast),
    }
}

/// Of two integers an integer, else a double; NULL if one is no number.
fn arithmetic(operator: Operator, left: &Value<'_>, right: &Value<'_>) -> Result<Value<'static>, Failure> {
    if let (Value::Integer(left), Value::Integer(right)) = (left, right) {
        if *right == 0 && matches!(operator, Operator::Divide | Operator::Remainder) {
            return Err(Failure::DivisionByZero);
        }
        let result = match operator {
            Operator::Add => left.checked_add(*right),
            Operator::Subtract => left.checked_sub(*right),
            Operator::Multiply => left.checked_mul(*right),
            Operator::Divide => left.checked_div(*right),
            Operator::Remainder => left.checked_rem(*right),
        };
        return result.map(Value::Integer).ok_or(Failure::Overflow);
    }
    let (Some(left), Some(right)) = (left.as_double(), right.as_double()) else {
        return Ok(Value::Null);
    };
    let result = match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide | Operator::Remainder if right == 0.0 => return Err(Failure::DivisionByZero),
        Operator::Divide => left / right,
        Operator::Remainder => left % right,
    };
    if result.is_finite() { Ok(Value::Double(result)) } else { Err(Failure::Overflow) }
}

/// A function of values none of which is NULL; NULL if one is of a type that it does not take.
fn call(function: Function, [first, second, third]: [Option<Value<'_>>; 3]) -> Result<Value<'_>, Failure> {
    let Some(first) = first else { return Ok(Value::Null) };
    let second = second.unwrap_or(Value::Null);
    Ok(match (function, first) {
        (Function::SizeOf, of) => nested::size(&of)?.map_or(Value::Null, Value::Integer),
        (Function::SizeIs, of) => {
            let size = nested::size(&of)?.map_or(Value::Null, Value::Integer);
            size.compare(&second).map_or(Value::Null, |order| Value::Boolean(order.is_eq()))
        }
        (Function::ContainsKey, of) => match second {
            Value::Text(key) => nested::contains_key(&of, &key)?.map_or(Value::Null, Value::Boolean),
            _ => Value::Null,
        },
        (Function::ContainsValue, of) => nested::contains_value(&of, &second)?.map_or(Value::Null, Value::Boolean),
        (Function::Filter, list) => nested::filtered(list, second)?,
        (Function::Abs, Value::Integer(value)) => Value::Integer(value.checked_abs().ok_or(Failure::Overflow)?),
        (Function::Abs, Value::Double(value)) => Value::Double(value.abs()),
        (Function::Round, Value::Integer(value)) => Value::Integer(value),
        (Function::Round, Value::Double(value)) => match second {
            Value::Null => Value::Double(value.round()),
            Value::Integer(digits) => Value::Double(rounded(value, digits)),
            _ => Value::Null,
        },
        (Function::Trim, Value::Text(text)) => Value::Text(trimmed(text)),
        (Function::Lower, Value::Text(text)) => Value::Text(text.to_lowercase().into()),
        (Function::Upper, Value::Text(text)) => Value::Text(text.to_uppercase().into()),
        (Function::Substring, Value::Text(text)) => match (second, third) {
            (Value::Integer(from), None) => Value::Text(substring(text, from, i64::MAX)),
            (Value::Integer(from), Some(Value::Integer(length))) => Value::Text(substring(text, from, length)),
            _ => Value::Null,
        },
        (Function::UnixTimestamp, moment) => timestamp::seconds(&moment, &second)?.map_or(Value::Null, Value::Integer),
        (Function::TypeOf, value) => value.kind().map_or(Value::Null, |kind| Value::Text(kind.as_str().into())),
        (Function::Hash, value) => value.java_hash().map_or(Value::Null, |hash| Value::Integer(hash.into())),
        _ => Value::Null,
    })
}

/// The nearest number with so many digits after the point. More digits than a double has change nothing.
fn rounded(value: f64, digits: i64) -> f64 {
    const DIGITS_MAX: i64 = 15;
    let scale = 10_f64.powi(digits.clamp(0, DIGITS_MAX) as i32);
    let scaled = value * scale;
    if digits > DIGITS_MAX || !scaled.is_finite() { value } else { scaled.round() / scale }
}

fn trimmed(text: Cow<'_, str>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
    }
}

/// At most `length` characters from the `from`th on, from 1; negative from the end. Outside of the text nothing.
fn substring(text: Cow<'_, str>, from: i64, length: i64) -> Cow<'_, str> {
    let count = text.chars().count() as i64;
    let start = if from < 0 { count.saturating_add(from) } else { from.saturating_sub(1) };
    if start < 0 || start >= count || length <= 0 {
        return Cow::Borrowed("");
    }
    let end = start.saturating_add(length).min(count);
    let byte = |place: i64| {
        text.char_indices().nth(usize::try_from(place).unwrap_or(usize::MAX)).map_or(text.len(), |(byte, _)| byte)
    };
    Cow::Owned(text[byte(start)..byte(end)].to_owned())
}
