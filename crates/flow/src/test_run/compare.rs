//! Compares the records that a node has made with those that a test expects.
//!
//! An expected record names some fields, and matches a record in which these are equal. The order is free, except among
//! records of one key.

use serde::Serialize;
use serde_json::Value;

use super::capture::Captured;
use crate::document::Finding;
use crate::runtime::RunFailure;

/// Differences of one node that are reported.
const REPORTED_MAX: usize = 20;
/// Above this number of records they are paired in their order only.
const SEARCHED_MAX: usize = 1_000;
/// The member of an expected record that names the record's key.
const KEY: &str = "$key";

/// A difference between the records that a test expects and those that came out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The kind of the difference, for programs that read the report.
    pub kind: DifferenceKind,
    /// The node about which it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The difference in words, for people who read the report.
    pub message: String,
    /// The record that the test expects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Value>,
    /// The record that came out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual: Option<Value>,
}

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// An expected record did not come out.
    Missing,
    /// A record came out that the test does not expect.
    Unexpected,
    /// A record came out with other fields.
    Fields,
    /// Two records of one key came out in the other order.
    Order,
    /// A hook wrote other lines.
    Trace,
    /// The job failed, or did not end.
    Failed,
}

impl Difference {
    fn at(kind: DifferenceKind, node: &str, message: String) -> Self {
        Self { kind, node: Some(node.to_owned()), message, expected: None, actual: None }
    }

    pub(super) fn failed(message: &str) -> Self {
        Self { kind: DifferenceKind::Failed, node: None, message: message.to_owned(), expected: None, actual: None }
    }

    /// The document breaks a rule under the parameters of the test.
    pub(super) fn of_finding(finding: &Finding) -> Self {
        Self::failed(&format!("line {}, {}: {}", finding.line, finding.path, finding.message))
    }

    /// A node failed, and nothing handled it.
    pub(super) fn of_failure(failure: &RunFailure) -> Self {
        let record = failure.record.as_deref().map_or_else(String::new, |record| format!(" on {record}"));
        let message = format!("the job failed in {}{record}: {} ({})", failure.stage, failure.message, failure.code);
        Self { node: Some(failure.node.clone()).filter(|node| !node.is_empty()), ..Self::failed(&message) }
    }
}

/// The differences of one node.
pub(super) fn compare(node: &str, expected: &[Value], actual: &[Captured]) -> Vec<Difference> {
    let pairs = pair(expected, actual);
    let mut left: Vec<usize> = (0..actual.len()).filter(|at| !pairs.contains(&Some(*at))).collect();
    let mut differences = Vec::new();
    for (record, _) in expected.iter().zip(&pairs).filter(|(_, pair)| pair.is_none()) {
        differences.push(unmatched(node, record, actual, &mut left));
    }
    differences.extend(left.into_iter().map(|at| Difference {
        actual: Some(actual[at].value.clone()),
        ..Difference::at(DifferenceKind::Unexpected, node, format!("{} is not expected", actual[at].value))
    }));
    differences.extend(swapped(&pairs, actual).map(|(first, second)| {
        let message =
            format!("{} must come before {}: they have the same key", actual[first].value, actual[second].value);
        Difference::at(DifferenceKind::Order, node, message)
    }));
    let more = differences.len().saturating_sub(REPORTED_MAX);
    if more > 0 {
        differences.truncate(REPORTED_MAX);
        let message = format!("and {more} more; {} records came out, {} are expected", actual.len(), expected.len());
        differences.push(Difference::at(DifferenceKind::Fields, node, message));
    }
    differences
}

/// The record that each expected one matches; no record is matched twice.
fn pair(expected: &[Value], actual: &[Captured]) -> Vec<Option<usize>> {
    let mut pairs = vec![None; expected.len()];
    let mut owners: Vec<Option<usize>> = vec![None; actual.len()];
    let mut first_free = 0;
    for (number, record) in expected.iter().enumerate() {
        while owners.get(first_free).is_some_and(Option::is_some) {
            first_free += 1;
        }
        let found = (first_free..actual.len()).find(|at| owners[*at].is_none() && is_match(record, &actual[*at]));
        if let Some(at) = found {
            (pairs[number], owners[at]) = (Some(at), Some(number));
        }
    }
    if expected.len().max(actual.len()) <= SEARCHED_MAX {
        // A record with few fields may have taken the only match of one with more: augmenting paths free it.
        for number in (0..expected.len()).filter(|number| pairs[*number].is_none()).collect::<Vec<_>>() {
            augment(number, expected, actual, &mut owners, &mut vec![false; actual.len()]);
        }
        for (at, owner) in owners.iter().enumerate() {
            if let Some(number) = owner {
                pairs[*number] = Some(at);
            }
        }
    }
    pairs
}

