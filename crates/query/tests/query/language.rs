//! The language: what is read, what is refused, and how the refusal helps.

use millstream_query::{
    Aggregate, Comparison, Diagnostic, Expr, Field, Literal, ParserLimits, PathStep, QueryPlan, RecordSource, Select,
    StreamDuration, Type, parse,
};

use crate::common;

fn plan(text: &str) -> QueryPlan {
    parse(text, &ParserLimits::default()).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"))
}

fn refusal(text: &str) -> Diagnostic {
    parse(text, &ParserLimits::default()).expect_err(text).remove(0)
}

#[test]
fn a_query_reads_as_its_typed_plan() {
    let plan = plan("select temp as t, a.b[2]['x y'] From Stream(30000, time) WHERE temp >= 21.5 and id='x' limit 10");
    let Select::Items(items) = plan.select else { panic!("items") };
    assert_eq!(items.iter().map(|item| item.name()).collect::<Vec<_>>(), ["t", "a.b[2]['x y']"]);
    let steps =
        vec![PathStep::Key("a".into()), PathStep::Key("b".into()), PathStep::Index(2), PathStep::Key("x y".into())];
    assert_eq!(items[1].value, Expr::Field(Field::Payload(steps)));
    assert_eq!(plan.source, RecordSource::Stream(StreamDuration::Ms(30_000)));
    assert_eq!(plan.limit, Some(10));
    let Some(Expr::And(parts)) = plan.filter else { panic!("AND") };
    let temp = Expr::Field(Field::Payload(vec![PathStep::Key("temp".into())]));
    assert_eq!(
        parts[0],
        Expr::Compare {
            comparison: Comparison::GreaterOrEqual,
            left: Box::new(Expr::Coerce { to: Type::Number, value: Box::new(temp) }),
            right: Box::new(Expr::Literal(Literal::Double(21.5))),
        }
    );
}

#[test]
fn every_spelling_has_one_canonical_text_that_reads_back_as_the_same_plan() {
    for (condition, canonical) in [
        ("a == 1", "a = 1"),
        ("a <> 1", "a != 1"),
        ("a=1L or b=-2", "a = 1 OR b = -2"),
        ("a = 1.5F", "a = 1.5"),
        ("a = 9223372036854775807", "a = 9223372036854775807"),
        ("a = -9223372036854775808", "a = -9223372036854775808"),
        ("a = 9223372036854775808", "a = 9.223372036854776e18"),
        ("a = 1e3", "a = 1000.0"),
        ("a = 'it''s'", "a = 'it''s'"),
        ("a['b'] = 1", "a.b = 1"),
        ("\"a\" = 1", "a = 1"),
        ("\"select\" = 1 AND \"odd \"\"name\" = 2", "\"select\" = 1 AND \"odd \"\"name\" = 2"),
        ("a BETWEEN (1, 2)", "a >= 1 AND a <= 2"),
        ("a BETWEEN 1 AND 2 AND b = 3", "a >= 1 AND a <= 2 AND b = 3"),
        ("a NOT BETWEEN 1 AND 2", "NOT (a >= 1 AND a <= 2)"),
        ("a NOT IN (1, 'x', NULL)", "NOT a IN (1, 'x', NULL)"),
        ("a in [1, 2]", "a IN (1, 2)"),
        ("a IS NOT NULL", "NOT a IS NULL"),
        ("a rlike 'x.*'", "a RLIKE 'x.*'"),
        ("a like 'x%'", "a LIKE 'x%'"),
        ("a NOT LIKE 'x!_%' ESCAPE '!'", "NOT a LIKE 'x!_%' ESCAPE '!'"),
        ("a || 'x' || b = c", "CONCAT(a, 'x', b) = c"),
        ("case when a then b > 1 end", "CASE WHEN a THEN b > 1 ELSE NULL END"),
        ("CASE a WHEN 1 THEN b = 2 ELSE c END", "CASE WHEN a = 1 THEN b = 2 ELSE c END"),
        ("extract(hour from a) = 1 -- early", "EXTRACT(HOUR FROM a) = 1"),
        ("a /* the /* first */ = 1", "a = 1"),
        ("date_trunc('hour', a) = 1", "DATE_TRUNC('HOUR', a) = 1"),
        ("when = 1 AND then = 2 AND end = 3", "when = 1 AND then = 2 AND end = 3"),
        ("a = 1 OR b = 2 AND c = 3", "a = 1 OR b = 2 AND c = 3"),
        ("(a = 1 OR b = 2) AND c = 3", "(a = 1 OR b = 2) AND c = 3"),
        ("NOT a = 1 AND b = 2", "NOT a = 1 AND b = 2"),
        ("NOT (a = 1 AND b = 2)", "NOT (a = 1 AND b = 2)"),
        ("((a)) AND ((b = 1))", "a AND b = 1"),
        ("(a = 1) = TRUE", "(a = 1) = TRUE"),
        ("$TIMESTAMP < now", "$timestamp < NOW"),
        ("$header.device_id = 'x'", "$header['device_id'] = 'x'"),
        ("\"$key\" = 1 AND $key = 'x'", "\"$key\" = 1 AND $key = 'x'"),
        ("stream = 1 AND time = 2 AND max = 3", "stream = 1 AND time = 2 AND max = 3"),
        ("größe > 1", "größe > 1"),
    ] {
        let read = plan(&format!("SELECT * FROM STREAM() WHERE {condition}"));
        assert_eq!(read.to_string(), format!("SELECT * FROM STREAM() WHERE {canonical}"));
        assert_eq!(plan(&read.to_string()), read);
    }
    for whole in [
        "SELECT * FROM STREAM()",
        "SELECT * FROM STREAM(MAX, TIME) LIMIT 5",
        "SELECT a, b.c AS \"from\" FROM \"telemetry.acme\" WHERE a = 1",
    ] {
        assert_eq!(plan(whole).to_string(), whole);
    }
}

