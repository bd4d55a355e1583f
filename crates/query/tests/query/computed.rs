//! Every function, cast and operator against a slow evaluator over JSON trees: random expressions of known types over
//! records whose values are of any type, missing or NULL.

use std::collections::BTreeSet;
use std::sync::Arc;

use millstream_query::{Compiled, Expr, Matcher, ParserLimits, QueryPlan, parse};
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, PartitionId, Record, RecordBatch};
use serde_json::{Map, Value, json};

use crate::common::Random;
use crate::common::oracle::{NOW_MS, Result, evaluate};

fn number(random: &mut Random, depth: usize) -> String {
    if depth == 0 || random.one_in(4) {
        return random
            .of(&[
                "i",
                "d",
                "w",
                "x",
                "l[0]",
                "m.n",
                "lm[1].n",
                "i:LONG",
                "d:DOUBLE",
                "w:INTEGER",
                "i:DOUBLE",
                "missing",
                "0",
                "1",
                "2",
                "-3",
                "2.5",
                "0.25",
                "7L",
                "1.5F",
                "9223372036854775807",
                "1e300",
                "NOW",
            ])
            .to_owned();
    }
    let (a, b) = (number(random, depth - 1), number(random, depth - 1));
    match random.below(12) {
        0..4 => format!("({a}) {} ({b})", random.of(&["+", "-", "*", "/", "%"])),
        4 => format!("ABS({a})"),
        5 => {
            format!("CAST({} AS {})", any_value(random, depth - 1), random.of(&["LONG", "INTEGER", "DOUBLE", "FLOAT"]))
        }
        6 => format!("SIZEOF({})", any_value(random, depth - 1)),
        7 => format!("HASH({})", any_value(random, depth - 1)),
        8 => format!("UNIXTIMESTAMP({})", random.of(&["when", "t", "when", "i"])),
        9 => format!("IF({}, {a}, {b})", boolean(random, depth - 1)),
        10 => format!("{}[{a}]", random.of(&["l", "e", "i"])),
        _ => format!("m[{}]", text(random, depth - 1)),
    }
}

fn text(random: &mut Random, depth: usize) -> String {
    if depth == 0 || random.one_in(4) {
        return random
            .of(&["t", "u", "x", "m.s", "lm[0].s", "t:STRING", "'a'", "' Äb '", "'12'", "'1.5'", "'true'", "'n'", "''"])
            .to_owned();
    }
    let part = text(random, depth - 1);
    match random.below(7) {
        0 => format!("{}({part})", random.of(&["LOWER", "UPPER", "TRIM"])),
        1 => format!("SUBSTR({part}, {})", random.of(&["1", "2", "0", "-1", "-9", "i", "9"])),
        2 => format!(
            "SUBSTRING({part}, {}, {})",
            random.of(&["1", "-2", "2"]),
            random.of(&["0", "1", "2", "-1", "w:LONG"])
        ),
        3 => format!("CAST({} AS STRING)", any_value(random, depth - 1)),
        4 => format!("TYPEOF({})", any_value(random, depth - 1)),
        5 => format!("IF({}, {part}, {})", boolean(random, depth - 1), text(random, depth - 1)),
        _ => format!("m[{part}]"),
    }
}

fn list(random: &mut Random, depth: usize) -> String {
    match random.below(if depth == 0 { 6 } else { 8 }) {
        6 => format!("FILTER({}, {})", list(random, depth - 1), list(random, depth - 1)),
        7 => format!("[{}, {}]", any_value(random, depth - 1), any_value(random, depth - 1)),
        5 => format!("[{}, {}, b]", boolean(random, 0), boolean(random, 0)),
        leaf => ["l", "lm", "e", "l:LIST[LONG]", "x"][leaf].to_owned(),
    }
}

