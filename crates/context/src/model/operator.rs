//! Update operators such as `{"$inc": 1}`: parsing and application to an attribute's value.

use std::cmp::Ordering;

use millstream_types::iso_time;
use serde_json::{Map, Number, Value, json};

use crate::model::datetime;
use crate::refusal::Refusal;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UpdateOperator {
    Inc(Number),
    Mul(Number),
    Min(Value),
    Max(Value),
    /// Appends, or inserts at `position`.
    Push {
        items: Vec<Value>,
        position: Option<usize>,
    },
    /// Appends the items that are not in the array yet.
    AddToSet(Vec<Value>),
    /// Removes all items that equal one of these.
    Pull(Vec<Value>),
    /// Sets some keys and removes others.
    Members {
        set: Map<String, Value>,
        unset: Vec<String>,
    },
    /// `$set` with an argument that is no object.
    Replace(Value),
}

/// The value is an object with an operator among its keys.
pub(crate) fn is_operator(value: &Value) -> bool {
    value.as_object().is_some_and(|members| members.keys().any(|name| name.starts_with('$')))
}

impl UpdateOperator {
    /// Parses an operator; `what` names the attribute.
    pub(crate) fn read(what: &str, value: Value) -> Result<Self, Refusal> {
        let wrong = |why: String| Refusal::bad(format!("the value of {what}: {why}"));
        let Value::Object(mut members) = value else { return Err(wrong("it is no operator; send an object".into())) };
        if members.keys().any(|name| name == "$set" || name == "$unset") {
            return Self::members(members).map_err(wrong);
        }
        let (name, argument) = match (members.len(), members.keys().next().cloned()) {
            (1, Some(name)) => (name.clone(), members.shift_remove(&name).unwrap_or_default()),
            _ => return Err(wrong("one operator at a time; only $set and $unset go together".into())),
        };
        Self::single(&name, argument).map_err(wrong)
    }

    fn single(name: &str, argument: Value) -> Result<Self, String> {
        let number = |argument: Value| match argument {
            Value::Number(number) => Ok(number),
            other => Err(format!("{name} takes a number and not {other}")),
        };
        match name {
            "$inc" => Ok(Self::Inc(number(argument)?)),
            "$mul" => Ok(Self::Mul(number(argument)?)),
            "$min" | "$max" if !(argument.is_number() || argument.is_string()) => {
                Err(format!("{name} takes a number, a text or a date and not {argument}"))
            }
            "$min" => Ok(Self::Min(argument)),
            "$max" => Ok(Self::Max(argument)),
            "$push" => Self::push(argument),
            "$addToSet" => each(name, argument, &[]).map(|(items, _)| Self::AddToSet(items)),
            "$pull" if is_operator(&argument) => Err(format!("$pull takes an item and not {argument}")),
            "$pull" => Ok(Self::Pull(vec![argument])),
            "$pullAll" => match argument {
                Value::Array(items) => Ok(Self::Pull(items)),
                other => Err(format!("$pullAll takes an array and not {other}")),
            },
            unknown => Err(format!(
                "'{unknown}' is no operator: use $inc, $mul, $min, $max, $push, $addToSet, $pull, $pullAll, $set or $unset"
            )),
        }
    }

    fn push(argument: Value) -> Result<Self, String> {
        let (items, mut modifiers) = each("$push", argument, &["$position"])?;
        let position = match modifiers.shift_remove("$position") {
            None => None,
            Some(position) => match position.as_u64().and_then(|at| usize::try_from(at).ok()) {
                Some(at) => Some(at),
                None => return Err(format!("$position takes a whole number that is not negative, and not {position}")),
            },
        };
        Ok(Self::Push { items, position })
    }

