//! Rows of records in an order: the first of all rows of a result, whatever came before them.

use std::time::Duration;

use millstream_query::{
    Cause, Config, Deliver, Delivery, QueryAnswer, QueryRequest, Start, Subscription, Until, WindowResult,
};
use millstream_testkit::eventually_async;
use serde_json::{Value, json};

use crate::common::fixture::{disk, fixture, memory, rows, two_threads};

/// The numbers `n` of some rows.
fn numbers<'r>(rows: impl IntoIterator<Item = &'r [u8]>) -> Vec<i64> {
    let number = |row: &[u8]| serde_json::from_slice::<Value>(row).unwrap()["n"].as_i64().unwrap();
    rows.into_iter().map(number).collect()
}

fn answered(answer: &QueryAnswer) -> Vec<i64> {
    numbers(answer.batches.iter().flat_map(|batch| batch.rows()))
}

async fn window(subscription: &mut Subscription) -> WindowResult {
    match subscription.next().await {
        Some(Delivery::Window(window)) => *window,
        other => panic!("a window is next, not {other:?}"),
    }
}

/// 0 to 999 in a mixed order.
fn mixed() -> impl Iterator<Item = Value> {
    (0..1_000).map(|n| json!({"n": n * 377 % 1_000}))
}

#[tokio::test]
async fn rows_of_records_are_sorted_within_each_result() {
    let fixture = fixture(&memory(), two_threads());
    let document = json!({"projection": {"fields": {"n": "n"}}, "duration": 1000,
        "postAggregations": [{"type": "ORDERBY", "fields": [{"field": "n", "direction": "DESC"}]}]})
    .to_string();
    for (query, expected) in [
        ("SELECT n FROM STREAM(1000, TIME) ORDER BY n", [1, 2, 3, 4, 5]),
        ("SELECT n FROM STREAM(1000, TIME) ORDER BY -n", [5, 4, 3, 2, 1]),
        ("SELECT n FROM STREAM(1000, TIME) ORDER BY k, n DESC", [4, 2, 5, 3, 1]),
        ("SELECT n, 7 / (n - 3) AS q FROM STREAM(1000, TIME) ORDER BY q, n DESC", [3, 2, 1, 5, 4]),
        (&document, [5, 4, 3, 2, 1]),
    ] {
        let answer = fixture.answer(query, [3, 1, 5, 2, 4].map(|n| json!({"n": n, "k": n % 2}))).await;
        assert_eq!(answered(&answer), expected, "{query}");
    }
    let mut windows = fixture.live("SELECT * FROM STREAM() ORDER BY n DESC WINDOWING TUMBLING(3, RECORD)").await;
    fixture.send("k", &[2, 3, 1, 5, 6, 4].map(|n| json!({"n": n}).to_string()));
    for expected in [[3, 2, 1], [6, 5, 4]] {
        assert_eq!(numbers(window(&mut windows).await.rows.rows()), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_after_a_sort_order_gives_the_first_of_all_rows() {
    let fixture = fixture(&disk(), two_threads());
    let answer = fixture.answer("SELECT n FROM STREAM(1000, TIME) ORDER BY n DESC LIMIT 3", mixed()).await;
    assert_eq!(answered(&answer), [999, 998, 997]);
    assert_eq!((answer.meta.matched, answer.meta.notes.len()), (1_000, 0), "all have been looked at");
    // Of what is there already, in one answer and as events.
    for deliver in [Deliver::Wait, Deliver::Sse] {
        let query = "SELECT n FROM STREAM() WHERE n > 10 ORDER BY n LIMIT 4";
        let request = QueryRequest { from: Start::Earliest, deliver, ..QueryRequest::new(query) };
        let answer = fixture.submit(request).await.answer().await;
        assert_eq!((answered(&answer), answer.meta.cause), (vec![11, 12, 13, 14], Some(Cause::Until)));
    }
    // Of each window, by time and by records.
    let by_time = "SELECT n FROM STREAM() ORDER BY n DESC LIMIT 2 ";
    let mut by_time = fixture.live(&by_time.replace("LIMIT 2", "WINDOWING TUMBLING(1000, TIME) LIMIT 2")).await;
    let by_records = "SELECT n FROM STREAM() ORDER BY n DESC WINDOWING TUMBLING(1000, RECORD) LIMIT 2";
    let mut by_records = fixture.live(by_records).await;
    fixture.spread(mixed());
    fixture.seen(&by_time, 1_000).await;
    fixture.clock.advance(Duration::from_secs(1));
    for windows in [&mut by_time, &mut by_records] {
        let window = window(windows).await;
        assert_eq!((numbers(window.rows.rows()), window.meta.records), (vec![999, 998], 1_000));
    }
}

#[tokio::test]
async fn a_document_sorts_the_records_that_it_takes() {
    let fixture = fixture(&disk(), two_threads());
    let document = json!({"aggregation": {"type": "RAW", "size": 3}, "projection": {"fields": {"n": "n"}},
        "postAggregations": [{"type": "ORDERBY", "fields": [{"field": "n"}]}]});
    for deliver in [Deliver::Wait, Deliver::Sse] {
        let query = fixture.submit(QueryRequest { deliver, ..QueryRequest::new(document.to_string()) }).await;
        fixture.send("k", &[9, 8, 7, 1, 2].map(|n| json!({"n": n}).to_string()));
        let answer = query.answer().await;
        assert_eq!(answered(&answer), [7, 8, 9]);
        assert_eq!((answer.meta.cause, answer.meta.matched), (Some(Cause::Size), 3));
    }
}

#[tokio::test]
async fn rows_in_an_order_without_an_end_or_windows_are_refused_in_words() {
    let bounded = Config { duration_max_ms: 60_000, ..two_threads() };
    let query = || QueryRequest::new("SELECT n FROM STREAM() ORDER BY n DESC LIMIT 3");
    let endless = || QueryRequest { deliver: Deliver::Sse, ..query() };
    let unbounded = fixture(&disk(), two_threads());
    for request in [
        endless(),
        QueryRequest { keep: true, ..endless() },
        QueryRequest { from: Start::Earliest, until: Some(Until::Never), ..endless() },
        QueryRequest { query: "SELECT n FROM STREAM(MAX, TIME) ORDER BY n".into(), ..endless() },
    ] {
        let refused = unbounded.engine.submit(&unbounded.tenant, request).await.err().unwrap().to_string();
        assert!(refused.contains("ORDER BY") && refused.contains("'duration_ms'"), "{refused}");
    }
    assert_eq!(unbounded.engine.live_count(), 0);
    for request in [
        query(),
        QueryRequest { duration_ms: Some(1_000), ..endless() },
        QueryRequest { from: Start::Earliest, ..endless() },
        QueryRequest { window: Some(json!({"emit": {"type": "TIME", "every": 1000}})), ..endless() },
    ] {
        unbounded.submit(request).await;
    }
    let clamped = fixture(&disk(), bounded).submit(endless()).await;
    assert_eq!(clamped.meta().clamped[0].given, 60_000, "the server ends it");
}

#[tokio::test]
async fn a_result_that_is_cut_without_a_limit_says_so() {
    let fixture = fixture(&disk(), two_threads());
    let answer = fixture.answer("SELECT n FROM STREAM(1000, TIME) ORDER BY n DESC", mixed()).await;
    assert_eq!((rows(&answer).len(), answered(&answer)[499]), (500, 500));
    assert_eq!(answer.meta.notes, ["these are the first 500 of 1000 rows; say LIMIT for others, up to query.rows_max"]);
    let mut windows = fixture.live("SELECT n FROM STREAM() WINDOWING TUMBLING(600, RECORD)").await;
    fixture.spread(mixed());
    let notes = window(&mut windows).await.meta.notes;
    assert!(notes[0].starts_with("these are the first 500 of 600 rows"), "{notes:?}");
}

#[tokio::test]
async fn memory_of_sorted_rows_is_that_of_the_result_and_counted() {
    let fixture = fixture(&memory(), Config { states_max_bytes: 300_000, rows_max: 5_000, ..two_threads() });
    let long = |n: i64| json!({"n": n, "text": "x".repeat(2_000)});
    // 4 MB of rows, each before those that came earlier, of which ten stay.
    let first = fixture.live("SELECT n, text FROM STREAM(1000, TIME) ORDER BY n LIMIT 10").await;
    for part in 0..20 {
        fixture.spread((0..100).map(|n| long(-part * 100 - n)));
    }
    fixture.seen(&first, 2_000).await;
    assert!((20_000..200_000).contains(&fixture.engine.states_bytes()), "{}", fixture.engine.states_bytes());
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(answered(&first.answer().await)[..3], [-1_999, -1_998, -1_997]);
    let many = fixture.live("SELECT n, text FROM STREAM(1000, TIME) ORDER BY n LIMIT 5000").await;
    fixture.spread((0..2_000).map(long));
    let end = many.answer().await.meta;
    assert_eq!(end.cause, Some(Cause::Limit));
    assert!(end.errors[0].error.contains("query.states_max_bytes"), "{:?}", end.errors);
    eventually_async("its memory is free", || fixture.engine.states_bytes() == 0).await;
}
