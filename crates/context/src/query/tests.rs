//! Property tests: `q` and `mq` against a simple evaluator, and against arbitrary texts.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::model::entity::{Entity, Key};
use crate::model::request_body::{BodyForm, BodyOptions, attributes};
use crate::model::update::{self, UpdateMode};
use crate::query::{Expression, Rules};

fn entity(attributes_of: &Value) -> Entity {
    let mut entity = Entity::new(Key { id: "e".into(), kind: "T".into(), path: "/".into() }.into(), 0);
    let given = attributes(
        attributes_of.to_string().as_bytes(),
        BodyOptions { form: BodyForm::KeyValues, ..BodyOptions::NORMALIZED },
    )
    .unwrap();
    update::set(&mut entity, given, UpdateMode::Append);
    entity
}

/// Evaluates `name operator right` for a value, straight from the reference's table. Right sides are JSON values.
fn says(operator: &str, value: Option<&Value>, right: &[Value]) -> bool {
    let Some(value) = value else { return false };
    let candidates = match value {
        Value::Array(items) => items.clone(),
        one => vec![one.clone()],
    };
    let equal = |a: &Value, b: &Value| a == b || (a.as_f64().is_some() && a.as_f64() == b.as_f64());
    let order = |a: &Value, b: &Value| match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    };
    let among = candidates.iter().any(|item| right.iter().any(|known| equal(item, known)));
    let within = candidates.iter().any(|item| {
        order(item, &right[0]).is_some_and(|o| o.is_ge())
            && right.get(1).and_then(|to| order(item, to)).is_some_and(|o| o.is_le())
    });
    match operator {
        "==" => among,
        "!=" => !among,
        ".." => within,
        "!.." => !within,
        ">" => order(value, &right[0]).is_some_and(|o| o.is_gt()),
        ">=" => order(value, &right[0]).is_some_and(|o| o.is_ge()),
        "<" => order(value, &right[0]).is_some_and(|o| o.is_lt()),
        _ => order(value, &right[0]).is_some_and(|o| o.is_le()),
    }
}

/// The right side of an operator as text.
fn written(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{text}'"),
        other => other.to_string(),
    }
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![(-3..4_i64).prop_map(|n| json!(n)), (-3..4_i64).prop_map(|n| json!(n as f64 + 0.5))]
}

fn text() -> impl Strategy<Value = Value> {
    prop_oneof!["[a-c,.: ]{1,2}".prop_map(Value::from), Just(json!("2"))]
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![2 => number(), 2 => text(), 1 => any::<bool>().prop_map(Value::from), 1 => Just(Value::Null)]
}