#[test]
fn a_refusal_names_the_place_the_fault_and_a_suggestion() {
    let from = "SELECT * FROM STREAM()";
    for (text, line, column, message, suggestion) in [
        ("", 1, 1, "expected SELECT, found the end", None),
        ("SELCT * FROM STREAM()", 1, 1, "expected SELECT, found 'SELCT'", Some("SELECT")),
        ("SELECT * FORM STREAM()", 1, 10, "expected ',' or FROM, found 'FORM'", Some("FROM")),
        ("SELECT a b FROM STREAM()", 1, 10, "expected ',', AS or FROM, found 'b'", None),
        ("SELECT *\nFROM STREAM()\n  WEHRE a = 1", 3, 3, "found 'WEHRE'", Some("WHERE")),
        ("SELECT * FROM STREAM() WHERE a = 1 ADN b = 2", 1, 36, "found 'ADN'", Some("AND")),
        ("SELECT * FROM STREAM(10, TIEM)", 1, 26, "expected TIME, found 'TIEM'", Some("TIME")),
        ("SELECT * FROM STREAM(10, RECORD)", 1, 26, "use LIMIT", None),
        ("SELECT * FROM STREAM(0, TIME)", 1, 22, "whole milliseconds from 1", None),
        ("SELECT * FROM STREEM()", 1, 15, "expected STREAM", Some("STREAM")),
        ("SELECT * FROM 'x'", 1, 15, "in double quotes", None),
        ("SELECT * FROM STREAM() WHERE $kye = 'a'", 1, 30, "there is no $kye", Some("$key")),
        ("SELECT * FROM STREAM() WHERE a = 'open", 1, 34, "the closing ' of this text is missing", None),
        ("SELECT * FROM STREAM() WHERE a ~ 1", 1, 32, "the character '~' has no meaning here", None),
        ("SELECT * FROM STREAM() WHERE a = 1x", 1, 34, "put a name in double quotes", None),
        ("SELECT * FROM STREAM() WHERE a", 0, 0, "", None),
        ("SELECT * FROM STREAM() WHERE 1", 1, 30, "expected a condition, found a number", None),
        ("SELECT * FROM STREAM() WHERE a = 1 AND 'x'", 1, 40, "expected a condition, found a text", None),
        ("SELECT * FROM STREAM() WHERE a < b < c", 1, 36, "comparisons do not chain", None),
        ("SELECT * FROM STREAM() WHERE $key = 5", 1, 30, "a text is never comparable with a number", None),
        ("SELECT * FROM STREAM() WHERE a = 1e999", 1, 34, "beyond the largest double", None),
        ("SELECT * FROM STREAM() WHERE a = 9223372036854775808L", 1, 34, "not a 64-bit integer", None),
        ("SELECT * FROM STREAM() WHERE a RLIKE '(?=x)'", 1, 38, "not a regular expression of linear time", None),
        ("SELECT * FROM STREAM() WHERE a RLIKE '(x)\\1'", 1, 38, "not a regular expression of linear time", None),
        ("SELECT * FROM STREAM() WHERE a RLIKE '(?<=x)y'", 1, 38, "not a regular expression of linear time", None),
        ("SELECT * FROM STREAM() WHERE a RLIKE ANY ['x', '(?!y)z']", 1, 48, "not a regular expression of linear", None),
        ("SELECT * FROM STREAM() WHERE a RLIKE '(x'", 1, 38, "not a regular expression", None),
        ("SELECT * FROM STREAM() WHERE a RLIKE 'x)|(y'", 1, 38, "not a regular expression", None),
        ("SELECT * FROM STREAM() WHERE a RLIKE '(x{999}){999}'", 1, 38, "size limit", None),
        ("SELECT * FROM STREAM() WHERE a IN ()", 1, 36, "expected a field", None),
        ("SELECT * FROM STREAM() WHERE a IS 1", 1, 35, "expected NULL or NOT NULL", None),
        ("SELECT a, b AS a FROM STREAM()", 1, 11, "two selected fields are called 'a'", None),
        ("SELECT a AS limit FROM STREAM()", 1, 13, "LIMIT is a reserved word", None),
        ("SELECT a[ FROM STREAM()", 1, 11, "FROM is a reserved word", None),
        ("SELECT a[1 FROM STREAM()", 1, 12, "expected ']'", None),
        ("SELECT $header FROM STREAM()", 1, 16, "the header's name", None),
        ("SELECT * FROM STREAM() LIMIT 0", 1, 30, "a whole number of rows from 1", None),
        ("SELECT 'x' FROM STREAM()", 0, 0, "", None),
        ("SELECT * FROM STREAM() LIMIT 5 LIMIT 6", 1, 32, "expected the end of the query", None),
        ("SELECT *, a, * FROM STREAM()", 1, 14, "* is all members already", None),
        ("SELECT *, COUNT(*) FROM STREAM()", 1, 8, "* is whole records and no value of a group", None),
        ("SELECT *, TOP(3, a) FROM STREAM()", 1, 8, "* is whole records and no value of a group", None),
    ] {
        if line == 0 {
            plan(text);
            continue;
        }
        let refusal = refusal(text);
        assert_eq!((refusal.place.line, refusal.place.column), (line, column), "{text}: {refusal}");
        assert!(refusal.message.contains(message), "{text}: {refusal}");
        assert_eq!(refusal.suggestion.as_deref(), suggestion, "{text}");
        assert!(text[refusal.place.byte..].starts_with(refusal.found.trim_end_matches('…')), "{text}");
    }
    assert!(plan(from).filter.is_none());
}

