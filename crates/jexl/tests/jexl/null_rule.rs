//! The rule for null, and the difference between a name without a value and one whose value is null.

use serde_json::json;

use crate::check;

#[test]
fn a_mistake_of_syntax_and_an_unknown_function_are_null() {
    check(
        &json!({"A": 1, "S": "x"}),
        &[
            ("A[0|includes('x')", json!(null)),
            ("A[0]|includes('x)", json!(null)),
            ("A||-1", json!(null)),
            ("-1", json!(null)),
            ("!A", json!(null)),
            ("S|shout", json!(null)),
            ("S|Uppercase", json!(null)),
            ("(S|shout)+'x'", json!(null)),
            // Unknown functions count where they are reached, mistakes of syntax everywhere.
            ("A||(S|shout)", json!(1)),
            ("(S|shout)||2", json!(2)),
            ("A||(S|)", json!(null)),
        ],
    );
}

#[test]
fn a_name_without_a_value_makes_an_operation_null() {
    check(
        &json!({"B": 2, "L": [1]}),
        &[
            ("A", json!(null)),
            ("A+1", json!(null)),
            ("1+A", json!(null)),
            ("A*B", json!(null)),
            ("A==1", json!(null)),
            ("A==null", json!(null)),
            ("A!=null", json!(null)),
            ("A>1", json!(null)),
            ("A in L", json!(null)),
            ("A.x", json!(null)),
            ("A[0]", json!(null)),
            ("L[A]", json!(null)),
            ("A|len", json!(null)),
            ("A|isNaN", json!(null)),
            ("'x'|includes(A)", json!(null)),
            ("[A]", json!(null)),
            ("{a:A}", json!(null)),
            ("A&&1", json!(null)),
            ("B&&A", json!(null)),
        ],
    );
}

#[test]
fn null_in_arithmetic_is_null() {
    check(
        &json!({"A": null}),
        &[
            ("A+1", json!(null)),
            ("1-A", json!(null)),
            ("A*A", json!(null)),
            ("A/2", json!(null)),
            ("A>1", json!(null)),
            ("A+'x'", json!(null)),
        ],
    );
}

#[test]
fn or_stands_in_for_null_and_for_a_name_without_a_value() {
    for names in [json!({"A": null}), json!({})] {
        check(
            &names,
            &[
                ("A||'is null'", json!("is null")),
                ("A||0", json!(0)),
                ("A||0-1", json!(-1)),
                ("A||('-1'|parseInt)", json!(-1)),
                ("(A||0-1)+(B||0-2)", json!(-3)),
                ("A.x||5", json!(5)),
                ("(A+1)||5", json!(5)),
            ],
        );
    }
    check(
        &json!({"A": 1, "B": 2}),
        &[("A||'is null'", json!(1)), ("A||0-1", json!(1)), ("(A||0-1)+(B||0-2)", json!(3))],
    );
}

#[test]
fn equality_with_null_works_for_null_and_not_for_a_name_without_a_value() {
    let rows = |first, second, third| {
        [("(A==null)?'is null':A", first), ("A==null?'is null':A", second), ("A!=null?1:0", third)]
    };
    check(&json!({"A": 1}), &rows(json!(1), json!(1), json!(1)));
    check(&json!({"A": null}), &rows(json!("is null"), json!("is null"), json!(0)));
    // A condition without a value is as one that is not true.
    check(&json!({}), &rows(json!(null), json!(null), json!(0)));
}

#[test]
fn a_minus_or_a_colon_is_never_part_of_a_name() {
    check(&json!({"A-B": 1, "A:B": 2}), &[("A-B", json!(null)), ("A:B", json!(null))]);
    check(&json!({"A-B": 1, "A": 5, "B": 3}), &[("A-B", json!(2))]);
}

#[test]
fn members_that_are_not_there_are_null_and_so_have_a_value() {
    check(
        &json!({"O": {"k": null}, "L": []}),
        &[
            ("O.x==null", json!(true)),
            ("O.k==null", json!(true)),
            ("L[0]==null?'none':'some'", json!("none")),
            ("('abc'|indexOf('x'))==null", json!(true)),
            ("O.x+1", json!(null)),
        ],
    );
}
