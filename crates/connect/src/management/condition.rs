//! Conditions of a search on one field of a resource: a filter on its value or a sort order.

use std::cmp::Ordering;

use millstream_http::{Problem, Reason, Wildcard};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A field has this value.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FieldFilter {
    field: String,
    #[serde(default, rename = "op")]
    _op: FilterOperator,
    value: Value,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FilterOperator {
    #[default]
    Eq,
}

/// A field is sorted by.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SortField {
    pub(super) field: String,
    #[serde(default)]
    pub(super) direction: Direction,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Direction {
    #[default]
    Asc,
    Desc,
}

impl FieldFilter {
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let rule = r#"filterJson is like {"field":"/ext/id","op":"eq","value":"x*"}, its value text, a number or a truth value"#;
        let filter: Self = parse(text, rule)?;
        let is_scalar = matches!(filter.value, Value::String(_) | Value::Number(_) | Value::Bool(_));
        if !is_scalar || !is_pointer(&filter.field) {
            return Err(not_understood(text, rule));
        }
        Ok(filter)
    }

    /// True if `resource` has the field with that value.
    pub(super) fn matches(&self, resource: &Value) -> bool {
        match (&self.value, resource.pointer(&self.field)) {
            (Value::String(pattern), Some(Value::String(text))) => Wildcard::from(&**pattern).fits(text),
            (Value::Number(asked), Some(Value::Number(number))) => asked == number || asked.as_f64() == number.as_f64(),
            (asked, found) => Some(asked) == found,
        }
    }
}

impl SortField {
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let rule = r#"sortJson is like {"field":"/ext/id","direction":"desc"}, direction asc or desc"#;
        let order: Self = parse(text, rule)?;
        if is_pointer(&order.field) { Ok(order) } else { Err(not_understood(text, rule)) }
    }
}

fn parse<T: DeserializeOwned>(text: &str, rule: &'static str) -> Result<T, Problem> {
    serde_json::from_str(text).map_err(|_| not_understood(text, rule))
}

fn not_understood(text: &str, rule: &'static str) -> Problem {
    bad("a condition of the search cannot be understood", text)
        .rule(rule)
        .remedy("send such an object, URL-encoded; field is a JSON pointer")
}

/// The refusal of a parameter of a search.
pub(super) fn bad(detail: &'static str, value: &str) -> Problem {
    Problem::new(Reason::MalformedParameter, detail).value(value)
}

/// A JSON pointer to a part of the resource (RFC 6901).
fn is_pointer(text: &str) -> bool {
    text.starts_with('/')
}

/// Sorts numbers before text before other values. A missing field is last in both directions.
pub(super) fn compare(a: Option<&Value>, b: Option<&Value>, direction: Direction) -> Ordering {
    let (Some(a), Some(b)) = (a, b) else { return a.is_none().cmp(&b.is_none()) };
    let ordering = match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a.as_f64().unwrap_or_default().total_cmp(&b.as_f64().unwrap_or_default())
        }
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (a, b) => rank(a).cmp(&rank(b)),
    };
    if direction == Direction::Desc { ordering.reverse() } else { ordering }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Null | Value::Array(_) | Value::Object(_) => 3,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_filter_compares_values_of_a_kind() {
        let resource = json!({"enabled": true, "ext": {"n": 2, "a/b": "x"}});
        for (filter, is_match) in [
            (r#"{"field":"/enabled","value":true}"#, true),
            (r#"{"field":"/enabled","value":"true"}"#, false),
            (r#"{"field":"/ext/n","op":"eq","value":2.0}"#, true),
            (r#"{"field":"/ext/n","value":"*"}"#, false),
            (r#"{"field":"/ext/a~1b","value":"?"}"#, true),
            (r#"{"field":"/ext/c","value":"*"}"#, false),
        ] {
            assert_eq!(FieldFilter::parse(filter).unwrap().matches(&resource), is_match, "{filter}");
        }
    }

    #[test]
    fn missing_values_sort_last_in_both_directions() {
        let (one, two, text) = (json!(1), json!(2), json!("a"));
        for (direction, expected) in [(Direction::Asc, Ordering::Less), (Direction::Desc, Ordering::Greater)] {
            assert_eq!(compare(Some(&one), Some(&two), direction), expected);
            assert_eq!(compare(Some(&two), Some(&text), direction), expected);
            assert_eq!(compare(Some(&two), None, direction), Ordering::Less);
        }
        assert_eq!(compare(None, None, Direction::Asc), Ordering::Equal);
    }
}