#[test]
fn unsupported_clauses_are_refused_by_name_at_their_place() {
    for (text, column, what) in [
        ("SELECT * FROM (SELECT * FROM STREAM())", 15, "a query within a query"),
        ("SELECT * FROM STREAM() LATERAL VIEW EXPLODE(a) AS b", 24, "LATERAL VIEW"),
        ("SELECT * FROM STREAM() WINDOWING EVERY(1, TIME, FIRST, 5, TIME)", 56, "a window of the first records"),
    ] {
        let refusal = refusal(text);
        assert_eq!(refusal.place.column, column, "{text}: {refusal}");
        assert!(refusal.message.starts_with(what), "{text}: {refusal}");
        assert!(refusal.message.ends_with("is not there yet"), "{text}: {refusal}");
    }
}

#[test]
fn windows_have_one_canonical_text_that_reads_back_as_the_same_plan() {
    for (window, canonical) in [
        ("every(1000, time, last, 3000, time)", "EVERY(1000, TIME, LAST, 3000, TIME)"),
        ("EVERY(5, TIME, LAST, 5, TIME)", "TUMBLING(5, TIME)"),
        ("EVERY(1, RECORD, LAST, 10, RECORD)", "EVERY(1, RECORD, LAST, 10, RECORD)"),
        ("SESSION(30000, TIME)", "SESSION(30000, TIME)"),
        ("TUMBLING(1, DAY)", "TUMBLING(1, DAY, 'UTC')"),
        ("TUMBLING(2, week, 'europe/berlin')", "TUMBLING(2, WEEK, 'Europe/Berlin')"),
        ("TUMBLING(14, DAY)", "TUMBLING(2, WEEK, 'UTC')"),
        ("TUMBLING(1, MONTH)", "TUMBLING(1, MONTH, 'UTC')"),
        ("TUMBLING(6, MONTH)", "TUMBLING(2, QUARTER, 'UTC')"),
        ("TUMBLING(1, YEAR, 'Asia/Kolkata')", "TUMBLING(1, YEAR, 'Asia/Kolkata')"),
        ("TUMBLING(5, TIME) ON at", "TUMBLING(5, TIME) ON at DELAY 0"),
        (
            "SESSION(5, TIME) on CAST(\"a b\" AS LONG) * 1000 delay 20",
            "SESSION(5, TIME) ON CAST(\"a b\" AS LONG) * 1000 DELAY 20",
        ),
        (
            "EVERY(1, TIME, LAST, 2, TIME) ON $timestamp DELAY 5 LIMIT 3",
            "EVERY(1, TIME, LAST, 2, TIME) ON $timestamp DELAY 5 LIMIT 3",
        ),
    ] {
        let read = plan(&format!("SELECT COUNT(*) AS n FROM STREAM() WINDOWING {window}"));
        let text = read.to_string();
        assert_eq!(text, format!("SELECT COUNT(*) AS n FROM STREAM() WINDOWING {canonical}"), "{window}");
        assert_eq!(plan(&text), read, "{window}");
    }
}

