//! The evaluator that is obviously right: over a JSON tree, one expression and one record at a time.

use std::cmp::Ordering;

use millstream_query::{Expr, Field, Function, Literal, Operator, PathStep, Type};
use serde_json::{Value, json};

/// The value of NOW, milliseconds since 1970-01-01T00:00:00Z.
pub(crate) const NOW_MS: i64 = 1_700_000_000_500;

/// Why an expression has no value for a record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NoValue;

pub(crate) type Result<T = Value> = std::result::Result<T, NoValue>;

/// The value of an expression for a record.
pub(crate) fn evaluate(expr: &Expr, record: &Value) -> Result {
    let of = |expr: &Expr| evaluate(expr, record);
    let truth = |expr: &Expr| Ok(of(expr)?.as_bool());
    Ok(match expr {
        Expr::Literal(Literal::Null) => Value::Null,
        Expr::Literal(Literal::Boolean(value)) => json!(value),
        Expr::Literal(Literal::Integer(value)) => json!(value),
        Expr::Literal(Literal::Double(value)) => json!(value),
        Expr::Literal(Literal::Text(value)) => json!(value),
        Expr::Literal(Literal::Now) => json!(NOW_MS),
        Expr::Field(Field::Payload(steps)) => steps.iter().fold(record.clone(), |value, step| match step {
            PathStep::Key(name) => value.get(name).cloned().unwrap_or_default(),
            PathStep::Index(index) => value.get(*index).cloned().unwrap_or_default(),
        }),
        Expr::Coerce { to, value } => {
            let value = of(value)?;
            if is_of(&value, *to) { value } else { Value::Null }
        }
        Expr::Hint { to, value } => hinted(of(value)?, *to),
        Expr::Cast { to, value } => cast(&of(value)?, *to)?,
        Expr::Compare { comparison, left, right } => {
            let left = of(left)?;
            told(compare(&left, &of(right)?).map(|order| comparison.holds(order)))
        }
        Expr::In { value, list } => {
            let value = of(value)?;
            told(any(list, |item| Ok(compare(&value, &of(item)?).map(Ordering::is_eq)))?)
        }
        Expr::Quantified { comparison, every, value, list } => {
            let value = of(value)?;
            let Value::Array(list) = of(list)? else { return Ok(Value::Null) };
            let holds = |item: &Value| compare(&value, item).map(|order| comparison.holds(order));
            if *every {
                told(any(&list, |item| Ok(holds(item).map(|holds| !holds)))?.map(|fails| !fails))
            } else {
                told(any(&list, |item| Ok(holds(item)))?)
            }
        }
        Expr::Rlike { value, pattern } => match of(value)? {
            Value::String(text) => {
                json!(regex::Regex::new(&format!("^(?:{})$", pattern.translated())).unwrap().is_match(&text))
            }
            _ => Value::Null,
        },
        Expr::IsNull(value) => json!(of(value)?.is_null()),
        Expr::Not(part) => told(truth(part)?.map(|truth| !truth)),
        Expr::And(parts) => told(any(parts, |part| Ok(truth(part)?.map(|truth| !truth)))?.map(|fails| !fails)),
        Expr::Or(parts) => told(any(parts, truth)?),
        Expr::Xor(left, right) => {
            let left = truth(left)?;
            told(left.zip(truth(right)?).map(|(left, right)| left != right))
        }
        Expr::Arithmetic { operator, left, right } => {
            let left = of(left)?;
            arithmetic(*operator, &left, &of(right)?)?
        }
        Expr::List(parts) => Value::Array(parts.iter().map(of).collect::<Result<_>>()?),
        Expr::Element { of: container, key } => {
            let container = of(container)?;
            match (&container, of(key)?) {
                (Value::Object(map), Value::String(name)) => map.get(&name).cloned().unwrap_or_default(),
                (Value::Array(list), Value::Number(index)) if index.is_i64() => {
                    index.as_u64().and_then(|index| list.get(index as usize)).cloned().unwrap_or_default()
                }
                _ => Value::Null,
            }
        }
        Expr::Call { function: Function::If, arguments } => {
            if of(&arguments[0])? == json!(true) {
                of(&arguments[1])?
            } else {
                of(&arguments[2])?
            }
        }
        Expr::Call { function: Function::Case, arguments } => {
            for pair in arguments.chunks(2) {
                match pair {
                    [condition, then] if of(condition)? == json!(true) => return of(then),
                    [otherwise] => return of(otherwise),
                    _ => {}
                }
            }
            Value::Null
        }
        Expr::Call { function: Function::Coalesce, arguments } => {
            for argument in arguments {
                let value = of(argument)?;
                if !value.is_null() {
                    return Ok(value);
                }
            }
            Value::Null
        }
        Expr::Call { function: Function::NullIf, arguments } => {
            let value = of(&arguments[0])?;
            let other = of(&arguments[1])?;
            if compare(&value, &other) == Some(Ordering::Equal) { Value::Null } else { value }
        }
        Expr::Call { function: Function::Concat, arguments } => {
            let mut joined = String::new();
            for argument in arguments {
                match of(argument)? {
                    Value::Null | Value::Array(_) | Value::Object(_) => return Ok(Value::Null),
                    value => joined += cast(&value, Type::Text)?.as_str().unwrap(),
                }
            }
            json!(joined)
        }
        Expr::Call { function, arguments } => {
            let mut values = Vec::new();
            for argument in arguments {
                // What follows a value of the wrong type is looked at all the same, and may be an error.
                let argument = if let Expr::Coerce { value, .. } = argument { value } else { argument };
                match of(argument)? {
                    Value::Null => return Ok(Value::Null),
                    value => values.push(value),
                }
            }
            let is_wrong =
                |(argument, value): (&Expr, &Value)| matches!(argument, Expr::Coerce { to, .. } if !is_of(value, *to));
            if arguments.iter().zip(&values).any(is_wrong) { Value::Null } else { call(*function, &values)? }
        }
        other => panic!("{other}"),
    })
}

