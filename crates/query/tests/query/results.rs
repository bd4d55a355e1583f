//! Results of many records: counts, groups, sketches, windows; the worked-out examples of the reference by their numbers.

use millstream_query::{
    Cause, Config, Delivery, Error, QueryAnswer, QueryRequest, RowBatch, SketchMeta, Subscription, WindowResult,
};
use millstream_testkit::eventually_async;
use serde_json::{Value, json};

use crate::common::fixture::{disk, fixture, memory, rows, two_threads};

fn values(rows: &RowBatch) -> Vec<Value> {
    rows.rows().map(|row| serde_json::from_slice(row).unwrap()).collect()
}

fn answered(answer: &QueryAnswer) -> Vec<Value> {
    rows(answer).iter().map(|row| serde_json::from_str(row).unwrap()).collect()
}

async fn window(subscription: &mut Subscription) -> WindowResult {
    match subscription.next().await {
        Some(Delivery::Window(window)) => *window,
        other => panic!("a window is next, not {other:?}"),
    }
}

fn sketch(answer: &QueryAnswer) -> &SketchMeta {
    answer.meta.sketches.first().unwrap_or_else(|| panic!("{:?}", answer.meta))
}

#[tokio::test]
async fn q6_without_records_the_count_is_zero_and_other_aggregates_are_null() {
    let fixture = fixture(&memory(), two_threads());
    let answer = fixture.answer("SELECT COUNT(*) AS c, SUM(v) AS s, AVG(v) AS a FROM STREAM(1000, TIME)", []).await;
    assert_eq!(rows(&answer), [r#"{"c":0,"s":null,"a":null}"#]);
}

#[tokio::test]
async fn several_aggregates_of_one_query_are_exact_over_partitions_and_threads() {
    let fixture = fixture(&disk(), two_threads());
    let records = (0..1_000).map(|n| json!({"n": n, "odd": n % 2 == 1, "half": f64::from(n) / 2.0}));
    let query = "SELECT odd, COUNT(*) AS c, SUM(n) AS s, MIN(n) AS low, MAX(half) AS high, AVG(n) AS mean, \
                 COUNT(DISTINCT n) AS d FROM STREAM(1000, TIME) WHERE n < 999 GROUP BY odd";
    let answer = fixture.answer(query, records).await;
    let expected = [
        json!({"odd": false, "c": 500, "s": 249_500, "low": 0, "high": 499.0, "mean": 499.0, "d": 500}),
        json!({"odd": true, "c": 499, "s": 249_001, "low": 1, "high": 498.5, "mean": 499.0, "d": 499}),
    ];
    assert_eq!(answered(&answer), expected);
    assert_eq!((answer.meta.records_seen, answer.meta.matched, answer.meta.evaluation_errors), (1_000, 999, 0));
    assert!(answer.meta.sketches.iter().all(|sketch| !sketch.was_estimated));
}

#[tokio::test]
async fn groups_are_filtered_sorted_and_limited_and_their_keys_keep_their_types() {
    let fixture = fixture(&memory(), two_threads());
    let keys = [json!(1), json!("1"), json!(1.0), Value::Null, json!("b"), json!("b"), json!({"x": 1})];
    let query = "SELECT k, COUNT(*) AS c FROM STREAM(1000, TIME) GROUP BY k ORDER BY c DESC, k LIMIT 3";
    let answer = fixture.answer(query, keys.map(|k| json!({"k": k}))).await;
    let expected = [json!({"k": 1, "c": 2}), json!({"k": "b", "c": 2}), json!({"k": null, "c": 1})];
    assert_eq!(answered(&answer), expected);
    assert_eq!((answer.meta.matched, answer.meta.evaluation_errors), (6, 1), "an object makes no group");
    let query = "SELECT k FROM STREAM(1000, TIME) GROUP BY k HAVING COUNT(*) > 1 AND k IS NOT NULL";
    let answer = fixture.answer(query, [1, 1, 2, 3, 3, 3].map(|k| json!({"k": k}))).await;
    assert_eq!(answered(&answer), [json!({"k": 1}), json!({"k": 3})]);
    let answer = fixture.answer("SELECT DISTINCT k FROM STREAM(1000, TIME)", [2, 1, 2].map(|k| json!({"k": k}))).await;
    assert_eq!(answered(&answer), [json!({"k": 1}), json!({"k": 2})]);
}

#[tokio::test]
async fn a_value_that_fails_is_null_in_its_row_or_aggregate_and_takes_nothing_else_away() {
    let fixture = fixture(&memory(), two_threads());
    let records = || [json!("8.5"), json!("x"), json!(1)].map(|v| json!({"v": v}));
    for (query, expected) in [
        ("SELECT COUNT(*) AS c, SUM(CAST(v AS LONG)) AS s FROM STREAM(1000, TIME)", vec![json!({"c": 3, "s": 9})]),
        (
            "SELECT CAST(v AS LONG) AS k, COUNT(*) AS c FROM STREAM(1000, TIME) GROUP BY k",
            vec![json!({"k": null, "c": 1}), json!({"k": 1, "c": 1}), json!({"k": 8, "c": 1})],
        ),
        (
            "SELECT v, CAST(v AS LONG) AS k FROM STREAM(1000, TIME) ORDER BY k",
            vec![json!({"v": "x", "k": null}), json!({"v": 1, "k": 1}), json!({"v": "8.5", "k": 8})],
        ),
    ] {
        let answer = fixture.answer(query, records()).await;
        assert_eq!(answered(&answer), expected, "{query}");
        assert_eq!((answer.meta.matched, answer.meta.evaluation_errors), (3, 1), "{query}");
    }
    let query = "SELECT COUNT(*) AS c, 6 / COUNT(nothing) AS q, 6 / COUNT(*) AS r FROM STREAM(1000, TIME)";
    let answer = fixture.answer(query, records()).await;
    assert_eq!(answered(&answer), [json!({"c": 3, "q": null, "r": 2})]);
    assert_eq!(answer.meta.evaluation_errors, 1, "a row of a result counts as well");
    let query = "SELECT v FROM STREAM(1000, TIME) WHERE CAST(v AS LONG) > 0";
    let answer = fixture.answer(query, records()).await;
    assert_eq!((rows(&answer).len(), answer.meta.evaluation_errors), (2, 1), "in a condition it is no match");
}

#[tokio::test]
async fn q7_and_q8_counts_between_points_and_up_to_them() {
    let fixture = fixture(&memory(), two_threads());
    let records = || [0.0, 1.0, 1.5, 2.0, 7.0].map(|v| json!({"v": v}));
    let answer = fixture.answer("SELECT FREQ(v, MANUAL, 1, 2, 3) FROM STREAM(1000, TIME)", records()).await;
    let told: Vec<(Value, f64)> =
        answered(&answer).iter().map(|row| (row["Count"].clone(), row["Probability"].as_f64().unwrap())).collect();
    assert_eq!(told, [(json!(1), 0.2), (json!(2), 0.4), (json!(1), 0.2), (json!(1), 0.2)]);
    let answer = fixture.answer("SELECT CUMFREQ(v, MANUAL, 1, 2, 3) FROM STREAM(1000, TIME)", records()).await;
    let counts: Vec<Value> = answered(&answer).iter().map(|row| row["Count"].clone()).collect();
    assert_eq!(counts, [1, 3, 4, 5]);
    let sketch = sketch(&answer);
    assert_eq!(
        (sketch.min, sketch.max, sketch.items_seen, sketch.rank_error),
        (Some(0.0), Some(7.0), Some(5), Some(0.0))
    );
}

#[tokio::test]
async fn the_least_and_the_greatest_of_texts_are_by_their_order_unless_there_are_numbers() {
    let fixture = fixture(&memory(), two_threads());
    let query = "SELECT k, MIN(v) AS low, MAX(v) AS high FROM STREAM(1000, TIME) GROUP BY k";
    let values = [("t", json!("b")), ("t", json!("a")), ("t", json!(null)), ("t", json!("é")), ("t", json!(true))];
    let mixed = [("m", json!("zebra")), ("m", json!(7)), ("m", json!("8.5")), ("m", json!("apple")), ("n", json!({}))];
    let answer = fixture.answer(query, values.into_iter().chain(mixed).map(|(k, v)| json!({"k": k, "v": v}))).await;
    let expected = [
        json!({"k": "m", "low": 7, "high": 8.5}),
        json!({"k": "n", "low": null, "high": null}),
        json!({"k": "t", "low": "a", "high": "é"}),
    ];
    assert_eq!(answered(&answer), expected);
    let query = "SELECT k, MAX(LOWER(v)) AS high FROM STREAM(1000, TIME) GROUP BY k HAVING MAX(v) != 'a'";
    let answer =
        fixture.answer(query, [("t", "B"), ("t", "c"), ("s", "a")].map(|(k, v)| json!({"k": k, "v": v}))).await;
    assert_eq!(answered(&answer), [json!({"k": "t", "high": "c"})]);
}

#[tokio::test]
async fn quantiles_stand_beside_other_aggregates_and_are_computed_for_each_group() {
    let fixture = fixture(&disk(), two_threads());
    let records = || (1..=10_000).map(|n| json!({"k": if n <= 100 { "few" } else { "many" }, "n": n}));
    let query = "SELECT k, COUNT(*) AS c, AVG(n) AS mean, QUANTILE(n, 0.5) AS median, QUANTILE(n, 0.95) AS p95 \
                 FROM STREAM(1000, TIME) GROUP BY k HAVING QUANTILE(n, 0) > 0 ORDER BY QUANTILE(n, 0.95) DESC";
    let answer = fixture.answer(query, records()).await;
    let rows = answered(&answer);
    assert_eq!(rows[1], json!({"k": "few", "c": 100, "mean": 50.5, "median": 50.0, "p95": 95.0}));
    let (many, sketches) = (&rows[0], &answer.meta.sketches);
    assert_eq!((&many["k"], &many["c"]), (&json!("many"), &json!(9_900)));
    let error = sketches.iter().find(|sketch| sketch.of == "QUANTILE(n, 0.95)").unwrap();
    assert_eq!((error.family.as_str(), error.was_estimated, error.items_seen), ("KLL quantiles", true, Some(10_000)));
    let off = (many["p95"].as_f64().unwrap() - 9_505.0).abs() / 9_900.0;
    assert!(off <= error.rank_error.unwrap() && error.rank_error.unwrap() < 0.00239, "{off} {error:?}");
    let all = "SELECT QUANTILE(n, 0.95) AS p95, MAX(n) - QUANTILE(n, 1) AS none FROM STREAM(1000, TIME) WHERE n <= 200";
    assert_eq!(answered(&fixture.answer(all, records()).await), [json!({"p95": 190.0, "none": 0.0})]);
    let none = "SELECT QUANTILE(n, 0.5) AS median FROM STREAM(1000, TIME) WHERE n < 0";
    assert_eq!(answered(&fixture.answer(none, records()).await), [json!({"median": null})]);
    let mut windows = fixture.live("SELECT QUANTILE(n, 0.5) AS m FROM STREAM() WINDOWING EVERY(3, RECORD, ALL)").await;
    fixture.send("k", &[5, 1, 3, 9, 9, 9].map(|n| json!({"n": n}).to_string()));
    assert_eq!(values(&window(&mut windows).await.rows), [json!({"m": 3.0})]);
    assert_eq!(values(&window(&mut windows).await.rows), [json!({"m": 5.0})]);
}

#[tokio::test]
async fn a_hundred_thousand_groups_are_exact_and_a_choice_from_a_sample_says_so() {
    const GROUPS: u64 = 100_000;
    let query =
        "SELECT k, COUNT(*) AS c, MAX(n) AS high FROM STREAM() GROUP BY k HAVING c > 1 ORDER BY high DESC LIMIT 3";
    for groups_max in [Config::default().groups_max, 1_024] {
        let fixture = fixture(&memory(), Config { groups_max, ..two_threads() });
        let asked = fixture.live(query).await;
        for from in (0..GROUPS).step_by(20_000) {
            fixture.spread((from..from + 20_000).map(|n| json!({"k": n, "n": n})));
            fixture.seen(&asked, from + 20_000).await;
        }
        fixture.spread([7, 8, 9, 10].map(|k| json!({"k": k, "n": 0})));
        fixture.seen(&asked, GROUPS + 4).await;
        assert!(fixture.engine.states_bytes() > 0);
        fixture.engine.kill(&fixture.tenant, asked.id()).unwrap();
        let answer = asked.answer().await;
        if groups_max > 100_000 {
            let row = |k: u64| json!({"k": k, "c": 2, "high": k});
            assert_eq!(answered(&answer), [row(10), row(9), row(8)]);
            assert!(answer.meta.notes.is_empty(), "{:?}", answer.meta.notes);
        } else {
            let note = &answer.meta.notes[0];
            assert!(note.contains("uniform sample of 1024 of them") && note.contains("query.groups_max"), "{note}");
        }
    }
}

#[tokio::test]
async fn estimates_are_named_in_words_and_counts_of_the_most_frequent_carry_their_bounds() {
    let fixture = fixture(&memory(), Config { groups_max: 32, distinct_exact_max: 32, ..two_threads() });
    let records =
        || (0..40_000).map(|n| json!({"k": if n % 2 == 0 { "often".to_owned() } else { format!("once {n}") }}));
    let answer = fixture.answer("SELECT TOP(1, k) AS n FROM STREAM(1000, TIME)", records()).await;
    let row = &answered(&answer)[0];
    let (most, least) = (row["n"].as_u64().unwrap(), row["n_at_least"].as_u64().unwrap());
    assert!(row["k"] == "often" && least <= 20_000 && 20_000 <= most && least < most, "{row}");
    assert!(answer.meta.notes[0].starts_with("counts are upper bounds"), "{:?}", answer.meta.notes);
    let few = fixture.answer("SELECT TOP(1, k) AS n FROM STREAM(1000, TIME)", [json!({"k": 1})]).await;
    assert_eq!((answered(&few), few.meta.notes), (vec![json!({"k": 1, "n": 1})], vec![]));
    let mut windows =
        fixture.live("SELECT COUNT(DISTINCT k) AS n FROM STREAM() WINDOWING TUMBLING(40000, RECORD)").await;
    fixture.spread(records());
    let window = window(&mut windows).await;
    assert!(window.meta.notes[0].starts_with("COUNT(DISTINCT k) is an estimate: it lies between"), "{:?}", window.meta);
}

#[tokio::test]
async fn q9_ten_thousand_different_values_sent_three_times_are_counted_exactly() {
    let fixture = fixture(&memory(), two_threads());
    let records = (0..30_000).map(|n| json!({"id": format!("d{}", n % 10_000)}));
    let answer = fixture.answer("SELECT COUNT(DISTINCT id) AS ids FROM STREAM(1000, TIME)", records).await;
    assert_eq!(rows(&answer), [r#"{"ids":10000}"#]);
    assert_eq!((sketch(&answer).family.as_str(), sketch(&answer).was_estimated), ("theta", false));
}

#[tokio::test]
async fn q10_a_million_different_values_are_counted_within_the_reported_bounds() {
    let fixture = fixture(&memory(), two_threads());
    let subscription =
        fixture.submit(QueryRequest::new("SELECT COUNT(DISTINCT id) AS ids FROM STREAM(1000, TIME)")).await;
    for from in (0..1_000_000).step_by(50_000) {
        fixture.spread((from..from + 50_000).map(|n| json!({"id": n})));
        fixture.seen(&subscription, from + 50_000).await;
    }
    fixture.pass(1_000);
    let answer = subscription.answer().await;
    let count = answered(&answer)[0]["ids"].as_u64().unwrap();
    assert!(count.abs_diff(1_000_000) <= 23_400, "{count}");
    let [one, two, three] = sketch(&answer).standard_deviations.unwrap();
    assert!(three.lower <= 1e6 && 1e6 <= three.upper, "{three:?}");
    assert!(three.lower < two.lower && two.lower < one.lower && one.upper < two.upper && two.upper < three.upper);
    assert!(sketch(&answer).was_estimated);
}

#[tokio::test]
async fn q11_the_three_most_frequent() {
    let fixture = fixture(&memory(), two_threads());
    let often = [("a", 5), ("b", 4), ("c", 3), ("d", 1)];
    let records = || often.iter().flat_map(|(k, times)| std::iter::repeat_n(json!({"k": k}), *times));
    let expected = [json!({"k": "a", "n": 5}), json!({"k": "b", "n": 4}), json!({"k": "c", "n": 3})];
    let answer = fixture.answer("SELECT TOP(3, k) AS n FROM STREAM(1000, TIME)", records()).await;
    assert_eq!(answered(&answer), expected);
    let sketch = sketch(&answer);
    assert_eq!((sketch.items_seen, sketch.count_error, sketch.active_items), (Some(13), Some(0), Some(4)));
    let grouped = "SELECT k, COUNT(*) AS n FROM STREAM(1000, TIME) GROUP BY k ORDER BY COUNT(*) DESC LIMIT 3";
    assert_eq!(answered(&fixture.answer(grouped, records()).await), expected);
}

#[tokio::test]
async fn q12_windows_by_time_are_numbered_and_each_record_is_in_exactly_one() {
    let fixture = fixture(&memory(), two_threads());
    let mut query = fixture.live("SELECT SUM(n) AS s FROM STREAM(3000, TIME) WINDOWING TUMBLING(1000, TIME)").await;
    let started_ms = query.meta().received_ms;
    let mut sent = 0;
    for part in 0..3 {
        // Nothing is sent in the second window, which comes all the same.
        sent += fixture.spread((0..100).filter(|_| part != 1).map(|n| json!({"n": 100 * part + n})));
        fixture.seen(&query, sent).await;
        fixture.pass(1_000);
        let window = window(&mut query).await;
        let sum = (0..100).map(|n| 100 * part + n).sum::<i64>();
        assert_eq!(values(&window.rows), [json!({"s": if part == 1 { Value::Null } else { json!(sum) }})]);
        let meta = window.meta;
        assert_eq!((meta.name.as_str(), meta.number, meta.size), ("tumbling time", part as u64 + 1, 1_000));
        assert_eq!(meta.records, if part == 1 { 0 } else { 100 });
        let due = started_ms + 1_000 * (part + 1);
        assert_eq!((meta.expected_emit_time_ms, meta.emit_time_ms), (Some(due), due));
    }
    let Some(Delivery::End(meta)) = query.next().await else { panic!("there are three windows") };
    assert_eq!((meta.cause, meta.matched), (Some(Cause::Duration), 200));
}

#[tokio::test]
async fn windows_that_are_late_are_all_given() {
    let fixture = fixture(&memory(), two_threads());
    let mut query = fixture.live("SELECT COUNT(*) AS c FROM STREAM(2500, TIME) WINDOWING TUMBLING(1000, TIME)").await;
    let sent = fixture.spread([json!({}), json!({})]);
    fixture.seen(&query, sent).await;
    fixture.pass(10_000);
    let mut counts = Vec::new();
    for number in 1..=3 {
        let window = window(&mut query).await;
        assert_eq!(window.meta.number, number);
        counts.extend(values(&window.rows));
    }
    assert_eq!(counts, [json!({"c": 2}), json!({"c": 0}), json!({"c": 0})]);
    assert!(matches!(query.next().await, Some(Delivery::End(_))));
}

#[tokio::test]
async fn q13_additive_windows_never_fall_and_the_last_is_of_all() {
    let fixture = fixture(&memory(), two_threads());
    let mut query = fixture
        .live("SELECT k, COUNT(*) AS c FROM STREAM(3000, TIME) GROUP BY k WINDOWING EVERY(1000, TIME, ALL)")
        .await;
    for part in 1..=3_u64 {
        fixture.spread((0..100).map(|n| json!({"k": n % 2})));
        fixture.seen(&query, 100 * part).await;
        fixture.pass(1_000);
        let window = window(&mut query).await;
        assert_eq!((window.meta.name.as_str(), window.meta.number), ("additive time", part));
        assert_eq!(values(&window.rows), [json!({"k": 0, "c": 50 * part}), json!({"k": 1, "c": 50 * part})]);
    }
    assert!(matches!(query.next().await, Some(Delivery::End(_))));
}

#[tokio::test]
async fn windows_by_records_hold_exactly_so_many_and_the_rest_comes_last() {
    let fixture = fixture(&memory(), two_threads());
    let mut grouped =
        fixture.live("SELECT COUNT(*) AS c FROM STREAM() WHERE n >= 0 WINDOWING TUMBLING(7, RECORD)").await;
    let mut raw = fixture.live("SELECT n FROM STREAM() WHERE n >= 0 WINDOWING TUMBLING(10, RECORD)").await;
    fixture.spread((-50..25).map(|n| json!({"n": n})));
    fixture.seen(&grouped, 75).await;
    for number in 1..=3 {
        let window = window(&mut grouped).await;
        assert_eq!((window.meta.name.as_str(), window.meta.number, window.meta.size), ("tumbling records", number, 7));
        assert_eq!((values(&window.rows), window.meta.expected_emit_time_ms), (vec![json!({"c": 7})], None));
    }
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let rows = values(&window(&mut raw).await.rows);
        assert_eq!(rows.len(), 10);
        numbers.extend(rows);
    }
    for query in [&grouped, &raw] {
        fixture.engine.kill(&fixture.tenant, query.id()).unwrap();
    }
    assert_eq!(values(&window(&mut grouped).await.rows), [json!({"c": 4})]);
    numbers.extend(values(&window(&mut raw).await.rows));
    let mut numbers: Vec<i64> = numbers.iter().map(|row| row["n"].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..25).collect::<Vec<_>>());
    assert!(matches!(raw.next().await, Some(Delivery::End(_))));
}

#[tokio::test]
async fn q14_a_windowed_query_cannot_be_answered_once() {
    let fixture = fixture(&memory(), two_threads());
    let request = QueryRequest::new("SELECT COUNT(*) AS c FROM STREAM() WINDOWING TUMBLING(1000, TIME)");
    let refused = fixture.engine.submit(&fixture.tenant, request).await.err().unwrap();
    assert!(matches!(refused, Error::WindowedAnswer));
    assert!(refused.to_string().contains("'deliver': 'sse'"), "{refused}");
    assert_eq!(fixture.engine.live_count(), 0);
}

#[tokio::test]
async fn q16_a_killed_query_returns_its_partial_result() {
    let fixture = fixture(&memory(), two_threads());
    let query = fixture.submit(QueryRequest::new("SELECT k, SUM(n) AS s FROM STREAM(60000, TIME) GROUP BY k")).await;
    fixture.spread((0..10).map(|n| json!({"k": n % 2, "n": n})));
    fixture.seen(&query, 10).await;
    fixture.engine.kill(&fixture.tenant, query.id()).unwrap();
    let answer = query.answer().await;
    assert_eq!(answered(&answer), [json!({"k": 0, "s": 20}), json!({"k": 1, "s": 25})]);
    assert_eq!((answer.meta.cause, answer.meta.matched), (Some(Cause::Killed), 10));
    assert_eq!(sketch(&answer).family, "tuple");
}

#[tokio::test]
async fn windows_shorter_than_allowed_are_lengthened_and_the_meta_says_so() {
    let fixture = fixture(&memory(), two_threads());
    let mut query = fixture.live("SELECT COUNT(*) AS c FROM STREAM() WINDOWING TUMBLING(5, TIME)").await;
    let clamped = query.meta().clamped;
    assert_eq!(
        (clamped[0].setting.as_str(), clamped[0].asked, clamped[0].given),
        ("query.window_min_ms", Some(5), 100)
    );
    fixture.pass(100);
    assert_eq!(window(&mut query).await.meta.size, 100);
}

#[tokio::test]
async fn the_state_of_an_additive_window_counts_towards_the_limit() {
    let config = Config { states_max_bytes: 200_000, ..two_threads() };
    let fixture = fixture(&memory(), config);
    let mut query = fixture.live("SELECT COUNT(DISTINCT n) AS d FROM STREAM() WINDOWING EVERY(1000, TIME, ALL)").await;
    let id = query.id();
    let mut sent = 0;
    // Each window adds little, so that only all together are too large.
    while sent < 100_000 && fixture.engine.get(&fixture.tenant, id).is_ok() {
        sent += fixture.spread((sent..sent + 2_000).map(|n| json!({"n": n})));
        let seen = || fixture.engine.get(&fixture.tenant, id).map_or(true, |meta| meta.records_seen == sent);
        eventually_async("it has been seen or given up", seen).await;
        fixture.pass(1_000);
        match query.next().await {
            Some(Delivery::Window(_)) => {}
            Some(Delivery::End(meta)) => {
                assert_eq!(meta.cause, Some(Cause::Limit));
                return;
            }
            other => panic!("{other:?}"),
        }
    }
    let end = query.answer().await.meta;
    assert_eq!(end.cause, Some(Cause::Limit));
    assert!(end.errors[0].error.contains("query.states_max_bytes"), "{:?}", end.errors);
}

#[tokio::test]
async fn the_memory_in_which_a_result_is_made_counts_towards_the_limit_of_states() {
    // Room for the groups of both threads, and not for their union beside them.
    let config = Config { states_max_bytes: 1_200_000, ..two_threads() };
    let fixture = fixture(&memory(), config);
    let mut query =
        fixture.live("SELECT k, COUNT(*) AS c FROM STREAM() GROUP BY k WINDOWING TUMBLING(1000, TIME)").await;
    let sent = fixture.spread((0..2_000).map(|n| json!({"k": format!("group {n}")})));
    fixture.seen(&query, sent).await;
    // A thread counts what its groups take behind the records.
    eventually_async("both threads have counted", || fixture.engine.states_bytes() >= 200_000).await;
    let counted = fixture.engine.states_bytes();
    assert!(counted < 1_000_000, "{counted}");
    fixture.pass(1_000);
    assert_eq!(window(&mut query).await.meta.records, sent);
    assert_eq!(fixture.engine.states_bytes(), 0, "what the window held is given back");
    fixture.spread([json!({"k": "one more"})]);
    let end = query.answer().await.meta;
    assert_eq!(end.cause, Some(Cause::Limit));
    assert!(end.errors[0].error.contains("query.states_max_bytes"), "{:?}", end.errors);
}

#[tokio::test]
async fn states_over_their_limit_end_their_query_with_its_partial_result() {
    let config = Config { states_max_bytes: 300_000, ..two_threads() };
    let fixture = fixture(&memory(), config);
    let query = fixture.submit(QueryRequest::new("SELECT COUNT(DISTINCT n) AS d FROM STREAM() GROUP BY k")).await;
    let mut sent = 0;
    let id = query.id();
    // Each group may need as much as a single count would.
    while sent < 400_000 && fixture.engine.get(&fixture.tenant, id).is_ok() {
        sent += fixture.spread((sent..sent + 20_000).map(|n| json!({"k": n % 32, "n": n})));
        eventually_async("it has been seen or given up", || {
            fixture.engine.get(&fixture.tenant, id).map_or(true, |meta| meta.records_seen == sent)
        })
        .await;
    }
    let answer = query.answer().await;
    assert_eq!(answer.meta.cause, Some(Cause::Limit));
    assert!(answer.meta.errors[0].error.contains("query.states_max_bytes"), "{:?}", answer.meta.errors);
    assert!(!rows(&answer).is_empty());
    assert!(fixture.engine.live_count() == 0);
}