#[test]
fn windows_that_cannot_be_are_refused_at_their_place() {
    for (window, column, message, suggestion) in [
        ("SLIDING(5, TIME)", 1, "windows that overlap are EVERY(n, TIME, LAST, m, TIME)", None),
        ("SESION(5, TIME)", 1, "expected TUMBLING, EVERY or SESSION", Some("SESSION")),
        ("SESSION(5, RECORD)", 9, "a session ends after a pause, which is a TIME", None),
        ("SESSION(0, TIME)", 9, "expected a whole number from 1", None),
        (
            "EVERY(10, TIME, LAST, 5, TIME)",
            23,
            "records between two windows would be lost; let the size be at least 10",
            None,
        ),
        ("EVERY(10, TIME, LAST, 5, RECORD)", 23, "both of TIME or both of RECORD", None),
        ("EVERY(1, TIME, LAST, 1441, TIME)", 22, "at most 1,440 parts", None),
        ("EVERY(999, TIME, LAST, 1442, TIME)", 24, "these are 1442", None),
        ("TUMBLING(1, HOUR)", 13, "expected TIME, RECORD, DAY", None),
        ("TUMBLING(1, DAY, 'Europe/Berlln')", 18, "there is no time zone 'Europe/Berlln'", Some("Europe/Berlin")),
        ("TUMBLING(1, DAY, Berlin)", 18, "a time zone such as 'Europe/Berlin'", None),
        ("TUMBLING(70000, DAY)", 10, "beyond 65535 days or months", None),
        ("TUMBLING(9999999999999999, TIME)", 10, "at most 100000000000000 milliseconds", None),
        ("TUMBLING(5, RECORD) ON at", 21, "leave ON out", None),
        ("EVERY(1, RECORD, LAST, 5, RECORD) ON at", 35, "leave ON out", None),
        ("EVERY(5, TIME, ALL) ON at", 21, "whatever their times; leave ON out", None),
        ("TUMBLING(5, TIME) ON a > 1", 22, "this is a condition", None),
        ("TUMBLING(5, TIME) ON COUNT(*)", 22, "aggregate", None),
        ("TUMBLING(5, TIME) ON at DELAY -1", 31, "whole milliseconds from 0", None),
        ("TUMBLING(5, TIME) IN at", 19, "expected ON, LIMIT or the end of the query", Some("ON")),
    ] {
        let before = "SELECT COUNT(*) FROM STREAM() WINDOWING ";
        let refusal = refusal(&format!("{before}{window}"));
        assert_eq!(refusal.place.column - before.len(), column, "{window}: {refusal}");
        assert!(refusal.message.contains(message), "{window}: {refusal}");
        assert_eq!(refusal.suggestion.as_deref(), suggestion, "{window}: {refusal}");
    }
}

