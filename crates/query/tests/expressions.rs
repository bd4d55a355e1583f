//! What expressions give for a record: by table.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use millstream_query::{Compiled, Limits, Matcher, parse};
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, PartitionId, Record};

mod common;

/// The value of `expression` for a record with `payload`, as JSON; `None` if it has none for this record.
fn value(expression: &str, payload: &str) -> Option<String> {
    let plan = parse(&format!("SELECT {expression} AS v FROM STREAM()"), &Limits::default())
        .unwrap_or_else(|wrong| panic!("{expression}: {wrong:?}"));
    let mut builder = BatchBuilder::default();
    builder.push(&Record { value: Some(payload.as_bytes()), ..Record::default() });
    let batch = builder.seal(Offset(0), Epoch(0), Compression::None);
    let mut matcher = Matcher::default();
    matcher.insert(Arc::new(Compiled::new(&plan)), ());
    matcher.run(&batch, PartitionId(0), Offset(0), 1_700_000_000_500).unwrap();
    let (mut rows, mut errors) = (Vec::new(), 0);
    matcher.drain(|_, (), yielded| {
        rows.extend(yielded.rows.rows().map(|row| String::from_utf8(row.to_vec()).unwrap()));
        errors += yielded.evaluation_errors;
    });
    assert_eq!(rows.len() as u64 + errors, 1, "{expression} {payload}");
    rows.pop().map(|row| row["{\"v\":".len()..row.len() - 1].to_owned())
}

const RECORD: &str = r#"{"i":7,"n":-2,"z":0,"d":2.5,"w":4.0,"t":" Ab ","b":true,"x":null,"big":9223372036854775807,
    "l":[1,"a",2.0,null],"e":[],"m":{"k":1,"s":"v","k":2},"lm":[{"k":1},{"q":"v"}],"digits":"42","deep":{"l":[[5],[6,7]]}}"#;

