//! The rows of the reference that are about whole results: limits and their defaults, what is told about sketches, what
//! Bullet's users may want otherwise.

use std::time::Duration;

use millstream_columns::{FunctionGroup, FunctionRow, functions};
use millstream_query::{BulletConfig, Cause, Config, ParserLimits, QueryAnswer, QueryRequest};
use millstream_types::TopicName;
use serde_json::{Value, json};

use crate::common::fixture::{Fixture, fixture, memory, rows, two_threads};

/// Returns the answer of a request over `payloads` when its second is over.
async fn answer(fixture: &Fixture, request: QueryRequest, payloads: &[Value]) -> QueryAnswer {
    let subscription = fixture.submit(request).await;
    for (i, payload) in payloads.iter().enumerate() {
        fixture.send(&format!("k{}", i % 16), &[payload.to_string()]);
    }
    fixture.seen(&subscription, payloads.len() as u64).await;
    fixture.clock.advance(Duration::from_secs(1));
    subscription.answer().await
}

async fn answered(fixture: &Fixture, query: &str, payloads: &[Value]) -> Vec<Value> {
    let answer = answer(fixture, QueryRequest::new(query), payloads).await;
    rows(&answer).iter().map(|row| serde_json::from_str(row).unwrap()).collect()
}

#[test]
fn the_limits_are_those_of_the_table() {
    let config = Config::default();
    for (setting, value, default) in [
        ("duration of an answer", config.duration_default_ms, 30_000),
        ("maximum duration: none", config.duration_max_ms, 0),
        ("rows if none are given", config.rows_default, 500),
        ("largest raw result", config.rows_max, 500),
        ("groups", config.groups_max as u64, 131_072),
        ("different things", config.distinct_exact_max as u64, 16_384),
        ("smallest window", config.window_min_ms, 100),
        ("rows a second: no bound", config.rows_per_second_max, 0),
        ("bytes a second: no bound", config.bytes_per_second_max, 0),
        ("rows a second of a tenant: no bound", config.rows_per_second_per_tenant_max, 0),
        ("bytes a second of a tenant: no bound", config.bytes_per_second_per_tenant_max, 0),
        ("queries at once", config.live_max as u64, 100_000),
        ("queries of a tenant", config.live_per_tenant_max as u64, 100_000),
        ("queries that are kept", config.kept_per_tenant_max as u64, 1_000),
        ("points of a distribution", ParserLimits::default().points_max, 200),
    ] {
        assert_eq!(value, default, "{setting}");
    }
    assert!(config.residual_ns_per_record_max > 0);
    assert_eq!(config.bullet, BulletConfig::default());
}

#[tokio::test]
async fn q2_the_first_ten_of_those_that_match_come_as_they_were_sent() {
    let fixture = fixture(&memory(), two_threads());
    let query = fixture.live("SELECT * FROM STREAM(30000, TIME) WHERE id = 'x' LIMIT 10").await;
    let foreign = (0..9).map(|n| format!("{{ \"id\":\"y\", \"n\":{n}}}"));
    let sent: Vec<String> = (0..15).map(|n| format!("{{ \"n\" : {n}.50,\"id\":\"\\u0078\" }}")).collect();
    fixture.send("k", &foreign.chain(sent.iter().cloned()).collect::<Vec<_>>());
    let answer = query.answer().await;
    assert_eq!(rows(&answer), sent[..10]);
    assert_eq!(answer.meta.cause, Some(Cause::Size));
}