#[test]
fn every_clause_has_one_canonical_text_that_reads_back_as_the_same_plan() {
    for (text, canonical) in [
        ("select distinct a, b.c from stream()", "SELECT DISTINCT a, b.c FROM STREAM()"),
        (
            "SELECT count(*), COUNT(a), sum(a), avg(b.c) AS m, MIN(a), max(a) FROM STREAM()",
            "SELECT COUNT(*), COUNT(a), SUM(a), AVG(b.c) AS m, MIN(a), MAX(a) FROM STREAM()",
        ),
        (
            "SELECT COUNT(distinct a, b) AS n, a > 1 FROM STREAM() GROUP BY a > 1",
            "SELECT COUNT(DISTINCT a, b) AS n, a > 1 FROM STREAM() GROUP BY a > 1",
        ),
        (
            "SELECT a AS x, COUNT(*) AS c FROM STREAM() GROUP BY x HAVING c > 5 AND x != 'y' ORDER BY c DESC, x ASC LIMIT 3",
            "SELECT a AS x, COUNT(*) AS c FROM STREAM() GROUP BY x HAVING COUNT(*) > 5 AND a != 'y' ORDER BY c DESC, x LIMIT 3",
        ),
        ("SELECT a AS b, b AS a, COUNT(*) AS c FROM STREAM() GROUP BY \"a\", b.c, b, a HAVING a = 1 ORDER BY a, b", ""),
        (
            "SELECT a.b, MAX(c) FROM STREAM() GROUP BY a.b, a.b ORDER BY MAX(c), a.b",
            "SELECT a.b, MAX(c) FROM STREAM() GROUP BY a.b ORDER BY MAX(c), a.b",
        ),
        ("SELECT a AS b, b AS a FROM STREAM() ORDER BY a", "SELECT a AS b, b AS a FROM STREAM() ORDER BY a"),
        (
            "SELECT a FROM STREAM() GROUP BY a HAVING MIN(b) < 1 WINDOWING EVERY(5, TIME, FIRST, 5, TIME)",
            "SELECT a FROM STREAM() GROUP BY a HAVING MIN(b) < 1 WINDOWING TUMBLING(5, TIME)",
        ),
        (
            "SELECT COUNT(*) FROM STREAM() WINDOWING every(7, record, all) LIMIT 1;",
            "SELECT COUNT(*) FROM STREAM() WINDOWING EVERY(7, RECORD, ALL) LIMIT 1",
        ),
        (
            "SELECT * FROM STREAM() WINDOWING TUMBLING(10, RECORD)",
            "SELECT * FROM STREAM() WINDOWING TUMBLING(10, RECORD)",
        ),
        ("SELECT quantile(a, linear, 11) FROM STREAM()", "SELECT QUANTILE(a, LINEAR, 11) FROM STREAM()"),
        ("SELECT FREQ(a, REGION, -1, 2.5, 0.5) FROM STREAM()", "SELECT FREQ(a, REGION, -1.0, 2.5, 0.5) FROM STREAM()"),
        (
            "SELECT CUMFREQ(a, MANUAL, 1, -2) AS x FROM STREAM()",
            "SELECT CUMFREQ(a, MANUAL, 1.0, -2.0) AS x FROM STREAM()",
        ),
        ("SELECT b AS y, TOP(5, 2, a, b) AS n FROM STREAM()", "SELECT TOP(5, 2, a, b AS y) AS n FROM STREAM()"),
        (
            "SELECT TOP(5, a AS x) FROM STREAM() WINDOWING TUMBLING(1, TIME)",
            "SELECT TOP(5, a AS x) FROM STREAM() WINDOWING TUMBLING(1, TIME)",
        ),
    ] {
        let read = plan(text);
        if !canonical.is_empty() {
            assert_eq!(read.to_string(), canonical);
        }
        assert_eq!(plan(&read.to_string()), read, "{text}");
    }
}

