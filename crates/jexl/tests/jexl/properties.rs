//! Random expressions: any text at all, and trees whose value a plain recursion tells.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;

use millstream_jexl::{Expression, Names, VALUE_DEPTH_MAX, WORK_MAX_BYTES, closing_brace};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::NOW_MS;

/// The pieces of expressions, in any order.
const PIECES: [&str; 60] = [
    "a",
    "l",
    "o",
    "s",
    "none",
    "1",
    "0",
    "2.5",
    "'x'",
    "\"y\"",
    "'[0-9]+'",
    "'[1,{\"a\":2}]'",
    "true",
    "false",
    "null",
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "^",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "&&",
    "||",
    " in ",
    "?",
    ":",
    ",",
    ".",
    ".k",
    "(",
    ")",
    "[",
    "]",
    "[.k",
    "{",
    "}",
    "{k:",
    "|",
    "|len",
    "|split('')",
    "|toString",
    "|toJson",
    "|arrSort",
    "|matchRegex('.')",
    "|replaceRegex('x','$0$0')",
    "|substring(0,1)",
    "|now",
    "|toIsoString",
    "|mapper([1],[2])",
    "|keys",
    "|values",
    " ",
    "'",
];

fn names() -> Map<String, Value> {
    let names = json!({"a": 3, "l": [{"k": 1}, {"k": "x"}, 2, [3]], "o": {"k": {"k": 2}}, "s": "a1b22 \u{e4}"});
    names.as_object().unwrap().clone()
}

/// The depth of a value, and its bytes as a copy counts them.
fn extent(value: &Value) -> (usize, usize) {
    let (own, inner): (usize, Vec<_>) = match value {
        Value::String(text) => (text.len(), Vec::new()),
        Value::Array(items) => (0, items.iter().map(extent).collect()),
        Value::Object(members) => (members.keys().map(String::len).sum(), members.values().map(extent).collect()),
        _ => (0, Vec::new()),
    };
    let deepest = inner.iter().map(|(depth, _)| depth + 1).max();
    let is_container = value.is_array() || value.is_object();
    (deepest.unwrap_or(usize::from(is_container)), own + 32 + inner.iter().map(|(_, bytes)| bytes).sum::<usize>())
}

/// Names that remember which of them were asked for.
struct Asked<'n>(&'n Map<String, Value>, RefCell<BTreeSet<String>>);

impl Names for Asked<'_> {
    fn value(&self, name: &str) -> Option<Cow<'_, Value>> {
        self.1.borrow_mut().insert(name.to_owned());
        self.0.get(name).map(Cow::Borrowed)
    }
}

/// Evaluates a text, if it is an expression, and checks what holds for every result.
fn evaluates_within_its_bounds(text: &str) -> Option<Value> {
    let (names, expression) = (names(), Expression::parse(text));
    let expression = match expression {
        Ok(expression) => expression,
        Err(error) => {
            assert!(error.to_string().len() < 400 + text.len(), "{error}");
            return None;
        }
    };
    assert_eq!(closing_brace(&format!("{text}}} '{{")), Some(text.len()), "{text}");
    let asked = Asked(&names, RefCell::default());
    let value = expression.evaluate(&asked, NOW_MS);
    let (depth, bytes) = extent(&value);
    assert!(depth <= VALUE_DEPTH_MAX && bytes <= WORK_MAX_BYTES, "{text}: {depth} deep, {bytes} bytes");
    let read: BTreeSet<String> = expression.names().map(str::to_owned).collect();
    assert!(asked.1.borrow().is_subset(&read), "{text}: asks for {:?}, reads {read:?}", asked.1.borrow());
    assert_eq!(expression.evaluate(&names, NOW_MS), value, "{text}");
    Some(value)
}

