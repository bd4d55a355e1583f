//! Filters: clauses that are true or false.

use millstream_columns::{Comparison, Expr, Function, Literal, Pattern, Type};
use serde_json::Value;

use super::{Wrong, field, keyword, known, list, object};
use crate::literals;

/// All of a list of clauses; `None` of nothing.
pub(super) fn all(filters: Option<&Value>) -> Result<Option<Expr>, Wrong> {
    let Some(filters) = filters.filter(|filters| !filters.is_null()) else { return Ok(None) };
    let mut all: Option<Expr> = None;
    for (i, part) in list(filters, "filters")?.iter().enumerate() {
        let part = clause(part, &format!("filters[{i}]"))?;
        all = Some(match all {
            Some(others) => others.and(part),
            None => part,
        });
    }
    Ok(all)
}

fn clause(value: &Value, path: &str) -> Result<Expr, Wrong> {
    let members = object(value, path)?;
    known(members, path, &["operation", "clauses", "field", "values"])?;
    if members.contains_key("clauses") || members.get("field").is_none_or(Value::is_null) {
        return logical(members.get("operation"), members.get("clauses"), path);
    }
    relational(members, path)
}

fn logical(operation: Option<&Value>, clauses: Option<&Value>, path: &str) -> Result<Expr, Wrong> {
    let clauses = match clauses {
        None | Some(Value::Null) => &[][..],
        Some(clauses) => list(clauses, &format!("{path}.clauses"))?,
    };
    let operation = keyword(operation);
    let Some((operation, first)) = operation.zip(clauses.first()) else {
        return Ok(truth(true));
    };
    let read = |i: usize, part: &Value| clause(part, &format!("{path}.clauses[{i}]"));
    let first = read(0, first)?;
    let join = match operation.as_str() {
        // Only the first clause is negated; what follows it is ignored.
        "NOT" => return Ok(not(first)),
        "AND" => Expr::and,
        "OR" => Expr::or,
        _ => return Err(format!("{path}.operation: AND, OR or NOT, not '{operation}'")),
    };
    clauses.iter().enumerate().skip(1).try_fold(first, |joined, (i, part)| Ok(join(joined, read(i, part)?)))
}

fn truth(value: bool) -> Expr {
    Expr::Literal(Literal::Boolean(value))
}

/// TRUE where `expr` is FALSE or NULL.
fn not(expr: Expr) -> Expr {
    Expr::Call { function: Function::If, arguments: vec![expr.coerced(Type::Boolean), truth(false), truth(true)] }
}

/// A value of a relational clause.
enum FilterValue {
    Text(String),
    Field(Expr),
}

fn relational(members: &serde_json::Map<String, Value>, path: &str) -> Result<Expr, Wrong> {
    let name = members.get("field").and_then(Value::as_str).unwrap_or_default();
    let left = field(name, &format!("{path}.field"))?;
    let values = match members.get("values") {
        None | Some(Value::Null) => Vec::new(),
        Some(values) => given(values, &format!("{path}.values"))?,
    };
    let Some(operation) = keyword(members.get("operation")).filter(|_| !values.is_empty()) else {
        return Ok(truth(true));
    };
    let mut any: Option<Expr> = None;
    for value in &values {
        let one = match operation.as_str() {
            "==" | "!=" => equal(&left, value),
            "<" => ordered(&left, Comparison::Less, value),
            "<=" => ordered(&left, Comparison::LessOrEqual, value),
            ">" => ordered(&left, Comparison::Greater, value),
            ">=" => ordered(&left, Comparison::GreaterOrEqual, value),
            "RLIKE" => rlike(&left, value, path)?,
            "SIZEIS" => sized(&left, value, path)?,
            "CONTAINSKEY" => {
                contains(Function::ContainsKey, &left, vec![Expr::Literal(Literal::Text(text(value, path)?))])
            }
            "CONTAINSVALUE" => contains(Function::ContainsValue, &left, candidates(&text(value, path)?)),
            _ => return Err(format!("{path}.operation: there is no operation '{operation}'")),
        };
        any = Some(match any {
            Some(others) => others.or(one),
            None => one,
        });
    }
    let any = any.unwrap_or_else(|| truth(true));
    Ok(if operation == "!=" { not(any) } else { any })
}

fn given(values: &Value, path: &str) -> Result<Vec<FilterValue>, Wrong> {
    let values = list(values, path)?;
    let objects = values.iter().filter(|value| value.is_object()).count();
    if objects != 0 && objects != values.len() {
        return Err(format!("{path}: either all values are objects, or none"));
    }
    let one = |value: &Value| match value {
        Value::Null => Ok(FilterValue::Text("null".to_owned())),
        Value::String(text) => Ok(FilterValue::Text(text.clone())),
        Value::Bool(_) | Value::Number(_) => Ok(FilterValue::Text(value.to_string())),
        Value::Object(members) => {
            let text = match members.get("value") {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Null) | None => "null".to_owned(),
                Some(other) => other.to_string(),
            };
            match keyword(members.get("kind")).as_deref() {
                None | Some("VALUE") => Ok(FilterValue::Text(text)),
                Some("FIELD") => field(&text, path).map(FilterValue::Field),
                Some(other) => Err(format!("{path}: the kind of a value is VALUE or FIELD, not '{other}'")),
            }
        }
        Value::Array(_) => Err(format!("{path}: a value is a text")),
    };
    values.iter().map(one).collect()
}

