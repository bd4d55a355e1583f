//! The cost of strangers' expressions and values is bounded: beyond a limit there is an error or null, and no more work.

use std::borrow::Cow;
use std::cell::Cell;

use millstream_jexl::{
    Budget, EXPRESSION_MAX_BYTES, Expression, NESTING_MAX, Names, STEPS_MAX, SyntaxError, VALUE_DEPTH_MAX,
    WORK_MAX_BYTES,
};
use serde_json::{Value, json};

use crate::{check, value_of};

/// A text of as many bytes as an expression may have, which repeats `part`.
fn longest(first: &str, part: &str) -> String {
    format!("{first}{}", part.repeat((EXPRESSION_MAX_BYTES - first.len()) / part.len()))
}

/// Runs `work` with a stack that deep recursion would overflow.
fn on_a_small_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new().stack_size(768 << 10).spawn(work).unwrap().join().unwrap()
}

#[test]
fn an_expression_has_a_longest_text() {
    let text = format!("{}1", " ".repeat(EXPRESSION_MAX_BYTES - 1));
    assert_eq!(value_of(&text, &json!({})), json!(1));
    let error = Expression::parse(&format!(" {text}")).unwrap_err();
    assert_eq!(error, SyntaxError::TooLong { bytes: EXPRESSION_MAX_BYTES + 1 });
    assert_eq!(error.to_string(), "the expression has 16385 bytes: at most 16384 are allowed; shorten it");
}

#[test]
fn nesting_has_a_limit_in_every_form() {
    for (open, inner, close) in
        [("(", "1", ")"), ("[", "1", "]"), ("{a:", "1", "}"), ("L[", "0", "]"), ("1|now(", "1", ")"), ("1?", "1", ":0")]
    {
        let nested = |depth| format!("{}{inner}{}", open.repeat(depth), close.repeat(depth));
        let deepest = nested(NESTING_MAX);
        let value = on_a_small_stack(move || {
            Expression::parse(&deepest).map(|expression| expression.evaluate(json!({"L": [0]}).as_object().unwrap(), 0))
        });
        assert!(value.is_ok_and(|value| !value.is_null()), "{open}");
        let error = Expression::parse(&nested(NESTING_MAX + 1)).unwrap_err();
        assert!(matches!(error, SyntaxError::TooDeep { .. }), "{open}: {error}");
    }
    let error = Expression::parse(&"[".repeat(100)).unwrap_err().to_string();
    assert_eq!(error, "'[' at character 66 is nested more than 64 deep; split the expression");
}

#[test]
fn filters_in_filters_are_evaluated_as_deep_as_they_may_nest() {
    let element = (0..NESTING_MAX).fold(json!({"a": []}), |inner, _| json!({"a": [inner]}));
    let text = format!("L{}|len==1{}", "[.a".repeat(NESTING_MAX), "]".repeat(NESTING_MAX));
    let found = on_a_small_stack(move || value_of(&format!("({text})|len"), &json!({"L": [element]})));
    assert_eq!(found, json!(null), "one bracket too many");
    let element = (0..NESTING_MAX).fold(json!({"a": []}), |inner, _| json!({"a": [inner]}));
    let text = format!("L{}|len==1{}|len", "[.a".repeat(NESTING_MAX), "]".repeat(NESTING_MAX));
    assert_eq!(on_a_small_stack(move || value_of(&text, &json!({"L": [element]}))), json!(1));
}

#[test]
fn operators_in_a_row_do_not_nest() {
    let rows = [
        (longest("1", "+1"), json!(8192)),
        (longest("0", "||0"), json!(0)),
        (longest("1", "&&1"), json!(1)),
        (longest("1", "==1"), json!(null)),
        (longest("1", "|round"), json!(1)),
        (longest("1", ".a"), json!(null)),
        (longest("L", "[0]"), json!(null)),
        (format!("{}1", "0?0:".repeat(EXPRESSION_MAX_BYTES / 4 - 1)), json!(1)),
        (format!("[{}1]|len", "1,".repeat(EXPRESSION_MAX_BYTES / 2 - 10)), json!(8183)),
    ];
    for (text, expected) in rows {
        let value = on_a_small_stack(move || value_of(&text, &json!({"L": [[[7]]]})));
        assert!(value == expected || value == json!(false), "{value}");
    }
}