fn told(truth: Option<bool>) -> Value {
    truth.map_or(Value::Null, Value::Bool)
}

fn any<T>(parts: &[T], truth: impl Fn(&T) -> Result<Option<bool>>) -> Result<Option<bool>> {
    let mut is_known = true;
    for part in parts {
        match truth(part)? {
            Some(true) => return Ok(Some(true)),
            Some(false) => {}
            None => is_known = false,
        }
    }
    Ok(is_known.then_some(false))
}

fn is_of(value: &Value, kind: Type) -> bool {
    match kind {
        Type::Boolean => value.is_boolean(),
        Type::Integer => value.is_i64(),
        Type::Double => value.is_f64(),
        Type::Number => value.is_number(),
        Type::Text => value.is_string(),
        Type::List => value.is_array(),
        Type::Map => value.is_object(),
        Type::Any | Type::Null => true,
    }
}

/// Returns `true` if it is within the integers of 64 bits.
fn fits(double: f64) -> bool {
    (-(2.0_f64.powi(63))..2.0_f64.powi(63)).contains(&double)
}

fn hinted(value: Value, to: Type) -> Value {
    match (to, value.as_f64()) {
        (Type::Integer, Some(double)) if value.is_f64() && double.fract() == 0.0 && fits(double) => {
            json!(double as i64)
        }
        (Type::Double, Some(double)) => json!(double),
        _ if is_of(&value, to) => value,
        _ => Value::Null,
    }
}