#[tokio::test]
async fn groups_sorted_by_count_with_a_limit_are_the_most_frequent_of_all() {
    let fixture = fixture(&memory(), Config { groups_max: 512, ..two_threads() });
    // Of 5,000 groups a sample of 512 would hardly hold the three that are asked for.
    let mut records: Vec<Value> = (0..5_000).map(|n| json!({"k": format!("rare{n}"), "v": n % 7})).collect();
    for (key, times) in [("often", 300), ("oftener", 400), ("oftenest", 500)] {
        records.extend((0..times).map(|_| json!({"k": key, "v": 1})));
    }
    let of = "FROM STREAM(1000, TIME) GROUP BY k";
    let most = |select: &str, rest: &str| format!("SELECT {select} {of} {rest}");
    let query = most("COUNT(*) AS n, k", "ORDER BY n DESC LIMIT 3");
    let told = answer(&fixture, QueryRequest::new(&query), &records).await;
    let found: Vec<Value> = rows(&told).iter().map(|row| serde_json::from_str(row).unwrap()).collect();
    assert_eq!(found.iter().map(|row| &row["k"]).collect::<Vec<_>>(), ["oftenest", "oftener", "often"]);
    let sketch = &told.meta.sketches[0];
    assert_eq!((sketch.family.as_str(), sketch.was_estimated), ("frequent items", true));
    for (row, truth) in found.iter().zip([500, 400, 300]) {
        let error = row["n"].as_u64().unwrap() - truth;
        assert!(error <= sketch.count_error.unwrap(), "{row}");
    }
    // Conditions on groups and further keys of the order hold as ever.
    let having = most("k", "HAVING COUNT(*) > 350 AND k != 'oftener' ORDER BY COUNT(*) DESC, k LIMIT 3");
    assert_eq!(answered(&fixture, &having, &records).await, [json!({"k": "oftenest"})]);
    // A further figure needs the groups themselves.
    let summed = most("k, SUM(v) AS s", "ORDER BY COUNT(*) DESC LIMIT 1");
    assert_eq!(answer(&fixture, QueryRequest::new(summed), &[]).await.meta.sketches[0].family, "tuple");
}

#[tokio::test]
async fn each_example_of_an_aggregate_gives_the_result_beside_it() {
    let fixture = fixture(&memory(), two_threads());
    let records = [json!({"n": 1, "t": "a"}), json!({"n": 4, "t": "b"}), json!({"n": 8, "t": "b"})];
    let aggregates = functions().iter().filter(|row| row.group == FunctionGroup::Aggregates);
    for FunctionRow { example, result, names, .. } in aggregates {
        assert!(example.starts_with(names[0]), "{example}");
        let request = QueryRequest::new(format!("SELECT {example} FROM STREAM(1000, TIME)"));
        let subscription = fixture.submit(request).await;
        // One key, so that they have one order.
        fixture.send("k", &records.each_ref().map(Value::to_string));
        fixture.seen(&subscription, records.len() as u64).await;
        fixture.clock.advance(Duration::from_secs(1));
        let rows: Vec<Value> =
            rows(&subscription.answer().await).iter().map(|row| serde_json::from_str(row).unwrap()).collect();
        let found = if result.starts_with('[') { Value::from(rows) } else { rows[0][*example].clone() };
        assert_eq!(found.to_string(), *result, "{example}");
    }
}

#[tokio::test]
async fn tuples_are_counted_by_their_values_and_not_by_their_text() {
    let fixture = fixture(&memory(), two_threads());
    let tuples = [("a|b", "c"), ("a", "b|c"), ("a,b", "c"), ("a", "b,c"), ("a", "b|c")];
    let mut records: Vec<Value> = tuples.iter().map(|(a, b)| json!({"a": a, "b": b})).collect();
    records.extend([json!({"a": 1, "b": "x"}), json!({"a": "1", "b": "x"}), json!({"a": null, "b": "x"})]);
    records.extend([json!({"b": "x"}), json!({"a": "null", "b": "x"}), json!({"a": 1.0, "b": "x"})]);
    let query = "SELECT COUNT(DISTINCT a, b) AS n FROM STREAM(1000, TIME)";
    assert_eq!(answered(&fixture, query, &records).await, [json!({"n": 8})]);
}