fn boolean(random: &mut Random, depth: usize) -> String {
    if depth == 0 {
        return random.of(&["b", "b:BOOLEAN", "TRUE", "FALSE", "x = 1", "i > 0", "t = 'a'", "missing"]).to_owned();
    }
    let comparison = random.of(&["=", "!=", "<", "<=", ">", ">=", "==", "<>"]).to_owned();
    let (a, b) = (boolean(random, depth - 1), boolean(random, depth - 1));
    match random.below(18) {
        0 => format!("({}) {comparison} ({})", number(random, depth - 1), number(random, depth - 1)),
        1 => format!("({}) {comparison} ({})", text(random, depth - 1), text(random, depth - 1)),
        2 => format!("({}) {comparison} ({})", any_value(random, 0), any_value(random, 0)),
        3 => format!("({a}) {} ({b})", random.of(&["AND", "OR", "XOR"])),
        4 => format!("NOT ({a})"),
        5 => format!("({a}) = ({b})"),
        6 => format!("({}) IS {}NULL", any_value(random, depth - 1), random.of(&["", "NOT "])),
        7 => format!(
            "({}) {}IN ({}, {})",
            number(random, depth - 1),
            random.of(&["", "NOT "]),
            number(random, 0),
            number(random, 0)
        ),
        8 => format!("({}) {}IN {}", any_value(random, 0), random.of(&["", "NOT "]), list(random, depth - 1)),
        9 => format!("({}) BETWEEN {} AND {}", number(random, depth - 1), number(random, 0), number(random, 0)),
        10 => format!(
            "({}) {comparison} {} {}",
            any_value(random, 0),
            random.of(&["ANY", "ALL"]),
            list(random, depth - 1)
        ),
        11 => format!(
            "({}) {}RLIKE '{}'",
            text(random, depth - 1),
            random.of(&["", "NOT "]),
            random.of(&["a.*", "[0-9]+", ".?b", ""])
        ),
        12 => format!("({}) RLIKE ANY ['a', '.*[A-Z]+']", text(random, depth - 1)),
        13 => format!("CONTAINSKEY({}, {})", random.of(&["m", "lm", "l", "i", "x"]), text(random, depth - 1)),
        14 => format!("CONTAINSVALUE({}, {})", random.of(&["m", "lm", "l", "e", "t", "x"]), any_value(random, 0)),
        15 => format!("SIZEIS({}, {})", any_value(random, depth - 1), number(random, 0)),
        16 => format!("CAST({} AS BOOLEAN)", any_value(random, depth - 1)),
        _ => format!("IF({a}, {b}, {})", boolean(random, depth - 1)),
    }
}

fn any_value(random: &mut Random, depth: usize) -> String {
    match random.below(6) {
        0 | 1 => number(random, depth),
        2 => text(random, depth),
        3 => boolean(random, depth),
        4 => list(random, depth),
        _ => random.of(&["m", "m:MAP", "l[1]", "lm[0]", "x", "NULL"]).to_owned(),
    }
}

fn value(random: &mut Random) -> Value {
    match random.below(9) {
        0 => Value::Null,
        1 => json!(random.one_in(2)),
        2 => json!(["a", "n", " Äb ", "12", "1.5", "ab", "", "true"][random.below(8)]),
        3 => json!([1.0, 2.5, -0.75, 4.0, 1e300][random.below(5)]),
        4 => json!(i64::MAX - random.below(2) as i64),
        _ => json!(random.below(9) as i64 - 3),
    }
}

fn record(random: &mut Random) -> Value {
    let mut record = Map::new();
    let when = format!(
        "{}-{:02}-{:02} {:02}:00:{:02}",
        1970 + random.below(70),
        1 + random.below(12),
        1 + random.below(31),
        random.below(24),
        random.below(60)
    );
    let typed = [
        ("i", json!(random.below(9) as i64 - 3)),
        ("d", json!((random.below(40) as f64 - 10.0) / 4.0)),
        ("w", json!(random.below(4) as f64)),
        ("t", json!(["a", "ab", "Äb", " x ", "12", ""][random.below(6)])),
        ("u", value(random)),
        ("b", json!(random.one_in(2))),
        ("x", value(random)),
        ("when", json!(when)),
        ("e", json!([])),
        ("l", json!([value(random), value(random), value(random)])),
        ("m", json!({"n": value(random), "s": value(random), "a": value(random)})),
        ("lm", json!([{"s": value(random)}, {"n": value(random)}, value(random)])),
    ];
    for (name, typed) in typed {
        let value = if random.one_in(6) { value(random) } else { typed };
        if !random.one_in(8) {
            record.insert(name.to_owned(), value);
        }
    }
    Value::Object(record)
}