#[test]
fn expressions_give_what_their_rules_say() {
    for (expression, expected) in [
        // Numbers: integers stay integers, one double makes a double.
        ("i + 1", "8"),
        ("i + 1 * 2 - 3", "6"),
        ("(i + 1) * 2", "16"),
        ("i - n - 1", "8"),
        ("i / 2", "3"),
        ("n / 4", "0"),
        ("i % 4", "3"),
        ("n % 3", "-2"),
        ("i / 2.0", "3.5"),
        ("d * 2", "5.0"),
        ("w / 2", "2.0"),
        ("i + t", "null"),
        ("i + x", "null"),
        ("i + nothing", "null"),
        ("1 + 2 * 3", "7"),
        ("i * -1", "-7"),
        // Types.
        ("i:LONG", "7"),
        ("i:DOUBLE", "7.0"),
        ("i:DOUBLE / 2", "3.5"),
        ("w:INTEGER", "4"),
        ("d:LONG", "null"),
        ("t:LONG", "null"),
        ("t:STRING", "\" Ab \""),
        ("l:LIST[STRING]", r#"[1,"a",2.0,null]"#),
        ("m:LIST", "null"),
        ("m:MAP[MAP[LONG]]", r#"{"k":1,"s":"v","k":2}"#),
        ("b:BOOLEAN", "true"),
        // Both must be of the type, and neither is, though they could be compared.
        ("i != n:STRING", "null"),
        ("n:STRING < i", "null"),
        ("CAST(d AS LONG)", "2"),
        ("CAST(i AS STRING)", "\"7\""),
        ("CAST(w AS STRING)", "\"4.0\""),
        ("CAST(digits AS INTEGER) + 1", "43"),
        ("CAST(digits AS DOUBLE)", "42.0"),
        ("CAST(b AS STRING)", "\"true\""),
        ("CAST(b AS LONG)", "1"),
        ("CAST('TRUE' AS BOOLEAN)", "true"),
        ("CAST(z AS BOOLEAN)", "false"),
        ("CAST(x AS LONG)", "null"),
        // Conditions as values.
        ("i > 5", "true"),
        ("i > 5 XOR d > 2", "false"),
        ("i > 5 XOR d > 5", "true"),
        ("i > 5 XOR x", "null"),
        ("FALSE XOR TRUE AND FALSE", "false"),
        ("TRUE OR TRUE XOR TRUE", "true"),
        ("i = ANY [1, 7]", "true"),
        ("i = ANY (1, 2)", "false"),
        ("i > ALL [1, 2]", "true"),
        ("i > ALL [1, 8]", "false"),
        ("i != ALL [1, 8]", "true"),
        ("i < ANY [1, 8]", "true"),
        ("1 = ANY l", "true"),
        ("1 != ALL e", "true"),
        ("1 = ANY e", "false"),
        ("5 = ANY l", "null"),
        ("1 = ANY i", "null"),
        ("'a' IN l", "true"),
        ("i NOT IN e", "true"),
        ("t RLIKE ANY ['x', '.*Ab.*']", "true"),
        ("t NOT RLIKE ANY ['x', 'y']", "true"),
        ("i + 1 BETWEEN 8 AND 9", "true"),
        // Parts.
        ("l[1 + 1]", "2.0"),
        ("l[i - 7]", "1"),
        ("l[9 + 0]", "null"),
        ("l[0 - 1]", "null"),
        ("m[CAST('k' AS STRING)]", "1"),
        ("m[LOWER('S')]", "\"v\""),
        ("deep['l'][z + 1][z]", "6"),
        ("lm[z].k", "1"),
        ("i[z]", "null"),
        ("[i, d, t]", r#"[7,2.5," Ab "]"#),
        // Functions.
        ("SIZEOF(l)", "4"),
        ("SIZEOF(m)", "2"),
        ("SIZEOF(t)", "4"),
        ("SIZEOF(e)", "0"),
        ("SIZEOF(i)", "null"),
        ("SIZEIS(l, 4)", "true"),
        ("SIZEIS('äö', 3)", "false"),
        ("CONTAINSKEY(m, 's')", "true"),
        ("CONTAINSKEY(m, 'q')", "false"),
        ("CONTAINSKEY(lm, 'q')", "true"),
        ("CONTAINSKEY(i, 'q')", "null"),
        ("CONTAINSVALUE(m, 'v')", "true"),
        ("CONTAINSVALUE(l, 2)", "true"),
        ("CONTAINSVALUE(lm, 'v')", "true"),
        ("CONTAINSVALUE(lm, 'w')", "false"),
        ("FILTER(l, [TRUE, FALSE, d > 2, x])", "[1,2.0]"),
        ("FILTER([1, 2], [i > 1, i > 9])", "[1]"),
        ("IF(i > 5, 'many', 'few')", "\"many\""),
        ("IF(x, 1, 2)", "2"),
        ("IF(z = 0, 0, i / z)", "0"),
        ("ABS(n)", "2"),
        ("ABS(0 - d)", "2.5"),
        ("ROUND(d)", "3.0"),
        ("ROUND(0 - d)", "-3.0"),
        ("ROUND(i)", "7"),
        ("ROUND(21.456, 1)", "21.5"),
        ("ROUND(21.456, 2)", "21.46"),
        ("ROUND(0 - 21.456, 2)", "-21.46"),
        ("ROUND(i, 2)", "7"),
        ("ROUND(d, 99)", "2.5"),
        ("ROUND(t)", "null"),
        ("TRIM(t)", "\"Ab\""),
        ("LOWER(t)", "\" ab \""),
        ("UPPER(t)", "\" AB \""),
        ("SUBSTRING('abcde', 2)", "\"bcde\""),
        ("SUBSTR('abcde', 2, 3)", "\"bcd\""),
        ("SUBSTR('abcde', -2)", "\"de\""),
        ("SUBSTR('abcde', -3, 2)", "\"cd\""),
        ("SUBSTR('abcde', 9)", "\"\""),
        ("SUBSTR('abcde', 0)", "\"\""),
        ("SUBSTR('äöü', 2, 1)", "\"ö\""),
        ("UNIXTIMESTAMP()", "1700000000"),
        ("UNIXTIMESTAMP('2013-01-01 00:00:01')", "1356998401"),
        ("UNIXTIMESTAMP('01/02/2013', 'dd/MM/yyyy')", "1359676800"),
        ("UNIXTIMESTAMP(20130101, 'yyyyMMdd')", "1356998400"),
        ("UNIXTIMESTAMP('2013-01-01T05', 'yyyy-MM-dd''T''HH')", "1357016400"),
        ("UNIXTIMESTAMP(b)", "null"),
        ("HASH('abc')", "96354"),
        ("HASH(i)", "7"),
        ("HASH(b)", "1231"),
        ("HASH(d)", "1074003968"),
        ("HASH(x)", "null"),
        ("NOW - NOW", "0"),
    ] {
        assert_eq!(value(expression, RECORD).as_deref(), Some(expected), "{expression}");
    }
}

#[test]
fn what_has_no_value_is_an_error_of_its_record() {
    for expression in [
        "i / z",
        "i % 0",
        "d / 0",
        "d / 0.0",
        "big + 1",
        "big * big",
        "1e308 * 10 * d",
        "CAST(t AS LONG)",
        "CAST('1.5' AS LONG)",
        "CAST('x' AS BOOLEAN)",
        "CAST(l AS STRING)",
        "CAST(1e300 AS LONG)",
        "UNIXTIMESTAMP('yesterday')",
        "UNIXTIMESTAMP('2013-02-30 00:00:00')",
        "IF(i > 5, i / z, 1)",
    ] {
        assert_eq!(value(expression, RECORD), None, "{expression}");
    }
}

#[test]
fn a_value_of_the_wrong_type_is_refused_before_anything_runs() {
    for (expression, column, message) in [
        ("a + 'x'", 12, "expected a number, found a text"),
        ("a > 1 + TRUE", 16, "expected a number, found a condition"),
        ("LOWER(5)", 8, "LOWER needs a text here, not a number"),
        ("LOWER(a, b)", 8, "LOWER takes 1 values, not 2"),
        ("SUBSTR(a)", 8, "SUBSTRING takes 2 to 3 values, not 1"),
        ("FILTER(a, 5)", 8, "FILTER needs a list here, not a number"),
        ("IF('x', 1, 2)", 8, "IF needs a condition here"),
        ("IF(a, 1, 2) = 'x'", 8, "a number is never comparable with a text"),
        ("a:LONG = 'x'", 8, "a number is never comparable with a text"),
        ("a = ANY 5", 16, "expected a list, found a number"),
        ("a = ANY []", 17, "expected a field"),
        ("[]", 9, "a list has at least one value"),
        ("a:LNOG", 10, "expected BOOLEAN, INTEGER, LONG"),
        ("CAST(a AS MAP)", 18, "a value is cast to BOOLEAN"),
        ("LOWR(a)", 8, "there is no function LOWR"),
        ("EXPLODE(a)", 8, "EXPLODE is not there yet"),
        ("-a", 9, "expected a number"),
        ("(a = 1) RLIKE ANY ['x']", 8, "a condition is never comparable"),
        ("IF(a = 1, 1, 2) BETWEEN 1 AND 2", 8, "BETWEEN needs a field or a value computed of fields"),
    ] {
        let text = format!("SELECT {expression} FROM STREAM()");
        let refusal = parse(&text, &Limits::default()).expect_err(expression).remove(0);
        assert!(refusal.message.contains(message), "{expression}: {refusal}");
        assert_eq!(refusal.place.column, column, "{expression}: {refusal}");
    }
    let suggested = |text: &str| parse(text, &Limits::default()).expect_err(text).remove(0).suggestion;
    assert_eq!(suggested("SELECT LOWR(a) FROM STREAM()").as_deref(), Some("LOWER"));
    assert_eq!(suggested("SELECT a:LNOG FROM STREAM()").as_deref(), Some("LONG"));
    for (text, column) in [("GROUP BY [a]", 33), ("GROUP BY a:MAP", 33), ("ORDER BY FILTER(a, b)", 33)] {
        let text = format!("SELECT a FROM STREAM() {text}");
        let refusal = parse(&text, &Limits::default()).expect_err(&text).remove(0);
        assert!(refusal.message.contains("by numbers, texts and booleans"), "{refusal}");
        assert_eq!(refusal.place.column, column, "{text}");
    }
}

#[test]
fn no_expression_is_too_high_for_a_stack() {
    let limits = Limits::default();
    let sum = |operators: usize| format!("SELECT {} FROM STREAM()", vec!["a"; operators + 1].join(" + "));
    assert!(parse(&sum(limits.operators_max), &limits).is_ok());
    let refusal = parse(&sum(limits.operators_max + 1), &limits).expect_err("too many").remove(0);
    assert!(refusal.message.contains("query.limits.operators_max = 200"), "{refusal}");
    let calls = |depth: usize| format!("SELECT {}a{} FROM STREAM()", "ABS(".repeat(depth), ")".repeat(depth));
    assert!(parse(&calls(limits.depth_max), &limits).is_ok());
    assert!(parse(&calls(limits.depth_max + 1), &limits).is_err());
    let subscripts = |depth: usize| format!("SELECT {}a{} FROM STREAM()", "a[".repeat(depth), "]".repeat(depth));
    assert!(parse(&subscripts(limits.depth_max + 1), &limits).is_err());
}

#[test]
fn random_expressions_display_as_texts_that_read_back_as_the_same_plan() {
    let mut random = common::Random::from_seed();
    for _ in 0..5000 {
        let text = common::statement(&mut random);
        let Ok(read) = parse(&text, &Limits::default()) else { continue };
        let again = parse(&read.to_string(), &Limits::default());
        assert_eq!(again.as_ref(), Ok(&read), "{text}\n{read}");
    }
}
