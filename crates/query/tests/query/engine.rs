//! Live queries on the embedded log: topics in memory and on disk, four partitions and more, several threads.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, Storage, TopicConfig};
use millstream_query::{Cause, Config, Deliver, Delivery, Error, OnSlow, QueryRequest, Subscription};
use millstream_testkit::eventually_async;
use millstream_types::{Compression, MemoryBudget, Record, TenantId, TopicName, TopicPartition};
use serde_json::{Value, json};

use crate::common::fixture::{append, disk, fixture, fixture_within, memory, rows, two_threads};

fn payload(id: usize, sequence: usize) -> String {
    format!("{{\"id\":\"d{id}\",\"n\":{sequence}}}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_record_appended_after_submit_is_seen_once_and_in_order_of_its_key() {
    const DEVICES: usize = 16;
    const EACH: usize = 2000;
    for topic in [memory(), disk(), TopicConfig { compression: Compression::Lz4, ..disk() }] {
        let fixture = Arc::new(fixture(&topic, two_threads()));
        for device in 0..DEVICES {
            fixture.send(&format!("d{device}"), &[payload(device, 999_999)]);
        }
        let all = fixture.live(&format!("SELECT * FROM STREAM() LIMIT {}", DEVICES * EACH)).await;
        let one = fixture.live(&format!("SELECT n FROM STREAM() WHERE id = 'd3' LIMIT {EACH}")).await;
        let range = fixture.live("SELECT id, n FROM STREAM() WHERE n >= 10 AND n < 20 LIMIT 160").await;
        let producers: Vec<_> = (0..4)
            .map(|producer| {
                let fixture = fixture.clone();
                std::thread::spawn(move || {
                    for from in (0..EACH).step_by(50) {
                        for device in (producer..DEVICES).step_by(4) {
                            let payloads: Vec<String> = (from..from + 50).map(|n| payload(device, n)).collect();
                            fixture.send(&format!("d{device}"), &payloads);
                        }
                    }
                })
            })
            .collect();
        let (all, one, range) = tokio::join!(all.answer(), one.answer(), range.answer());
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        for answer in [&all, &one, &range] {
            assert_eq!(answer.meta.cause, Some(Cause::Size));
            assert_eq!(answer.meta.dropped, 0);
            assert!(answer.meta.records_seen >= answer.meta.matched);
        }
        let mut by_device: HashMap<String, Vec<u64>> = HashMap::new();
        for row in rows(&all) {
            let row: serde_json::Value = serde_json::from_str(&row).unwrap();
            by_device.entry(row["id"].as_str().unwrap().to_owned()).or_default().push(row["n"].as_u64().unwrap());
        }
        assert_eq!(by_device.len(), DEVICES);
        for numbers in by_device.values() {
            assert_eq!(*numbers, (0..EACH as u64).collect::<Vec<_>>());
        }
        assert_eq!(all.meta.records_seen, (DEVICES * EACH) as u64);
        let covered: u64 =
            all.meta.positions.iter().map(|part| part.last.map_or(0, |last| last + 1 - part.first)).sum();
        assert_eq!((all.meta.positions.len(), covered), (4, (DEVICES * EACH) as u64));
        assert_eq!(rows(&one), (0..EACH).map(|n| format!("{{\"n\":{n}}}")).collect::<Vec<_>>());
        assert_eq!(rows(&range).len(), 160);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_that_come_while_records_flow_see_one_unbroken_run() {
    let fixture = Arc::new(fixture(&memory(), two_threads()));
    let producer = {
        let fixture = fixture.clone();
        std::thread::spawn(move || {
            for n in 0..400 {
                fixture.send("d0", &[payload(0, 2 * n), payload(0, 2 * n + 1)]);
                fixture.send("d1", &[payload(1, n)]);
            }
            fixture.send("d0", &["{\"id\":\"end\"}".to_owned()]);
        })
    };
    let mut answers = Vec::new();
    for _ in 0..20 {
        answers.push(fixture.live("SELECT n FROM STREAM() WHERE id = 'd0' OR id = 'end'").await);
    }
    producer.join().unwrap();
    fixture.send("d0", &["{\"id\":\"end\"}".to_owned()]);
    for mut subscription in answers {
        let mut numbers: Vec<u64> = Vec::new();
        'rows: while let Some(Delivery::Rows(batch)) = subscription.next().await {
            for row in batch.rows() {
                let row: serde_json::Value = serde_json::from_slice(row).unwrap();
                match row["n"].as_u64() {
                    Some(n) => numbers.push(n),
                    None => break 'rows,
                }
            }
        }
        let first = numbers.first().copied().unwrap_or(800);
        assert_eq!(numbers, (first..800).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_query_ends_after_its_duration_and_reports_its_counts() {
    let fixture = fixture(&memory(), two_threads());
    let request = QueryRequest::new("SELECT * FROM STREAM(5000, TIME) WHERE n != 1");
    let subscription = fixture.submit(request).await;
    let id = subscription.id();
    fixture.send("a", &[payload(0, 1), payload(0, 2), "oops".to_owned(), "{\"n\":1e999}".to_owned()]);
    // Records count as seen before their rows go out.
    eventually_async("all four are seen and told", || {
        let meta = fixture.engine.get(&fixture.tenant, id).unwrap();
        (meta.records_seen, meta.matched, meta.evaluation_errors) == (4, 1, 1)
    })
    .await;
    fixture.clock.advance(Duration::from_millis(4999));
    assert_eq!(fixture.engine.list(&fixture.tenant).len(), 1);
    fixture.clock.advance(Duration::from_millis(1));
    let answer = subscription.answer().await;
    assert_eq!(rows(&answer), [payload(0, 2)]);
    let meta = &answer.meta;
    assert_eq!(meta.cause, Some(Cause::Duration));
    assert_eq!((meta.records_seen, meta.matched, meta.evaluation_errors, meta.not_json), (4, 1, 1, 1));
    assert_eq!((meta.received_ms, meta.finished_ms, meta.elapsed_us), (1_000_000, Some(1_005_000), 5_000_000));
    assert_eq!(meta.stream, "telemetry.acme");
    let json: serde_json::Value = serde_json::from_slice(&answer.to_json()).unwrap();
    assert_eq!(json["records"][0]["n"], 2);
    assert_eq!(json["meta"]["cause"], "duration");
    assert_eq!(serde_json::from_value::<millstream_query::Meta>(json["meta"].clone()).unwrap(), *meta);
    assert!(matches!(fixture.engine.get(&fixture.tenant, id), Err(Error::UnknownQuery { .. })));
}

#[tokio::test]
async fn a_killed_query_returns_its_partial_result_and_a_dropped_one_is_forgotten() {
    let fixture = fixture(&disk(), two_threads());
    let killed = fixture.live("SELECT * FROM STREAM()").await;
    let dropped = fixture.live("SELECT * FROM STREAM() WHERE n = 1").await;
    let stranger = TenantId::new("other").unwrap();
    assert!(matches!(fixture.engine.kill(&stranger, killed.id()), Err(Error::UnknownQuery { .. })));
    assert!(fixture.engine.list(&stranger).is_empty());
    let texts: Vec<String> = fixture.engine.list(&fixture.tenant).into_iter().map(|meta| meta.text).collect();
    assert_eq!(texts.len(), 2);
    drop(dropped);
    assert_eq!(fixture.engine.live_count(), 1);
    fixture.send("a", &[payload(0, 1)]);
    let id = killed.id();
    eventually_async("the row is there", || fixture.engine.get(&fixture.tenant, id).unwrap().matched == 1).await;
    fixture.engine.kill(&fixture.tenant, id).unwrap();
    let answer = killed.answer().await;
    assert_eq!((rows(&answer), answer.meta.cause), (vec![payload(0, 1)], Some(Cause::Killed)));
    assert_eq!(fixture.engine.live_count(), 0);
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_its_query_or_its_oldest_rows_and_nobody_else_notices() {
    let config = Config { queue_max_bytes: 4000, ..two_threads() };
    let fixture = fixture(&memory(), config);
    let slow = |on_slow| QueryRequest { deliver: Deliver::Sse, on_slow, ..QueryRequest::new("SELECT * FROM STREAM()") };
    let killed = fixture.submit(slow(OnSlow::Kill)).await;
    let lossy = fixture.submit(slow(OnSlow::DropOldest)).await;
    let mut other = fixture.live("SELECT n FROM STREAM() WHERE n >= 0 LIMIT 300").await;
    let id = lossy.id();
    for n in 0..300 {
        fixture.send("a", &[payload(0, n)]);
        // One by one: rows of one batch wait together, and an empty queue takes them however many they are.
        let Some(Delivery::Rows(batch)) = other.next().await else { panic!("row {n}") };
        assert_eq!(batch.row_count(), 1);
        let matched = n as u64 + 1;
        eventually_async("the slow ones have it too", || {
            fixture.engine.get(&fixture.tenant, id).unwrap().matched == matched
        })
        .await;
    }
    let Some(Delivery::End(meta)) = other.next().await else { panic!("the end") };
    assert_eq!((meta.cause, meta.matched, meta.dropped), (Some(Cause::Size), 300, 0));
    let killed = killed.answer().await;
    assert_eq!(killed.meta.cause, Some(Cause::Limit));
    assert!(killed.meta.errors[0].error.contains("query.queue_max_bytes"));
    assert!(!rows(&killed).is_empty());
    fixture.engine.kill(&fixture.tenant, id).unwrap();
    let lossy = lossy.answer().await;
    let left = rows(&lossy);
    assert_eq!(lossy.meta.dropped + left.len() as u64, 300);
    assert!(lossy.meta.dropped > 0);
    assert_eq!(left.last(), Some(&payload(0, 299)));
}

#[tokio::test]
async fn rows_draw_on_the_memory_that_all_share_until_they_are_gone() {
    const BUDGET_BYTES: u64 = 4_000;
    let budget = MemoryBudget::new("memory.budget_bytes", BUDGET_BYTES);
    let fixture = fixture_within(&memory(), two_threads(), budget.clone());
    let slow = |on_slow| QueryRequest { deliver: Deliver::Sse, on_slow, ..QueryRequest::new("SELECT * FROM STREAM()") };
    let lossy = fixture.submit(slow(OnSlow::DropOldest)).await;
    let matched = |subscription: &Subscription| fixture.engine.get(&fixture.tenant, subscription.id()).unwrap().matched;
    for n in 0..100 {
        fixture.send("a", &[payload(0, n)]);
        eventually_async("it has been seen", || matched(&lossy) == n as u64 + 1).await;
        assert!((1..=BUDGET_BYTES).contains(&budget.used_bytes()));
    }
    // What is left to others is too little for a row: even an empty queue takes none, and the query ends or loses it.
    let rest = budget.take(BUDGET_BYTES - budget.used_bytes()).unwrap();
    let larger = QueryRequest { query: "SELECT id, n, id AS again FROM STREAM()".to_owned(), ..slow(OnSlow::Kill) };
    let killed = fixture.submit(larger).await;
    fixture.send("a", &[payload(0, 100)]);
    let killed = killed.answer().await;
    assert_eq!((killed.meta.cause, rows(&killed).len()), (Some(Cause::Limit), 0));
    assert!(killed.meta.errors[0].error.contains("memory.budget_bytes"));
    eventually_async("it has been seen", || matched(&lossy) == 101).await;
    fixture.engine.kill(&fixture.tenant, lossy.id()).unwrap();
    let lossy = lossy.answer().await;
    assert_eq!(lossy.meta.dropped + rows(&lossy).len() as u64, 101);
    assert!(lossy.meta.dropped > 0);
    drop(rest);
    assert!(budget.used_bytes() > 0, "an answer counts as long as somebody has it");
    drop((killed, lossy));
    assert_eq!(budget.used_bytes(), 0);
}

#[tokio::test]
async fn a_query_that_may_not_be_is_refused_and_leaves_nothing_behind() {
    let config = Config { live_max: 3, live_per_tenant_max: 2, ..two_threads() };
    let fixture = fixture(&memory(), config);
    let refusal = async |text: &str| {
        let submitted = fixture.engine.submit(&fixture.tenant, QueryRequest::new(text)).await;
        submitted.err().unwrap_or_else(|| panic!("{text}"))
    };
    for (text, status, message) in [
        ("SELCT", 400, "did you mean SELECT?"),
        ("SELECT * FROM \"telemetry.other\"", 403, "none of tenant 'acme'"),
        ("SELECT * FROM \"_registry\"", 403, "own streams only"),
        ("SELECT * FROM \"nothing\"", 404, "'nothing' does not exist"),
        ("SELECT * FROM \"no name\"", 400, "not a topic name"),
    ] {
        let error = refusal(text).await;
        assert_eq!(error.code().http_status(), status, "{text}");
        assert!(error.to_string().contains(message), "{error}");
    }
    let zero = QueryRequest { limit: Some(0), ..QueryRequest::new("SELECT * FROM STREAM()") };
    assert!(matches!(fixture.engine.submit(&fixture.tenant, zero).await, Err(Error::Zero { setting: "limit" })));
    let live = [fixture.live("SELECT * FROM STREAM()").await, fixture.live("SELECT * FROM STREAM()").await];
    let error = refusal("SELECT * FROM STREAM()").await;
    assert_eq!(error.code().http_status(), 429);
    assert!(error.to_string().contains("query.live_per_tenant_max = 2"), "{error}");
    // What all tenants have together has a limit of its own.
    let other = TenantId::new("other").unwrap();
    let stream = TopicName::user("stream", &other).unwrap();
    fixture.log.create_topic(&stream, &memory()).unwrap();
    let of_other = || fixture.engine.submit(&other, QueryRequest::new("SELECT * FROM \"stream\""));
    let third = of_other().await.unwrap();
    let error = of_other().await.err().unwrap();
    assert_eq!(error.code().http_status(), 503);
    assert!(error.to_string().contains("query.live_max = 3"), "{error}");
    drop((live, third));
    fixture.live("SELECT * FROM STREAM()").await;
    assert_eq!(fixture.engine.live_count(), 0);
}

#[tokio::test]
async fn a_query_that_gives_rows_faster_than_it_may_ends_and_tells_both_rates() {
    let config = Config { rows_per_second_max: 10, bytes_per_second_max: 2000, ..two_threads() };
    let fixture = fixture(&memory(), config);
    let many = fixture.live("SELECT n FROM STREAM()").await;
    let large = fixture.live("SELECT n, id AS a, id AS b FROM STREAM() WHERE n = 3").await;
    let calm = fixture.live("SELECT n FROM STREAM() WHERE n = 7").await;
    let counted = fixture.live("SELECT COUNT(*) AS c FROM STREAM()").await;
    for n in 0..10 {
        fixture.send("k", &[json!({"id": "x".repeat(1000), "n": n}).to_string()]);
    }
    eventually_async("ten rows have been taken", || {
        fixture.engine.get(&fixture.tenant, many.id()).unwrap().matched == 10
    })
    .await;
    // A second later it may give as many again, and no more.
    fixture.clock.advance(Duration::from_secs(1));
    let further: Vec<String> = (10..21).map(|n| json!({"n": n}).to_string()).collect();
    for payload in &further {
        fixture.send("k", std::slice::from_ref(payload));
    }
    let many = many.answer().await;
    assert_eq!(many.meta.cause, Some(Cause::Limit));
    let error = &many.meta.errors[0].error;
    assert!(error.starts_with("rate limit exceeded: ") && error.ends_with("query.rows_per_second_max = 10"), "{error}");
    let given = rows(&many).len();
    assert!((10..=20).contains(&given) && given as u64 + many.meta.dropped == many.meta.matched, "{given} rows");
    let large = large.answer().await;
    assert_eq!((large.meta.cause, rows(&large).len()), (Some(Cause::Limit), 0));
    assert!(large.meta.errors[0].error.contains("query.bytes_per_second_max = 2000"), "{:?}", large.meta.errors);
    fixture.seen(&calm, 21).await;
    for (query, expected) in [(calm, r#"{"n":7}"#), (counted, r#"{"c":21}"#)] {
        fixture.engine.kill(&fixture.tenant, query.id()).unwrap();
        let answer = query.answer().await;
        assert_eq!((answer.meta.cause, rows(&answer)), (Some(Cause::Killed), vec![expected.to_owned()]));
    }
}

#[tokio::test]
async fn queries_over_the_row_rate_of_their_tenant_end_one_by_one_without_harm_to_others() {
    let fixture = fixture(&memory(), Config { rows_per_second_per_tenant_max: 10, ..two_threads() });
    let other = TenantId::new("other").unwrap();
    let stream = TopicName::user("stream", &other).unwrap();
    fixture.log.create_topic(&stream, &memory()).unwrap();
    let of_other = QueryRequest { deliver: Deliver::Sse, ..QueryRequest::new("SELECT n FROM \"stream\"") };
    let of_other = fixture.engine.submit(&other, of_other).await.unwrap();
    let send = |numbers: &[usize]| numbers.iter().for_each(|n| fixture.send("k", &[payload(0, *n)]));

    let all = fixture.live("SELECT n FROM STREAM()").await;
    let even = fixture.live("SELECT n FROM STREAM() WHERE n % 2 = 0").await;
    send(&[0, 1, 2, 3, 4, 5, 7]);
    fixture.seen(&all, 7).await;
    send(&[9]);
    let all = all.answer().await;
    assert_eq!((all.meta.cause, all.meta.matched, all.meta.dropped, rows(&all).len()), (Some(Cause::Limit), 8, 1, 7));
    let error = &all.meta.errors[0].error;
    let told =
        "rate limit exceeded: 11 rows of the tenant's queries within 0 ms, query.rows_per_second_per_tenant_max = 10";
    assert_eq!(error, told);
    // Whoever asks again has no more for that.
    let again = fixture.live("SELECT n FROM STREAM() WHERE n = 11").await;
    send(&[11]);
    let again = again.answer().await;
    assert_eq!((again.meta.cause, rows(&again).len()), (Some(Cause::Limit), 0));
    let partition = fixture.log.partition(&TopicPartition::new(stream, 0)).unwrap();
    let value = payload(0, 1);
    let records: Vec<_> = (0..9).map(|_| Record { value: Some(value.as_bytes()), ..Record::default() }).collect();
    append(&*partition, &records, AckLevel::Memory);
    eventually_async("the other tenant has its rows", || of_other.meta().matched == 9).await;

    fixture.clock.advance(Duration::from_secs(1));
    send(&[6, 8, 10]);
    fixture.seen(&even, 12).await;
    fixture.engine.kill(&fixture.tenant, even.id()).unwrap();
    fixture.engine.kill(&other, of_other.id()).unwrap();
    for (query, expected) in [(even, 6), (of_other, 9)] {
        let answer = query.answer().await;
        assert_eq!((answer.meta.cause, answer.meta.dropped, rows(&answer).len()), (Some(Cause::Killed), 0, expected));
    }
}

#[tokio::test]
async fn the_byte_rate_of_a_tenant_bounds_rows_and_windows_but_not_final_results() {
    let fixture = fixture(&memory(), Config { bytes_per_second_per_tenant_max: 2000, ..two_threads() });
    let whole = fixture.live("SELECT id FROM STREAM()").await;
    let window = fixture.live("SELECT id, COUNT(*) AS c FROM STREAM() GROUP BY id WINDOWING TUMBLING(1, RECORD)").await;
    let sum = fixture.live("SELECT id, COUNT(*) AS c FROM STREAM() GROUP BY id").await;
    fixture.send("k", &[json!({"id": "x".repeat(1000)}).to_string()]);
    fixture.seen(&sum, 1).await;
    fixture.engine.kill(&fixture.tenant, sum.id()).unwrap();
    assert_eq!(rows(&sum.answer().await).len(), 1);
    // Each fits alone, and both do not: one of them has gone.
    assert_eq!(fixture.engine.live_count(), 1);
    let ids = [whole.id(), window.id()];
    ids.iter().for_each(|id| drop(fixture.engine.kill(&fixture.tenant, *id)));
    let answers = [whole.answer().await, window.answer().await];
    let ended: Vec<_> = answers.iter().filter(|answer| answer.meta.cause == Some(Cause::Limit)).collect();
    assert_eq!((ended.len(), answers.iter().map(|answer| rows(answer).len()).sum::<usize>()), (1, 1));
    let error = &ended[0].meta.errors[0].error;
    assert!(error.ends_with("query.bytes_per_second_per_tenant_max = 2000"), "{error}");
}

#[tokio::test]
async fn requests_beyond_the_limits_are_clamped_and_the_answer_says_so() {
    let config = Config { duration_max_ms: 60_000, rows_max: 3, rows_default: 2, ..two_threads() };
    let fixture = fixture(&memory(), config);
    let clamped = async |request: QueryRequest| {
        let meta = fixture.submit(request).await.meta();
        meta.clamped.into_iter().map(|c| (c.setting, c.asked, c.given)).collect::<Vec<_>>()
    };
    let query = "SELECT * FROM STREAM(90000, TIME) LIMIT 10";
    let duration = |asked| ("query.duration_max_ms".to_owned(), asked, 60_000);
    let rows_max = ("query.rows_max".to_owned(), Some(10), 3);
    assert_eq!(clamped(QueryRequest::new(query)).await, [duration(Some(90_000)), rows_max]);
    let sse = QueryRequest { deliver: Deliver::Sse, ..QueryRequest::new("SELECT * FROM STREAM() LIMIT 10") };
    assert_eq!(clamped(sse).await, [duration(None)]);
    assert_eq!(clamped(QueryRequest::new("SELECT * FROM STREAM()")).await, []);
    let waiting = fixture.submit(QueryRequest::new("SELECT * FROM STREAM()")).await;
    fixture.send("a", &[payload(0, 0), payload(0, 1), payload(0, 2)]);
    let answer = waiting.answer().await;
    assert_eq!((rows(&answer).len(), answer.meta.cause), (2, Some(Cause::Size)));
}

#[tokio::test]
async fn a_deleted_stream_ends_its_queries_and_a_stop_ends_all() {
    let fixture = fixture(&memory(), two_threads());
    let other = TopicName::user("other", &fixture.tenant).unwrap();
    fixture.log.create_topic(&other, &memory()).unwrap();
    let doomed = fixture.live("SELECT * FROM \"other\"").await;
    let lasting = fixture.live("SELECT * FROM STREAM()").await;
    fixture.log.delete_topic(&other).unwrap();
    let answer = doomed.answer().await;
    assert_eq!(answer.meta.cause, Some(Cause::Error));
    assert!(answer.meta.errors[0].error.contains("'other' does not exist"), "{:?}", answer.meta.errors);
    fixture.send("a", &[payload(0, 7)]);
    let id = lasting.id();
    eventually_async("the row is there", || fixture.engine.get(&fixture.tenant, id).unwrap().matched == 1).await;
    fixture.engine.stop();
    let answer = lasting.answer().await;
    assert_eq!((rows(&answer), answer.meta.cause), (vec![payload(0, 7)], Some(Cause::Shutdown)));
    let refused = fixture.engine.submit(&fixture.tenant, QueryRequest::new("SELECT * FROM STREAM()")).await;
    assert!(matches!(refused, Err(Error::Stopped)));
}

#[tokio::test]
async fn records_lost_by_a_topic_in_memory_before_they_were_read_are_reported() {
    let small = TopicConfig { storage: Storage::Memory { max_bytes: 64 << 10 }, ..memory() };
    let fixture = fixture(&small, Config { threads: 1, ..Config::default() });
    let subscription = fixture.live("SELECT $offset AS o FROM STREAM()").await;
    let big = format!("{{\"n\":\"{}\"}}", "x".repeat(20_000));
    for _ in 0..400 {
        fixture.send("a", std::slice::from_ref(&big));
    }
    let id = subscription.id();
    eventually_async("all are read or lost", || {
        let meta = fixture.engine.get(&fixture.tenant, id).unwrap();
        meta.matched + meta.skipped == 400
    })
    .await;
    fixture.engine.kill(&fixture.tenant, id).unwrap();
    let answer = subscription.answer().await;
    let offsets = rows(&answer);
    assert_eq!(offsets.len() as u64, answer.meta.records_seen);
    let distinct: BTreeMap<String, ()> = offsets.into_iter().map(|row| (row, ())).collect();
    assert_eq!(distinct.len() as u64, answer.meta.matched);
}

#[tokio::test]
async fn conditions_that_no_index_finds_have_a_budget() {
    let config = Config { residual_ns_per_record_max: 40, ..two_threads() };
    let fixture = fixture(&memory(), config);
    let first = fixture.live("SELECT * FROM STREAM() WHERE n != 1").await;
    let _second = fixture.live("SELECT * FROM STREAM() WHERE n != 2").await;
    let _same = fixture.live("SELECT id FROM STREAM() WHERE n != 2").await;
    let indexed = fixture.live("SELECT * FROM STREAM() WHERE n != 3 AND id = 'd0'").await;
    let priced = serde_json::to_value(first.opening()).unwrap();
    assert_eq!(priced["residual_ns_per_record"], 20, "what it costs is told when it is taken");
    let free = serde_json::to_value(indexed.opening()).unwrap();
    assert_eq!(free.get("residual_ns_per_record"), None, "an index finds its records");
    let third = || fixture.engine.submit(&fixture.tenant, QueryRequest::new("SELECT * FROM STREAM() WHERE n != 4"));
    let refused = third().await.err().unwrap();
    assert_eq!(refused.code().http_status(), 503);
    let text = refused.to_string();
    assert!(text.contains("'n != 4'") && text.contains("query.residual_ns_per_record_max = 40"), "{text}");
    drop(first);
    third().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_result_of_a_query_that_is_ended_has_all_records_that_its_end_counts() {
    let fixture = fixture(&memory(), two_threads());
    let payloads: Vec<String> = (0..500).map(|n| format!("{{\"id\":\"g{n}\"}}")).collect();
    for _ in 0..100 {
        let mut query = fixture.live("SELECT id, COUNT(*) AS c FROM STREAM() GROUP BY id").await;
        (0..8).for_each(|key| fixture.send(&format!("k{key}"), &payloads));
        // It is ended while its threads are between counting records and adding them to the result.
        while fixture.engine.get(&fixture.tenant, query.id()).unwrap().records_seen == 0 {
            tokio::task::yield_now().await;
        }
        fixture.engine.kill(&fixture.tenant, query.id()).unwrap();
        let mut counted = 0;
        let end = loop {
            match query.next().await.unwrap() {
                Delivery::Rows(batch) => {
                    let rows = batch.rows().map(|row| serde_json::from_slice::<Value>(row).unwrap());
                    counted += rows.map(|row| row["c"].as_u64().unwrap()).sum::<u64>();
                }
                Delivery::End(meta) => break meta,
                Delivery::Window(window) => panic!("{window:?}"),
            }
        };
        assert_eq!((counted, end.matched), (end.records_seen, end.records_seen));
    }
}