#[test]
fn a_plan_tells_its_keys_aggregates_and_columns() {
    let grouped = plan("SELECT a AS x, COUNT(*), SUM(b) FROM STREAM() GROUP BY a HAVING COUNT(*) > 1 ORDER BY MAX(b)");
    let texts = |parts: Vec<&Aggregate>| parts.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(grouped.aggregates()), ["COUNT(*)", "SUM(b)", "MAX(b)"]);
    assert_eq!(grouped.keys().iter().map(ToString::to_string).collect::<Vec<_>>(), ["a"]);
    assert_eq!(grouped.columns(), ["x", "COUNT(*)", "SUM(b)"]);
    assert!(!grouped.is_raw());
    let distinct = plan("SELECT DISTINCT a, b.c AS y FROM STREAM()");
    assert_eq!(distinct.keys().iter().map(ToString::to_string).collect::<Vec<_>>(), ["a", "b.c"]);
    assert_eq!(distinct.columns(), ["a", "y"]);
    assert_eq!(plan("SELECT TOP(2, a, b.c AS y) FROM STREAM()").columns(), ["a", "y", "Count"]);
    assert_eq!(plan("SELECT QUANTILE(a, LINEAR, 3) FROM STREAM()").columns(), ["Quantile", "Value"]);
    assert!(plan("SELECT a, b > 1 FROM STREAM() WINDOWING TUMBLING(5, RECORD)").is_raw());
}

#[test]
fn clauses_that_contradict_each_other_are_refused() {
    for (text, column, message) in [
        ("SELECT * FROM STREAM() GROUP BY a", 8, "* is whole records"),
        ("SELECT DISTINCT * FROM STREAM()", 8, "* is whole records"),
        ("SELECT DISTINCT a, COUNT(*) FROM STREAM()", 8, "DISTINCT stands without"),
        ("SELECT DISTINCT a FROM STREAM() ORDER BY b", 42, "b may differ within a group"),
        ("SELECT a, COUNT(*) FROM STREAM()", 8, "a may differ within a group; add it to GROUP BY"),
        ("SELECT temp, COUNT(*) FROM STREAM() GROUP BY tmep", 8, "temp may differ"),
        (
            "SELECT c, a + b AS x, COUNT(*), a FROM STREAM() GROUP BY c HAVING d > 1 ORDER BY b",
            11,
            "a, b, d may differ within a group; add them to GROUP BY or aggregate them, as in MAX(a)",
        ),
        ("SELECT a FROM STREAM() HAVING a > 1", 24, "HAVING chooses among groups"),
        ("SELECT a FROM STREAM() WHERE COUNT(*) > 1", 30, "WHERE chooses records"),
        ("SELECT a FROM STREAM() GROUP BY MAX(a)", 33, "groups are made by values"),
        ("SELECT MAX(a) AS m FROM STREAM() GROUP BY m", 43, "this name stands for an aggregate"),
        ("SELECT SUM(MAX(a)) FROM STREAM()", 12, "an aggregate is of values"),
        ("SELECT SUM(a > 1) FROM STREAM()", 12, "SUM is of numbers; this is a condition"),
        ("SELECT SUM(DISTINCT a) FROM STREAM()", 12, "only COUNT takes DISTINCT"),
        ("SELECT COUNT(*) FROM STREAM() HAVING 5", 38, "expected a condition"),
        ("SELECT a, TOP(5, b) FROM STREAM()", 8, "beside TOP stand only"),
        ("SELECT QUANTILE(a, LINEAR, 3), TOP(5, b) FROM STREAM()", 32, "a query has one"),
        ("SELECT TOP(5, b) > 3 FROM STREAM()", 8, "give rows and no value"),
        ("SELECT TOP(5, b) FROM STREAM() GROUP BY b", 32, "leave GROUP BY out"),
        ("SELECT TOP(5, b) FROM STREAM() LIMIT 3", 32, "leave LIMIT out"),
        ("SELECT TOP(0, b) FROM STREAM()", 12, "how many to tell"),
        ("SELECT TOP(5, b, c AS b) FROM STREAM()", 18, "two selected fields are called 'b'"),
        ("SELECT TOP(5, b, c) , c AS b FROM STREAM()", 8, "two selected fields are called 'b'"),
        ("SELECT QUANTILE(a, LINEAR, 0) FROM STREAM()", 28, "a whole number of points"),
        ("SELECT QUANTILE(a, LINEAR, 201) FROM STREAM()", 20, "query.limits.points_max = 200"),
        ("SELECT QUANTILE(a, MANUAL, 0.5, 1.5) FROM STREAM()", 20, "ranks from 0 to 1"),
        ("SELECT FREQ(a, REGION, 2, 1, 1) FROM STREAM()", 27, "a region ends"),
        ("SELECT FREQ(a, REGION, 1, 2, 0) FROM STREAM()", 30, "above 0"),
        ("SELECT FREQ(a, REGION, 0, 1e300, 1e-300) FROM STREAM()", 16, "query.limits.points_max"),
        ("SELECT FREQ(a) FROM STREAM()", 14, "expected ','"),
        ("SELECT * FROM STREAM() WINDOWING EVERY(5, TIME, ALL)", 24, "all rows again and again"),
        ("SELECT * FROM STREAM() WINDOWING TUMBLING(0, TIME)", 43, "a whole number from 1"),
        ("SELECT * FROM STREAM() ORDER BY a WHERE b", 35, "expected WINDOWING, LIMIT or the end"),
        (
            "SELECT LAG(a) FROM STREAM()",
            8,
            "LAG looks back at the records of a key; it stands in the select list of a map",
        ),
        ("SELECT a FROM STREAM() WHERE CHANGED(a)", 30, "CHANGED looks back at the records of a key"),
        ("SELECT MAX(RUNNING_SUM(a)) FROM STREAM()", 12, "RUNNING_SUM looks back at the records of a key"),
        ("SELECT CONT(*) FROM STREAM()", 8, "there is no function CONT"),
    ] {
        let refusal = refusal(text);
        assert!(refusal.message.contains(message), "{text}: {refusal}");
        assert_eq!(refusal.place.column, column, "{text}: {refusal}");
    }
    assert_eq!(refusal("SELECT temp, COUNT(*) FROM STREAM() GROUP BY tmep").suggestion.as_deref(), Some("tmep"));
    assert_eq!(refusal("SELECT CONT(*) FROM STREAM()").suggestion.as_deref(), Some("COUNT"));
}

