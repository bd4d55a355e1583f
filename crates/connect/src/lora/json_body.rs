//! Reads members of a network server's JSON without relying on their types: servers write numbers as text, leave out
//! zeros and change their formats between versions.

use serde_json::{Map, Number, Value};

/// The names from the body to a member within it; empty for a member that a provider does not have.
pub(super) type Path = &'static [&'static str];

/// Returns the member at `path`; `None` also if it is null.
pub(super) fn member(body: &Map<String, Value>, path: Path) -> Option<&Value> {
    let (first, rest) = path.split_first()?;
    let found = rest.iter().try_fold(body.get(*first)?, |value, name| value.get(name))?;
    (!found.is_null()).then_some(found)
}

/// Removes the member at `path`, and the objects around it that have no other member.
pub(super) fn take(body: &mut Map<String, Value>, path: Path) -> Option<Value> {
    let (first, rest) = path.split_first()?;
    if rest.is_empty() {
        return body.remove(*first).filter(|value| !value.is_null());
    }
    let inner = body.get_mut(*first)?.as_object_mut()?;
    let taken = take(inner, rest);
    if inner.is_empty() {
        body.remove(*first);
    }
    taken
}

/// Returns a number that may be written as text.
pub(super) fn number(value: &Value) -> Option<Value> {
    match value {
        Value::Number(_) => Some(value.clone()),
        Value::String(text) => {
            let text = text.trim();
            let whole = || text.parse::<i64>().ok().map(Value::from);
            whole().or_else(|| text.parse().ok().and_then(Number::from_f64).map(Value::Number))
        }
        _ => None,
    }
}

/// Returns a number that may be written as text, divided by `divisor`.
pub(super) fn scaled(value: &Value, divisor: u32) -> Option<Value> {
    let number = number(value)?;
    match number.as_u64().filter(|whole| whole % u64::from(divisor) == 0) {
        Some(whole) => Some(Value::from(whole / u64::from(divisor))),
        None => Number::from_f64(number.as_f64()? / f64::from(divisor)).map(Value::Number),
    }
}

/// Returns a truth value that may be written as a number or text.
pub(super) fn boolean(value: &Value) -> Option<Value> {
    match value {
        Value::Bool(_) => Some(value.clone()),
        Value::String(text) if text == "1" || text == "true" => Some(Value::Bool(true)),
        Value::String(text) if text == "0" || text == "false" => Some(Value::Bool(false)),
        Value::Number(number) => Some(Value::Bool(number.as_u64()? != 0)),
        _ => None,
    }
}

/// Returns a text, or a number as text.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_and_truth_values_may_be_text() {
        for (given, expected) in [
            (json!(7), Some(json!(7))),
            (json!("7"), Some(json!(7))),
            (json!(" -60.5 "), Some(json!(-60.5))),
            (json!("high"), None),
            (json!("NaN"), None),
            (json!([1]), None),
        ] {
            assert_eq!(number(&given), expected, "{given}");
        }
        for (given, divisor, expected) in [
            (json!(125_000), 1_000, Some(json!(125))),
            (json!("868300000"), 1_000_000, Some(json!(868.3))),
            (json!(868_100_000), 1_000_000, Some(json!(868.1))),
            (json!(null), 1_000, None),
        ] {
            assert_eq!(scaled(&given, divisor), expected, "{given}");
        }
        for (given, expected) in [
            (json!(true), Some(json!(true))),
            (json!("1"), Some(json!(true))),
            (json!("0"), Some(json!(false))),
            (json!(1), Some(json!(true))),
            (json!("perhaps"), None),
        ] {
            assert_eq!(boolean(&given), expected, "{given}");
        }
    }

    #[test]
    fn a_taken_member_leaves_no_empty_object_behind() {
        let mut body = json!({"a": {"b": {"c": 1}}, "d": {"e": 2, "f": null}, "g": 3}).as_object().unwrap().clone();
        assert_eq!(member(&body, &["a", "b", "c"]), Some(&json!(1)));
        assert_eq!(take(&mut body, &["a", "b", "c"]), Some(json!(1)));
        assert_eq!((member(&body, &["d", "f"]), member(&body, &[])), (None, None));
        assert_eq!(take(&mut body, &["d", "f"]), None);
        assert_eq!((take(&mut body, &["g", "x"]), take(&mut body, &["x"])), (None, None));
        assert_eq!(Value::Object(body), json!({"d": {"e": 2}, "g": 3}));
    }
}