#[test]
fn steps_are_counted() {
    let names = |elements| json!({"a": vec![json!({"b": 1}); elements], "c": [[1]]});
    // An element costs a step itself, and three for its condition.
    assert_eq!(value_of("a[.b<5]|len", &names(STEPS_MAX / 4 - 10)), json!(STEPS_MAX / 4 - 10));
    assert_eq!(value_of("a[.b<5]|len", &names(STEPS_MAX / 4)), json!(null));
    assert_eq!(value_of("(a[.b<5]|len)||1", &names(STEPS_MAX)), json!(null), "what is spent stays spent");
    let nested = "c[c[c[c[c[c[.x==null]|len==1]|len==1]|len==1]|len==1]|len==1]|len";
    assert_eq!(value_of(nested, &names(1)), json!(null), "a filter needs a member of its own elements");
}

#[test]
fn bytes_are_counted() {
    let mib = "a".repeat(1 << 20);
    let names = json!({"A": mib, "L": vec![1; 100_000], "W": "ab ".repeat(2_000)});
    let most = WORK_MAX_BYTES >> 20;
    assert_eq!(value_of("A+A|len", &names), json!(null), "a length of no text");
    assert_eq!(value_of("(A+A)|len", &names), json!(2 << 20));
    check(
        &names,
        &[
            (&vec!["A"; most].join("+"), json!(null)),
            (&format!("[{}]|len", vec!["A"; most].join(",")), json!(null)),
            (&format!("{}|len", vec!["A"; 2 * most].join("|len + A")), json!(null)),
            (&format!("[{}]|len", ["L"; 4].join(",")), json!(null)),
            ("A|replaceStr('a','aaaaaaaaa')|len", json!(null)),
            ("A|replaceStr('','aaaaaaaaa')|len", json!(null)),
            ("A|replaceRegex('a+','$0$0$0$0$0$0$0$0$0')|len", json!(null)),
            ("A|split('')|len", json!(null)),
            ("A|toJson", json!(null)),
            ("A|uppercase|lowercase|uppercase|len", json!(null)),
            ("A|uppercase|len", json!(1 << 20)),
            ("W|replaceStr('a','bb')|len", json!(8_000)),
        ],
    );
    let again = Expression::parse("(A+A+A)|len").unwrap();
    for _ in 0..3 {
        assert_eq!(again.evaluate(names.as_object().unwrap(), 0), json!(3 << 20), "each evaluation has its own budget");
    }
}

#[test]
fn a_value_has_a_greatest_depth() {
    let deep = |depth: usize| json!({"A": (1..depth).fold(json!([]), |inner, _| json!([inner]))});
    assert!(value_of("A", &deep(VALUE_DEPTH_MAX)).is_array());
    assert_eq!(value_of("A", &deep(VALUE_DEPTH_MAX + 1)), json!(null));
    assert_eq!(value_of("[A]", &deep(VALUE_DEPTH_MAX)), json!(null));
    assert!(value_of("[A]", &deep(VALUE_DEPTH_MAX - 1)).is_array());
    assert_eq!(value_of("A==A", &deep(VALUE_DEPTH_MAX + 1)), json!(null));
    assert_eq!(value_of("A[0][0]==A[0][0]", &deep(VALUE_DEPTH_MAX + 1)), json!(true));
}