#[test]
fn limits_are_named_when_they_are_passed() {
    let limits = ParserLimits {
        text_max_bytes: 300,
        depth_max: 3,
        path_max_steps: 3,
        list_max: 2,
        items_max: 2,
        ..ParserLimits::default()
    };
    for (text, key) in [
        (format!("SELECT * FROM STREAM() WHERE a = '{}'", "x".repeat(300)), "text_max_bytes = 300"),
        ("SELECT * FROM STREAM() WHERE ((((a = 1))))".to_owned(), "depth_max = 3"),
        ("SELECT * FROM STREAM() WHERE NOT NOT NOT NOT a".to_owned(), "depth_max = 3"),
        ("SELECT a.b.c.d FROM STREAM()".to_owned(), "path_max_steps = 3"),
        ("SELECT * FROM STREAM() WHERE a IN (1, 2, 3)".to_owned(), "list_max = 2"),
        ("SELECT a, b, c FROM STREAM()".to_owned(), "items_max = 2"),
    ] {
        let refusal = parse(&text, &limits).expect_err(&text).remove(0);
        assert!(refusal.message.contains(&format!("query.limits.{key}")), "{text}: {refusal}");
    }
    let wide = format!("SELECT * FROM STREAM() WHERE {}", vec!["a = 1"; 5000].join(" OR "));
    plan(&wide);
}

#[test]
fn random_queries_display_as_texts_that_read_back_as_the_same_plan() {
    let mut random = common::Random::from_seed();
    for _ in 0..5000 {
        let text = common::query(&mut random);
        let read = plan(&text);
        assert_eq!(plan(&read.to_string()), read, "{text}");
    }
}

#[test]
fn no_text_makes_the_parser_panic() {
    let mut random = common::Random::from_seed();
    let alphabet: Vec<char> = "aZ_$09.,()[]<>=!*'\"-+/%:;|\\ \n\té😀\u{0}LFeE".chars().collect();
    for _ in 0..20_000 {
        let text: String = if random.one_in(2) {
            (0..random.below(60)).map(|_| alphabet[random.below(alphabet.len())]).collect()
        } else {
            let text = if random.one_in(2) { common::query(&mut random) } else { common::statement(&mut random) };
            let mut text: Vec<char> = text.chars().collect();
            for _ in 0..=random.below(4) {
                let at = random.below(text.len() + 1);
                match random.below(3) {
                    0 => text.truncate(at),
                    1 => text.insert(at, alphabet[random.below(alphabet.len())]),
                    _ => drop(text.drain(at..(at + 3).min(text.len()))),
                }
            }
            text.into_iter().collect()
        };
        if let Err(wrong) = parse(&text, &ParserLimits::default()) {
            for diagnostic in wrong {
                assert!(text.is_char_boundary(diagnostic.place.byte), "{text}");
                assert!(!diagnostic.message.is_empty(), "{text}");
            }
        }
    }
}