fn is_null(text: &str) -> bool {
    text.eq_ignore_ascii_case("null")
}

/// The values that a text can be equal to: itself, and the number or boolean that it spells.
fn candidates(text: &str) -> Vec<Expr> {
    let mut values = vec![Literal::Text(text.to_owned())];
    if let Ok(integer) = text.parse() {
        values.push(Literal::Integer(integer));
    } else if let Some(double) = double(text) {
        values.push(Literal::Double(double));
    }
    values.extend(boolean(text).map(Literal::Boolean));
    values.into_iter().map(Expr::Literal).collect()
}

fn double(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

fn boolean(text: &str) -> Option<bool> {
    [("true", true), ("false", false)].iter().find(|(word, _)| word.eq_ignore_ascii_case(text)).map(|(_, value)| *value)
}

fn equal(left: &Expr, value: &FilterValue) -> Expr {
    match value {
        FilterValue::Field(right) => left.clone().compare(Comparison::Equal, right.clone()),
        FilterValue::Text(text) if is_null(text) => left.clone().null_test().or(left.clone().within(candidates(text))),
        FilterValue::Text(text) => {
            let of_doubles = fraction(text).filter(|double| double.fract() == 0.0);
            let Some(double) = of_doubles else { return left.clone().within(candidates(text)) };
            let as_text = Expr::Literal(Literal::Text(text.clone()));
            left.clone().compare(Comparison::Equal, as_text).or(as_double(left, Comparison::Equal, double))
        }
    }
}

/// The number that `text` spells, if no integer is spelled so.
fn fraction(text: &str) -> Option<f64> {
    double(text).filter(|_| text.parse::<i64>().is_err())
}

/// The comparison for doubles only: a text with a fraction is no value that an integer is compared with.
fn as_double(left: &Expr, comparison: Comparison, double: f64) -> Expr {
    let kind = Expr::Call { function: Function::TypeOf, arguments: vec![left.clone()] };
    let is_double = kind.compare(Comparison::Equal, Expr::Literal(Literal::Text(Type::Double.as_str().to_owned())));
    is_double.and(left.clone().compare(comparison, Expr::Literal(Literal::Double(double))))
}

fn ordered(left: &Expr, comparison: Comparison, value: &FilterValue) -> Expr {
    let text = match value {
        FilterValue::Field(right) => return left.clone().compare(comparison, right.clone()),
        FilterValue::Text(text) => text,
    };
    let of = |literal| left.clone().compare(comparison, Expr::Literal(literal));
    let mut any = of(Literal::Text(text.clone()));
    if let Some(double) = fraction(text) {
        any = any.or(as_double(left, comparison, double));
    } else if let Ok(integer) = text.parse() {
        any = any.or(of(Literal::Integer(integer)));
    }
    match boolean(text) {
        Some(value) => any.or(of(Literal::Boolean(value))),
        None => any,
    }
}

fn text(value: &FilterValue, path: &str) -> Result<String, Wrong> {
    match value {
        FilterValue::Text(text) => Ok(text.clone()),
        FilterValue::Field(_) => Err(format!("{path}.values: this operation takes no fields")),
    }
}

fn rlike(left: &Expr, value: &FilterValue, path: &str) -> Result<Expr, Wrong> {
    let pattern = text(value, path)?;
    let compiled = Pattern::new(&pattern);
    let compiled = compiled.map_err(|error| format!("{path}.values: no regular expression of linear time: {error}"))?;
    let of_text = left.clone().rlike(compiled.clone());
    if !literals::may_match_number_or_boolean(&compiled) {
        return Ok(of_text);
    }
    // Numbers and booleans match by their text, as in Bullet.
    let kind = Expr::Call { function: Function::TypeOf, arguments: vec![left.clone()] };
    let kinds = [Type::Integer, Type::Double, Type::Boolean];
    let is_scalar = kind.within(kinds.map(|kind| Expr::Literal(Literal::Text(kind.as_str().to_owned()))).to_vec());
    let as_text = Expr::Cast { to: Type::Text, value: Box::new(left.clone()) };
    Ok(of_text.or(is_scalar.and(as_text.rlike(compiled))))
}

fn sized(left: &Expr, value: &FilterValue, path: &str) -> Result<Expr, Wrong> {
    let size = text(value, path)?;
    let size = size.parse().map_err(|_| format!("{path}.values: '{size}' is no size"))?;
    Ok(contains(Function::SizeIs, left, vec![Expr::Literal(Literal::Integer(size))]))
}

/// The function of the field and one of `values`.
fn contains(function: Function, left: &Expr, values: Vec<Expr>) -> Expr {
    let call = |value| Expr::Call { function, arguments: vec![left.clone(), value] };
    values.into_iter().map(call).reduce(Expr::or).unwrap_or_else(|| truth(true))
}
