//! Matching of records and the content of their rows: by table, and against a slow evaluator over a JSON tree.

use std::cmp::Ordering;
use std::sync::Arc;

use millstream_query::{
    Comparison, Compiled, Expr, Field, Literal, Matcher, Matches, ParserLimits, PathStep, QueryPlan, Tally, parse,
};
use millstream_types::{BatchBuilder, Compression, Epoch, Header, Offset, PartitionId, Record, RecordBatch};
use serde_json::Value;

use crate::common;

fn plan(text: &str) -> QueryPlan {
    parse(text, &ParserLimits::default()).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"))
}

/// A record of the tests: key, value of the header `h`, payload.
type Sample = (Option<&'static str>, Option<&'static str>, Option<Vec<u8>>);

fn batch(samples: &[Sample]) -> RecordBatch {
    let mut builder = BatchBuilder::default();
    for (i, (key, header, payload)) in samples.iter().enumerate() {
        let headers: Vec<Header<'_>> =
            header.iter().map(|value| Header { key: "h", value: Some(value.as_bytes()) }).collect();
        builder.push(&Record {
            timestamp_ms: 1000 + i as i64,
            key: key.map(str::as_bytes),
            value: payload.as_deref(),
            headers: &headers,
        });
    }
    builder.seal(Offset(0), Epoch(0), Compression::None)
}

fn payloads(texts: &[&str]) -> RecordBatch {
    let samples: Vec<Sample> = texts.iter().map(|text| (None, None, Some(text.as_bytes().to_vec()))).collect();
    batch(&samples)
}

struct QueryAnswer {
    rows: Vec<String>,
    errors: u64,
    tally: Tally,
}

fn row_texts(yielded: &Matches) -> Vec<String> {
    yielded.rows.rows().map(|row| String::from_utf8(row.to_vec()).unwrap()).collect()
}

fn ask(text: &str, batch: &RecordBatch) -> QueryAnswer {
    let mut matcher = Matcher::default();
    matcher.insert(Arc::new(Compiled::new(&plan(text))), ());
    let tally = matcher.run(batch, PartitionId(3), Offset(0), 5000).unwrap();
    let mut answer = QueryAnswer { rows: Vec::new(), errors: 0, tally };
    matcher.drain(|_, (), yielded| {
        answer.rows.extend(row_texts(&yielded));
        answer.errors += yielded.evaluation_errors;
    });
    answer
}

fn matches(condition: &str, payload: &str) -> bool {
    let batch = payloads(&[payload]);
    ask(&format!("SELECT * FROM STREAM() WHERE {condition}"), &batch).rows.len() == 1
}