/// Finds a match for one more expected record, and moves others to other matches for it.
fn augment(
    number: usize,
    expected: &[Value],
    actual: &[Captured],
    owners: &mut [Option<usize>],
    visited: &mut [bool],
) -> bool {
    for at in 0..actual.len() {
        if visited[at] || !is_match(&expected[number], &actual[at]) {
            continue;
        }
        visited[at] = true;
        let is_free = match owners[at] {
            None => true,
            Some(owner) => augment(owner, expected, actual, owners, visited),
        };
        if is_free {
            owners[at] = Some(number);
            return true;
        }
    }
    false
}

/// Pairs of records of one key that came out against the order of the test: first the one that must come first.
fn swapped<'a>(pairs: &'a [Option<usize>], actual: &'a [Captured]) -> impl Iterator<Item = (usize, usize)> + 'a {
    let mut last: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    pairs.iter().flatten().filter_map(move |at| {
        let group = actual[*at].group.as_deref()?;
        let before = last.insert(group, *at)?;
        (before > *at).then_some((before, *at))
    })
}

/// The report of an expected record without a match: beside the record that is most like it, which is taken from `left`.
fn unmatched(node: &str, expected: &Value, actual: &[Captured], left: &mut Vec<usize>) -> Difference {
    let fields = |at: usize| {
        let mut found = Vec::new();
        differing("", expected, Some(&whole(expected, &actual[at])), &mut found);
        found
    };
    let named = expected.as_object().map_or(0, serde_json::Map::len);
    let candidates = left.iter().enumerate().take(SEARCHED_MAX).map(|(index, at)| (fields(*at), index));
    let nearest = candidates.min_by_key(|(fields, index)| (fields.len(), *index));
    match nearest {
        // Records that agree in nothing are two different ones, unless they have but one field to compare.
        Some((fields, index)) if fields.len() < named.max(2) => {
            let record = actual[left.remove(index)].value.clone();
            let message = format!("{record}: {}", fields.join(", "));
            let difference = Difference::at(DifferenceKind::Fields, node, message);
            Difference { expected: Some(expected.clone()), actual: Some(record), ..difference }
        }
        _ => {
            let difference = Difference::at(DifferenceKind::Missing, node, format!("{expected} is missing"));
            Difference { expected: Some(expected.clone()), ..difference }
        }
    }
}

fn is_match(expected: &Value, actual: &Captured) -> bool {
    if let Some(key) = expected.get(KEY) {
        return is_equal(expected, Some(&whole(expected, actual))) && is_key(key, actual.key.as_deref());
    }
    is_equal(expected, Some(&actual.value))
}

fn is_key(expected: &Value, key: Option<&str>) -> bool {
    match (expected, key) {
        (Value::Null, None) => true,
        (Value::String(text), Some(key)) => text == key,
        (other, Some(key)) => {
            let written = other.to_string();
            written == key
        }
        (_, None) => false,
    }
}

/// The record with its key, if the test names a key.
fn whole(expected: &Value, actual: &Captured) -> Value {
    let mut value = actual.value.clone();
    if let (Some(key), Some(members)) = (expected.get(KEY), value.as_object_mut()) {
        let is_right = is_key(key, actual.key.as_deref());
        let key = if is_right { key.clone() } else { actual.key.clone().into() };
        members.insert(KEY.to_owned(), key);
    }
    value
}