/// Generates one boolean, or a list of values of one kind; null may stand beside texts.
fn list() -> impl Strategy<Value = Vec<Value>> {
    let text_or_null = prop_oneof![4 => text(), 1 => Just(Value::Null)];
    prop_oneof![
        3 => prop::collection::vec(number(), 1..4),
        3 => prop::collection::vec(text_or_null, 1..4),
        1 => any::<bool>().prop_map(|value| vec![Value::from(value)]),
        1 => prop::collection::vec(Just(Value::Null), 1..4),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![3 => scalar(), 1 => prop::collection::vec(scalar(), 0..3).prop_map(Value::from), 1 => Just(json!({"k": 1}))]
}

/// A tree of names, each there or not.
#[derive(Debug, Clone)]
enum Tree {
    Name(String, bool),
    All(Vec<Tree>),
    Any(Vec<Tree>),
}

impl Tree {
    fn written(&self) -> String {
        match self {
            Self::Name(name, is_there) => format!("{}{name}", if *is_there { "" } else { "!" }),
            Self::All(all) => all.iter().map(Self::written).collect::<Vec<_>>().join(" ; "),
            Self::Any(any) => format!("( {} )", any.iter().map(Self::written).collect::<Vec<_>>().join("|")),
        }
    }

    fn holds(&self, set: &std::collections::BTreeSet<String>) -> bool {
        match self {
            Self::Name(name, is_there) => set.contains(name) == *is_there,
            Self::All(all) => all.iter().all(|tree| tree.holds(set)),
            Self::Any(any) => any.iter().any(|tree| tree.holds(set)),
        }
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    let name = ("[a-d]", any::<bool>()).prop_map(|(name, is_there)| Tree::Name(name, is_there));
    name.prop_recursive(6, 24, 3, |inner| {
        let any = prop::collection::vec(inner.clone(), 1..4).prop_map(Tree::Any);
        prop_oneof![prop::collection::vec(inner, 1..4).prop_map(Tree::All), any]
    })
}

/// Brackets of patterns and of names are none of ours outside of brackets.
#[test]
fn brackets_of_patterns_and_bars_of_values_stay_theirs() {
    let with = entity(&json!({"n": "foo-1", "v": "x|y", "w": "a b"}));
    for (q, holds) in [
        ("n~=^(foo|bar)", true),
        ("n~=^(baz|bar)", false),
        (r"n~=foo(-|\();v", true),
        ("n~=[(-]1;v", true),
        ("v==x|y", true),
        ("v==x|v==z", false),
        ("(v=='x|y'|v==z)", true),
        ("(n~=^(baz|bar)|n~=^(foo))", true),
        (r"(n~=foo[\(-]1|n==1)", true),
        ("(w=='a;b'|w=='a b';v=='x|y')", true),
        ("((n);(v|q));w", true),
        ("(q|q);w", false),
        ("!q;(!v|n)", true),
    ] {
        let read = Expression::of_q(q, Rules::Sent).unwrap_or_else(|refusal| panic!("{q}: {refusal:?}"));
        assert_eq!(read.matches(&with), holds, "{q}");
    }
    for (q, why) in [
        ("(a", "a bracket is not closed"),
        ("(a)b", "behind a bracket"),
        ("(a)(b)", "behind a bracket"),
        ("()", "an empty statement"),
        ("(a|)", "an empty statement"),
        ("(|a)", "an empty statement"),
        ("(a;;b)", "an empty statement"),
        ("a==(b)", "the characters < > ( )"),
        ("!(a)", "the characters < > ( )"),
        (&format!("{}a{}", "(".repeat(17), ")".repeat(17)), "more than 16 brackets"),
        (&format!("({}a)", "a|".repeat(100)), "more than 100 statements"),
    ] {
        let refused = Expression::of_q(q, Rules::Sent).unwrap_err();
        assert!(refused.description.contains(why), "{q}: {refused:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn random_statements_follow_the_table_of_the_reference(
        value in prop::option::of(value()),
        right in list(),
        operator in prop::sample::select(&["==", "!=", "..", "!..", ">", ">=", "<", "<="][..]),
    ) {
        let has_order = |value: &Value| value.is_number() || value.is_string();
        let one = right.len() == 1 && has_order(&right[0]);
        let range = right.len() == 2 && has_order(&right[0]) && right[0].is_number() == right[1].is_number()
            && right[0].is_string() == right[1].is_string();
        let q = match operator {
            "==" | "!=" => format!("a{operator}{}", right.iter().map(written).collect::<Vec<_>>().join(",")),
            ".." | "!.." => {
                prop_assume!(range);
                let operator = if operator == ".." { "==" } else { "!=" };
                format!("a{operator}{}..{}", written(&right[0]), written(&right[1]))
            }
            _ => {
                prop_assume!(one);
                format!("a{operator}{}", written(&right[0]))
            }
        };
        let given = value.as_ref().map_or(json!({}), |value| json!({"a": value}));
        let expression = Expression::of_q(&q, Rules::Sent).unwrap();
        prop_assert_eq!(expression.matches(&entity(&given)), says(operator, value.as_ref(), &right), "{} {}", q, given);
        // The same test one level down.
        let inner = Expression::of_q(&q.replacen('a', "o.a", 1), Rules::Sent).unwrap();
        let nested = json!({"o": given});
        prop_assert_eq!(inner.matches(&entity(&nested)), says(operator, value.as_ref(), &right), "{} {}", q, nested);
    }

    /// Brackets against a tree that is evaluated directly. Names stand for flags: an entity has those that are set.
    #[test]
    fn brackets_join_by_and_and_or(tree in tree(), set in prop::collection::btree_set("[a-d]", 0..4)) {
        let given: serde_json::Map<String, Value> = set.iter().map(|name| (name.clone(), json!(1))).collect();
        let q = tree.written();
        let read = Expression::of_q(&q, Rules::Sent).unwrap();
        prop_assert_eq!(read.matches(&entity(&Value::Object(given))), tree.holds(&set), "{} {:?}", q, set);
    }

    #[test]
    fn anything_is_read_or_refused_by_name(text in "[a-c0-9'.,;:=!<>~ \\[\\]\\-äT*+()|\\\\]{0,24}") {
        for (parameter, read) in [("q", Expression::of_q(&text, Rules::Sent)), ("mq", Expression::of_mq(&text, Rules::Stored))] {
            match read {
                Ok(expression) => drop(expression.matches(&entity(&json!({"a": [1, {"b": "c"}], "b": {"c": 1}})))),
                Err(refusal) => prop_assert!(refusal.description.contains(parameter), "{:?}", refusal),
            }
        }
    }
}