fn batch(records: &[Value]) -> RecordBatch {
    let mut builder = BatchBuilder::default();
    for record in records {
        builder.push(&Record { value: Some(record.to_string().as_bytes()), ..Record::default() });
    }
    builder.seal(Offset(0), Epoch(0), Compression::None)
}

/// The rows that a plan gives, and for how many records some expression failed.
fn run(plan: &QueryPlan, batch: &RecordBatch) -> (Vec<Value>, u64) {
    let mut matcher = Matcher::default();
    matcher.insert(Arc::new(Compiled::new(plan)), ());
    matcher.run(batch, PartitionId(0), Offset(0), NOW_MS).unwrap();
    let (mut rows, mut errors) = (Vec::new(), 0);
    matcher.drain(|_, (), yielded| {
        rows.extend(yielded.rows.rows().map(|row| serde_json::from_slice::<Value>(row).unwrap()));
        errors += yielded.evaluation_errors;
    });
    (rows, errors)
}

fn functions_in(expr: &Expr, seen: &mut BTreeSet<String>) {
    expr.each(&mut |part| {
        seen.extend(match part {
            Expr::Call { function, .. } => Some(function.as_str().to_owned()),
            Expr::Cast { to, .. } => Some(format!("CAST {}", to.as_str())),
            Expr::Hint { to, .. } => Some(format!(":{}", to.as_str())),
            Expr::Arithmetic { operator, .. } => Some(operator.as_str().to_owned()),
            Expr::Quantified { every, .. } => Some(if *every { "ALL" } else { "ANY" }.to_owned()),
            Expr::Xor(..) => Some("XOR".to_owned()),
            Expr::Element { .. } => Some("[]".to_owned()),
            _ => None,
        });
    });
}

#[test]
fn random_expressions_match_a_slow_evaluator() {
    let mut random = Random::from_seed();
    let (mut given, mut errors, mut nulls, mut seen) = (0, 0, 0, BTreeSet::new());
    for _ in 0..400 {
        let records: Vec<Value> = (0..12).map(|_| record(&mut random)).collect();
        let batch = batch(&records);
        for _ in 0..25 {
            let text = format!("SELECT $offset AS o, {} AS v FROM STREAM()", any_value(&mut random, 3));
            let Ok(plan) = parse(&text, &ParserLimits::default()) else { continue };
            let expr = &plan.items()[1].value;
            functions_in(expr, &mut seen);
            let expected: Vec<Result> = records.iter().map(|record| evaluate(expr, record)).collect();
            let row = |(offset, value): (usize, &Result)| json!({"o": offset, "v": value.as_ref().ok()});
            let rows: Vec<Value> = expected.iter().enumerate().map(row).collect();
            let failed = expected.iter().filter(|value| value.is_err()).count() as u64;
            assert_eq!(run(&plan, &batch), (rows, failed), "{text}\n{}", Value::from(records));
            given += expected.len();
            errors += failed;
            nulls += expected.iter().filter(|value| **value == Ok(Value::Null)).count();
        }
    }
    println!("{given} values, {errors} errors, {nulls} NULLs: {seen:?}");
    assert!(given > 60_000 && errors > 1_000 && nulls > 5_000, "{given} values, {errors} errors, {nulls} NULLs");
    for name in [
        "ABS",
        "CONTAINSKEY",
        "CONTAINSVALUE",
        "FILTER",
        "HASH",
        "IF",
        "LOWER",
        "SIZEIS",
        "SIZEOF",
        "SUBSTRING",
        "TRIM",
        "TYPEOF",
        "UNIXTIMESTAMP",
        "UPPER",
        "CAST BOOLEAN",
        "CAST LONG",
        "CAST DOUBLE",
        "CAST STRING",
        ":LONG",
        ":DOUBLE",
        ":STRING",
        ":BOOLEAN",
        ":MAP",
        ":LIST",
        "+",
        "-",
        "*",
        "/",
        "%",
        "ANY",
        "ALL",
        "XOR",
        "[]",
    ] {
        assert!(seen.contains(name), "{name} was never tried: {seen:?}");
    }
}

