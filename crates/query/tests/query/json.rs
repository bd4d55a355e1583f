//! Queries as JSON documents: which plan they are, and which records pass.

use std::sync::Arc;

use millstream_query::{Compiled, Matcher, ParserLimits, parse};
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, PartitionId, Record};
use serde_json::json;

use crate::common;

fn plan(document: &serde_json::Value) -> String {
    let text = document.to_string();
    parse(&text, &ParserLimits::default()).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}")).to_string()
}

/// The rows that a query gives of these records.
fn rows_of(text: &str, records: &[&str]) -> Vec<String> {
    let plan = parse(text, &ParserLimits::default()).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
    let mut builder = BatchBuilder::default();
    for payload in records {
        builder.push(&Record { value: Some(payload.as_bytes()), ..Record::default() });
    }
    let batch = builder.seal(Offset(0), Epoch(0), Compression::None);
    let mut matcher = Matcher::default();
    matcher.insert(Arc::new(Compiled::new(&plan)), ());
    matcher.run(&batch, PartitionId(0), Offset(0), 0).unwrap();
    let mut rows = Vec::new();
    matcher.drain(|_, (), yielded| {
        rows.extend(yielded.rows.rows().map(|row| String::from_utf8(row.to_vec()).unwrap()));
    });
    rows
}

/// Returns the indexes of the records that pass the filters.
fn passing(filters: &serde_json::Value, records: &[&str]) -> Vec<usize> {
    let rows = rows_of(&json!({"filters": filters}).to_string(), records);
    (0..records.len()).filter(|i| rows.contains(&records[*i].to_owned())).collect()
}