fn cast(value: &Value, to: Type) -> Result {
    let text = |text: &str| text.trim().to_owned();
    Ok(match (to, value) {
        (_, Value::Null) => Value::Null,
        (Type::Integer, Value::Number(number)) => match number.as_i64() {
            Some(integer) => json!(integer),
            None => {
                Some(number.as_f64().unwrap().trunc()).filter(|d| fits(*d)).map(|d| json!(d as i64)).ok_or(NoValue)?
            }
        },
        (Type::Integer, Value::String(t)) => {
            let whole = text(t).parse::<f64>().ok().filter(|double| double.abs() < 9.2e18).map(|double| double as i64);
            json!(text(t).parse::<i64>().ok().or(whole).ok_or(NoValue)?)
        }
        (Type::Integer, Value::Bool(value)) => json!(i64::from(*value)),
        (Type::Double, Value::Number(number)) => json!(number.as_f64().unwrap()),
        (Type::Double, Value::String(t)) => {
            json!(text(t).parse::<f64>().ok().filter(|double| double.is_finite()).ok_or(NoValue)?)
        }
        (Type::Double, Value::Bool(value)) => json!(if *value { 1.0 } else { 0.0 }),
        (Type::Boolean, Value::Bool(value)) => json!(value),
        (Type::Boolean, Value::Number(number)) => json!(number.as_f64().unwrap() != 0.0),
        (Type::Boolean, Value::String(t)) => match text(t).to_lowercase().as_str() {
            "true" => json!(true),
            "false" => json!(false),
            _ => return Err(NoValue),
        },
        (Type::Text, Value::String(t)) => json!(t),
        (Type::Text, Value::Bool(value)) => json!(value.to_string()),
        (Type::Text, Value::Number(number)) => match number.as_i64() {
            Some(integer) => json!(integer.to_string()),
            None => json!(format!("{:?}", number.as_f64().unwrap())),
        },
        _ => return Err(NoValue),
    })
}

fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a.chars().cmp(b.chars())),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            (None, None) => a.as_f64()?.partial_cmp(&b.as_f64()?),
            (Some(a), None) => Some(compare_mixed(a, b.as_f64()?)),
            (None, Some(b)) => Some(compare_mixed(b, a.as_f64()?).reverse()),
        },
        _ => None,
    }
}

/// Exactly: the whole parts as integers of 128 bits, then whether anything is left of the double.
fn compare_mixed(integer: i64, double: f64) -> Ordering {
    let below = double.floor().clamp(-1e30, 1e30);
    i128::from(integer).cmp(&(below as i128)).then(if double > below { Ordering::Less } else { Ordering::Equal })
}

fn arithmetic(operator: Operator, left: &Value, right: &Value) -> Result {
    let divides = matches!(operator, Operator::Divide | Operator::Remainder);
    if let (Some(a), Some(b)) = (left.as_i64(), right.as_i64()) {
        let (a, b) = (i128::from(a), i128::from(b));
        let result = match operator {
            Operator::Add => a + b,
            Operator::Subtract => a - b,
            Operator::Multiply => a * b,
            _ if b == 0 => return Err(NoValue),
            Operator::Divide => a / b,
            Operator::Remainder => a % b,
        };
        return Ok(json!(i64::try_from(result).map_err(|_| NoValue)?));
    }
    let (Some(a), Some(b)) = (left.as_f64(), right.as_f64()) else { return Ok(Value::Null) };
    let result = match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide => a / b,
        Operator::Remainder => a % b,
    };
    if (divides && b == 0.0) || !result.is_finite() { Err(NoValue) } else { Ok(json!(result)) }
}

fn size(of: &Value) -> Option<usize> {
    match of {
        Value::String(text) => Some(text.chars().count()),
        Value::Array(list) => Some(list.len()),
        Value::Object(map) => Some(map.len()),
        _ => None,
    }
}

fn has_key(of: &Value, key: &str) -> bool {
    of.as_object().is_some_and(|map| map.contains_key(key))
}

fn has_value(of: &Value, value: &Value) -> bool {
    let equal = |part: &Value| compare(part, value) == Some(Ordering::Equal);
    match of {
        Value::Object(map) => map.values().any(equal),
        other => equal(other),
    }
}