/// `true` if all that is named in `expected` is so in `actual`; null also stands for nothing.
fn is_equal(expected: &Value, actual: Option<&Value>) -> bool {
    match (expected, actual) {
        (Value::Null, None | Some(Value::Null)) => true,
        (Value::Object(named), Some(Value::Object(members))) => {
            named.iter().all(|(name, value)| is_equal(value, members.get(name)))
        }
        (Value::Array(named), Some(Value::Array(elements))) => {
            named.len() == elements.len()
                && named.iter().zip(elements).all(|(value, element)| is_equal(value, Some(element)))
        }
        (Value::Number(named), Some(Value::Number(number))) => {
            named == number || ((named.is_f64() || number.is_f64()) && named.as_f64() == number.as_f64())
        }
        (expected, actual) => Some(expected) == actual,
    }
}

/// Tells the fields that differ, each as `path is …, expected …`.
fn differing(path: &str, expected: &Value, actual: Option<&Value>, found: &mut Vec<String>) {
    if let (Value::Object(named), Some(Value::Object(members))) = (expected, actual) {
        for (name, value) in named {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            differing(&path, value, members.get(name), found);
        }
    } else if !is_equal(expected, actual) {
        let is = actual.map_or_else(|| "is missing".to_owned(), |actual| format!("is {actual}"));
        let path = if path.is_empty() { "the record" } else { path };
        found.push(format!("{path} {is}, expected {expected}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn captured(value: Value, group: Option<&str>) -> Captured {
        Captured { value, key: group.map(str::to_owned), group: group.map(str::to_owned) }
    }

    fn messages(expected: Value, actual: &[Captured]) -> Vec<(DifferenceKind, String)> {
        let expected = expected.as_array().unwrap();
        compare("out", expected, actual).into_iter().map(|difference| (difference.kind, difference.message)).collect()
    }

    #[test]
    fn named_fields_are_compared_and_the_order_is_free() {
        let actual = [json!({"n": 2, "a": {"b": 1, "c": 2}, "l": [1.0]}), json!({"n": 1.0, "x": null})];
        let actual = actual.map(|value| captured(value, None));
        let expected = json!([{"n": 1, "x": null, "gone": null}, {"a": {"c": 2}, "l": [1]}]);
        assert_eq!(messages(expected, &actual), []);
    }

    #[test]
    fn a_record_with_few_fields_leaves_the_match_of_another_one() {
        let actual = [json!({"n": 1, "a": 1}), json!({"n": 1, "a": 2})].map(|value| captured(value, None));
        assert_eq!(messages(json!([{"n": 1}, {"a": 1}]), &actual), []);
    }

    #[test]
    fn differences_name_records_and_fields() {
        let actual = [json!({"n": 1, "a": 1}), json!({"n": 5, "a": 5})].map(|value| captured(value, None));
        let found = messages(json!([{"n": 1, "a": 2}, {"n": 7, "a": 8}]), &actual);
        assert_eq!(
            found,
            [
                (DifferenceKind::Fields, r#"{"n":1,"a":1}: a is 1, expected 2"#.to_owned()),
                (DifferenceKind::Missing, r#"{"n":7,"a":8} is missing"#.to_owned()),
                (DifferenceKind::Unexpected, r#"{"n":5,"a":5} is not expected"#.to_owned()),
            ]
        );
    }

    #[test]
    fn records_of_one_key_keep_their_order() {
        let [one, two] = [json!({"n": 1}), json!({"n": 2})];
        let expected = json!([{"n": 2}, {"n": 1}]);
        let found = messages(expected.clone(), &[captured(one.clone(), Some("k")), captured(two.clone(), Some("k"))]);
        let message = r#"{"n":2} must come before {"n":1}: they have the same key"#.to_owned();
        assert_eq!(found, [(DifferenceKind::Order, message)]);
        assert_eq!(messages(expected, &[captured(one, Some("k")), captured(two, Some("l"))]), []);
    }

    #[test]
    fn keys_are_compared() {
        let actual = [captured(json!({"n": 1}), Some("k"))];
        assert_eq!(messages(json!([{"n": 1, "$key": "k"}]), &actual), []);
        let message = r#"{"n":1}: $key is "k", expected "l""#.to_owned();
        assert_eq!(messages(json!([{"n": 1, "$key": "l"}]), &actual), [(DifferenceKind::Fields, message)]);
    }
}