#[tokio::test]
async fn each_family_of_sketches_tells_its_own_bounds() {
    let fixture = fixture(&memory(), two_threads());
    let records: Vec<Value> = (0..60).map(|n| json!({"k": n % 3, "v": n})).collect();
    for (select, family, told) in [
        ("COUNT(DISTINCT v) FROM", "theta", &["theta", "uniques_estimate", "standard_deviations"][..]),
        ("k, SUM(v) FROM", "tuple", &["theta", "uniques_estimate", "standard_deviations", "active_items"]),
        ("TOP(2, k) FROM", "frequent items", &["items_seen", "count_error", "active_items"]),
        ("QUANTILE(v, LINEAR, 3) FROM", "KLL quantiles", &["min", "max", "items_seen", "rank_error", "active_items"]),
        ("FREQ(v, LINEAR, 3) FROM", "KLL quantiles", &["min", "max", "items_seen", "rank_error", "active_items"]),
        ("CUMFREQ(v, LINEAR, 3) FROM", "KLL quantiles", &["min", "max", "items_seen", "rank_error", "active_items"]),
    ] {
        let group = if family == "tuple" { " GROUP BY k" } else { "" };
        let query = format!("SELECT {select} STREAM(1000, TIME){group}");
        let answer = answer(&fixture, QueryRequest::new(&query), &records).await;
        let meta = serde_json::to_value(&answer.meta).unwrap();
        let sketch = meta["sketches"][0].as_object().unwrap_or_else(|| panic!("{query}: {meta}"));
        assert_eq!((&sketch["family"], &sketch["was_estimated"]), (&json!(family), &json!(false)), "{query}");
        assert!(sketch["size_bytes"].as_u64().unwrap() > 0, "{query}");
        let mut members: Vec<&str> = sketch.keys().map(String::as_str).collect();
        members.retain(|member| !["of", "family", "size_bytes", "was_estimated"].contains(member));
        assert_eq!(members.iter().filter(|member| !told.contains(member)).count(), 0, "{query}: {members:?}");
        assert!(told.iter().all(|member| members.contains(member)), "{query}: {members:?}");
    }
    // Only of a sum of several records there is anything to be unsure about.
    let exact = "SELECT COUNT(*), SUM(v), AVG(v), MIN(v), MAX(v) FROM STREAM(1000, TIME)";
    assert_eq!(answer(&fixture, QueryRequest::new(exact), &records).await.meta.sketches, []);
}

#[tokio::test]
async fn bullets_clients_can_have_another_stream_and_groups_as_texts() {
    let bullet = BulletConfig { stream: "events".to_owned(), group_values_as_text: true, ..BulletConfig::default() };
    let fixture = fixture(&memory(), Config { bullet, ..two_threads() });
    let refused = fixture.engine.submit(&fixture.tenant, QueryRequest::new("SELECT * FROM STREAM()")).await;
    assert!(refused.err().unwrap().to_string().contains("stream 'events' does not exist"));
    let events = TopicName::user("events", &fixture.tenant).unwrap();
    fixture.log.create_topic(&events, &memory()).unwrap();
    assert_eq!(fixture.live("SELECT * FROM STREAM()").await.meta().stream, "events");
    assert_eq!(fixture.engine.schema(&fixture.tenant, None).unwrap().stream, "events");

    let keys = [json!(2), json!(2), json!(2.5), json!(true), Value::Null, json!("2"), json!("x")];
    let records: Vec<Value> = keys.iter().map(|k| json!({"k": k})).collect();
    let from = "FROM \"telemetry.acme\"";
    let bullets = |select: &str, rest: &str| QueryRequest {
        duration_ms: Some(1_000),
        is_of_bullet: true,
        ..QueryRequest::new(format!("SELECT {select} {from} {rest}"))
    };
    for (request, expected) in [
        (
            bullets("k, COUNT(*) AS c", "GROUP BY k ORDER BY k"),
            json!([{"k": "null", "c": 1}, {"k": "true", "c": 1}, {"k": "2", "c": 2}, {"k": "2.5", "c": 1},
                {"k": "2", "c": 1}, {"k": "x", "c": 1}]),
        ),
        (
            bullets("DISTINCT k", "ORDER BY k"),
            json!([{"k": "2"}, {"k": "2.5"}, {"k": "null"}, {"k": "true"}, {"k": "x"}]),
        ),
        (bullets("TOP(1, k AS v) AS c", ""), json!([{"v": "2", "c": 3}])),
        (bullets("COUNT(*) AS c", "WHERE k = 2"), json!([{"c": 2}])),
    ] {
        let text = request.query.clone();
        let answer = answer(&fixture, request, &records).await;
        let found: Vec<Value> = rows(&answer).iter().map(|row| serde_json::from_str(row).unwrap()).collect();
        assert_eq!(Value::from(found), expected, "{text}");
    }
    // Elsewhere values keep their types.
    let query = QueryRequest { is_of_bullet: false, ..bullets("k", "WHERE k = 2 GROUP BY k") };
    assert_eq!(rows(&answer(&fixture, query, &records).await), [r#"{"k":2}"#]);
}