/// Of values none of which is NULL.
fn call(function: Function, values: &[Value]) -> Result {
    let given = |at: usize| values.get(at).unwrap_or(&Value::Null);
    let (first, second) = (given(0), given(1));
    Ok(match (function, first) {
        (Function::SizeOf, of) => size(of).map_or(Value::Null, |size| json!(size)),
        (Function::SizeIs, of) => {
            told(size(of).and_then(|size| compare(&json!(size), second)).map(|order| order == Ordering::Equal))
        }
        (Function::ContainsKey, Value::Object(_)) => json!(has_key(first, second.as_str().unwrap())),
        (Function::ContainsKey, Value::Array(list)) => {
            json!(list.iter().any(|element| has_key(element, second.as_str().unwrap())))
        }
        (Function::ContainsValue, Value::Object(_)) => json!(has_value(first, second)),
        (Function::ContainsValue, Value::Array(list)) => json!(list.iter().any(|element| has_value(element, second))),
        (Function::Filter, Value::Array(list)) => match second {
            Value::Array(keep) => {
                list.iter().zip(keep).filter(|(_, keep)| **keep == json!(true)).map(|(e, _)| e.clone()).collect()
            }
            _ => Value::Null,
        },
        (Function::Abs, Value::Number(number)) => match number.as_i64() {
            Some(integer) => json!(integer.checked_abs().ok_or(NoValue)?),
            None => json!(number.as_f64().unwrap().abs()),
        },
        (Function::Floor | Function::Ceil, Value::Number(number)) => {
            match (number.as_i64(), number.as_f64().unwrap()) {
                (Some(integer), _) => json!(integer),
                (None, double) => json!(if function == Function::Floor { double.floor() } else { double.ceil() }),
            }
        }
        (Function::Split, Value::String(text)) => match second.as_str().unwrap() {
            "" => json!([text]),
            separator => text.split(separator).map(Value::from).collect(),
        },
        (Function::Replace, Value::String(text)) => match (second.as_str().unwrap(), given(2).as_str().unwrap()) {
            ("", _) => json!(text),
            (from, to) => json!(text.split(from).collect::<Vec<_>>().join(to)),
        },
        (Function::Trim, Value::String(text)) => json!(text.trim()),
        (Function::Lower, Value::String(text)) => json!(text.to_lowercase()),
        (Function::Upper, Value::String(text)) => json!(text.to_uppercase()),
        (Function::Substring, Value::String(text)) => {
            let (Some(from), length) = (second.as_i64(), given(2)) else { return Ok(Value::Null) };
            let length = match length {
                Value::Null => i64::MAX,
                length => match length.as_i64() {
                    Some(length) => length,
                    None => return Ok(Value::Null),
                },
            };
            let letters: Vec<char> = text.chars().collect();
            let first = if from < 0 { letters.len() as i64 + from } else { from - 1 };
            let wanted = |place: &usize| first >= 0 && (*place as i64) >= first && (*place as i64) - first < length;
            json!((0..letters.len()).filter(wanted).map(|place| letters[place]).collect::<String>())
        }
        (Function::UnixTimestamp, Value::String(text)) => json!(seconds(text).ok_or(NoValue)?),
        (Function::UnixTimestamp, Value::Number(number)) if number.is_i64() => return Err(NoValue),
        (Function::TypeOf, value) => json!(match value {
            Value::Bool(_) => "BOOLEAN",
            Value::Number(number) if number.is_i64() => "LONG",
            Value::Number(_) => "DOUBLE",
            Value::String(_) => "STRING",
            Value::Array(_) => "LIST",
            _ => "MAP",
        }),
        (Function::Hash, value) => match value {
            Value::Bool(value) => json!(if *value { 1231 } else { 1237 }),
            Value::Number(number) => {
                let bits = number.as_i64().map_or_else(|| number.as_f64().unwrap().to_bits(), |integer| integer as u64);
                match number.as_i64().map(i32::try_from) {
                    Some(Ok(small)) => json!(small),
                    _ => json!((bits ^ (bits >> 32)) as u32 as i32),
                }
            }
            Value::String(text) => {
                let hash = text.encode_utf16().fold(0_i64, |hash, unit| (hash * 31 + i64::from(unit)) & 0xffff_ffff);
                json!(hash as u32 as i32)
            }
            _ => Value::Null,
        },
        _ => Value::Null,
    })
}

/// Seconds since 1970 of `yyyy-MM-dd HH:mm:ss`, days counted one by one.
fn seconds(text: &str) -> Option<i64> {
    let text = text.trim();
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let number = |from: usize, length: usize| text[from..from + length].parse::<i64>().unwrap();
    if shape != "0000-00-00 00:00:00" {
        return None;
    }
    let [year, month, day] = [number(0, 4), number(5, 2), number(8, 2)];
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of = |year: i64, month: i64| match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=12).contains(&month) || day < 1 || day > days_of(year, month) {
        return None;
    }
    let whole_years: i64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let days = whole_years + (1..month).map(|month| days_of(year, month)).sum::<i64>() + day - 1;
    Some(days * 86_400 + number(11, 2) * 3600 + number(14, 2) * 60 + number(17, 2))
}
