//! Post-aggregations: the operations on each result. They are written into the plan in their order.

use millstream_columns::{Comparison, Expr, Item, Literal, Operator, Type};
use serde_json::{Map, Value};

use super::{Wrong, field, keyword, list, object};
use crate::{Order, QueryPlan, Select};

pub(super) fn apply(step: &Value, path: &str, plan: &mut QueryPlan) -> Result<(), Wrong> {
    let step = object(step, path)?;
    match keyword(step.get("type")).as_deref() {
        Some("ORDERBY") => {
            let whole = keyword(step.get("direction"));
            for (i, part) in
                list(step.get("fields").unwrap_or(&Value::Null), &format!("{path}.fields"))?.iter().enumerate()
            {
                let path = format!("{path}.fields[{i}]");
                let (name, direction) = match part {
                    Value::String(name) => (name.as_str(), whole.clone()),
                    part => {
                        let part = object(part, &path)?;
                        (part.get("field").and_then(Value::as_str).unwrap_or_default(), keyword(part.get("direction")))
                    }
                };
                let by = named(plan, name, &path)?;
                plan.order_by.push(Order { by, descending: direction.as_deref() == Some("DESC") });
            }
            Ok(())
        }
        Some("COMPUTATION") => {
            let value =
                expression(step.get("expression").unwrap_or(&Value::Null), &format!("{path}.expression"), plan)?;
            let alias = step.get("newName").and_then(Value::as_str).map(str::to_owned);
            match &mut plan.select {
                Select::Items(items) | Select::WithAll(items) => items.push(Item { value, alias }),
                Select::All => return Err(format!("{path}: COMPUTATION adds to fields that a projection names")),
            }
            Ok(())
        }
        Some("CULLING") => {
            let Select::Items(items) = &mut plan.select else {
                return Err(format!("{path}: CULLING takes away of fields that a projection names"));
            };
            for name in list(step.get("transientFields").unwrap_or(&Value::Null), &format!("{path}.transientFields"))? {
                items.retain(|item| name.as_str() != Some(&item.name()));
            }
            if items.is_empty() { Err(format!("{path}: nothing is left to tell")) } else { Ok(()) }
        }
        Some("HAVING") => {
            let test = expression(step.get("expression").unwrap_or(&Value::Null), &format!("{path}.expression"), plan)?;
            plan.having = Some(match plan.having.take() {
                Some(having) => having.and(test),
                None => test,
            });
            Ok(())
        }
        _ => Err(format!("{path}.type: ORDERBY, COMPUTATION, HAVING or CULLING")),
    }
}

/// The value of a result that has this name.
fn named(plan: &QueryPlan, name: &str, path: &str) -> Result<Expr, Wrong> {
    match plan.items().iter().find(|item| item.name() == name) {
        Some(item) => Ok(item.value.clone()),
        None if plan.select == Select::All => field(name, path),
        None => Err(format!("{path}: the results have no '{name}'")),
    }
}

/// A number if the text spells one.
fn literal(text: String) -> Literal {
    match (text.parse(), text.parse::<f64>()) {
        (Ok(integer), _) => Literal::Integer(integer),
        (_, Ok(double)) if double.is_finite() => Literal::Double(double),
        _ => Literal::Text(text),
    }
}

/// The value made one of the type that `of` names, if it names one.
fn cast(value: Expr, of: &Map<String, Value>, path: &str) -> Result<Expr, Wrong> {
    let to = match keyword(of.get("type")).as_deref() {
        None => return Ok(value),
        Some("BOOLEAN") => Type::Boolean,
        Some("INTEGER" | "LONG") => Type::Integer,
        Some("FLOAT" | "DOUBLE") => Type::Double,
        Some("STRING") => Type::Text,
        Some(other) => {
            return Err(format!("{path}.type: BOOLEAN, INTEGER, LONG, FLOAT, DOUBLE or STRING, not '{other}'"));
        }
    };
    Ok(Expr::Cast { to, value: Box::new(value) })
}

/// `{"operation", "left", "right"}`, or `{"value": {"kind", "value", "type"}}`.
fn expression(value: &Value, path: &str, plan: &QueryPlan) -> Result<Expr, Wrong> {
    let members = object(value, path)?;
    if let Some(leaf) = members.get("value") {
        let leaf = object(leaf, path)?;
        let text = match leaf.get("value") {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let value = match keyword(leaf.get("kind")).as_deref() {
            Some("FIELD") => named(plan, &text, path)?,
            _ if keyword(leaf.get("type")).as_deref() == Some("STRING") => Expr::Literal(Literal::Text(text)),
            _ => Expr::Literal(literal(text)),
        };
        return cast(value, leaf, path);
    }
    let side = |name: &str| expression(members.get(name).unwrap_or(&Value::Null), &format!("{path}.{name}"), plan);
    let operation = keyword(members.get("operation")).unwrap_or_default();
    let joined = match operation.as_str() {
        "+" => side("left")?.arithmetic(Operator::Add, side("right")?),
        "-" => side("left")?.arithmetic(Operator::Subtract, side("right")?),
        "*" => side("left")?.arithmetic(Operator::Multiply, side("right")?),
        "/" => side("left")?.arithmetic(Operator::Divide, side("right")?),
        "==" => side("left")?.compare(Comparison::Equal, side("right")?),
        "!=" => side("left")?.compare(Comparison::NotEqual, side("right")?),
        "<" => side("left")?.compare(Comparison::Less, side("right")?),
        "<=" => side("left")?.compare(Comparison::LessOrEqual, side("right")?),
        ">" => side("left")?.compare(Comparison::Greater, side("right")?),
        ">=" => side("left")?.compare(Comparison::GreaterOrEqual, side("right")?),
        "AND" => side("left")?.and(side("right")?),
        "OR" => side("left")?.or(side("right")?),
        _ => return Err(format!("{path}.operation: + - * / == != < <= > >= AND or OR")),
    };
    cast(joined, members, path)
}