#[test]
fn random_conditions_over_computed_values_match_a_slow_evaluator() {
    let mut random = Random::from_seed();
    let mut chosen = 0;
    for _ in 0..200 {
        let records: Vec<Value> = (0..20).map(|_| record(&mut random)).collect();
        let batch = batch(&records);
        for _ in 0..25 {
            let text = format!("SELECT $offset AS o FROM STREAM() WHERE {}", boolean(&mut random, 3));
            let Ok(plan) = parse(&text, &ParserLimits::default()) else { continue };
            let Some(filter) = &plan.filter else { continue };
            let passes = |offset: &usize| evaluate(filter, &records[*offset]) == Ok(json!(true));
            let rows: Vec<Value> = (0..records.len()).filter(passes).map(|offset| json!({ "o": offset })).collect();
            chosen += rows.len();
            // The index may rule a record out before it is an error.
            assert_eq!(run(&plan, &batch).0, rows, "{text}\n{}", Value::from(records));
        }
    }
    assert!(chosen > 10_000, "{chosen}");
}

/// As [`evaluate`]; what is joined by AND is asked no further than to the first that is not TRUE.
fn of_filter(filter: &Expr, record: &Value) -> Result {
    let Expr::And(parts) = filter else { return evaluate(filter, record) };
    let others = |value: &Result| *value != Ok(json!(true));
    parts.iter().map(|part| evaluate(part, record)).find(others).unwrap_or(Ok(json!(true)))
}

#[test]
fn filters_that_share_conditions_choose_and_fail_like_a_slow_evaluator() {
    let mut random = Random::from_seed();
    let (mut chosen, mut failed) = (0, 0);
    for _ in 0..60 {
        // With what is always NULL before it a condition has no place in the index, and the same value.
        let pool: Vec<String> = (0..8).map(|_| format!("((x = 1) = NULL OR {})", boolean(&mut random, 3))).collect();
        let mut matcher: Matcher<QueryPlan> = Matcher::default();
        let mut live = Vec::new();
        for _ in 0..6 {
            for _ in 0..12 {
                let parts: Vec<&str> = (0..1 + random.below(3)).map(|_| pool[random.below(8)].as_str()).collect();
                let text = format!("SELECT $offset AS o FROM STREAM() WHERE {}", parts.join(" AND "));
                let Ok(plan) = parse(&text, &ParserLimits::default()) else { continue };
                live.push((matcher.insert(Arc::new(Compiled::new(&plan)), plan.clone()), plan));
            }
            for _ in 0..random.below(8).min(live.len()) {
                let (id, _) = live.swap_remove(random.below(live.len()));
                assert!(matcher.remove(id).is_some());
            }
            // Within one word of a selection, and over several.
            let count = if random.one_in(6) { 150 } else { 12 };
            let records: Vec<Value> = (0..count).map(|_| record(&mut random)).collect();
            matcher.run(&batch(&records), PartitionId(3), Offset(0), NOW_MS).unwrap();
            let mut found = std::collections::HashMap::new();
            matcher.drain(|id, _, yielded| {
                let rows: Vec<Value> = yielded.rows.rows().map(|row| serde_json::from_slice(row).unwrap()).collect();
                found.insert(id, (rows, yielded.evaluation_errors));
            });
            for (id, plan) in &live {
                let filter = plan.filter.as_ref().unwrap();
                let values: Vec<Result> = records.iter().map(|record| of_filter(filter, record)).collect();
                let passes = |offset: &usize| values[*offset] == Ok(json!(true));
                let rows: Vec<Value> = (0..records.len()).filter(passes).map(|offset| json!({ "o": offset })).collect();
                let errors = values.iter().filter(|value| value.is_err()).count() as u64;
                chosen += rows.len();
                failed += errors;
                assert_eq!(found.remove(id).unwrap_or_default(), (rows, errors), "{plan}\n{}", Value::from(records));
            }
        }
    }
    println!("{chosen} chosen, {failed} failed");
    assert!(chosen > 10_000 && failed > 1_000, "{chosen} chosen, {failed} failed");
}