#[test]
fn regular_expressions_cannot_take_long() {
    let names = json!({"A": "A".repeat(100_000), "S": "A".repeat(500), "b": format!("{}b", "a".repeat(10_000))});
    check(
        &names,
        &[
            // Backtracking would take a time that doubles with each character.
            ("b|matchRegex('^(a+)+$')", json!([])),
            ("b|replaceRegex('(a|a|aa)*b','x')", json!("x")),
            // After each match the whole rest is looked at.
            ("A|matchRegex('.*[^A-Z]|[A-Z]')|len", json!(null)),
            ("A|replaceRegex('.*[^A-Z]|[A-Z]','x')|len", json!(null)),
            ("S|matchRegex('.*[^A-Z]|[A-Z]')|len", json!(500)),
            // The compiled form would be large.
            (r"S|matchRegex('(\w{50}){50}')", json!(null)),
            ("S|matchRegex('((a{40}){40}){40}')", json!(null)),
        ],
    );
    let bits: String =
        (0..100_000_u32).map(|i| if i.wrapping_mul(2_654_435_761) >> 31 == 0 { '0' } else { '1' }).collect();
    check(
        &json!({"many": bits, "few": bits[..10_000], "mail": "a.b@c.de"}),
        &[
            // A form that is in hundreds of states at once takes long for each byte, and pays for that.
            ("many|matchRegex('[01]*1[01]{500}x')|len", json!(null)),
            ("few|matchRegex('[01]*1[01]{500}x')|len", json!(0)),
            (r"mail|matchRegex('\w+@\w+\.\w+')", json!(["b@c.de"])),
        ],
    );
    // Each element brings a pattern of its own.
    let patterns = json!({"p": (0..1_000).map(|i| json!({"x": format!("a{i}")})).collect::<Vec<_>>()});
    assert_eq!(value_of("p[('a1'|matchRegex(.x)|len)>0]|len", &patterns), json!(null));
    let few = json!({"p": (0..20).map(|i| json!({"x": format!("a{i}")})).collect::<Vec<_>>()});
    assert_eq!(value_of("p[('a1'|matchRegex(.x)|len)>0]|len", &few), json!(1));
    // Literals cost as much, however often they were met before.
    let literals = |count: usize| {
        let calls = (0..count).map(|i| format!("'a1'|matchRegex('b{i}')")).collect::<Vec<_>>();
        value_of(&format!("[{}]|len", calls.join(",")), &json!({}))
    };
    assert_eq!([literals(400), literals(600), literals(400)], [json!(400), json!(null), json!(400)]);
}

#[test]
fn evaluations_may_share_a_budget() {
    let expression = Expression::parse("s|replaceStr('b','c')|len").unwrap();
    let names = serde_json::Map::from_iter([("s".to_owned(), json!("b".repeat(100_000)))]);
    let mut budget = Budget::default();
    assert_eq!(budget.used(), 0.0);
    let mut results = Vec::new();
    for _ in 0..100 {
        results.push(expression.evaluate_within(&names, 0, &mut budget));
    }
    let whole = results.iter().take_while(|value| **value == json!(100_000)).count();
    assert!((1..100).contains(&whole) && results[whole..].iter().all(Value::is_null), "{whole}");
    assert!(budget.is_spent() && budget.used() == 1.0 && Budget::spent().is_spent());
    assert_eq!(Expression::parse("1").unwrap().evaluate_within(&names, 0, &mut budget), json!(null));
    assert_eq!(expression.evaluate(&names, 0), json!(100_000), "one of its own");
}

/// A source that makes a value for each request.
struct Made(Cell<usize>);

impl Names for Made {
    fn value(&self, _: &str) -> Option<Cow<'_, Value>> {
        self.0.set(self.0.get() + 1);
        Some(Cow::Owned(json!("a".repeat(1 << 20))))
    }
}

#[test]
fn values_that_the_caller_makes_count_as_made() {
    let made = Made(Cell::new(0));
    let expression = Expression::parse(&longest("A", "==A")).unwrap();
    assert_eq!(expression.evaluate(&made, 0), json!(null));
    assert!(made.0.get() <= WORK_MAX_BYTES >> 20, "asked {} times", made.0.get());
    assert_eq!(Expression::parse("A|len").unwrap().evaluate(&made, 0), json!(1 << 20));
}