#[test]
fn only_true_passes_and_null_spreads_as_kleene_says() {
    for (condition, payload, expected) in [
        ("a = 1", r#"{"a":1}"#, true),
        ("a = 1", r#"{"a":1.0}"#, true),
        ("a = 1", r#"{"a":"1"}"#, false),
        ("a != 1", r#"{"a":"1"}"#, false),
        ("NOT a = 1", r#"{"a":"1"}"#, false),
        ("a != 1", r#"{}"#, false),
        ("NOT a = 1", r#"{}"#, false),
        ("a = 1 OR b = 2", r#"{"b":2}"#, true),
        ("a = 1 AND b = 2", r#"{"b":2}"#, false),
        ("NOT (a = 1 AND b = 2)", r#"{"b":3}"#, true),
        ("a IN (1, NULL)", r#"{"a":1}"#, true),
        ("a NOT IN (1, NULL)", r#"{"a":2}"#, false),
        ("a NOT IN (1, 2)", r#"{"a":3}"#, true),
        ("a NOT IN (1, 'x')", r#"{"a":3}"#, false),
        ("a = NULL", r#"{"a":null}"#, false),
        ("a IS NULL", r#"{"a":null}"#, true),
        ("a IS NULL", r#"{}"#, true),
        ("a IS NULL", r#"{"a":{}}"#, false),
        ("(a = 1) IS NULL", r#"{"a":"x"}"#, true),
        ("a", r#"{"a":true}"#, true),
        ("NOT a", r#"{"a":false}"#, true),
        ("NOT a", r#"{"a":0}"#, false),
        ("a = 9007199254740993", r#"{"a":9007199254740992.0}"#, false),
        ("a = 9007199254740993", r#"{"a":9007199254740993}"#, true),
        ("a > 9007199254740992.0", r#"{"a":9007199254740993}"#, true),
        ("a < 'é'", r#"{"a":"z"}"#, true),
        ("a = '\"/é'", r#"{"a":"\"\/\u00e9"}"#, true),
        ("\"a\"\"b\" = 1", r#"{"a\u0022b":1}"#, true),
        ("a BETWEEN (1, 2)", r#"{"a":2}"#, true),
        ("a BETWEEN (1, 2)", r#"{"a":2.5}"#, false),
        ("a RLIKE 'b+'", r#"{"a":"bb"}"#, true),
        ("a RLIKE 'b+|x'", r#"{"a":"xx"}"#, false),
        ("a.b = 1", r#"{"a":7}"#, false),
        ("a.b = 1 OR c = 2", r#"{"a":7,"c":2}"#, true),
        ("a[0] = 1 OR a.b = 1", r#"{"a":{"b":1}}"#, true),
        ("a[0] = 1 OR a.b = 1", r#"{"a":[1]}"#, true),
        ("a = b", r#"{"a":1,"b":1e0}"#, true),
        ("a = b", r#"{"a":[],"b":[]}"#, false),
        ("$timestamp < NOW AND $offset = 0 AND $partition = 3", r#"{}"#, true),
        ("$timestamp > NOW", r#"{}"#, false),
    ] {
        assert_eq!(matches(condition, payload), expected, "{condition} {payload}");
    }
}

#[test]
fn rows_keep_the_bytes_of_the_payload_and_of_its_values() {
    let odd = r#" { "a" : 1.50, "b":{ "c" : [1 , "\u0078"]} ,"d":"\/"} "#;
    let samples = [(Some("k\"1"), Some("v"), Some(odd.as_bytes().to_vec()))];
    for (select, row) in [
        ("*", odd.trim()),
        ("a, b, b.c[1], d, e", r#"{"a":1.50,"b":{ "c" : [1 , "\u0078"]},"b.c[1]":"\u0078","d":"\/","e":null}"#),
        ("$key, $header.h AS h, $header.none AS n", r#"{"$key":"k\"1","h":"v","n":null}"#),
        ("$timestamp AS t, $offset AS o, $partition AS p", r#"{"t":1000,"o":0,"p":3}"#),
        ("a AS \"say \"\"a\"\"\"", r#"{"say \"a\"":1.50}"#),
    ] {
        let answer = ask(&format!("SELECT {select} FROM STREAM()"), &batch(&samples));
        assert_eq!(answer.rows, [row], "{select}");
    }
}

#[test]
fn whole_records_stand_beside_their_key_and_other_selected_columns() {
    for (select, payload, row) in [
        ("$key, *", r#"{"a":1, "b":{"c":2.50}}"#, r#"{"$key":"k","a":1, "b":{"c":2.50}}"#),
        ("*, a + 1 AS next", r#" {"a":1} "#, r#"{"next":2,"a":1}"#),
        ("$key AS device, *, $offset", "{}", r#"{"device":"k","$offset":0}"#),
        ("$key, *", "{ }", r#"{"$key":"k"}"#),
        ("$key, *", "[1]", r#"{"$key":"k","payload":[1]}"#),
        ("$key, *", "oops", r#"{"$key":"k","payload":"oops"}"#),
    ] {
        let samples = [(Some("k"), None, Some(payload.as_bytes().to_vec()))];
        let text = format!("SELECT {select} FROM STREAM()");
        assert_eq!(ask(&text, &batch(&samples)).rows, [row], "{select} {payload}");
        assert!(plan(&text).columns().is_empty(), "what the payload holds is not known before");
        assert_eq!(plan(&plan(&text).to_string()), plan(&text));
    }
}

#[test]
fn a_payload_that_is_not_json_has_no_fields_and_is_counted() {
    let broken = r#"{"a":1,"b":2,}"#;
    for (condition, payload, expected, not_json) in [
        ("a = 1", broken, false, 1),
        ("a = 2", broken, false, 0),
        ("a = 1 AND c = 1", broken, false, 1),
        ("z = 1", broken, false, 0),
        ("z IS NULL", broken, true, 1),
        ("a IS NULL", broken, true, 1),
        ("a = 1 AND z IS NULL", broken, false, 1),
        ("a = 1 OR $partition = 3", broken, true, 1),
        ("$partition = 3", "no json", true, 1),
        ("a IS NULL", "[1]", true, 0),
        ("a IS NULL", "", true, 1),
        ("a IS NULL", "{\"a\":\"\u{1}\"}", true, 1),
        ("a = 1", "no json", false, 1),
        ("z = 1", "no json", false, 1),
        ("z = 1", r#"{"a":1,"b":"#, false, 1),
        ("z = 1", r#"[1,"}"#, false, 1),
        ("z = 1", "", false, 1),
        ("z = 1", "\u{ff}", false, 1),
        ("z = 1", " 7 ", false, 0),
        ("z = 1", r#""text""#, false, 0),
    ] {
        let answer = ask(&format!("SELECT * FROM STREAM() WHERE {condition}"), &payloads(&[payload]));
        assert_eq!(answer.rows.len() == 1, expected, "{condition} {payload}");
        assert_eq!(answer.tally.not_json, not_json, "{condition} {payload}");
    }
    let opaque = [(None, None, Some(b"a\"b".to_vec())), (None, None, Some(vec![0xff, 0])), (None, None, None)];
    let answer = ask("SELECT * FROM STREAM()", &batch(&opaque));
    assert_eq!(answer.rows, [r#""a\"b""#, r#"{"$base64":"/wA="}"#, "null"]);
    assert_eq!(answer.tally, Tally { records: 3, not_json: 2, evaluations: 0 });
}

#[test]
fn one_query_never_changes_the_result_of_another_for_a_damaged_payload() {
    let batch = payloads(&[r#"{"id":"x","v":1}"#, r#"{"id":"x","v":1"#, r#"{"id":"x" "v":1}"#]);
    let texts = ["id = 'x'", "v = 1", "zzz = 1", "id = 'x' AND v IS NULL", "id IS NULL", "id = 'x' AND v = 1"];
    let alone: Vec<usize> =
        texts.iter().map(|text| ask(&format!("SELECT * FROM STREAM() WHERE {text}"), &batch).rows.len()).collect();
    assert_eq!(alone, [1, 1, 0, 0, 2, 1]);
    let mut matcher = Matcher::default();
    for (i, text) in texts.iter().enumerate() {
        matcher.insert(Arc::new(Compiled::new(&plan(&format!("SELECT * FROM STREAM() WHERE {text}")))), i);
    }
    matcher.run(&batch, PartitionId(0), Offset(0), 0).unwrap();
    let mut together = vec![0; texts.len()];
    matcher.drain(|_, i, yielded| together[*i] = yielded.rows.row_count());
    assert_eq!(together, alone);
}

#[test]
fn a_value_that_cannot_be_read_is_an_error_of_its_record_only() {
    let batch = payloads(&[r#"{"a":1e999}"#, r#"{"a":"\ud800"}"#, r#"{"a":2}"#]);
    let answer = ask("SELECT * FROM STREAM() WHERE a != 1", &batch);
    assert_eq!((answer.rows, answer.errors), (vec![r#"{"a":2}"#.to_owned()], 2));
    // The index knows that it is no number above 1.
    let answer = ask("SELECT * FROM STREAM() WHERE a > 1", &batch);
    assert_eq!((answer.rows, answer.errors), (vec![r#"{"a":2}"#.to_owned()], 0));
    let keys = [(None, None, Some(b"{}".to_vec()))];
    assert_eq!(ask("SELECT * FROM STREAM() WHERE $key > 'a'", &self::batch(&keys)).errors, 0);
}

#[test]
fn records_before_the_start_are_not_seen() {
    let mut matcher = Matcher::default();
    matcher.insert(Arc::new(Compiled::new(&plan("SELECT $offset FROM STREAM()"))), ());
    let batch = payloads(&["{}", "{}", "{}"]);
    let tally = matcher.run(&batch, PartitionId(0), Offset(1), 0).unwrap();
    assert_eq!(tally.records, 2);
    matcher
        .drain(|_, (), yielded| assert_eq!(format!("{:?}", yielded.rows), r#"["{\"$offset\":1}", "{\"$offset\":2}"]"#));
}

/// The evaluator that is obviously right: over a JSON tree, one expression and one record at a time.
struct Oracle<'a> {
    payload: Value,
    key: Option<&'a str>,
    header: Option<&'a str>,
}

impl Oracle<'_> {
    fn field(&self, field: &Field) -> Value {
        match field {
            Field::Payload(steps) => steps
                .iter()
                .try_fold(&self.payload, |value, step| match step {
                    PathStep::Key(name) => value.as_object()?.get(name),
                    PathStep::Index(index) => value.as_array()?.get(*index),
                })
                .cloned()
                .unwrap_or(Value::Null),
            Field::Key => self.key.map_or(Value::Null, Value::from),
            Field::Header(_) => self.header.map_or(Value::Null, Value::from),
            other => panic!("{other}"),
        }
    }

    fn value(&self, expr: &Expr) -> Value {
        match expr {
            Expr::Literal(Literal::Null) => Value::Null,
            Expr::Literal(Literal::Boolean(value)) => (*value).into(),
            Expr::Literal(Literal::Integer(value)) => (*value).into(),
            Expr::Literal(Literal::Double(value)) => (*value).into(),
            Expr::Literal(Literal::Text(value)) => value.clone().into(),
            Expr::Literal(Literal::Now) => 5000.into(),
            Expr::Field(field) => self.field(field),
            Expr::Coerce { to, value } => {
                let value = self.value(value);
                let fits = match to {
                    millstream_query::Type::Boolean => value.is_boolean(),
                    millstream_query::Type::Number => value.is_number(),
                    millstream_query::Type::Text => value.is_string(),
                    other => panic!("{other:?}"),
                };
                if fits { value } else { Value::Null }
            }
            Expr::Compare { comparison, left, right } => {
                let order = compare(&self.value(left), &self.value(right));
                order.map_or(Value::Null, |order| holds(*comparison, order).into())
            }
            Expr::In { value, list } => {
                let value = self.value(value);
                let equal = |item| compare(&value, &self.value(item)).map(|order| order == Ordering::Equal);
                or(list.iter().map(equal))
            }
            Expr::Rlike { value, pattern } => match self.value(value) {
                Value::String(text) => {
                    regex::Regex::new(&format!("^(?s-m:{})$", pattern.as_str())).unwrap().is_match(&text).into()
                }
                _ => Value::Null,
            },
            Expr::IsNull(value) => self.value(value).is_null().into(),
            Expr::Not(value) => self.value(value).as_bool().map_or(Value::Null, |truth| (!truth).into()),
            Expr::And(parts) => {
                let not: Vec<Option<bool>> = parts.iter().map(|part| self.value(part).as_bool().map(|t| !t)).collect();
                or(not.into_iter()).as_bool().map_or(Value::Null, |truth| (!truth).into())
            }
            Expr::Or(parts) => or(parts.iter().map(|part| self.value(part).as_bool())),
            other => panic!("{other}"),
        }
    }
}

fn or(parts: impl Iterator<Item = Option<bool>>) -> Value {
    let parts: Vec<Option<bool>> = parts.collect();
    if parts.contains(&Some(true)) {
        return true.into();
    }
    if parts.contains(&None) { Value::Null } else { false.into() }
}

fn holds(comparison: Comparison, order: Ordering) -> bool {
    match comparison {
        Comparison::Equal => order == Ordering::Equal,
        Comparison::NotEqual => order != Ordering::Equal,
        Comparison::Less => order == Ordering::Less,
        Comparison::LessOrEqual => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        Comparison::GreaterOrEqual => order != Ordering::Less,
    }
}

fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a.chars().cmp(b.chars())),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => Some(exact(a).cmp(&exact(b))),
        _ => None,
    }
}

/// The number in halves, exactly: every double of the samples is a multiple of one half below 2^65.
fn exact(number: &serde_json::Number) -> i128 {
    match number.as_i64() {
        Some(integer) => i128::from(integer) * 2,
        None => (number.as_f64().unwrap() * 2.0) as i128,
    }
}

const KEYS: [Option<&str>; 3] = [None, Some("x"), Some("y")];

fn samples(random: &mut common::Random, count: usize) -> Vec<Sample> {
    (0..count)
        .map(|_| (KEYS[random.below(3)], KEYS[random.below(3)], Some(common::record(random).into_bytes())))
        .collect()
}

fn expected(plan: &QueryPlan, samples: &[Sample]) -> Vec<usize> {
    let Some(filter) = &plan.filter else { return (0..samples.len()).collect() };
    let is_match = |(key, header, payload): &Sample| {
        let payload = serde_json::from_slice(payload.as_deref().unwrap()).unwrap();
        let oracle = Oracle { payload, key: *key, header: *header };
        let value = oracle.value(filter);
        value == Value::Bool(true)
    };
    samples.iter().enumerate().filter(|(_, sample)| is_match(sample)).map(|(i, _)| i).collect()
}

#[test]
fn random_queries_over_random_records_match_as_a_slow_evaluator_says() {
    let mut random = common::Random::from_seed();
    for _ in 0..100 {
        let samples = samples(&mut random, 40);
        let batch = batch(&samples);
        for _ in 0..60 {
            let filter = common::condition(&mut random, 3);
            let text = format!("SELECT $offset AS o FROM STREAM() WHERE {filter}");
            let rows: Vec<String> =
                expected(&plan(&text), &samples).iter().map(|offset| format!("{{\"o\":{offset}}}")).collect();
            assert_eq!(ask(&text, &batch).rows, rows, "{text}\n{samples:?}");
        }
    }
}

#[test]
fn queries_match_the_same_records_together_and_alone_while_they_come_and_go() {
    let mut random = common::Random::from_seed();
    let mut matcher: Matcher<(QueryPlan, usize)> = Matcher::default();
    let mut live = Vec::new();
    for round in 0..300 {
        for _ in 0..random.below(6) {
            let plan = plan(&common::query(&mut random));
            live.push((matcher.insert(Arc::new(Compiled::new(&plan)), (plan.clone(), round)), plan));
        }
        for _ in 0..random.below(5).min(live.len()) {
            let (id, plan) = live.swap_remove(random.below(live.len()));
            assert_eq!(matcher.remove(id).unwrap().0, plan);
        }
        assert_eq!(matcher.len(), live.len());
        let samples = samples(&mut random, 8);
        matcher.run(&batch(&samples), PartitionId(0), Offset(0), 5000).unwrap();
        let mut matched = std::collections::HashMap::new();
        matcher.drain(|id, _, yielded| matched.extend([(id, yielded.rows.row_count())]));
        for (id, plan) in &live {
            let expected = expected(plan, &samples).len();
            assert_eq!(matched.get(id).copied().unwrap_or(0), expected, "{plan}\n{samples:?}");
        }
    }
}

#[test]
fn the_index_matches_plain_evaluation_for_any_records() {
    let mut random = common::Random::from_seed();
    for _ in 0..60 {
        let texts: Vec<String> = (0..60).map(|_| common::wild_record(&mut random)).collect();
        let batch = payloads(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let filters: Vec<String> = (0..40).map(|_| common::condition(&mut random, 3)).collect();
        let mut together = Matcher::default();
        for (i, filter) in filters.iter().enumerate() {
            let text = format!("SELECT $offset AS o FROM STREAM() WHERE {filter}");
            together.insert(Arc::new(Compiled::new(&plan(&text))), i);
        }
        together.run(&batch, PartitionId(3), Offset(0), 5000).unwrap();
        let mut found = vec![Vec::new(); filters.len()];
        together.drain(|_, i, yielded| found[*i] = row_texts(&yielded));
        for (filter, found) in filters.iter().zip(found) {
            // A comparison of truths has no place in the index.
            let plain = ask(&format!("SELECT $offset AS o FROM STREAM() WHERE ({filter}) = TRUE"), &batch).rows;
            assert_eq!(found, plain, "{filter}\n{texts:#?}");
        }
    }
}

#[test]
fn queries_that_ask_the_same_share_their_rows_and_each_gets_them() {
    let mut matcher = Matcher::default();
    let texts = [
        "SELECT a FROM STREAM() WHERE a = 1",
        "SELECT a, b FROM STREAM() WHERE a = 1",
        "SELECT a FROM STREAM() WHERE a = 2",
    ];
    let ids: Vec<_> = (0..9).map(|i| matcher.insert(Arc::new(Compiled::new(&plan(texts[i % 3]))), i)).collect();
    assert_eq!(matcher.remove(ids[3]), Some(3));
    let batch = payloads(&[r#"{"a":1,"b":2}"#, r#"{"a":2}"#, r#"{"a":1}"#]);
    matcher.run(&batch, PartitionId(0), Offset(0), 0).unwrap();
    let (mut got, mut encoded) = (std::collections::BTreeMap::new(), std::collections::HashSet::new());
    matcher.drain(|_, i, yielded| {
        got.insert(*i, row_texts(&yielded));
        encoded.extend(yielded.rows.rows().next().map(<[u8]>::as_ptr));
    });
    assert_eq!(encoded.len(), 3, "equal rows are written once, and all who ask have the same bytes");
    let expected = [vec![r#"{"a":1}"#; 2], vec![r#"{"a":1,"b":2}"#, r#"{"a":1,"b":null}"#], vec![r#"{"a":2}"#]];
    assert_eq!(got.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 4, 5, 6, 7, 8]);
    got.iter().for_each(|(i, rows)| assert_eq!(*rows, expected[i % 3], "{i}"));
    assert_eq!(ids.into_iter().filter_map(|id| matcher.remove(id)).count(), 8);
    assert!(matcher.is_empty());
    matcher.run(&batch, PartitionId(0), Offset(0), 0).unwrap();
    matcher.drain(|_, i, _| panic!("{i} is gone"));
}

/// Conditions, some of which no index answers.
fn pool(random: &mut common::Random) -> Vec<String> {
    (0..6).map(|_| format!("({})", common::condition(random, 2))).collect()
}

/// Some of the conditions joined by AND, or now and then a new one.
fn of_pool(random: &mut common::Random, pool: &[String]) -> String {
    let mut parts: Vec<String> = (0..1 + random.below(3)).map(|_| pool[random.below(pool.len())].clone()).collect();
    if random.one_in(4) {
        parts.push(common::condition(random, 1));
    }
    parts.join(" AND ")
}

#[test]
fn filters_that_share_conditions_match_the_same_records_together_and_alone() {
    let mut random = common::Random::from_seed();
    let (mut shared, mut alone) = (0, 0);
    for _ in 0..40 {
        let pool = pool(&mut random);
        let mut matcher: Matcher<String> = Matcher::default();
        let mut live = Vec::new();
        for _ in 0..12 {
            for _ in 0..random.below(12) {
                let text = format!("SELECT $offset AS o FROM STREAM() WHERE {}", of_pool(&mut random, &pool));
                live.push((matcher.insert(Arc::new(Compiled::new(&plan(&text))), text.clone()), text));
            }
            for _ in 0..random.below(8).min(live.len()) {
                let (id, text) = live.swap_remove(random.below(live.len()));
                assert_eq!(matcher.remove(id), Some(text));
            }
            let payloads: Vec<String> = (0..20).map(|_| common::wild_record(&mut random)).collect();
            let batch = self::payloads(&payloads.iter().map(String::as_str).collect::<Vec<_>>());
            shared += matcher.run(&batch, PartitionId(3), Offset(0), 5000).unwrap().evaluations;
            let mut found = std::collections::HashMap::new();
            matcher.drain(|id, _, yielded| found.extend([(id, row_texts(&yielded))]));
            for (id, text) in &live {
                let answer = ask(text, &batch);
                alone += answer.tally.evaluations;
                assert_eq!(found.remove(id).unwrap_or_default(), answer.rows, "{text}\n{payloads:#?}");
            }
        }
    }
    println!("{shared} evaluations together, {alone} alone");
    assert!(shared * 4 < alone * 3, "{shared} together, {alone} alone");
}

#[test]
fn a_condition_that_several_filters_have_is_evaluated_once_for_a_record() {
    const RECORDS: usize = 600;
    let texts: Vec<String> =
        (0..RECORDS).map(|i| format!(r#"{{"id":{i},"t":"{}"}}"#, "abcdef".repeat(i % 3))).collect();
    let batch = payloads(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    // Of each record it is to be asked, and holds for a third.
    let shared = "t RLIKE '[a-f]{12}'";
    let filters = (0..50).map(|i| format!("{shared} AND id != {i}"));
    let found = (0..50).map(|i| format!("id = {i} AND {shared}"));
    let others = ["(b = 1) IS NULL AND t RLIKE '[a-f]{12}'", "NOT t RLIKE '[a-f]{12}' AND t != ''", shared];
    let all: Vec<String> = filters.chain(found).chain(others.map(str::to_owned)).collect();
    let mut matcher = Matcher::default();
    let insert = |filter: &String| {
        let query = Compiled::new(&plan(&format!("SELECT * FROM STREAM() WHERE {filter}")));
        matcher.insert(Arc::new(query), filter.clone())
    };
    let ids: Vec<_> = all.iter().map(insert).collect();
    let tally = matcher.run(&batch, PartitionId(0), Offset(0), 0).unwrap();
    let (records, third) = (RECORDS as u64, RECORDS as u64 / 3);
    // The shared one; 50 others where it holds; that with IS NULL; NOT, which is another condition, and what it leaves.
    assert_eq!(tally.evaluations, records + 50 * third + records + records + 2 * third);
    let mut rows = 0;
    matcher.drain(|_, filter, yielded| {
        rows += yielded.rows.row_count();
        let expected = ask(&format!("SELECT * FROM STREAM() WHERE {filter}"), &batch).rows.len();
        assert_eq!(yielded.rows.row_count(), expected, "{filter}");
    });
    assert!(rows > 50 * 199);
    // Without those that begin with it, who is left asks where it comes to that.
    ids.into_iter().take(50).for_each(|id| assert!(matcher.remove(id).is_some()));
    let tally = matcher.run(&batch, PartitionId(0), Offset(0), 0).unwrap();
    assert_eq!(tally.evaluations, records + records + records + 2 * third);
}