    fn members(mut given: Map<String, Value>) -> Result<Self, String> {
        let (set, unset) = (given.shift_remove("$set"), given.shift_remove("$unset"));
        if let Some(other) = given.keys().next() {
            return Err(format!("{other} beside $set or $unset: only those two go together"));
        }
        // An argument of $unset that is no object is ignored.
        let unset: Vec<String> = match unset {
            Some(Value::Object(keys)) => keys.into_iter().map(|(key, _)| key).collect(),
            _ => Vec::new(),
        };
        match set {
            Some(Value::Object(set)) => match unset.iter().find(|key| set.contains_key(*key)) {
                Some(key) => Err(format!("key '{key}' is both set and unset: their keys must differ")),
                None => Ok(Self::Members { set, unset }),
            },
            None => Ok(Self::Members { set: Map::new(), unset }),
            Some(other) if unset.is_empty() => Ok(Self::Replace(other)),
            Some(other) => Err(format!("$set takes an object beside $unset, and not {other}")),
        }
    }

    /// The result for a missing value; `None` if no attribute is created.
    pub(crate) fn of_nothing(&self, is_date: bool) -> Result<Option<Value>, String> {
        let base = match self {
            Self::Pull(_) => return Ok(None),
            Self::Members { set, .. } if set.is_empty() => return Ok(None),
            Self::Min(Value::String(_)) | Self::Max(Value::String(_)) if is_date => Value::from(iso_time(0)),
            Self::Min(text @ Value::String(_)) | Self::Max(text @ Value::String(_)) => text.clone(),
            Self::Inc(_) | Self::Mul(_) | Self::Min(_) | Self::Max(_) => json!(0),
            Self::Push { .. } | Self::AddToSet(_) => json!([]),
            Self::Members { .. } | Self::Replace(_) => json!({}),
        };
        self.of(base, is_date).map(Some)
    }

    /// The result for the value `known`; the error says why the operator does not apply.
    pub(crate) fn of(&self, known: Value, is_date: bool) -> Result<Value, String> {
        match (self, known) {
            (Self::Inc(by), Value::Number(known)) => calculated(&known, by, i64::checked_add, |a, b| a + b),
            (Self::Mul(by), Value::Number(known)) => calculated(&known, by, i64::checked_mul, |a, b| a * b),
            (Self::Min(other), known) => kept(known, other, is_date, Ordering::Greater),
            (Self::Max(other), known) => kept(known, other, is_date, Ordering::Less),
            (Self::Push { items, position }, Value::Array(mut known)) => {
                let at = position.unwrap_or(known.len()).min(known.len());
                known.splice(at..at, items.iter().cloned());
                Ok(Value::Array(known))
            }
            (Self::AddToSet(items), Value::Array(mut known)) => {
                for item in items {
                    if !known.iter().any(|one| equal(one, item)) {
                        known.push(item.clone());
                    }
                }
                Ok(Value::Array(known))
            }
            (Self::Pull(items), Value::Array(mut known)) => {
                known.retain(|one| !items.iter().any(|item| equal(one, item)));
                Ok(Value::Array(known))
            }
            (Self::Members { set, unset }, Value::Object(mut known)) => {
                unset.iter().for_each(|key| drop(known.shift_remove(key)));
                known.extend(set.iter().map(|(key, value)| (key.clone(), value.clone())));
                Ok(Value::Object(known))
            }
            (Self::Replace(value), _) => Ok(value.clone()),
            (operator, known) => Err(format!("{} does not go with the value {known}", operator.name())),
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Inc(_) => "$inc",
            Self::Mul(_) => "$mul",
            Self::Min(_) => "$min",
            Self::Max(_) => "$max",
            Self::Push { .. } => "$push",
            Self::AddToSet(_) => "$addToSet",
            Self::Pull(_) => "$pull",
            Self::Members { .. } => "$set or $unset",
            Self::Replace(_) => "$set",
        }
    }
}

