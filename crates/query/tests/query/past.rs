//! Queries that begin with records that are there already: none is missing, none comes twice, and nobody waits for them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, TopicConfig};
use millstream_query::{Cause, Config, Deliver, Error, OnSlow, QueryRequest, Start, Until};
use millstream_testkit::eventually_async;
use millstream_types::{Offset, Record, TopicPartition, partition_of_key};
use serde_json::Value;

use crate::common::fixture::{Ending, Fixture, append, disk, fixture, fixture_on_disk, memory, rows, two_threads};

const KEYS: usize = 13;

fn since(from: Start, query: &str) -> QueryRequest {
    QueryRequest { from, until: Some(Until::Never), deliver: Deliver::Sse, ..QueryRequest::new(query) }
}

fn payload(n: usize) -> String {
    format!("{{\"key\":{},\"n\":{n}}}", n % KEYS)
}

fn send(fixture: &Fixture, numbers: std::ops::Range<usize>) {
    numbers.for_each(|n| fixture.send(&format!("k{}", n % KEYS), &[payload(n)]));
}

/// Sends this many records to one partition, in batches whose rows fit a small queue.
fn send_apart(fixture: &Fixture, count: usize) {
    for n in 0..count {
        fixture.send("k", &[payload(n)]);
        if n % 20 == 0 {
            fixture.stored();
        }
    }
    fixture.stored();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_and_new_records_are_seen_once_and_in_order_of_their_key() {
    const BEFORE: usize = 4_000;
    const ALL: usize = 12_000;
    for topic in [memory(), disk()] {
        // Pieces are small, so that records come in between.
        let fixture = Arc::new(fixture(&topic, Config { read_max_bytes: 1_000, ..two_threads() }));
        send(&fixture, 0..BEFORE);
        let other = fixture.live(&format!("SELECT n FROM STREAM() LIMIT {}", ALL - BEFORE)).await;
        let producer = {
            let fixture = fixture.clone();
            std::thread::spawn(move || send(&fixture, BEFORE..ALL))
        };
        let all = fixture.submit(since(Start::Earliest, &format!("SELECT key, n FROM STREAM() LIMIT {ALL}"))).await;
        let listed = fixture.engine.list(&fixture.tenant).into_iter().any(|meta| meta.id == all.id());
        assert!(listed || all.meta().cause.is_some());
        let all = all.answer().await;
        producer.join().unwrap();
        let mut by_key: HashMap<u64, Vec<u64>> = HashMap::new();
        for row in rows(&all) {
            let row: Value = serde_json::from_str(&row).unwrap();
            by_key.entry(row["key"].as_u64().unwrap()).or_default().push(row["n"].as_u64().unwrap());
        }
        for (key, numbers) in &by_key {
            let expected: Vec<u64> = (0..ALL as u64).filter(|n| n % KEYS as u64 == *key).collect();
            assert!(*numbers == expected, "key {key}: {} of {}", numbers.len(), expected.len());
        }
        assert_eq!((by_key.len(), all.meta.cause, all.meta.records_seen), (KEYS, Some(Cause::Size), ALL as u64));
        assert!(all.meta.positions.iter().all(|part| part.first == 0), "{:?}", all.meta.positions);
        assert_eq!(rows(&other.answer().await).len(), ALL - BEFORE);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_begins_at_the_oldest_record_at_a_time_or_at_offsets() {
    let fixture = fixture(&disk(), two_threads());
    let number = partition_of_key(b"k", 4).0;
    let partition = fixture.log.partition(&TopicPartition::new(fixture.topic.clone(), number)).unwrap();
    let values: Vec<String> = (0..10).map(payload).collect();
    for (n, value) in values.iter().enumerate() {
        let record = Record { value: Some(value.as_bytes()), timestamp_ms: 1_000 * n as i64, ..Record::default() };
        append(&*partition, &[record], AckLevel::Synced);
    }
    let seen = async |from: Start| {
        let query = fixture.submit(since(from, "SELECT n FROM STREAM()")).await;
        fixture.send("k", &[payload(10)]);
        eventually_async("the last has been seen", || query.meta().positions.iter().any(|part| part.last >= Some(10)))
            .await;
        let id = query.id();
        drop(fixture.live("SELECT * FROM STREAM() WHERE nobody").await);
        eventually_async("all are matched", || fixture.engine.get(&fixture.tenant, id).unwrap().matched >= 1).await;
        fixture.engine.kill(&fixture.tenant, id).unwrap();
        let answer = query.answer().await;
        let first = rows(&answer).first().cloned().unwrap_or_default();
        (first, answer.meta.skipped)
    };
    let row = |n: usize| format!("{{\"n\":{n}}}");
    assert_eq!(seen(Start::Now).await, (row(10), 0));
    assert_eq!(seen(Start::Earliest).await, (row(0), 0));
    assert_eq!(seen(Start::TimeMs(3_500)).await, (row(4), 0));
    assert_eq!(seen(Start::Offsets(BTreeMap::from([(number, 7)]))).await, (row(7), 0));
    eventually_async("all is durable", || partition.offsets().stable == partition.offsets().tail).await;
    assert_eq!(partition.trim(Offset(5)).unwrap(), Offset(5));
    assert_eq!(seen(Start::Offsets(BTreeMap::from([(number, 2)]))).await, (row(5), 3), "three have gone");

    let refused = async |from: Start| {
        let refused = fixture.engine.submit(&fixture.tenant, since(from, "SELECT n FROM STREAM()")).await;
        refused.err().unwrap().to_string()
    };
    let unknown = refused(Start::Offsets(BTreeMap::from([(4, 0)]))).await;
    assert!(unknown.contains("has partitions 0 to 3, not 4"), "{unknown}");
    let ahead = refused(Start::Offsets(BTreeMap::from([(number, 1_000)]))).await;
    assert!(ahead.contains("1000 of") && ahead.contains("is not there yet"), "{ahead}");
    assert_eq!(fixture.engine.live_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_of_the_past_ends_with_it_at_a_time_or_before_offsets() {
    let fixture = fixture(&disk(), two_threads());
    let number = partition_of_key(b"k", 4).0;
    let partition = fixture.log.partition(&TopicPartition::new(fixture.topic.clone(), number)).unwrap();
    for n in 0..10 {
        let (value, timestamp_ms) = (payload(n), 100 * n as i64);
        let record = Record { value: Some(value.as_bytes()), timestamp_ms, ..Record::default() };
        append(&*partition, &[record], AckLevel::Synced);
    }
    let counted = async |from: Start, until: Option<Until>, deliver: Deliver| {
        let query = "SELECT COUNT(*) AS c, MIN(n) AS low FROM STREAM()";
        let request = QueryRequest { from, until, deliver, ..QueryRequest::new(query) };
        let answer = fixture.submit(request).await.answer().await;
        assert_eq!(answer.meta.cause, Some(Cause::Until), "{:?}", answer.meta);
        rows(&answer).remove(0)
    };
    let row = |count: usize, low: usize| format!("{{\"c\":{count},\"low\":{low}}}");
    let offsets = |offset| BTreeMap::from([(number, offset)]);
    for deliver in [Deliver::Wait, Deliver::Sse] {
        assert_eq!(counted(Start::Earliest, None, deliver.clone()).await, row(10, 0));
        assert_eq!(counted(Start::TimeMs(350), Some(Until::Now), deliver.clone()).await, row(6, 4));
        assert_eq!(counted(Start::TimeMs(350), Some(Until::TimeMs(700)), deliver.clone()).await, row(3, 4));
        assert_eq!(counted(Start::Earliest, Some(Until::Offsets(offsets(2))), deliver).await, row(2, 0));
    }
    let one = QueryRequest { from: Start::Earliest, ..QueryRequest::new("SELECT n FROM STREAM(1000, TIME)") };
    let lives = fixture.submit(one).await;
    eventually_async("all are seen", || lives.meta().matched == 10).await;
    assert_eq!(lives.meta().cause, None, "it says how long it lives");
    fixture.clock.advance(Duration::from_millis(1_000));
    assert_eq!(lives.answer().await.meta.cause, Some(Cause::Duration));

    let refused = async |from: Start, until: Until, keep: bool| {
        let request = QueryRequest { from, until: Some(until), keep, ..QueryRequest::new("SELECT n FROM STREAM()") };
        fixture.engine.submit(&fixture.tenant, request).await.err().unwrap().to_string()
    };
    assert!(refused(Start::Now, Until::Now, false).await.contains("say 'from', too"));
    assert!(refused(Start::Earliest, Until::Now, true).await.contains("leave one of both out"));
    assert!(refused(Start::Earliest, Until::TimeMs(i64::MAX), false).await.contains("use 'duration_ms'"));
    assert!(refused(Start::Earliest, Until::Offsets(offsets(11)), false).await.contains("is not there yet"));
    assert!(refused(Start::Earliest, Until::Offsets(BTreeMap::from([(9, 0)])), false).await.contains("not 9"));
    assert_eq!(fixture.engine.live_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_past_is_read_as_fast_as_the_client_reads_and_by_few_at_once() {
    let config = Config { queue_max_bytes: 8_000, read_max_bytes: 1_000, reading_past_max: 1, ..two_threads() };
    let fixture = fixture(&memory(), config);
    send_apart(&fixture, 3_000);
    let query = QueryRequest { on_slow: OnSlow::Kill, ..since(Start::Earliest, "SELECT * FROM STREAM() LIMIT 3000") };
    let slow = fixture.submit(query.clone()).await;
    eventually_async("some are there", || slow.meta().matched > 0).await;
    let refused = fixture.engine.submit(&fixture.tenant, query.clone()).await.err().unwrap();
    assert!(matches!(refused, Error::TooManyInThePast { limit: 1 }), "{refused}");
    assert_eq!(refused.code().http_status(), 503);
    assert!(slow.meta().matched < 3_000);
    let answer = slow.answer().await;
    assert_eq!((answer.meta.cause, answer.meta.dropped, rows(&answer).len()), (Some(Cause::Size), 0, 3_000));
    eventually_async("there is room for another", || fixture.engine.live_count() == 0).await;
    let gone = loop {
        // The thread of the first may not have ended yet.
        match fixture.engine.submit(&fixture.tenant, query.clone()).await {
            Ok(query) => break query,
            Err(error) => assert!(matches!(error, Error::TooManyInThePast { .. }), "{error}"),
        }
        tokio::task::yield_now().await;
    };
    eventually_async("some are there", || gone.meta().matched > 0).await;
    drop(gone);
    assert_eq!(fixture.engine.live_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_past_ends_though_nothing_can_be_read_right_before_its_end_and_more_follows() {
    let config = Config { queue_max_bytes: 8_000, read_max_bytes: 1_000, ..two_threads() };
    let fixture = fixture(&disk(), config);
    send_apart(&fixture, 3_000);
    let number = partition_of_key(b"k", 4).0;
    let writer = fixture.log.writer("of what is void").unwrap();
    let aborted = Record { value: Some(b"{}"), ..Record::default() };
    writer.append(&TopicPartition::new(fixture.topic.clone(), number), &[aborted]).unwrap();
    writer.abort().unwrap();

    let past = QueryRequest { until: Some(Until::Now), ..since(Start::Earliest, "SELECT * FROM STREAM() LIMIT 9000") };
    let past = fixture.submit(past).await;
    eventually_async("its client is behind", || past.meta().matched > 0).await;
    fixture.send("k", &[payload(3_000)]);
    let answer = tokio::time::timeout(Duration::from_secs(60), past.answer()).await.unwrap();
    assert_eq!(rows(&answer).len(), 3_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_query_that_is_reading_the_past_goes_on_after_a_restart() {
    for ending in [Ending::Crash, Ending::Clean] {
        let topic = TopicConfig { level: AckLevel::Synced, ..disk() };
        let mut fixture = fixture_on_disk(&topic, Config { keep_every_ms: 1, read_max_bytes: 1_000, ..two_threads() });
        send(&fixture, 0..3_000);
        eventually_async("all is durable", || {
            let partitions =
                (0..4).map(|n| fixture.log.partition(&TopicPartition::new(fixture.topic.clone(), n)).unwrap());
            partitions.into_iter().all(|partition| partition.offsets().stable == partition.offsets().tail)
        })
        .await;
        let query = "SELECT COUNT(*) AS c, SUM(n) AS s, COUNT(DISTINCT n) AS d FROM STREAM()";
        let query = fixture.submit(QueryRequest { keep: true, ..since(Start::Earliest, query) }).await;
        let id = query.id();
        fixture.restart(ending, Duration::from_secs(1));
        drop(query);
        send(&fixture, 3_000..3_100);
        eventually_async("all are seen", || fixture.engine.get(&fixture.tenant, id).unwrap().records_seen == 3_100)
            .await;
        drop(fixture.live("SELECT * FROM STREAM() WHERE nobody").await);
        fixture.engine.kill(&fixture.tenant, id).unwrap();
        let answer = fixture.engine.attach(&fixture.tenant, id).unwrap().answer().await;
        let sum: usize = (0..3_100).sum();
        assert_eq!(rows(&answer), [format!("{{\"c\":3100,\"s\":{sum},\"d\":3100}}")], "{ending:?}");
    }
}

#[tokio::test]
async fn whole_records_of_devices_carry_the_device_if_the_request_wants_it() {
    let fixture = fixture(&memory(), two_threads());
    let orders = millstream_types::TopicName::user("orders", &fixture.tenant).unwrap();
    fixture.log.create_topic(&orders, &memory()).unwrap();
    let asked = |query: &str, with_device| QueryRequest { with_device, ..QueryRequest::new(query) };
    for (query, with_device, expected) in [
        ("SELECT * FROM STREAM() LIMIT 1", true, r#"{"$key":"k0","key":0,"n":0}"#),
        ("SELECT * FROM STREAM() LIMIT 1", false, r#"{"key":0,"n":0}"#),
        ("SELECT n FROM STREAM() LIMIT 1", true, r#"{"n":0}"#),
    ] {
        let query = fixture.submit(asked(query, with_device)).await;
        send(&fixture, 0..1);
        assert_eq!(rows(&query.answer().await), [expected]);
    }
    let of_orders = fixture.submit(asked("SELECT * FROM \"orders\" LIMIT 1", true)).await;
    let partition = fixture.log.partition(&TopicPartition::new(orders, 0)).unwrap();
    let record = Record { key: Some(b"o"), value: Some(b"{\"n\":1}"), ..Record::default() };
    append(&*partition, &[record], AckLevel::Memory);
    assert_eq!(rows(&of_orders.answer().await), [r#"{"n":1}"#], "its key is no device");
}

#[tokio::test]
async fn a_window_of_the_request_is_that_of_the_text() {
    let fixture = fixture(&memory(), two_threads());
    let window = |window: &str| serde_json::from_str::<Value>(window).unwrap();
    let request = |query: &str, of: &str| QueryRequest {
        window: Some(window(of)),
        deliver: Deliver::Sse,
        ..QueryRequest::new(query)
    };
    let three = r#"{"emit": {"type": "RECORD", "every": 3}}"#;
    let asked = fixture.submit(request("SELECT COUNT(*) AS c, SUM(n) AS s FROM STREAM()", three)).await;
    let document = fixture.submit(request(r#"{"projection": {"fields": {"n": "n"}}}"#, three)).await;
    send(&fixture, 0..7);
    eventually_async("all are matched", || asked.meta().matched == 7 && document.meta().matched == 7).await;
    for (query, expected) in [(asked, 3), (document, 7)] {
        fixture.engine.kill(&fixture.tenant, query.id()).unwrap();
        let answer = query.answer().await;
        // Two windows that are full, and what is left.
        assert_eq!((answer.batches.len(), rows(&answer).len()), (3, expected));
    }
    let all = r#"{"emit": {"type": "TIME", "every": 500}, "include": {"type": "ALL"}}"#;
    let twice = "SELECT * FROM STREAM() WINDOWING TUMBLING(5, RECORD)";
    for (query, of, says) in [
        ("SELECT * FROM STREAM()", r#"{"emit": {"type": "TIME"}}"#, "window.emit: a type, TIME or RECORD"),
        ("SELECT * FROM STREAM()", all, "all rows again and again"),
        (twice, three, "the query has one itself"),
    ] {
        let refused = fixture.engine.submit(&fixture.tenant, request(query, of)).await.err().unwrap();
        assert_eq!(refused.code().http_status(), 400);
        assert!(refused.to_string().contains(says), "{refused}");
    }
    let once = QueryRequest { deliver: Deliver::Wait, ..request("SELECT COUNT(*) AS c FROM STREAM()", three) };
    let refused = fixture.engine.submit(&fixture.tenant, once).await.err().unwrap();
    assert!(matches!(refused, Error::WindowedAnswer), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_records_count_in_the_figures_of_the_engine() {
    let fixture = fixture(&disk(), two_threads());
    send(&fixture, 0..100);
    let past = |query: &str| QueryRequest { from: Start::Earliest, ..QueryRequest::new(query) };
    for round in 1..=2 {
        let answer = fixture.submit(past("SELECT n FROM STREAM() WHERE n < 10")).await.answer().await;
        assert_eq!((answer.meta.records_seen, answer.meta.matched), (100, 10));
        assert_eq!((fixture.engine.records_seen(), fixture.engine.matched()), (100 * round, 10 * round));
    }
    let live = fixture.live("SELECT n FROM STREAM()").await;
    send(&fixture, 100..110);
    fixture.seen(&live, 10).await;
    assert_eq!((fixture.engine.records_seen(), fixture.engine.matched()), (210, 30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evaluation_errors_are_those_up_to_the_last_row_that_was_asked_for() {
    let fixture = fixture(&disk(), two_threads());
    // One batch: of ten records in a row the first and the last cannot be divided by, and `bad` is no number in one.
    let payloads: Vec<String> = (0..1_000)
        .map(|n| match n % 10 {
            0 | 9 => format!("{{\"n\":{n},\"d\":0}}"),
            5 => format!("{{\"n\":{n},\"d\":1,\"bad\":\"x\"}}"),
            _ => format!("{{\"n\":{n},\"d\":1,\"bad\":\"7\"}}"),
        })
        .collect();
    fixture.send("k", &payloads);
    let errors = async |query: &str, limit: Option<u64>| {
        let request = QueryRequest { from: Start::Earliest, limit, ..QueryRequest::new(query) };
        let answer = fixture.submit(request).await.answer().await;
        (rows(&answer).len(), answer.meta.evaluation_errors)
    };
    let failing = "SELECT n, CAST(bad AS LONG) AS b FROM STREAM() WHERE n / d >= 0";
    // Records 0, 1, …, 8, and 9 and 10 before 11: errors at 0, at 5 in a row, at 9 and 10.
    for (limit, expected) in [(1, 1), (4, 1), (5, 2), (8, 2), (9, 4), (13, 5)] {
        assert_eq!(errors(failing, Some(limit)).await, (limit as usize, expected), "{limit}");
    }
    let sorted = serde_json::json!({"filters": [{"field": "n", "operation": ">=", "values": ["0"]}],
        "projection": {"fields": {"n": "n", "d": "d"}}, "aggregation": {"type": "RAW", "size": 5}, "postAggregations": [
        {"type": "COMPUTATION", "newName": "q", "expression": {"operation": "/",
            "left": {"value": {"kind": "FIELD", "value": "n"}}, "right": {"value": {"kind": "FIELD", "value": "d"}}}},
        {"type": "ORDERBY", "fields": [{"field": "n"}]}]});
    assert_eq!(errors(&sorted.to_string(), None).await, (5, 1), "a query that is full, too");
    let whole = "SELECT COUNT(*) AS c FROM STREAM() WHERE n / d >= 0";
    assert_eq!(errors(whole, None).await, (1, 200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn percentiles_of_the_past_are_the_same_each_time_and_within_the_error_of_few_groups() {
    const RECORDS: usize = 30_000;
    let numbers = || (0..RECORDS).map(|n| n * 7_919 % RECORDS);
    let query = "SELECT n % 2 AS g, QUANTILE(n, 0.5) AS p50, QUANTILE(n, 0.99) AS p99 FROM STREAM() GROUP BY g";
    let mut answers = Vec::new();
    for _ in 0..2 {
        let fixture = fixture(&disk(), two_threads());
        for (n, number) in numbers().enumerate() {
            fixture.send(&format!("k{}", n % KEYS), &[format!("{{\"n\":{number}}}")]);
        }
        for _ in 0..2 {
            let request = QueryRequest { from: Start::Earliest, ..QueryRequest::new(query) };
            let answer = fixture.submit(request).await.answer().await;
            assert!(answer.meta.sketches.iter().any(|sketch| sketch.was_estimated), "{:?}", answer.meta);
            answers.push(rows(&answer));
        }
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    for row in &answers[0] {
        let row: Value = serde_json::from_str(row).unwrap();
        for (name, rank) in [("p50", 0.5), ("p99", 0.99)] {
            let error = (row[name].as_f64().unwrap() / RECORDS as f64 - rank).abs();
            assert!(error <= 0.00239, "{row}: {error}");
        }
    }
}