/// An expression as a tree.
#[derive(Debug, Clone)]
enum Tree {
    Number(u8),
    Name(&'static str),
    Null,
    Binary(&'static str, Box<Tree>, Box<Tree>),
    Conditional(Box<Tree>, Box<Tree>, Box<Tree>),
    Array(Vec<Tree>),
    Item(Box<Tree>, Box<Tree>),
}

const LEVELS: [&[&str]; 5] = [&["&&", "||"], &["==", "!=", "<", ">="], &["+", "-"], &["*", "//"], &["%"]];
const CONDITIONAL_LEVEL: usize = 0;
const VALUE_LEVEL: usize = LEVELS.len() + 1;

impl Tree {
    fn level(&self) -> usize {
        match self {
            Self::Binary(operator, ..) => 1 + LEVELS.iter().position(|level| level.contains(operator)).unwrap(),
            Self::Conditional(..) => CONDITIONAL_LEVEL,
            _ => VALUE_LEVEL,
        }
    }

    /// Writes the tree with brackets only where the levels of the operators need them.
    fn write(&self, least: usize, blank: &str, out: &mut String) {
        let level = self.level();
        if level < least {
            out.push('(');
            self.write(CONDITIONAL_LEVEL, blank, out);
            out.push(')');
            return;
        }
        match self {
            Self::Number(number) => out.push_str(&number.to_string()),
            Self::Name(name) => out.push_str(name),
            Self::Null => out.push_str("null"),
            Self::Binary(operator, left, right) => {
                left.write(level, blank, out);
                out.push_str(&format!("{blank}{operator}{blank}"));
                right.write(level + 1, blank, out);
            }
            Self::Conditional(condition, yes, no) => {
                condition.write(CONDITIONAL_LEVEL + 1, blank, out);
                out.push_str(&format!("{blank}?{blank}"));
                yes.write(CONDITIONAL_LEVEL, blank, out);
                out.push_str(&format!("{blank}:{blank}"));
                no.write(CONDITIONAL_LEVEL, blank, out);
            }
            Self::Array(items) => {
                out.push('[');
                for item in items {
                    item.write(CONDITIONAL_LEVEL, blank, out);
                    out.push(',');
                }
                out.push(']');
            }
            Self::Item(array, index) => {
                array.write(VALUE_LEVEL, blank, out);
                out.push('[');
                index.write(CONDITIONAL_LEVEL, blank, out);
                out.push(']');
            }
        }
    }

    /// The value by plain recursion; an error is what fails.
    fn value(&self) -> Result<Value, ()> {
        match self {
            Self::Number(number) => Ok(json!(number)),
            Self::Name("a") => Ok(json!(3)),
            Self::Name(_) => Err(()),
            Self::Null => Ok(Value::Null),
            Self::Binary("||", left, right) => left.value().ok().filter(is_true).map_or_else(|| right.value(), Ok),
            Self::Binary("&&", left, right) => {
                let left = left.value()?;
                if is_true(&left) { right.value() } else { Ok(left) }
            }
            Self::Binary(operator, left, right) => operate(operator, left.value()?, right.value()?),
            Self::Conditional(condition, yes, no) => {
                if condition.value().is_ok_and(|value| is_true(&value)) {
                    yes.value()
                } else {
                    no.value()
                }
            }
            Self::Array(items) => items.iter().map(Tree::value).collect::<Result<_, _>>().map(Value::Array),
            Self::Item(array, index) => {
                let (array, index) = (array.value()?, index.value()?);
                let index = index.as_f64().ok_or(())?;
                Ok(if index < 0.0 { Value::Null } else { array.get(index as usize).cloned().unwrap_or_default() })
            }
        }
    }
}

fn is_true(value: &Value) -> bool {
    !(value.is_null() || *value == json!(false) || *value == json!(0))
}

fn operate(operator: &str, left: Value, right: Value) -> Result<Value, ()> {
    match operator {
        "==" => return Ok(json!(left == right)),
        "!=" => return Ok(json!(left != right)),
        _ => {}
    }
    let (left, right) = (left.as_i64().ok_or(())?, right.as_i64().ok_or(())?);
    Ok(match operator {
        "<" => json!(left < right),
        ">=" => json!(left >= right),
        "+" => json!(left + right),
        "-" => json!(left - right),
        "*" => json!(left * right),
        "//" if right == 0 => Value::Null,
        "//" => json!((left as f64 / right as f64).floor() as i64),
        "%" if right == 0 => Value::Null,
        "%" => json!(left % right),
        _ => return Err(()),
    })
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        4 => (0..10_u8).prop_map(Tree::Number),
        2 => Just(Tree::Name("a")),
        1 => Just(Tree::Name("none")),
        1 => Just(Tree::Null),
    ];
    let operator = prop::sample::select(LEVELS.concat());
    leaf.prop_recursive(6, 48, 3, move |inner| {
        let inner = inner.prop_map(Box::new);
        prop_oneof![
            5 => (operator.clone(), inner.clone(), inner.clone()).prop_map(|(o, l, r)| Tree::Binary(o, l, r)),
            2 => (inner.clone(), inner.clone(), inner.clone()).prop_map(|(c, y, n)| Tree::Conditional(c, y, n)),
            1 => prop::collection::vec(inner.clone().prop_map(|item| *item), 0..3).prop_map(Tree::Array),
            1 => (inner.clone(), inner).prop_map(|(array, index)| Tree::Item(array, index)),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_is_parsed_and_evaluated_within_its_bounds(text in any::<String>()) {
        evaluates_within_its_bounds(&text);
    }

    #[test]
    fn pieces_in_any_order_are_parsed_and_evaluated_within_their_bounds(
        pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..24)
    ) {
        evaluates_within_its_bounds(&pieces.concat());
    }

    #[test]
    fn what_belongs_together_is_evaluated_within_its_bounds(
        first in prop::sample::select(vec!["a", "l", "o", "s", "'[[1],[2]]'", "(l[.k==1])"]),
        rest in prop::collection::vec(prop::sample::select(PIECES.into_iter().filter(|piece| {
            piece.starts_with('|') && piece.len() > 2
        }).collect::<Vec<_>>()), 0..40)
    ) {
        let text = first.to_owned() + &rest.concat();
        prop_assert!(evaluates_within_its_bounds(&text).is_some(), "{}", text);
    }

    #[test]
    fn a_tree_has_the_value_that_plain_recursion_gives(
        tree in tree(), blank in prop::sample::select(vec!["", " ", "\n "])
    ) {
        let mut text = String::new();
        tree.write(CONDITIONAL_LEVEL, blank, &mut text);
        let expected = tree.value().unwrap_or_default();
        prop_assert_eq!(evaluates_within_its_bounds(&text), Some(expected), "{}", text);
    }
}
