//! The evaluation of formulas. A NULL operand gives NULL.

use crate::Type;
use crate::date_part::DatePart;
use crate::eval::Row;
use crate::function::Function;
use crate::nested;
use crate::operand::{Formula, Operand};
use crate::operator::Operator;
use crate::text;
use crate::timestamp;
use crate::value::{EvalError, Value};

impl Formula {
    /// True if the formula can yield something else than NULL for a NULL operand.
    pub fn looks_at_null(&self) -> bool {
        match self {
            Self::List(_) => true,
            Self::Call(function, _) => matches!(
                function,
                Function::If | Function::Filter | Function::Case | Function::Coalesce | Function::NullIf
            ),
            _ => false,
        }
    }

    /// The value, if it is the same for every record.
    pub fn constant(&self) -> Option<Value<'static>> {
        struct NoRow;
        impl Row<'static> for NoRow {
            fn field(&mut self, _: usize) -> Result<Value<'static>, EvalError> {
                Ok(Value::Null)
            }

            fn now_ms(&self) -> i64 {
                0
            }
        }
        let constants = self.operands().into_iter().all(|operand| matches!(operand, Operand::Constant(_)));
        let of_now = matches!(self, Self::Call(Function::UnixTimestamp, arguments) if arguments.is_empty());
        let value = if constants && !of_now { self.value(&mut NoRow).ok()? } else { return None };
        Some(value.into_owned())
    }

    pub(crate) fn value<'v, 'a: 'v>(&'v self, row: &mut impl Row<'a>) -> Result<Value<'v>, EvalError> {
        match self {
            Self::Hint(to, value) => Ok(hinted(value.value(row)?, *to)),
            Self::Cast(to, value) => cast(value.value(row)?, *to),
            Self::Arithmetic(operator, left, right) => {
                let (left, right) = (left.value(row)?, right.value(row)?);
                let is_other = |value: &Value<'_>| *value != Value::Null && value.as_double().is_none();
                if row.refuses_arithmetic_on_others() && (is_other(&left) || is_other(&right)) {
                    return Err(EvalError::NotANumber);
                }
                arithmetic(*operator, &left, &right)
            }
            Self::List(parts) => {
                let parts: Result<_, _> = parts.iter().map(|part| part.value(row)).collect();
                Ok(Value::List(parts?))
            }
            Self::Element(of, key) => {
                let of = of.value(row)?;
                nested::element(of, &key.value(row)?)
            }
            // IF is a CASE with one condition.
            Self::Call(Function::If | Function::Case, arguments) => {
                let (arms, otherwise) = arguments.as_chunks::<2>();
                for [condition, then] in arms {
                    if condition.value(row)? == Value::Boolean(true) {
                        return then.value(row);
                    }
                }
                otherwise.first().map_or(Ok(Value::Null), |otherwise| otherwise.value(row))
            }
            Self::Call(Function::Coalesce, arguments) => {
                for argument in arguments {
                    match argument.value(row)? {
                        Value::Null => {}
                        value => return Ok(value),
                    }
                }
                Ok(Value::Null)
            }
            Self::Call(Function::NullIf, arguments) => {
                let [value, other] = arguments.as_slice() else { return Ok(Value::Null) };
                let value = value.value(row)?;
                let is_equal = value.compare(&other.value(row)?).is_some_and(|order| order.is_eq());
                Ok(if is_equal { Value::Null } else { value })
            }
            Self::Call(Function::Concat, arguments) => {
                let mut joined = String::new();
                for argument in arguments {
                    if !text::append(&mut joined, &argument.value(row)?)? {
                        return Ok(Value::Null);
                    }
                }
                Ok(Value::Text(joined.into()))
            }
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

/// The integer that equals `double`, if one exists.
fn whole(double: f64) -> Option<i64> {
    truncated(double).filter(|_| double.fract() == 0.0)
}

/// `double` without its fraction, if it fits.
fn truncated(double: f64) -> Option<i64> {
    /// 2^63, the first double above every `i64`.
    const ABOVE_ALL: f64 = 9_223_372_036_854_775_808.0;
    (-ABOVE_ALL..ABOVE_ALL).contains(&double).then_some(double as i64)
}

fn cast(value: Value<'_>, to: Type) -> Result<Value<'_>, EvalError> {
    let integer = |integer: Option<i64>| integer.map(Value::Integer).ok_or(EvalError::Cast);
    match (to, value) {
        (_, Value::Null) => Ok(Value::Null),
        (Type::Integer, Value::Integer(value)) => Ok(Value::Integer(value)),
        (Type::Integer, Value::Double(value)) => integer(truncated(value)),
        (Type::Integer, Value::Boolean(value)) => Ok(Value::Integer(i64::from(value))),
        (Type::Integer, Value::Text(text)) => {
            let text = text.trim();
            integer(text.parse().ok().or_else(|| truncated(text.parse().ok()?)))
        }
        (Type::Double, Value::Double(value)) => Ok(Value::Double(value)),
        (Type::Double, Value::Integer(value)) => Ok(Value::Double(value as f64)),
        (Type::Double, Value::Boolean(value)) => Ok(Value::Double(f64::from(u8::from(value)))),
        (Type::Double, Value::Text(text)) => {
            text.trim().parse().ok().filter(|value: &f64| value.is_finite()).map(Value::Double).ok_or(EvalError::Cast)
        }
        (Type::Boolean, Value::Boolean(value)) => Ok(Value::Boolean(value)),
        (Type::Boolean, Value::Integer(value)) => Ok(Value::Boolean(value != 0)),
        (Type::Boolean, Value::Double(value)) => Ok(Value::Boolean(value != 0.0)),
        (Type::Boolean, Value::Text(text)) => match text.trim().to_ascii_lowercase().as_str() {
            "true" => Ok(Value::Boolean(true)),
            "false" => Ok(Value::Boolean(false)),
            _ => Err(EvalError::Cast),
        },
        (Type::Text, Value::Text(text)) => Ok(Value::Text(text)),
        (Type::Text, Value::Boolean(value)) => Ok(Value::Text(value.to_string().into())),
        (Type::Text, Value::Integer(value)) => Ok(Value::Text(value.to_string().into())),
        (Type::Text, Value::Double(value)) => Ok(Value::Text(format!("{value:?}").into())),
        _ => Err(EvalError::Cast),
    }
}

/// An integer for two integers, else a double; NULL if one is no number.
fn arithmetic(operator: Operator, left: &Value<'_>, right: &Value<'_>) -> Result<Value<'static>, EvalError> {
    if let (Value::Integer(left), Value::Integer(right)) = (left, right) {
        if *right == 0 && matches!(operator, Operator::Divide | Operator::Remainder) {
            return Err(EvalError::DivisionByZero);
        }
        let result = match operator {
            Operator::Add => left.checked_add(*right),
            Operator::Subtract => left.checked_sub(*right),
            Operator::Multiply => left.checked_mul(*right),
            Operator::Divide => left.checked_div(*right),
            Operator::Remainder => left.checked_rem(*right),
        };
        return result.map(Value::Integer).ok_or(EvalError::Overflow);
    }
    let (Some(left), Some(right)) = (left.as_double(), right.as_double()) else {
        return Ok(Value::Null);
    };
    let result = match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide | Operator::Remainder if right == 0.0 => return Err(EvalError::DivisionByZero),
        Operator::Divide => left / right,
        Operator::Remainder => left % right,
    };
    if result.is_finite() { Ok(Value::Double(result)) } else { Err(EvalError::Overflow) }
}

/// Calls a function with values that are not NULL; NULL if a value has the wrong type.
fn call(function: Function, [first, second, third]: [Option<Value<'_>>; 3]) -> Result<Value<'_>, EvalError> {
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
        (Function::Abs, Value::Integer(value)) => Value::Integer(value.checked_abs().ok_or(EvalError::Overflow)?),
        (Function::Abs, Value::Double(value)) => Value::Double(value.abs()),
        (Function::Round, Value::Integer(value)) => match second {
            Value::Null => Value::Integer(value),
            Value::Integer(digits) => Value::Integer(rounded_integer(value, digits)?),
            _ => Value::Null,
        },
        (Function::Round, Value::Double(value)) => match second {
            Value::Null => Value::Double(value.round()),
            Value::Integer(digits) => Value::Double(rounded(value, digits)),
            _ => Value::Null,
        },
        (Function::Floor | Function::Ceil, Value::Integer(value)) => Value::Integer(value),
        (Function::Floor, Value::Double(value)) => Value::Double(value.floor()),
        (Function::Ceil, Value::Double(value)) => Value::Double(value.ceil()),
        (Function::Trim, Value::Text(text)) => Value::Text(text::trimmed(text)),
        (Function::Lower, Value::Text(text)) => Value::Text(text.to_lowercase().into()),
        (Function::Upper, Value::Text(text)) => Value::Text(text.to_uppercase().into()),
        (Function::Substring, Value::Text(text)) => match (second, third) {
            (Value::Integer(from), None) => Value::Text(text::substring(text, from, i64::MAX)),
            (Value::Integer(from), Some(Value::Integer(length))) => Value::Text(text::substring(text, from, length)),
            _ => Value::Null,
        },
        (Function::Split, Value::Text(text)) => match second {
            Value::Text(separator) => text::split(text, &separator),
            _ => Value::Null,
        },
        (Function::Replace, Value::Text(text)) => match (second, third) {
            (Value::Text(from), Some(Value::Text(to))) => Value::Text(text::replace(text, &from, &to)?),
            _ => Value::Null,
        },
        (Function::UnixTimestamp, moment) => timestamp::seconds(&moment, &second)?.map_or(Value::Null, Value::Integer),
        (Function::Extract, Value::Text(part)) => of_time(&part, &second, DatePart::extract)?,
        (Function::DateTrunc, Value::Text(part)) => of_time(&part, &second, DatePart::truncate)?,
        (Function::FormatTime, moment) => match timestamp::time_ms(&moment)? {
            Some(time_ms) => {
                timestamp::formatted(time_ms, &second)?.map_or(Value::Null, |text| Value::Text(text.into()))
            }
            None => Value::Null,
        },
        (Function::ParseTime, Value::Text(text)) => {
            timestamp::parsed(&text, &second)?.map_or(Value::Null, Value::Integer)
        }
        (Function::TypeOf, value) => value.kind().map_or(Value::Null, |kind| Value::Text(kind.as_str().into())),
        (Function::Hash, value) => value.java_hash().map_or(Value::Null, |hash| Value::Integer(hash.into())),
        _ => Value::Null,
    })
}

/// Rounds to `digits` digits after the point, or to a power of ten if they are negative. More digits than a double has
/// change nothing.
fn rounded(value: f64, digits: i64) -> f64 {
    const DIGITS_MAX: i64 = 15;
    if digits < 0 {
        let unit = 10_f64.powi(digits.unsigned_abs().min(400) as i32);
        let rounded = if unit.is_finite() { (value / unit).round() * unit } else { 0.0 };
        return if rounded.is_finite() { rounded } else { value };
    }
    let scale = 10_f64.powi(digits.clamp(0, DIGITS_MAX) as i32);
    let scaled = value * scale;
    if digits > DIGITS_MAX || !scaled.is_finite() { value } else { scaled.round() / scale }
}

/// Rounds to a power of ten if `digits` is negative; a half rounds away from zero.
fn rounded_integer(value: i64, digits: i64) -> Result<i64, EvalError> {
    if digits >= 0 {
        return Ok(value);
    }
    let zeros = u32::try_from(digits.unsigned_abs()).unwrap_or(u32::MAX);
    let Some(unit) = 10_i128.checked_pow(zeros) else { return Ok(0) };
    let half = unit / 2 * i128::from(value.signum());
    i64::try_from((i128::from(value) + half) / unit * unit).map_err(|_| EvalError::Overflow)
}

/// An integer of the part and the time; NULL if `time` is no time.
fn of_time(
    part: &str,
    time: &Value<'_>,
    compute: impl Fn(DatePart, i64) -> Option<i64>,
) -> Result<Value<'static>, EvalError> {
    let (Some(part), Some(time_ms)) = (DatePart::named(part), timestamp::time_ms(time)?) else {
        return Ok(Value::Null);
    };
    compute(part, time_ms).map(Value::Integer).ok_or(EvalError::Time)
}