/// The items of an argument, one or `$each` of several, and the modifiers beside `$each`, which must be in `known`.
fn each(name: &str, argument: Value, known: &[&str]) -> Result<(Vec<Value>, Map<String, Value>), String> {
    match argument {
        Value::Object(mut modifiers) if modifiers.keys().any(|key| key.starts_with('$')) => {
            let items = match modifiers.shift_remove("$each") {
                Some(Value::Array(items)) => items,
                Some(other) => return Err(format!("$each takes an array and not {other}")),
                None => return Err(format!("{name} takes an item, or an object with $each")),
            };
            match modifiers.keys().find(|key| !known.contains(&key.as_str())) {
                Some(other) => Err(format!("{other} beside $each of {name} is not known here; leave it out")),
                None => Ok((items, modifiers)),
            }
        }
        item => Ok((vec![item], Map::new())),
    }
}

/// Integers stay integers as long as they fit.
fn calculated(
    a: &Number,
    b: &Number,
    whole: impl Fn(i64, i64) -> Option<i64>,
    real: impl Fn(f64, f64) -> f64,
) -> Result<Value, String> {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64())
        && let Some(result) = whole(a, b)
    {
        return Ok(result.into());
    }
    let result = a.as_f64().zip(b.as_f64()).map(|(a, b)| real(a, b));
    let number = result.and_then(Number::from_f64);
    number.map(Value::Number).ok_or_else(|| format!("{a} and {b} give no number that can be shown"))
}

/// `other` if `known` compares to it as `loses`, otherwise `known`.
fn kept(known: Value, other: &Value, is_date: bool, loses: Ordering) -> Result<Value, String> {
    let date = |value: &Value| value.as_str().and_then(datetime::parse);
    let order = match (&known, other) {
        (Value::String(a), Value::String(b)) if !is_date => Some(a.cmp(b)),
        (Value::String(_), Value::String(_)) => date(&known).zip(date(other)).map(|(a, b)| a.cmp(&b)),
        _ => known.as_f64().zip(other.as_f64()).and_then(|(a, b)| a.partial_cmp(&b)),
    };
    match order {
        Some(order) if order == loses => Ok(other.clone()),
        Some(_) => Ok(known),
        None => Err(format!("{other} cannot be compared with the value {known}")),
    }
}