#[test]
fn a_computation_that_fails_for_a_record_is_null_there_and_takes_nothing_else_away() {
    let field = |name: &str| json!({"value": {"kind": "FIELD", "value": name}});
    let document = json!({"projection": {"fields": {"a": "a", "b": "b"}}, "filters": [
            {"field": "b", "operation": "!=", "values": ["9"]}], "postAggregations": [
        {"type": "COMPUTATION", "newName": "q", "expression":
            {"operation": "/", "left": field("a"), "right": field("b")}},
        {"type": "COMPUTATION", "newName": "n", "expression":
            {"value": {"kind": "FIELD", "value": "a", "type": "LONG"}}}]});
    let records = [r#"{"a":6,"b":3}"#, r#"{"a":6,"b":0}"#, r#"{"a":"x","b":2}"#, r#"{"b":1}"#, r#"{"a":1,"b":9}"#];
    let rows = rows_of(&document.to_string(), &records);
    let expected = [
        r#"{"a":6,"b":3,"q":2,"n":6}"#,
        r#"{"a":6,"b":0,"q":null,"n":6}"#,
        r#"{"a":"x","b":2,"q":null,"n":null}"#,
        r#"{"a":null,"b":1,"q":null,"n":null}"#,
    ];
    assert_eq!(rows, expected);
    // A statement says the same.
    assert_eq!(
        rows_of("SELECT a, b, a / b AS q FROM STREAM() WHERE b != 9", &records[..2]),
        [r#"{"a":6,"b":3,"q":2}"#, r#"{"a":6,"b":0,"q":null}"#]
    );
}

#[test]
fn every_part_of_a_document_has_its_place_in_the_plan() {
    for (document, text) in [
        (json!({}), "SELECT * FROM STREAM()"),
        (json!({"duration": 5000}), "SELECT * FROM STREAM(5000, TIME)"),
        (json!({"duration": -1, "filters": [], "projection": null}), "SELECT * FROM STREAM()"),
        (json!({"aggregation": {"type": "RAW", "size": 1}}), "SELECT * FROM STREAM() LIMIT 1"),
        (json!({"aggregation": {"type": "limit", "size": 3}}), "SELECT * FROM STREAM() LIMIT 3"),
        (
            json!({"projection": {"fields": {"a": "x", "m.k": "", "l.0.k": null}}}),
            r#"SELECT a AS x, m.k AS "m.k", l[0].k AS "l.0.k" FROM STREAM()"#,
        ),
        (
            json!({"filters": [{"field": "a", "operation": "==", "values": ["x", "5"]}], "aggregation": {"type": "GROUP",
                "size": 7, "fields": {"b": "y"}, "attributes": {"operations": [{"type": "COUNT", "newName": "n"},
                {"type": "AVG", "field": "c.d", "newName": "m"}]}}}),
            "SELECT b AS y, COUNT(*) AS n, AVG(c.d) AS m FROM STREAM() WHERE a IN ('x') OR a IN ('5', 5) \
             GROUP BY y LIMIT 7",
        ),
        (json!({"aggregation": {"type": "DISTINCT", "fields": {"a": "a"}}}), "SELECT a AS a FROM STREAM() GROUP BY a"),
        (
            json!({"aggregation": {"type": "COUNT DISTINCT", "fields": {"a": "a", "b": "b"},
                "attributes": {"newName": "n"}}}),
            "SELECT COUNT(DISTINCT a, b) AS n FROM STREAM()",
        ),
        (
            json!({"aggregation": {"type": "TOP K", "size": 5, "fields": {"a": "x"},
                "attributes": {"threshold": 10, "newName": "n"}}}),
            "SELECT TOP(5, 10, a AS x) AS n FROM STREAM()",
        ),
        (
            json!({"aggregation": {"type": "DISTRIBUTION", "fields": {"a": "a"},
                "attributes": {"type": "QUANTILE", "numberOfPoints": 11, "points": [2]}}}),
            "SELECT QUANTILE(a, LINEAR, 11) FROM STREAM()",
        ),
        (
            json!({"aggregation": {"type": "DISTRIBUTION", "fields": {"a": "a"},
                "attributes": {"type": "PMF", "points": [1, 2.5]}}}),
            "SELECT FREQ(a, MANUAL, 1.0, 2.5) FROM STREAM()",
        ),
        (
            json!({"aggregation": {"type": "DISTRIBUTION", "fields": {"a": "a"},
                "attributes": {"type": "CDF", "start": 0, "end": 2, "increment": 1}}}),
            "SELECT CUMFREQ(a, REGION, 0.0, 2.0, 1.0) FROM STREAM()",
        ),
        (
            json!({"window": {"emit": {"type": "TIME", "every": 1000}}, "projection": {"fields": {"a": "a"}}}),
            "SELECT a AS a FROM STREAM() WINDOWING TUMBLING(1000, TIME)",
        ),
        (
            json!({"window": {"emit": {"type": "RECORD", "every": 5}, "include": {"type": "RECORD", "first": 5}}}),
            "SELECT * FROM STREAM() WINDOWING TUMBLING(5, RECORD)",
        ),
        (
            json!({"window": {"emit": {"type": "RECORD", "every": 1}, "include": {"type": "RECORD", "last": 1}}}),
            "SELECT * FROM STREAM() WINDOWING TUMBLING(1, RECORD)",
        ),
        (
            json!({"window": {"emit": {"type": "TIME", "every": 9}, "include": {"type": "ALL"}},
                "aggregation": {"type": "GROUP", "attributes": {"operations": [{"type": "COUNT", "newName": "n"}]}}}),
            "SELECT COUNT(*) AS n FROM STREAM() WINDOWING EVERY(9, TIME, ALL)",
        ),
        (
            json!({"aggregation": {"type": "GROUP", "fields": {"a": "a"}, "attributes": {"operations": [
                {"type": "SUM", "field": "b", "newName": "s"}, {"type": "COUNT", "newName": "n"}]}},
                "postAggregations": [
                    {"type": "COMPUTATION", "newName": "m", "expression": {"operation": "/",
                        "left": {"value": {"kind": "FIELD", "value": "s"}},
                        "right": {"value": {"kind": "FIELD", "value": "n"}}}},
                    {"type": "ORDERBY", "fields": [{"field": "m", "direction": "DESC"}, {"field": "a"}]},
                    {"type": "CULLING", "transientFields": ["s", "n"]}]}),
            "SELECT a AS a, SUM(b) / COUNT(*) AS m FROM STREAM() GROUP BY a ORDER BY m DESC, a",
        ),
        (
            json!({"projection": {"fields": {"a": "a"}}, "postAggregations": [
                {"type": "COMPUTATION", "newName": "b", "expression": {"operation": "+", "type": "LONG",
                    "left": {"operation": "*", "left": {"value": {"kind": "FIELD", "value": "a", "type": "DOUBLE"}},
                        "right": {"value": {"kind": "VALUE", "value": "2", "type": "DOUBLE"}}},
                    "right": {"value": {"kind": "VALUE", "value": "1"}}}},
                {"type": "COMPUTATION", "newName": "c", "expression": {"value": {"kind": "VALUE", "value": "5",
                    "type": "STRING"}}}]}),
            "SELECT a AS a, CAST(CAST(a AS DOUBLE) * CAST(2 AS DOUBLE) + 1 AS LONG) AS b, CAST('5' AS STRING) AS c FROM STREAM()",
        ),
        (
            json!({"aggregation": {"type": "GROUP", "fields": {"a": "a"}, "attributes": {"operations": [
                {"type": "COUNT", "newName": "n"}]}},
                "postAggregations": [{"type": "HAVING", "expression": {"operation": "and",
                    "left": {"operation": ">=", "left": {"value": {"kind": "FIELD", "value": "n"}},
                        "right": {"value": {"kind": "VALUE", "value": "2"}}},
                    "right": {"operation": "!=", "left": {"value": {"kind": "FIELD", "value": "a"}},
                        "right": {"value": {"kind": "VALUE", "value": "x"}}}}}]}),
            "SELECT a AS a, COUNT(*) AS n FROM STREAM() GROUP BY a HAVING COUNT(*) >= 2 AND a != 'x'",
        ),
        (
            json!({"filters": [{"operation": "AND", "clauses": [
                {"operation": "OR", "clauses": [{"field": "a", "operation": "RLIKE", "values": ["x.*", "y"]}]},
                {"operation": "NOT", "clauses": [{"field": "b", "operation": ">", "values": ["x"]}]}]}]}),
            "SELECT * FROM STREAM() WHERE (a RLIKE 'x.*' OR a RLIKE 'y') AND IF(b > 'x', FALSE, TRUE)",
        ),
    ] {
        assert_eq!(plan(&document), text, "{document}");
    }
}

#[test]
fn a_value_is_compared_by_the_type_of_the_records_field() {
    let typed = [r#"{"n":1}"#, r#"{"n":1.0}"#, r#"{"n":"1"}"#, r#"{"n":true}"#, r#"{"n":null}"#, "{}", r#"{"n":[1]}"#];
    let is = |operation: &str, values: &[&str]| {
        passing(&json!([{"field": "n", "operation": operation, "values": values}]), &typed)
    };
    assert_eq!(is("==", &["1"]), [0, 1, 2]);
    assert_eq!(is("==", &["1.0"]), [1]);
    assert_eq!(is("==", &["TRUE"]), [3]);
    assert_eq!(is("==", &["NULL"]), [4, 5]);
    assert_eq!(is("==", &["null", "true"]), [3, 4, 5]);
    assert_eq!(is("!=", &["1"]), [3, 4, 5, 6]);
    assert_eq!(is("!=", &["1", "null"]), [3, 6]);
    assert_eq!(is(">=", &["1"]), [0, 1, 2]);
    assert_eq!(is("<", &["1.5"]), [1, 2]);
    assert_eq!(is(">", &["null"]), Vec::<usize>::new());
    assert_eq!(is("<", &["null"]), [2], "a text is before the text null");
    assert_eq!(is("==", &[]), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(is("SIZEIS", &["1"]), [2, 6]);
    assert_eq!(is("CONTAINSVALUE", &["1"]), [6]);
    assert_eq!(is("RLIKE", &["[0-9]", "x"]), [0, 2], "a number is matched by its text");
    assert_eq!(is("RLIKE", &["1.*"]), [0, 1, 2]);
    assert_eq!(is("RLIKE", &["t.+"]), [3]);
    assert_eq!(is("RLIKE", &["null"]), Vec::<usize>::new());
}

#[test]
fn maps_and_lists_are_looked_into() {
    let records = [
        r#"{"m":{"k":1,"s":"v"},"l":[{"k":1}],"t":"abc"}"#,
        r#"{"m":{"q":{"r":2}},"l":[{"q":"v"},{"k":2}],"t":""}"#,
        r#"{"m":7,"l":[],"t":null}"#,
        "{}",
    ];
    for (field, operation, values, expected) in [
        ("m", "CONTAINSKEY", json!(["k", "x"]), vec![0]),
        ("l", "CONTAINSKEY", json!(["q"]), vec![1]),
        ("m", "CONTAINSVALUE", json!(["v"]), vec![0]),
        ("l", "CONTAINSVALUE", json!(["v"]), vec![1]),
        ("m", "SIZEIS", json!(["2"]), vec![0]),
        ("l", "SIZEIS", json!(["0", "2"]), vec![1, 2]),
        ("t", "SIZEIS", json!(["3"]), vec![0]),
        ("m.q.r", "==", json!(["2"]), vec![1]),
        ("l.1.k", ">", json!(["1"]), vec![1]),
        ("l.0.k", "==", json!(["null"]), vec![1, 2, 3]),
        ("m.k.deeper", "==", json!(["null"]), vec![0, 1, 2, 3]),
        ("t", "==", json!([{"kind": "FIELD", "value": "m.s"}]), vec![]),
        ("m.k", "==", json!([{"kind": "FIELD", "value": "l.0.k"}]), vec![0]),
    ] {
        let filters = json!([{"field": field, "operation": operation, "values": values}]);
        assert_eq!(passing(&filters, &records), expected, "{filters}");
    }
}

#[test]
fn q3_a_long_is_compared_with_no_text_that_is_no_long() {
    let records = [r#"{"n":1}"#, r#"{"n":2}"#];
    for (operation, expected) in [("==", vec![]), ("<", vec![]), (">", vec![]), ("!=", vec![0, 1])] {
        let filters = json!([{"field": "n", "operation": operation, "values": ["1.5"]}]);
        assert_eq!(passing(&filters, &records), expected, "{operation}");
    }
}

#[test]
fn q4_equality_with_null_is_the_test_for_a_missing_field() {
    let filters = json!([{"field": "m.x", "operation": "==", "values": ["NULL"]}]);
    assert_eq!(passing(&filters, &[r#"{"m":{"x":1}}"#, r#"{"m":{}}"#, r#"{"m":{"x":""}}"#]), [1]);
    // It is a text as well.
    let filters = json!([{"field": "x", "operation": "==", "values": ["null"]}]);
    let records = [r#"{"x":"null"}"#, r#"{"x":"NULL"}"#, r#"{"x":null}"#, r#"{"x":"none"}"#];
    assert_eq!(passing(&filters, &records), [0, 2]);
    let filters = json!([{"field": "x", "operation": "!=", "values": ["null"]}]);
    assert_eq!(passing(&filters, &records), [1, 3]);
}

#[test]
fn q5_not_negates_its_first_clause_and_ignores_the_others() {
    let clause = |value: &str| json!({"field": "a", "operation": "==", "values": [value]});
    let filters = json!([{"operation": "NOT", "clauses": [clause("1"), clause("7")]}]);
    let records = [r#"{"a":1}"#, r#"{"a":2}"#, r#"{"b":1}"#];
    assert_eq!(passing(&filters, &records), [1, 2]);
    for empty in [json!([{"operation": "NOT", "clauses": []}]), json!([{"clauses": [clause("1")]}]), json!([{}])] {
        assert_eq!(passing(&empty, &records), [0, 1, 2], "{empty}");
    }
}

#[test]
fn a_text_is_ordered_against_the_text_null_and_nothing_else_is() {
    let records = [r#"{"a":"apple"}"#, r#"{"a":"null"}"#, r#"{"a":"pear"}"#, r#"{"a":5}"#, r#"{"a":null}"#, "{}"];
    for (operation, expected) in [("<", vec![0]), ("<=", vec![0, 1]), (">", vec![2]), (">=", vec![1, 2])] {
        let filters = json!([{"field": "a", "operation": operation, "values": ["null"]}]);
        assert_eq!(passing(&filters, &records), expected, "{operation}");
    }
}

#[test]
fn fields_are_compared_with_fields() {
    let filters = json!([{"field": "a", "operation": ">", "values": [{"kind": "FIELD", "value": "m.b"}]}]);
    assert_eq!(passing(&filters, &[r#"{"a":2,"m":{"b":1}}"#, r#"{"a":1,"m":{"b":1}}"#, r#"{"a":1}"#]), [0]);
    let filters =
        json!([{"field": "a", "operation": "==", "values": [{"kind": "VALUE", "value": "2", "type": "LONG"}]}]);
    assert_eq!(passing(&filters, &[r#"{"a":2}"#, r#"{"a":3}"#]), [0]);
}

#[test]
fn a_refusal_points_at_the_place_in_the_document() {
    for (document, at) in [
        (r#"{"duration": 5, "filter": []}"#, r#""filter""#),
        (r#"{"filters": [{}, {"field": "a", "operation": "=", "values": ["1"]}]}"#, r#""=""#),
        (r#"{"filters": [{"field": "a..b", "operation": "==", "values": ["1"]}]}"#, r#""a..b""#),
        (r#"{"filters": [{"operation": "AND", "clauses": [{}, {"feild": "a"}]}]}"#, r#""feild""#),
        (r#"{"projection": {"fields": {"a.b": "x", "a": 7}}}"#, "7"),
        (r#"{"aggregation": {"type": "RAW", "size": 0}}"#, "0"),
        ("{\n  \"aggregation\": {\"type\": \"MEDIAN\"}}", r#""MEDIAN""#),
        (r#"{"window": {"emit": {"type": "TIME"}}}"#, r#"{"type": "TIME"}"#),
    ] {
        let wrong = &parse(document, &ParserLimits::default()).unwrap_err()[0];
        assert!(document[wrong.place.byte..].starts_with(at), "{document}: {wrong:?}");
        assert_eq!(wrong.place.line, if document.contains('\n') { 2 } else { 1 });
    }
}

#[test]
fn a_document_with_unknown_parts_is_refused_with_a_suggestion() {
    for (document, message) in [
        (r#"{"filter": []}"#, "query: 'filter' means nothing here; did you mean filters?"),
        (r#"{"filters": [}"#, "line 1 column"),
        (r#"{"filters": {}}"#, "filters: a list belongs here"),
        (
            r#"{"filters": [{"field": "a", "operation": "=", "values": ["1"]}]}"#,
            "filters[0].operation: there is no operation '='",
        ),
        (r#"{"filters": [{"field": "a..b", "operation": "==", "values": ["1"]}]}"#, "'a..b' names no field"),
        (r#"{"filters": [{"operation": "XOR", "clauses": [{}]}]}"#, "filters[0].operation: AND, OR or NOT, not 'XOR'"),
        (r#"{"filters": [{"field": "a", "operation": "RLIKE", "values": ["(?=x)"]}]}"#, "no regular expression"),
        (r#"{"filters": [{"field": "a", "operation": "==", "values": ["1", {"value": "2"}]}]}"#, "either all values"),
        (r#"{"aggregation": {"type": "MEDIAN"}}"#, "aggregation.type: there is no 'MEDIAN'"),
        (r#"{"aggregation": {"type": "RAW", "size": 0}}"#, "aggregation.size: a whole number from 1"),
        (r#"{"aggregation": {"type": "TOP K", "size": 2}}"#, "TOP K needs at least one"),
        (r#"{"aggregation": {"type": "GROUP"}}"#, "GROUP needs fields or operations"),
        (r#"{"aggregation": {"type": "DISTRIBUTION", "fields": {"a": "a", "b": "b"}}}"#, "of exactly one"),
        (
            r#"{"aggregation": {"type": "DISTRIBUTION", "fields": {"a": "a"}, "attributes": {"type": "PMF"}}}"#,
            "numberOfPoints",
        ),
        (r#"{"window": {"emit": {"type": "TIME"}}}"#, "window.emit: a type, TIME or RECORD"),
        (
            r#"{"window": {"emit": {"type": "TIME", "every": 5}, "include": {"type": "TIME", "first": 9}}}"#,
            "not there yet",
        ),
        (
            r#"{"window": {"emit": {"type": "TIME", "every": 5}, "include": {"type": "TIME", "last": 3}}}"#,
            "window.include: records between two windows would be lost",
        ),
        (r#"{"postAggregations": [{"type": "HAVING"}]}"#, "postAggregations[0].expression: an object belongs here"),
        (
            r#"{"aggregation": {"type": "GROUP", "fields": {"a": "a"}}, "postAggregations": [{"type": "HAVING",
                "expression": {"operation": "~", "left": {"value": {"value": "1"}}, "right": {"value": {"value": "1"}}}}]}"#,
            "postAggregations[0].expression.operation: + - * / == !=",
        ),
        (
            r#"{"projection": {"fields": {"a": "a"}}, "postAggregations": [{"type": "COMPUTATION", "newName": "b",
                "expression": {"value": {"kind": "FIELD", "value": "a", "type": "MAP"}}}]}"#,
            "postAggregations[0].expression.type: BOOLEAN, INTEGER, LONG, FLOAT, DOUBLE or STRING, not 'MAP'",
        ),
        (
            r#"{"window": {"emit": {"type": "TIME", "every": 5}, "include": {"type": "ALL"}}}"#,
            "all rows again and again",
        ),
        (r#"{"duration": "long"}"#, "duration: milliseconds as a number"),
    ] {
        let refusal = parse(document, &ParserLimits::default()).expect_err(document).remove(0);
        assert!(refusal.message.contains(message), "{document}: {refusal}");
    }
}

#[test]
fn no_document_makes_the_parser_panic() {
    let mut random = common::Random::from_seed();
    let words = [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"filters\"",
        "\"field\"",
        "\"a.b\"",
        "\"operation\"",
        "\"==\"",
        "\"NOT\"",
        "\"clauses\"",
        "\"values\"",
        "\"null\"",
        "\"1.0\"",
        "1",
        "-1",
        "null",
        "true",
        "\"aggregation\"",
        "\"type\"",
        "\"GROUP\"",
        "\"size\"",
        "\"projection\"",
        "\"fields\"",
        "\"window\"",
        "\"emit\"",
        "\"every\"",
        "\"duration\"",
        "é",
        "\"postAggregations\"",
    ];
    let whole = json!({"filters": [{"operation": "NOT", "clauses": [{"field": "a", "operation": "<", "values": ["1.0", "x"]}]}],
        "projection": {"fields": {"a": "b"}}, "window": {"emit": {"type": "TIME", "every": 5}}, "duration": 5})
    .to_string();
    for _ in 0..20_000 {
        let text = if random.one_in(2) {
            (0..random.below(40)).fold("{".to_owned(), |text, _| text + random.of(&words))
        } else {
            let mut text: Vec<char> = whole.chars().collect();
            for _ in 0..=random.below(3) {
                let at = 1 + random.below(text.len());
                drop(text.drain(at.min(text.len())..(at + random.below(4)).min(text.len())));
                text.insert(at.min(text.len()), ['"', '{', ']', ',', '0', 'é'][random.below(6)]);
            }
            text.into_iter().collect()
        };
        for diagnostic in parse(&text, &ParserLimits::default()).err().into_iter().flatten() {
            assert!(text.is_char_boundary(diagnostic.place.byte), "{text}");
            assert!(!diagnostic.message.is_empty(), "{text}");
        }
    }
}
