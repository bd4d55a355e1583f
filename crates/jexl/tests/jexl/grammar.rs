use millstream_jexl::{Expression, NESTING_MAX, SyntaxError, closing_brace};
use serde_json::{Value, json};

use crate::check;

#[test]
fn literals_are_numbers_texts_in_both_quotes_true_false_and_null() {
    check(
        &json!({}),
        &[
            ("7", json!(7)),
            ("7.0", json!(7)),
            ("2.75", json!(2.75)),
            (".5", json!(0.5)),
            ("12345678901234567890", json!(12345678901234567890_f64)),
            ("'one'", json!("one")),
            ("\"one\"", json!("one")),
            ("'say \"one\"'", json!("say \"one\"")),
            ("\"it's\"", json!("it's")),
            (r#""say \"one\"""#, json!("say \"one\"")),
            (r"'it\'s'", json!("it's")),
            (r"'\d+\\'", json!(r"\d+\")),
            (r"'\\\\'", json!(r"\\")),
            ("'äöü €'", json!("äöü €")),
            ("''", json!("")),
            ("true", json!(true)),
            ("false", json!(false)),
            ("null", json!(null)),
            (" \t\n 1 \r\n", json!(1)),
        ],
    );
}

#[test]
fn arithmetic_goes_from_left_to_right_and_products_come_first() {
    check(
        &json!({"a": 7, "b": 2, "c": 0.5}),
        &[
            ("a+b", json!(9)),
            ("a-b", json!(5)),
            ("a*b", json!(14)),
            ("a/b", json!(3.5)),
            ("a//b", json!(3)),
            ("(0-a)//b", json!(-4)),
            ("a%b", json!(1)),
            ("a^b", json!(49)),
            ("a-b-1", json!(4)),
            ("a/b/c", json!(7)),
            ("1+2*3", json!(7)),
            ("(1+2)*3", json!(9)),
            ("2*3^2", json!(18)),
            ("2^3^2", json!(64)),
            ("12/4*3", json!(9)),
            ("7-6%4", json!(5)),
            ("0.1+0.2", json!(0.30000000000000004)),
            ("c+c", json!(1)),
            ("0-1", json!(-1)),
            ("((((1))))", json!(1)),
            ("9007199254740991+0", json!(9007199254740991_i64)),
            ("1/0", json!(null)),
            ("(0-1)^0.5", json!(null)),
            ("1/0 == null", json!(true)),
        ],
    );
}

#[test]
fn plus_joins_texts() {
    check(
        &json!({"s": "a", "n": 3}),
        &[
            ("'a'+'b'+\"c\"", json!("abc")),
            ("s+s+s", json!("aaa")),
            ("s+(n|toString)", json!("a3")),
            ("s+n", json!(null)),
            ("n+s", json!(null)),
            ("s-s", json!(null)),
            ("true+true", json!(null)),
            ("[1]+[2]", json!(null)),
            ("{a:1}+{b:2}", json!(null)),
        ],
    );
}

#[test]
fn comparisons_take_values_of_one_kind() {
    check(
        &json!({"n": 3, "s": "b", "l": [1, "x"], "o": {"k": [1]}}),
        &[
            ("n==3", json!(true)),
            ("n==3.0", json!(true)),
            ("n==4", json!(false)),
            ("n!=4", json!(true)),
            ("n>2", json!(true)),
            ("n>3", json!(false)),
            ("n>=3", json!(true)),
            ("n<3", json!(false)),
            ("n<=3", json!(true)),
            ("s=='b'", json!(true)),
            ("s>'a'", json!(true)),
            ("s<'a'", json!(false)),
            ("s>='b'", json!(true)),
            ("s<='a'", json!(false)),
            ("true==true", json!(true)),
            ("true!=false", json!(true)),
            ("null==null", json!(true)),
            ("l==[1,'x']", json!(true)),
            ("l==[1]", json!(false)),
            ("l!=['x',1]", json!(true)),
            ("o=={k:[1]}", json!(true)),
            ("o=={k:[2]}", json!(false)),
            ("o=={j:[1]}", json!(false)),
            // Values of two kinds are unlike, and have no order.
            ("n=='3'", json!(false)),
            ("n!='3'", json!(true)),
            ("1==true", json!(false)),
            ("''==null", json!(false)),
            ("0==null", json!(false)),
            ("n>'2'", json!(null)),
            ("s<1", json!(null)),
            ("true>false", json!(null)),
            ("null<1", json!(null)),
            ("l<l", json!(null)),
            // As in Orion, what differs by less than a millionth is equal.
            ("0.1+0.2==0.3", json!(true)),
            ("1==1.0000001", json!(true)),
            ("1==1.000002", json!(false)),
            ("1<1.0000001", json!(true)),
            // From left to right: (1 < 2) == true.
            ("1<2==true", json!(true)),
            ("1+1==2", json!(true)),
        ],
    );
}

#[test]
fn in_finds_a_value_in_an_array_and_a_text_in_a_text_or_among_the_names_of_an_object() {
    check(
        &json!({"in_a": 1, "l": [1, "x", [2]]}),
        &[
            ("'x' in l", json!(true)),
            ("1.0 in l", json!(true)),
            ("[2] in l", json!(true)),
            ("2 in l", json!(false)),
            ("'bar' in 'foobartek'", json!(true)),
            ("'baz' in 'foobartek'", json!(false)),
            ("'k' in {k:null}", json!(true)),
            ("'j' in {k:1}", json!(false)),
            ("1 in 11", json!(false)),
            ("1 in 'a1'", json!(null)),
            ("'a' in null", json!(null)),
            ("in_a + 1", json!(2)),
        ],
    );
}

#[test]
fn logic_returns_one_of_its_operands_and_looks_at_the_second_only_if_it_has_to() {
    check(
        &json!({"t": "x", "e": "", "z": 0}),
        &[
            ("1||2", json!(1)),
            ("0||2", json!(2)),
            ("''||'a'", json!("a")),
            ("false||null", json!(null)),
            ("null||false", json!(false)),
            ("1&&2", json!(2)),
            ("0&&2", json!(0)),
            ("e&&2", json!("")),
            ("[]||1", json!([])),
            ("{}&&1", json!(1)),
            ("t||(1+'a')", json!("x")),
            ("z&&missing", json!(0)),
            ("'foo' && 6>=6 && 0+1 && true", json!(true)),
            // `&&` and `||` are equals.
            ("1||0&&0", json!(0)),
            ("0&&1||5", json!(5)),
            ("1||(0&&0)", json!(1)),
            ("z||0-1", json!(-1)),
            ("1==1&&2==2", json!(true)),
        ],
    );
}

#[test]
fn a_conditional_binds_loosest_and_nests_on_all_sides() {
    check(
        &json!({"a": 2, "f": false}),
        &[
            ("a==2?'y':'n'", json!("y")),
            ("a==3?'y':'n'", json!("n")),
            ("a==1?'one':a==2?'two':'many'", json!("two")),
            ("a==1?'one':a==3?'three':'many'", json!("many")),
            ("a>1?a>5?'big':'fair':'small'", json!("fair")),
            ("(f?1:2)?'y':'n'", json!("y")),
            ("(f)?(0-1):((a==3)?(0-2):a)", json!(2)),
            ("f?1:2+3", json!(5)),
            ("true?1+1:2", json!(2)),
            ("1||0?'y':'n'", json!("y")),
            ("f?1:2|toString", json!("2")),
            ("[f?1:2,true?3:4]", json!([2, 3])),
            ("{k:f?1:2}", json!({"k": 2})),
            ("''?1:2", json!(2)),
            ("0?1:2", json!(2)),
            ("null?1:2", json!(2)),
            ("[]?1:2", json!(1)),
            ("true?1:(1+'a')", json!(1)),
        ],
    );
}

#[test]
fn dots_and_brackets_lead_into_objects_and_arrays() {
    check(
        &json!({
            "A": [10, {"A1": 20}], "B": {"B1": [11, 22, {"C": 30}], "in": 1, "true": 2},
            "s": "text", "k": "B1", "n": null
        }),
        &[
            ("A[0]", json!(10)),
            ("A[1].A1", json!(20)),
            ("A[0] + A[1].A1 + B.B1[2].C", json!(60)),
            ("B['B1'][0]", json!(11)),
            ("B[k][1]", json!(22)),
            ("B['B'+1]", json!(null)),
            ("A[1.9].A1", json!(20)),
            ("A[2]", json!(null)),
            ("A[0-1]", json!(null)),
            ("A['0']", json!(null)),
            ("A[true]", json!(null)),
            ("B[0]", json!(null)),
            ("B.x", json!(null)),
            ("B.x.y", json!(null)),
            ("n.x", json!(null)),
            ("s.x", json!(null)),
            ("s[0]", json!(null)),
            ("B.in + B.true", json!(3)),
            ("{a:{b:5}}.a.b", json!(5)),
            ("[1,2,3][1]", json!(2)),
            ("(s|split('e'))[1]", json!("xt")),
            ("s|split('e')[1]", json!("xt")),
            ("A[A[0]-9].A1", json!(20)),
        ],
    );
}

#[test]
fn a_filter_keeps_the_elements_that_fit() {
    check(
        &json!({
            "a": [{"b": 1, "x": {"y": 1}}, {"b": 34}, {"b": 4}, {"c": 1}, {"b": "foo"}, 7, null],
            "five": 5, "o": {"b": 1}
        }),
        &[
            ("a[.b<5]", json!([{"b": 1, "x": {"y": 1}}, {"b": 4}])),
            ("a[.b>=five]", json!([{"b": 34}])),
            ("a[.b=='foo']", json!([{"b": "foo"}])),
            ("a[.b>100]", json!([])),
            ("a[.b==null]", json!([{"c": 1}, 7, null])),
            ("a[.b in [4,34]]", json!([{"b": 34}, {"b": 4}])),
            ("a[.b>1 && .b<10]", json!([{"b": 4}])),
            ("a[.x.y==1].b", json!(null)),
            ("a[.x.y==1][0].b", json!(1)),
            ("a[5>.b]|len", json!(2)),
            ("a[.c]", json!([{"c": 1}])),
            ("('[{\"b\":1},{\"b\":9}]'|toJson)[.b<5]", json!([{"b": 1}])),
            ("[{k:[{v:1},{v:2}]},{k:[]}][.k[.v==2]|len==1]|len", json!(1)),
            ("o[.b<5]", json!(null)),
            ("five[.b<5]", json!(null)),
            ("a[.b<none]", json!(null)),
            ("[][.b<5]", json!([])),
        ],
    );
}

#[test]
fn objects_and_arrays_are_written_with_expressions_inside() {
    check(
        &json!({"count": {"count": 5, "sum": 100}, "speed": "10 m/s"}),
        &[
            ("[]", json!([])),
            ("[1,'a',true,null,[2]]", json!([1, "a", true, null, [2]])),
            ("[1+1,speed,]", json!([2, "10 m/s"])),
            ("{}", json!({})),
            ("{a:1,'b c':2,\"d\":{e:[]}}", json!({"a": 1, "b c": 2, "d": {"e": []}})),
            ("{in:1,null:2}", json!({"in": 1, "null": 2})),
            ("{count:count.count+1, sum:count.sum+((speed|split(' '))[0]|parseInt)}", json!({"count": 6, "sum": 110})),
            ("{a:{b:{c:count.sum}}}", json!({"a": {"b": {"c": 100}}})),
        ],
    );
}

#[test]
fn pipes_bind_tighter_than_operators_and_take_arguments_or_none() {
    check(
        &json!({"A": ["foobar"], "S": "a given text", "R": "given"}),
        &[
            ("'a'|uppercase", json!("A")),
            ("'a'|uppercase()", json!("A")),
            ("'a'+'b'|uppercase", json!("aB")),
            ("('a'+'b')|uppercase", json!("AB")),
            ("A[0]|includes('foo')|toString|uppercase", json!("TRUE")),
            ("S|includes(R)", json!(true)),
            ("S | substring( 0 , 1 )", json!("a")),
            ("1 + 'abc'|len", json!(4)),
            ("0.3|round(2)", json!(0)),
            ("'a'|uppercase(1,2,3,)", json!("A")),
            ("'a'||'b'|uppercase", json!("a")),
            ("'x'|split('x')|len", json!(2)),
        ],
    );
}

#[test]
fn names_are_read_once_each_and_are_letters_digits_and_underscores() {
    let names = |text| Expression::parse(text).unwrap().names().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(names("b + a.c + b[d] + x[.y > _z1] + {k: in_1} + 'q' + true"), ["b", "a", "d", "x", "_z1", "in_1"]);
    assert_eq!(names("1|now + null"), <[String; 0]>::default());
}

#[test]
fn a_text_that_is_no_expression_is_refused_with_place_rule_and_remedy() {
    for (text, expected) in [
        ("", "'end' at character 1: expected a value"),
        ("A||-1", "'-' at character 4: expected a value"),
        ("!a", "'!' at character 1: expected a name, a number"),
        ("a ==", "'end' at character 5: expected a value"),
        ("a = 1", "'=' at character 3: expected a name, a number"),
        ("a b", "'b' at character 3: expected an operator or the end"),
        ("A:B", "':' at character 2: expected an operator or the end"),
        ("1e5", "'e5' at character 2: expected an operator or the end"),
        ("(1", "'end' at character 3: expected an operator or ')'"),
        ("A[0|includes('foo')", "'end' at character 20: expected an operator or ']'"),
        ("A[0]|includes('foo'|toString", "'end' at character 29: expected ',' or ')'"),
        ("A[0]|includes('foo)", "the text that begins at character 15 does not end; close it with '"),
        ("'ä'+\"x", "the text that begins at character 5 does not end; close it with \""),
        ("'\\'", "the text that begins at character 1 does not end"),
        ("a.1", "'.1' at character 2: expected an operator or the end"),
        ("a.", "'end' at character 3: expected the name of a member behind '.'"),
        ("a|", "'end' at character 3: expected the name of a function behind '|'"),
        ("a|1", "'1' at character 3: expected the name of a function behind '|'"),
        ("a?1", "'end' at character 4: expected ':' and the value"),
        ("a?:1", "':' at character 3: expected a value"),
        (".b<5", "'.' at character 1: expected a value"),
        ("[.b<5]", "'.' at character 2: expected a value"),
        ("a[.1b]", "'b' at character 5: expected an operator or ']'"),
        ("a[]", "']' at character 3: expected a value"),
        ("[1 2]", "'2' at character 4: expected ',' or ']'"),
        ("[,]", "',' at character 2: expected a value"),
        ("{a}", "'}' at character 3: expected ':' and the value of the key"),
        ("{1:2}", "'1' at character 2: expected a key: a name or a text in quotes"),
        ("{a:1 b:2}", "'b' at character 6: expected ',' or '}'"),
        ("{a:1,'a':2}", "the key 'a' at character 6 was given before; name each key of an object once"),
        ("a#", "'#' at character 2: expected a name, a number, a text in quotes or an operator"),
        ("a*€", "'€' at character 3: expected a name, a number, a text in quotes or an operator"),
    ] {
        let error = Expression::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    let nested = format!("{}1", "(".repeat(NESTING_MAX + 1));
    let expected = SyntaxError::TooDeep { place: NESTING_MAX + 2, found: "1".into() };
    assert_eq!(Expression::parse(&nested).unwrap_err(), expected);
    assert_eq!(Value::Null, crate::value_of("A||-1", &json!({"A": 1})));
}

#[test]
fn the_end_of_an_expression_in_a_longer_text_is_found() {
    for (text, expected) in [
        ("a}", Some("a")),
        ("}", Some("")),
        ("a+1} and ${b}", Some("a+1")),
        ("{a:1,b:{c:2}}}-", Some("{a:1,b:{c:2}}")),
        ("'}'+\"{\"+a} '", Some("'}'+\"{\"+a")),
        (r"'it\'s }'}", Some(r"'it\'s }'")),
        (r#""\\"}"}"#, Some(r#""\\""#)),
        ("'ä}€'}", Some("'ä}€'")),
        // No expression, with an end all the same.
        ("A[0]|includes('foo)|uppercase} more", Some("A[0]|includes('foo)|uppercase")),
        ("'{a}} x", Some("'{a}")),
        ("a", None),
        ("{a}", None),
        ("'a}", Some("'a")),
        ("", None),
    ] {
        assert_eq!(closing_brace(text).map(|end| &text[..end]), expected, "{text}");
    }
}