/// Numbers are equal however they are written.
fn equal(a: &Value, b: &Value) -> bool {
    a == b || (a.is_number() && a.as_f64() == b.as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(operator: Value, known: Option<Value>, expected: Result<Option<Value>, &str>) {
        let read = UpdateOperator::read("attribute 'a'", operator.clone()).unwrap();
        let made = match known.clone() {
            Some(known) => read.of(known, false).map(Some),
            None => read.of_nothing(false),
        };
        match (&made, &expected) {
            (Err(why), Err(named)) => assert!(why.contains(named), "{operator} {known:?}: {why}"),
            _ => assert_eq!(made.ok(), expected.ok(), "{operator} {known:?}"),
        }
    }

    #[test]
    fn each_operator_gives_the_result_of_its_row() {
        for (operator, known, expected) in [
            (json!({"$inc": 2}), json!(5), json!(7)),
            (json!({"$inc": -0.5}), json!(5), json!(4.5)),
            (json!({"$inc": 1}), json!(i64::MAX), json!(9223372036854775807_i64 as f64 + 1.0)),
            (json!({"$mul": 3}), json!(5), json!(15)),
            (json!({"$min": 3}), json!(5), json!(3)),
            (json!({"$min": 7}), json!(5), json!(5)),
            (json!({"$max": 7.5}), json!(5), json!(7.5)),
            (json!({"$max": "b"}), json!("a"), json!("b")),
            (json!({"$push": 3}), json!([1]), json!([1, 3])),
            (json!({"$push": {"$each": [3, 4]}}), json!([1]), json!([1, 3, 4])),
            (json!({"$push": {"$each": [3], "$position": 0}}), json!([1]), json!([3, 1])),
            (json!({"$push": {"$each": [3], "$position": 9}}), json!([1]), json!([1, 3])),
            (json!({"$push": {"k": 1}}), json!([]), json!([{"k": 1}])),
            (json!({"$addToSet": 1}), json!([1.0]), json!([1.0])),
            (json!({"$addToSet": 2}), json!([1]), json!([1, 2])),
            (json!({"$addToSet": {"$each": [1, 2, 2, 3]}}), json!([1]), json!([1, 2, 3])),
            (json!({"$pull": 1}), json!([1, 2, 1.0]), json!([2])),
            (json!({"$pullAll": [1, "x"]}), json!([1, 2, "x"]), json!([2])),
            (json!({"$set": {"b": 2}}), json!({"a": 1}), json!({"a": 1, "b": 2})),
            (json!({"$set": 7}), json!({"a": 1}), json!(7)),
            (json!({"$unset": {"a": "", "z": 1}}), json!({"a": 1, "b": 2}), json!({"b": 2})),
            (json!({"$unset": 7}), json!({"a": 1}), json!({"a": 1})),
            (json!({"$set": {"b": 2}, "$unset": {"a": 1}}), json!({"a": 1}), json!({"b": 2})),
        ] {
            check(operator, Some(known), Ok(Some(expected)));
        }
    }

    #[test]
    fn an_attribute_that_is_new_begins_with_its_base() {
        for (operator, expected) in [
            (json!({"$inc": 2}), Some(json!(2))),
            (json!({"$mul": 2}), Some(json!(0))),
            (json!({"$min": 2}), Some(json!(0))),
            (json!({"$max": 2}), Some(json!(2))),
            (json!({"$push": 2}), Some(json!([2]))),
            (json!({"$addToSet": 2}), Some(json!([2]))),
            (json!({"$pull": 2}), None),
            (json!({"$pullAll": [2]}), None),
            (json!({"$set": {"a": 1}}), Some(json!({"a": 1}))),
            (json!({"$unset": {"a": 1}}), None),
        ] {
            check(operator, None, Ok(expected));
        }
        let max = UpdateOperator::read("a", json!({"$max": "1969-01-01T00:00:00.000Z"})).unwrap();
        assert_eq!(max.of_nothing(true).unwrap(), Some(json!("1970-01-01T00:00:00.000Z")));
    }

    #[test]
    fn an_operator_that_does_not_fit_is_refused() {
        for (operator, known) in [
            (json!({"$inc": 1}), json!("text")),
            (json!({"$inc": 1e308}), json!(1e308)),
            (json!({"$min": 1}), json!("text")),
            (json!({"$push": 1}), json!(1)),
            (json!({"$pull": 1}), json!({})),
            (json!({"$set": {"a": 1}}), json!("text")),
        ] {
            let read = UpdateOperator::read("a", operator.clone()).unwrap();
            assert!(read.of(known, false).is_err(), "{operator}");
        }
        for operator in [
            json!({"$inc": "1"}),
            json!({"$inc": 1, "$mul": 2}),
            json!({"$inc": 1, "a": 2}),
            json!({"$min": true}),
            json!({"$pullAll": 1}),
            json!({"$push": {"$each": 1}}),
            json!({"$push": {"$each": [], "$position": -1}}),
            json!({"$push": {"$each": [], "$slice": -1}}),
            json!({"$push": {"$each": [], "x": 1}}),
            json!({"$push": {"$position": 0}}),
            json!({"$addToSet": {"$each": 1}}),
            json!({"$addToSet": {"$each": [], "$position": 0}}),
            json!({"$pull": {"$gt": 1}}),
            json!({"a": 2, "$inc": 1}),
            json!({"$pop": 1}),
            json!({"$set": {"a": 1}, "$unset": {"a": 1}}),
            json!({"$set": {"a": 1}, "$inc": 1}),
            json!({"$set": 1, "$unset": {"a": 1}}),
        ] {
            assert!(is_operator(&operator));
            let refusal = UpdateOperator::read("attribute 'a'", operator.clone()).unwrap_err();
            assert!(refusal.description.contains("attribute 'a'"), "{operator}: {refusal:?}");
        }
    }
}
