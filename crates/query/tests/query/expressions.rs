//! Values of expressions over a record: by table.

use std::sync::Arc;

use millstream_query::{Compiled, Matcher, ParserLimits, parse};
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, PartitionId, Record};

use crate::common;

/// The value of `expression` for a record with `payload`, as JSON; `None` if it has none for this record.
fn value(expression: &str, payload: &str) -> Option<String> {
    let plan = parse(&format!("SELECT {expression} AS v FROM STREAM()"), &ParserLimits::default())
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
    assert_eq!(rows.len(), 1, "{expression} {payload}: the record is a row");
    rows.pop()
        .filter(|row| errors == 0 || row != r#"{"v":null}"#)
        .map(|row| row["{\"v\":".len()..row.len() - 1].to_owned())
}

const RECORD: &str = r#"{"i":7,"n":-2,"z":0,"d":2.5,"w":4.0,"t":" Ab ","b":true,"x":null,"big":9223372036854775807,
    "l":[1,"a",2.0,null],"e":[],"m":{"k":1,"s":"v","k":2},"lm":[{"k":1},{"q":"v"}],"digits":"42","deep":{"l":[[5],[6,7]]}}"#;

#[test]
fn expressions_follow_their_rules() {
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
        ("-i", "-7"),
        ("-n", "2"),
        ("-d * 2", "-5.0"),
        ("3 - -i", "10"),
        ("-(i + 1) * 2", "-16"),
        ("-m.k", "-1"),
        ("-l[0]", "-1"),
        ("-ABS(n)", "-2"),
        ("-t", "null"),
        ("-x", "null"),
        ("-7", "-7"),
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
        ("CAST('8.5' AS LONG)", "8"),
        ("CAST(' -8.9 ' AS LONG)", "-8"),
        ("CAST('1e3' AS INTEGER)", "1000"),
        ("CAST('9223372036854775807' AS LONG)", "9223372036854775807"),
        // Conditions as values.
        ("i > 5", "true"),
        ("i > 5 XOR d > 2", "false"),
        ("i > 5 XOR d > 5", "true"),
        ("i > 5 XOR x", "null"),
        ("FALSE XOR TRUE AND FALSE", "false"),
        ("TRUE OR TRUE XOR TRUE", "true"),
        ("IF(i > 5, 1, 2) BETWEEN (1, 1)", "true"),
        ("IF(IF(i > 5, 1, 2) BETWEEN (1, 1), 3, 4) NOT BETWEEN 4 AND 5", "true"),
        ("IF(i > 5, 'a1', 'b') RLIKE ANY ['x', '[a-z]\\d']", "true"),
        // As in Java: these are of ASCII, and what stands in quotes means itself.
        ("'7' RLIKE '\\d'", "true"),
        ("'٣' RLIKE '\\d'", "false"),
        ("'٣' RLIKE '\\D'", "true"),
        ("'é' RLIKE '\\w'", "false"),
        ("'é' RLIKE '[^\\w]'", "true"),
        ("'a-9_' RLIKE '[\\w-]+'", "true"),
        ("'a.b' RLIKE '\\Qa.b\\E'", "true"),
        ("'axb' RLIKE '\\Qa.b\\E'", "false"),
        ("'a.b]c' RLIKE 'a[\\Q.]\\E]b\\Q]c'", "true"),
        ("'\\d' RLIKE '\\\\d'", "true"),
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
        ("BETWEEN(i, 7, 10)", "true"),
        ("BETWEEN(i + 1, 5, 7)", "false"),
        ("NOT BETWEEN(i, 8, 10) AND b", "true"),
        ("BETWEEN(x, 5, 10)", "null"),
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
        ("ROUND(1234.5, 0 - 2)", "1200.0"),
        ("ROUND(1250, 0 - 2)", "1300"),
        ("ROUND(0 - 1250, 0 - 2)", "-1300"),
        ("ROUND(49, 0 - 2)", "0"),
        ("ROUND(1e300, 0 - 400)", "0.0"),
        ("ROUND(9223372036854775807, 0 - 60)", "0"),
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
        // Conditions and NULL.
        ("CASE WHEN i > 9 THEN 'a' WHEN i > 5 THEN 'b' END", "\"b\""),
        ("CASE WHEN x THEN 1 WHEN NOT x THEN 2 ELSE 3 END", "3"),
        ("CASE WHEN FALSE THEN 1 END", "null"),
        ("CASE i WHEN 7.0 THEN 'seven' ELSE 'other' END", "\"seven\""),
        ("CASE x WHEN NULL THEN 1 ELSE 2 END", "2"),
        ("CASE WHEN z = 0 THEN 0 ELSE i / z END", "0"),
        ("CASE (i) WHEN 7 THEN CASE b WHEN TRUE THEN 'x' END END || 'y'", "\"xy\""),
        ("COALESCE(x, nothing, n, i / z)", "-2"),
        ("COALESCE(x)", "null"),
        ("NULLIF(i, 7.0)", "null"),
        ("NULLIF(i, t)", "7"),
        ("NULLIF(i, x)", "7"),
        ("NULLIF(x, i)", "null"),
        // Texts.
        ("'abc' LIKE 'a%'", "true"),
        ("'abc' LIKE 'a_'", "false"),
        ("'a\n' LIKE 'a_'", "true"),
        ("'aXc' LIKE 'a.c'", "false"),
        ("'50%' LIKE '50!%' ESCAPE '!'", "true"),
        ("'50x' LIKE '50!%' ESCAPE '!'", "false"),
        ("'a!b' LIKE 'a!!b' ESCAPE '!'", "true"),
        ("x LIKE '%'", "null"),
        ("i LIKE '7'", "null"),
        ("t NOT LIKE '%Ab%'", "false"),
        ("'a' || i || d || b", "\"a72.5true\""),
        ("'a' || x", "null"),
        ("'a' || l", "null"),
        ("1 + 2 || 'x'", "\"3x\""),
        ("SPLIT('a,b,,c', ',')", r#"["a","b","","c"]"#),
        ("SPLIT('a,b', ',')[1]", "\"b\""),
        ("SPLIT('a,b', ',')[5]", "null"),
        ("SPLIT('ab', '')", r#"["ab"]"#),
        ("SPLIT(i, ',')", "null"),
        ("'b' = ANY SPLIT('a b', ' ')", "true"),
        ("REPLACE('aaa', 'a', 'bb')", "\"bbbbbb\""),
        ("REPLACE('aaa', '', 'x')", "\"aaa\""),
        // Numbers.
        ("FLOOR(0 - d)", "-3.0"),
        ("CEIL(d)", "3.0"),
        ("CEILING(i)", "7"),
        // Times.
        ("EXTRACT(YEAR FROM '2024-02-29T10:20:30.5Z')", "2024"),
        ("EXTRACT(QUARTER FROM '2024-12-31T23:00:00Z')", "4"),
        ("EXTRACT(WEEK FROM '2024-12-30T00:00:00Z')", "1"),
        ("EXTRACT(DAY_OF_WEEK FROM '2024-03-03T00:00:00Z')", "7"),
        ("EXTRACT(DAY_OF_YEAR FROM '2024-12-31T00:00:00Z')", "366"),
        ("EXTRACT(MILLISECOND FROM 0 - 1)", "999"),
        ("EXTRACT(EPOCH FROM 0 - 1)", "-1"),
        ("EXTRACT(HOUR FROM '2024-02-29T00:30:00+01:00')", "23"),
        ("EXTRACT(YEAR FROM x)", "null"),
        ("EXTRACT(YEAR FROM b)", "null"),
        ("FORMAT_TIME(DATE_TRUNC('week', '2024-03-03T10:00:00Z'))", "\"2024-02-26T00:00:00.000Z\""),
        ("FORMAT_TIME(DATE_TRUNC('quarter', '2024-06-03T10:00:00Z'))", "\"2024-04-01T00:00:00.000Z\""),
        ("FORMAT_TIME(DATE_TRUNC('month', 0 - 1))", "\"1969-12-01T00:00:00.000Z\""),
        ("DATE_TRUNC('minute', 0 - 1)", "-60000"),
        ("FORMAT_TIME(1709202030500, 'HH''h'' mm:ss.S, yy')", "\"10h 20:30.5, 2024\""),
        ("PARSE_TIME('29.02.2024 10.20.30,5', 'dd.MM.yyyy HH.mm.ss,S')", "1709202030500"),
        ("PARSE_TIME(FORMAT_TIME(1709202030123)) ", "1709202030123"),
    ] {
        assert_eq!(value(expression, RECORD).as_deref(), Some(expected), "{expression}");
    }
}

#[test]
fn an_expression_without_a_value_is_an_error_of_its_record() {
    for expression in [
        "i / z",
        "i % 0",
        "d / 0",
        "d / 0.0",
        "big + 1",
        "big * big",
        "1e308 * 10 * d",
        "CAST(t AS LONG)",
        "CAST('1.5x' AS LONG)",
        "CAST('1e300' AS LONG)",
        "CAST('inf' AS LONG)",
        "CAST('x' AS BOOLEAN)",
        "CAST(l AS STRING)",
        "CAST(1e300 AS LONG)",
        "UNIXTIMESTAMP('yesterday')",
        "UNIXTIMESTAMP('2013-02-30 00:00:00')",
        "IF(i > 5, i / z, 1)",
        "CASE WHEN i / z > 1 THEN 1 END",
        "COALESCE(i / z, 1)",
        "NULLIF(i / z, 1)",
        "'a' || i / z",
        "PARSE_TIME('yesterday')",
        "PARSE_TIME('2013-02-30', 'yyyy-MM-dd')",
        "FORMAT_TIME(big)",
        "FORMAT_TIME(0, 'QQ')",
        "FORMAT_TIME(0, 'yyyyyyyyyyyyyyyyyyyy')",
        "EXTRACT(HOUR FROM t)",
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
        ("-'x'", 9, "expected a number, found a text"),
        ("BETWEEN(a, 5)", 20, "expected ','"),
        ("BETWEEN(5, 'x', 7)", 16, "is never comparable"),
        ("a LIKE b", 15, "expected a pattern in single quotes"),
        ("a LIKE 'x!' ESCAPE '!'", 15, "the escape ! stands before"),
        ("a LIKE 'x' ESCAPE '!!'", 26, "ESCAPE takes one character"),
        ("5 LIKE 'x'", 8, "a number is never comparable with a text"),
        ("CASE a END", 15, "expected WHEN, found 'END'"),
        ("CASE WHEN 5 THEN 1 END", 18, "expected a condition, found a number"),
        ("CASE WHEN a THEN 1", 27, "expected WHEN, ELSE or END"),
        ("CASE 5 WHEN 'x' THEN 1 END", 20, "a number is never comparable with a text"),
        ("CASE WHEN a THEN 1 END = 'x'", 8, "a number is never comparable with a text"),
        ("[1] || 'x'", 8, "CONCAT needs a text here, not a list"),
        ("COALESCE()", 8, "COALESCE takes at least 1 values, not 0"),
        ("UPPER(a)[0]", 8, "expected a list or a map, found a text"),
        ("EXTRACT(HUOR FROM a)", 16, "expected YEAR, QUARTER"),
        ("DATE_TRUNC('epoch', a)", 8, "DATE_TRUNC knows no part 'EPOCH'"),
        ("DATE_TRUNC(a, b)", 8, "DATE_TRUNC needs a part such as 'hour'"),
        ("a /* b", 10, "the closing */ of this comment is missing"),
        ("(a = 1) RLIKE ANY ['x']", 8, "a condition is never comparable"),
    ] {
        let text = format!("SELECT {expression} FROM STREAM()");
        let refusal = parse(&text, &ParserLimits::default()).expect_err(expression).remove(0);
        assert!(refusal.message.contains(message), "{expression}: {refusal}");
        assert_eq!(refusal.place.column, column, "{expression}: {refusal}");
    }
    let suggested = |text: &str| parse(text, &ParserLimits::default()).expect_err(text).remove(0).suggestion;
    assert_eq!(suggested("SELECT LOWR(a) FROM STREAM()").as_deref(), Some("LOWER"));
    assert_eq!(suggested("SELECT a:LNOG FROM STREAM()").as_deref(), Some("LONG"));
    for (text, column) in [("GROUP BY [a]", 33), ("GROUP BY a:MAP", 33), ("ORDER BY FILTER(a, b)", 33)] {
        let text = format!("SELECT a FROM STREAM() {text}");
        let refusal = parse(&text, &ParserLimits::default()).expect_err(&text).remove(0);
        assert!(refusal.message.contains("by numbers, texts and booleans"), "{refusal}");
        assert_eq!(refusal.place.column, column, "{text}");
    }
}

#[test]
fn a_plan_that_doubles_with_every_level_is_refused_early() {
    let mut nested = "a".to_owned();
    let refusal = (0..20)
        .find_map(|_| {
            nested = format!("IF({nested} BETWEEN 1 AND 2, 1, 2)");
            parse(&format!("SELECT {nested} FROM STREAM()"), &ParserLimits::default()).err()
        })
        .expect("it is refused before it is large")
        .remove(0);
    assert!(refusal.message.contains("query.limits.operators_max = 200"), "{refusal}");
}

#[test]
fn no_expression_is_too_high_for_a_stack() {
    let limits = ParserLimits::default();
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
        let Ok(read) = parse(&text, &ParserLimits::default()) else { continue };
        let again = parse(&read.to_string(), &ParserLimits::default());
        assert_eq!(again.as_ref(), Ok(&read), "{text}\n{read}");
    }
}
