//! Statements that SQL has too mean what SQL means: random ones over random records, against SQLite (by Python's own
//! module).

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use millstream_query::{Compiled, Config, Matcher, ParserLimits, parse};
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, PartitionId, Record};
use serde_json::{Value, json};

use crate::common::Random;
use crate::common::fixture::{fixture, memory, rows, two_threads};

/// Reads records and queries, answers each query over the records.
const SQLITE: &str = "
import json, sqlite3, sys
given = json.load(sys.stdin)
db = sqlite3.connect(':memory:')
db.execute('CREATE TABLE r (id INTEGER, a INTEGER, b INTEGER, c REAL, t TEXT)')
rows = [[r.get(n) for n in ('id', 'a', 'b', 'c', 't')] for r in given['records']]
db.executemany('INSERT INTO r VALUES (?, ?, ?, ?, ?)', rows)
json.dump([db.execute(q).fetchall() for q in given['queries']], sys.stdout)
";

/// Returns the rows that SQLite answers.
fn by_sqlite(records: &[Value], queries: &[String]) -> Vec<Vec<Vec<Value>>> {
    let mut python = Command::new("python3")
        .args(["-c", SQLITE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs: scripts/setup-clients says what the tests need");
    let given = json!({"records": records, "queries": queries}).to_string();
    python.stdin.take().unwrap().write_all(given.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{queries:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the values of the rows of each query, as the matcher gives them.
fn by_matcher(records: &[Value], queries: &[String]) -> Vec<Vec<Vec<Value>>> {
    let mut builder = BatchBuilder::default();
    let payloads: Vec<String> = records.iter().map(Value::to_string).collect();
    for payload in &payloads {
        builder.push(&Record { value: Some(payload.as_bytes()), ..Record::default() });
    }
    let batch = builder.seal(Offset(0), Epoch(0), Compression::None);
    let mut matcher = Matcher::default();
    for (i, query) in queries.iter().enumerate() {
        let text = query.replace("FROM r", "FROM STREAM(3600000, TIME)");
        let plan = parse(&text, &ParserLimits::default()).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
        matcher.insert(Arc::new(Compiled::new(&plan)), i);
    }
    // Others have the same conditions and leave.
    let others: Vec<_> = queries
        .iter()
        .zip(queries.iter().skip(1))
        .filter_map(|(query, other)| {
            let (_, condition) = other.split_once(" WHERE ")?;
            let text = format!("{} AND ({condition})", query.replace("FROM r", "FROM STREAM(3600000, TIME)"));
            let plan = parse(&text, &ParserLimits::default()).ok()?;
            Some(matcher.insert(Arc::new(Compiled::new(&plan)), queries.len()))
        })
        .collect();
    matcher.run(&batch, PartitionId(0), Offset(0), 0).unwrap();
    matcher.drain(|_, _, _| {});
    others.into_iter().for_each(|other| assert_eq!(matcher.remove(other), Some(queries.len())));
    matcher.run(&batch, PartitionId(0), Offset(0), 0).unwrap();
    let mut answers = vec![Vec::new(); queries.len()];
    matcher.drain(|_, i, yielded| {
        assert_eq!(yielded.evaluation_errors, 0, "{}", queries[*i]);
        answers[*i] = yielded
            .rows
            .rows()
            .map(|row| {
                let row: serde_json::Map<String, Value> = serde_json::from_slice(row).unwrap();
                row.into_iter().map(|(_, value)| value).collect()
            })
            .collect();
    });
    answers
}

fn records(random: &mut Random, count: usize) -> Vec<Value> {
    let record = |id: usize, random: &mut Random| {
        let mut record = json!({"id": id});
        if !random.one_in(4) {
            record["a"] = (random.below(9) as i64 - 4).into();
        }
        record["b"] = if random.one_in(6) { Value::Null } else { (random.below(100) as i64 - 20).into() };
        if !random.one_in(5) {
            record["c"] = ((random.below(40) as f64 - 10.0) / 4.0).into();
        }
        if !random.one_in(5) {
            record["t"] = random.of(&["x", "y", "", "abc", "Abc", " ab ", "b'c"]).into();
        }
        record
    };
    (0..count).map(|id| record(id, random)).collect()
}

fn number(random: &mut Random, depth: usize) -> String {
    if depth == 0 || random.one_in(3) {
        return random.of(&["a", "b", "c", "id", "0", "1", "-3", "2.5", "7", "0.25"]).to_owned();
    }
    let part = number(random, depth - 1);
    match random.below(7) {
        0 => format!("ABS({part})"),
        1 => format!("{} / {}", random.of(&["a", "b", "id"]), random.of(&["2", "-3", "0.5"])),
        2 => format!("{} % {}", random.of(&["a", "b", "id"]), random.of(&["2", "-3", "7"])),
        3 => format!("({part}) * {}", number(random, 0)),
        _ => format!("{part} {} ({})", random.of(&["+", "-"]), number(random, depth - 1)),
    }
}

fn text(random: &mut Random) -> String {
    random.of(&["t", "LOWER(t)", "UPPER(t)", "TRIM(t)", "SUBSTR(t, 2)", "SUBSTR(t, 1, 2)"]).to_owned()
}

fn condition(random: &mut Random, depth: usize) -> String {
    if depth > 0 && !random.one_in(3) {
        let (left, right) = (condition(random, depth - 1), condition(random, depth - 1));
        return match random.below(4) {
            0 => format!("NOT ({left})"),
            1 => format!("({left}) OR ({right})"),
            _ => format!("({left}) AND ({right})"),
        };
    }
    let comparison = random.of(&["=", "=", "!=", "<", "<=", ">", ">=", "<>"]).to_owned();
    match random.below(9) {
        0 => format!("{} {comparison} {}", text(random), random.of(&["'x'", "'abc'", "''", "'b''c'", "t", "NULL"])),
        1 => format!("{} IN ('x', {})", text(random), random.of(&["'y'", "NULL", "'ABC'"])),
        2 => format!("{} NOT IN ({}, 3)", number(random, 1), random.of(&["1", "NULL", "2.5"])),
        3 => format!("{} IN (1, {}, -2)", random.of(&["a", "b", "c"]), random.of(&["5", "NULL", "0.25"])),
        4 => format!("{} BETWEEN {} AND {}", number(random, 1), number(random, 0), number(random, 0)),
        5 => format!("{} IS NULL", random.of(&["a", "b", "c", "t", "a + b"])),
        6 => format!("{} IS NOT NULL", random.of(&["a", "b", "c", "t"])),
        _ => format!("{} {comparison} {}", number(random, 2), number(random, 1)),
    }
}

/// Returns `true` if two values are the same to SQL: 3 and 3.0 are.
fn same(ours: &Value, theirs: &Value) -> bool {
    match (ours.as_f64(), theirs.as_f64()) {
        (Some(ours), Some(theirs)) => ours == theirs,
        _ => ours == theirs,
    }
}

#[test]
fn ten_thousand_random_queries_match_sqlite() {
    let mut random = Random::from_seed();
    for _ in 0..20 {
        let records = records(&mut random, 60);
        let shared: Vec<String> = (0..20).map(|_| condition(&mut random, 2)).collect();
        let queries: Vec<String> = (0..500)
            .map(|i| {
                let (value, text) = (number(&mut random, 2), text(&mut random));
                let filter = match i % 4 {
                    0 => format!("({}) AND ({})", shared[random.below(20)], shared[random.below(20)]),
                    1 => format!("({}) AND ({})", shared[random.below(20)], condition(&mut random, 1)),
                    _ => condition(&mut random, 3),
                };
                format!("SELECT id, {value} AS n, {text} AS s FROM r WHERE {filter}")
            })
            .collect();
        let (ours, theirs) = (by_matcher(&records, &queries), by_sqlite(&records, &queries));
        for ((query, ours), theirs) in queries.iter().zip(&ours).zip(&theirs) {
            let agree = ours.len() == theirs.len()
                && ours.iter().flatten().zip(theirs.iter().flatten()).all(|(ours, theirs)| same(ours, theirs));
            assert!(agree, "{query}\nours   {ours:?}\nsqlite {theirs:?}\n{records:?}");
        }
    }
}

/// Returns the values of the rows of each live query over the records.
async fn by_engine(records: &[Value], queries: &[String]) -> Vec<Vec<Vec<Value>>> {
    let fixture = fixture(&memory(), Config { residual_ns_per_record_max: u64::MAX, ..two_threads() });
    let mut live = Vec::new();
    for query in queries {
        live.push(fixture.live(&query.replace("FROM r", "FROM STREAM(3600000, TIME)")).await);
    }
    // Over four partitions and two threads, whose parts are merged.
    for record in records {
        fixture.send(&record["id"].to_string(), &[record.to_string()]);
    }
    fixture.seen(&live[0], records.len() as u64).await;
    let mut answers = Vec::new();
    for (subscription, query) in live.into_iter().zip(queries) {
        fixture.engine.kill(&fixture.tenant, subscription.id()).unwrap();
        let answer = subscription.answer().await;
        assert_eq!(answer.meta.evaluation_errors, 0, "{query}");
        let values = |row: &String| {
            let row: serde_json::Map<String, Value> = serde_json::from_str(row).unwrap();
            row.into_iter().map(|(_, value)| value).collect()
        };
        answers.push(rows(&answer).iter().map(values).collect());
    }
    answers
}

/// A statement that groups, and whether its rows have an order.
fn grouped(random: &mut Random) -> (String, bool) {
    const KEYS: [&str; 8] = ["a", "b", "c", "t", "a % 3", "LOWER(t)", "b % 7 + a", "ABS(a)"];
    const FIGURES: [&str; 20] = [
        "COUNT(*)",
        "COUNT(a)",
        "COUNT(t)",
        "SUM(b)",
        "SUM(c)",
        "AVG(b)",
        "AVG(c)",
        "MIN(a)",
        "MAX(c)",
        "MIN(b)",
        "COUNT(DISTINCT a)",
        "COUNT(DISTINCT t)",
        "COUNT(DISTINCT a % 2)",
        "SUM(a * 2 + b)",
        "MAX(ABS(b))",
        "SUM(b) + COUNT(*)",
        "AVG(a) * 2",
        "SUM(c) - MIN(c)",
        "SUM(a + c)",
        "MAX(id)",
    ];
    const HAVING: [&str; 7] = [
        "COUNT(*) > 1",
        "SUM(b) < 40",
        "MIN(a) IS NOT NULL",
        "AVG(c) BETWEEN -1 AND 3",
        "COUNT(DISTINCT t) IN (1, 3)",
        "NOT (MAX(b) >= 50 OR MIN(c) < 0)",
        "SUM(a) + COUNT(c) != 2",
    ];
    let mut keys = vec![random.of(&KEYS), random.of(&KEYS)];
    keys.truncate(random.below(3));
    keys.dedup();
    let is_distinct = !keys.is_empty() && random.one_in(6);
    let mut figures: Vec<&str> = (0..1 + random.below(3)).map(|_| random.of(&FIGURES)).collect();
    figures.truncate(if is_distinct { 0 } else { 3 });
    let items: Vec<String> =
        keys.iter().chain(&figures).enumerate().map(|(i, item)| format!("{item} AS i{i}")).collect();
    let mut query = format!("SELECT {}{} FROM r", if is_distinct { "DISTINCT " } else { "" }, items.join(", "));
    if !random.one_in(3) {
        query.push_str(&format!(" WHERE {}", condition(random, 2)));
    }
    if keys.is_empty() || is_distinct {
        return (query, false);
    }
    query.push_str(&format!(" GROUP BY {}", keys.join(", ")));
    if random.one_in(2) {
        query.push_str(&format!(" HAVING {}", random.of(&HAVING)));
    }
    let is_ordered = random.one_in(2);
    if is_ordered {
        let by = random.of(&["COUNT(*) DESC", "SUM(b)", "AVG(c) DESC", "MIN(a)", "COUNT(DISTINCT t) DESC"]);
        query.push_str(&format!(" ORDER BY {by}, {}", keys.join(", ")));
        if random.one_in(2) {
            query.push_str(&format!(" LIMIT {}", 1 + random.below(5)));
        }
    }
    (query, is_ordered)
}

/// A statement that sorts rows of records.
fn sorted(random: &mut Random) -> String {
    const KEYS: [&str; 8] = ["a", "b", "c DESC", "t", "a % 3 DESC", "LOWER(t) DESC", "-b", "ABS(a) + c"];
    let filter = if random.one_in(2) { format!(" WHERE {}", condition(random, 2)) } else { String::new() };
    let (first, second) = (random.of(&KEYS), random.of(&KEYS));
    format!("SELECT id, a, b FROM r{filter} ORDER BY {first}, {second}, id LIMIT {}", 1 + random.below(20))
}

/// A row as text in which equal numbers look the same.
fn canonical(row: &[Value]) -> String {
    let value =
        |value: &Value| value.as_f64().map_or_else(|| value.to_string(), |number| format!("{:.9}", number + 0.0));
    row.iter().map(value).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_random_grouped_queries_match_sqlite() {
    let mut random = Random::from_seed();
    for _ in 0..10 {
        let records = records(&mut random, 150);
        let asked: Vec<(String, bool)> = (0..200).map(|_| grouped(&mut random)).collect();
        let queries: Vec<String> = asked.iter().map(|(query, _)| query.clone()).collect();
        let (ours, theirs) = (by_engine(&records, &queries).await, by_sqlite(&records, &queries));
        for (((query, is_ordered), ours), theirs) in asked.iter().zip(ours).zip(theirs) {
            let [mut ours, mut theirs] =
                [ours, theirs].map(|rows| rows.iter().map(|row| canonical(row)).collect::<Vec<_>>());
            if !is_ordered {
                ours.sort();
                theirs.sort();
            }
            assert_eq!(ours, theirs, "{query}\n{records:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_random_queries_that_sort_records_match_sqlite() {
    let mut random = Random::from_seed();
    for _ in 0..10 {
        let records = records(&mut random, 150);
        let queries: Vec<String> = (0..100).map(|_| sorted(&mut random)).collect();
        let (ours, theirs) = (by_engine(&records, &queries).await, by_sqlite(&records, &queries));
        for ((query, ours), theirs) in queries.iter().zip(ours).zip(theirs) {
            let [ours, theirs] = [ours, theirs].map(|rows| rows.iter().map(|row| canonical(row)).collect::<Vec<_>>());
            assert_eq!(ours, theirs, "{query}\n{records:?}");
        }
    }
}
