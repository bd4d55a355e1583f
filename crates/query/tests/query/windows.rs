//! Windows that overlap, and those that lie on the calendar or on event time, of all records and of sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millstream_columns::{FunctionGroup, FunctionRow, functions};
use millstream_query::{Cause, Config, Deliver, Delivery, Meta, QueryRequest, Start, Subscription, WindowMeta};
use millstream_testkit::eventually_async;
use millstream_types::partition_of_key;
use serde_json::{Value, json};

use crate::common::Random;
use crate::common::fixture::{Ending, Fixture, disk, fixture, fixture_on_disk, memory, two_threads};

/// A window that was given: its number, its bounds, and its rows.
type Given = (u64, Option<i64>, Option<i64>, Vec<Value>);

fn given(delivery: Delivery) -> Option<(WindowMeta, Vec<Value>)> {
    let Delivery::Window(window) = delivery else { return None };
    Some((window.meta, window.rows.rows().map(|row| serde_json::from_slice(row).unwrap()).collect()))
}

fn told((meta, rows): (WindowMeta, Vec<Value>)) -> Given {
    (meta.number, meta.start_ms, meta.end_ms, rows)
}

async fn next(query: &mut Subscription) -> Given {
    let delivery = query.next().await.unwrap();
    told(given(delivery).unwrap())
}

/// All windows up to the end, and its meta.
async fn rest(mut query: Subscription) -> (Vec<Given>, Meta) {
    let mut windows = Vec::new();
    loop {
        match query.next().await.unwrap() {
            Delivery::End(meta) => return (windows, *meta),
            delivery => windows.extend(given(delivery).map(told)),
        }
    }
}

/// A fixture that lets windows be short.
fn config() -> Config {
    Config { window_min_ms: 1, ..two_threads() }
}

fn at(time_ms: i64) -> Value {
    json!({"at": time_ms})
}

fn counts(number: u64, start_ms: i64, end_ms: i64, count: u64) -> Given {
    (number, Some(start_ms), Some(end_ms), vec![json!({"n": count})])
}

impl Fixture {
    /// Sends payloads of one key, and waits until all that were sent, so many, are in the query's windows.
    async fn tell(&self, query: &Subscription, payloads: &[Value], all: u64) {
        self.send("k", &payloads.iter().map(Value::to_string).collect::<Vec<_>>());
        self.seen(query, all).await;
    }
}

#[tokio::test]
async fn windows_that_overlap_have_what_came_in_the_last_time_and_are_given_even_if_empty() {
    let fixture = fixture(&memory(), config());
    let mut query =
        fixture.live("SELECT COUNT(*) AS n FROM STREAM() WINDOWING EVERY(1000, TIME, LAST, 2500, TIME)").await;
    fixture.tell(&query, &[at(0), at(0)], 2).await;
    fixture.pass(1_000);
    assert_eq!(next(&mut query).await, counts(1, 998_500, 1_001_000, 2));
    fixture.tell(&query, &[at(0)], 3).await;
    fixture.pass(1_000);
    assert_eq!(next(&mut query).await, counts(2, 999_500, 1_002_000, 3));
    for (number, count) in [(3, 1), (4, 0), (5, 0)] {
        fixture.pass(1_000);
        let end_ms = 1_000_000 + 1_000 * number as i64;
        assert_eq!(next(&mut query).await, counts(number, end_ms - 2_500, end_ms, count));
    }
    fixture.tell(&query, &[at(0)], 4).await;
    fixture.engine.kill(&fixture.tenant, query.id()).unwrap();
    let (last, meta) = rest(query).await;
    assert_eq!((last, meta.cause), (vec![counts(6, 1_003_500, 1_006_000, 1)], Some(Cause::Killed)));
}

#[tokio::test]
async fn windows_of_the_last_records_end_with_each_so_many() {
    let fixture = fixture(&memory(), config());
    let mut query = fixture
        .live(
            "SELECT COUNT(*) AS n, SUM(at) AS s FROM STREAM() WHERE at > 0 WINDOWING EVERY(2, RECORD, LAST, 4, RECORD)",
        )
        .await;
    fixture.tell(&query, &(0..8).map(at).collect::<Vec<_>>(), 8).await;
    let rows = |number, n: u64, s: u64| (number, None, None, vec![json!({"n": n, "s": s})]);
    assert_eq!(next(&mut query).await, rows(1, 2, 1 + 2));
    assert_eq!(next(&mut query).await, rows(2, 4, 1 + 2 + 3 + 4));
    assert_eq!(next(&mut query).await, rows(3, 4, 3 + 4 + 5 + 6));
    fixture.engine.kill(&fixture.tenant, query.id()).unwrap();
    assert_eq!(rest(query).await.0, [rows(4, 3, 5 + 6 + 7)]);
}

#[tokio::test]
async fn a_window_by_event_time_is_given_once_a_record_is_later_by_the_delay() {
    let fixture = fixture(&memory(), config());
    let mut query = fixture.live("SELECT COUNT(*) AS n FROM STREAM() WINDOWING TUMBLING(10, TIME) ON at DELAY 5").await;
    let odd = [
        json!({"at": "1970-01-01T00:00:00.012Z"}),
        json!({"at": "noon"}),
        json!({}),
        json!({"at": true}),
        at(i64::MAX),
    ];
    fixture.tell(&query, &[at(3), at(11), at(9)], 3).await;
    fixture.tell(&query, &odd, 8).await;
    fixture.tell(&query, &[at(14), at(8), at(15)], 11).await;
    assert_eq!(next(&mut query).await, counts(1, 0, 10, 3));
    // The clock closes nothing.
    fixture.pass(60_000);
    fixture.tell(&query, &[at(9), at(10)], 13).await;
    let meta = query.meta();
    assert_eq!((meta.late, meta.evaluation_errors, meta.matched), (1, 4, 8));
    fixture.engine.kill(&fixture.tenant, query.id()).unwrap();
    let (windows, meta) = rest(query).await;
    assert_eq!(windows, [counts(2, 10, 20, 5)]);
    assert_eq!((meta.late, meta.cause), (1, Some(Cause::Killed)));
}

#[tokio::test]
async fn time_is_that_of_the_partition_that_is_furthest_behind_until_that_is_silent() {
    let fixture = fixture(&memory(), config());
    let mut query = fixture.live("SELECT COUNT(*) AS n FROM STREAM() WINDOWING TUMBLING(10, TIME) ON at").await;
    let send = |key: &str, time_ms| fixture.send(key, &[at(time_ms).to_string()]);
    let partition = |key: &str| partition_of_key(key.as_bytes(), 4);
    assert_ne!(partition("k0"), partition("k3"), "they are keys of two partitions");
    send("k0", 5);
    fixture.seen(&query, 1).await;
    send("k3", 2);
    fixture.seen(&query, 2).await;
    send("k0", 25);
    fixture.seen(&query, 3).await;
    send("k3", 4);
    fixture.seen(&query, 4).await;
    // Nobody knows yet whether the second partition has something for the first window.
    fixture.pass(4_000);
    send("k0", 35);
    fixture.seen(&query, 5).await;
    fixture.pass(2_000);
    assert_eq!(next(&mut query).await, counts(1, 0, 10, 3));
    assert_eq!(next(&mut query).await, counts(2, 20, 30, 1));
    fixture.engine.kill(&fixture.tenant, query.id()).unwrap();
    let (windows, meta) = rest(query).await;
    assert_eq!((windows, meta.late), (vec![counts(3, 30, 40, 1)], 0));
}

#[tokio::test]
async fn days_are_those_of_a_place_and_have_23_or_25_hours() {
    let fixture = fixture(&memory(), config());
    let query = "SELECT COUNT(*) AS n FROM STREAM() WINDOWING TUMBLING(1, DAY, 'Europe/Berlin') ON at";
    let mut query = fixture.live(query).await;
    let times = ["2026-10-24T22:00:00Z", "2026-10-25T22:59:59Z", "2026-10-25T23:00:00Z", "2026-10-26T23:00:00Z"];
    fixture.tell(&query, &times.map(|time| json!({"at": time})), 4).await;
    let hour = 3_600_000;
    let first = 1_792_879_200_000;
    assert_eq!(next(&mut query).await, counts(1, first, first + 25 * hour, 2));
    assert_eq!(next(&mut query).await, counts(2, first + 25 * hour, first + 49 * hour, 1));
    // By the server's clock: it is 01:16:40 in Berlin on the first of January, 1970.
    let by_clock = "SELECT COUNT(*) AS n FROM STREAM() WINDOWING TUMBLING(1, DAY, 'Europe/Berlin')";
    let mut by_clock = fixture.live(by_clock).await;
    fixture.send("k", &[at(0).to_string()]);
    fixture.seen(&by_clock, 1).await;
    fixture.pass((24 * hour - 3_600_000 - 1_000_000) as u64);
    assert_eq!(next(&mut by_clock).await, counts(1, -hour, 23 * hour, 1));
    fixture.pass(24 * hour as u64);
    assert_eq!(next(&mut by_clock).await, counts(2, 23 * hour, 47 * hour, 0));
}

#[tokio::test]
async fn sessions_end_after_a_pause_each_for_its_group() {
    let fixture = fixture(&memory(), config());
    let query = "SELECT user, COUNT(*) AS n, MAX(v) AS most FROM STREAM() GROUP BY user HAVING n > 1 WINDOWING SESSION(1000, TIME)";
    let mut query = fixture.live(query).await;
    let of = |user: &str, v: u64| json!({"user": user, "v": v});
    fixture.tell(&query, &[of("a", 1), of("b", 2)], 2).await;
    fixture.pass(900);
    fixture.tell(&query, &[of("a", 7)], 3).await;
    fixture.pass(900);
    fixture.tell(&query, &[of("b", 3), of("c", 1)], 5).await;
    // The first of b was a session of its own, which HAVING leaves out; that of a ended 1,001 ms after its last record.
    fixture.pass(101);
    let row = |user: &str, n: u64, most: u64| vec![json!({"user": user, "n": n, "most": most})];
    assert_eq!(next(&mut query).await, (1, Some(1_000_000), Some(1_000_900), row("a", 2, 7)));
    fixture.tell(&query, &[of("b", 9)], 6).await;
    fixture.pass(5_000);
    assert_eq!(next(&mut query).await, (2, Some(1_001_800), Some(1_001_901), row("b", 2, 9)));
    fixture.tell(&query, &[of("d", 1), of("d", 2)], 8).await;
    fixture.engine.kill(&fixture.tenant, query.id()).unwrap();
    assert_eq!(rest(query).await.0, [(3, Some(1_006_901), Some(1_006_901), row("d", 2, 2))]);
}

#[tokio::test]
async fn sessions_by_event_time_grow_both_ways_and_merge_and_groups_keep_their_types() {
    let fixture = fixture(&memory(), config());
    let query = "SELECT k, COUNT(*) AS n FROM STREAM() GROUP BY k WINDOWING SESSION(10, TIME) ON at DELAY 100";
    let mut query = fixture.live(query).await;
    let of = |k: Value, time_ms: i64| json!({"k": k, "at": time_ms});
    let one = json!(1);
    let records = [
        of(one.clone(), 20),
        of(json!("1"), 21),
        of(json!(1.0), 40),
        of(Value::Null, 22),
        of(one.clone(), 30),
        of(one.clone(), 10),
        of(one, 61),
        of(json!("1"), 1_000),
    ];
    fixture.tell(&query, &records, 8).await;
    let row = |k: Value, n: u64| vec![json!({"k": k, "n": n})];
    assert_eq!(next(&mut query).await, (1, Some(21), Some(21), row(json!("1"), 1)));
    assert_eq!(next(&mut query).await, (2, Some(22), Some(22), row(Value::Null, 1)));
    assert_eq!(next(&mut query).await, (3, Some(10), Some(40), row(json!(1), 4)));
    assert_eq!(next(&mut query).await, (4, Some(61), Some(61), row(json!(1), 1)));
}

#[tokio::test]
async fn whole_rows_and_summaries_are_given_by_event_time_too() {
    let fixture = fixture(&memory(), config());
    let mut rows =
        fixture.live("SELECT at, v FROM STREAM() ORDER BY v DESC WINDOWING TUMBLING(10, TIME) ON at LIMIT 2").await;
    let mut top = fixture.live("SELECT TOP(1, v) FROM STREAM() WINDOWING SESSION(5, TIME) ON at").await;
    let of = |time_ms: i64, v: &str| json!({"at": time_ms, "v": v});
    let records = [of(1, "a"), of(2, "c"), of(3, "b"), of(4, "c"), of(30, "z")];
    fixture.tell(&rows, &records, 5).await;
    fixture.seen(&top, 5).await;
    assert_eq!(next(&mut rows).await, (1, Some(0), Some(10), vec![of(2, "c"), of(4, "c")]));
    assert_eq!(next(&mut top).await, (1, Some(1), Some(4), vec![json!({"v": "c", "Count": 2})]));
}

#[tokio::test]
async fn each_example_of_a_window_gives_the_result_beside_it() {
    let fixture = fixture(&memory(), config());
    for FunctionRow { example, result, .. } in functions().iter().filter(|row| row.group == FunctionGroup::Windows) {
        let mut query = fixture.live(&format!("SELECT {example} FROM STREAM() WINDOWING TUMBLING(5, TIME) ON n")).await;
        fixture.tell(&query, &[json!({"n": 1}), json!({"n": 4}), json!({"n": 8})], 3).await;
        assert_eq!(next(&mut query).await.3[0][*example].to_string(), *result);
    }
}

#[tokio::test]
async fn rows_tell_the_bounds_of_their_window() {
    let fixture = fixture(&memory(), config());
    let (first, second) = (1_000_000, 1_000_000 + 200);
    for (window, bounds) in [
        ("TUMBLING(100, TIME)", [json!([first, first + 100]), json!([first + 100, second])]),
        ("EVERY(100, TIME, ALL)", [json!([first, first + 100]), json!([first, second])]),
        ("EVERY(100, TIME, LAST, 300, TIME)", [json!([first - 200, first + 100]), json!([first - 100, second])]),
        ("TUMBLING(1, RECORD)", [json!([null, null]), json!([null, null])]),
        ("EVERY(1, RECORD, LAST, 3, RECORD)", [json!([null, null]), json!([null, null])]),
        ("SESSION(50, TIME)", [json!([first, first]), json!([first + 100, first + 100])]),
    ] {
        let fixture = crate::common::fixture::fixture(&memory(), config());
        let text = "SELECT k, WINDOW_START() AS a, FORMAT_TIME(WINDOW_END(), 'yyyy') AS y, WINDOW_END() AS b, COUNT(*) AS n \
                    FROM STREAM() GROUP BY k HAVING n > 0 AND (WINDOW_START() > 0 OR WINDOW_START() IS NULL)";
        let mut query = fixture.live(&format!("{text} WINDOWING {window}")).await;
        let mut told = Vec::new();
        for round in 1..=2 {
            fixture.tell(&query, &[json!({"k": "x"})], round).await;
            fixture.pass(100);
            let rows = next(&mut query).await.3;
            told.push(json!([rows[0]["a"], rows[0]["b"]]));
            assert_eq!(rows[0]["y"], if rows[0]["b"].is_null() { Value::Null } else { json!("1970") }, "{window}");
        }
        assert_eq!(told, bounds, "{window}");
    }
    let refused = fixture.engine.validate("SELECT WINDOW_START() FROM STREAM()").unwrap_err().to_string();
    assert!(refused.contains("WINDOW_START and WINDOW_END are of windows; add WINDOWING"), "{refused}");
}

#[tokio::test]
async fn a_window_says_what_it_is() {
    let fixture = fixture(&memory(), Config { window_min_ms: 100, ..two_threads() });
    for (window, name, size, clamped) in [
        ("EVERY(50, TIME, LAST, 500, TIME)", "sliding time", 500, Some((50, 100))),
        ("SESSION(20, TIME)", "session time", 100, Some((20, 100))),
        ("TUMBLING(10, TIME) ON at", "tumbling event time", 100, Some((10, 100))),
        ("SESSION(200, TIME) ON at", "session event time", 200, None),
        ("TUMBLING(1, WEEK)", "calendar time", 604_800_000, None),
        ("EVERY(1, RECORD, LAST, 3, RECORD)", "sliding records", 3, None),
    ] {
        let mut query = fixture.live(&format!("SELECT COUNT(*) AS n FROM STREAM() WINDOWING {window}")).await;
        fixture.tell(&query, &[at(7)], 1).await;
        fixture.engine.kill(&fixture.tenant, query.id()).unwrap();
        let (meta, _) = given(query.next().await.unwrap()).unwrap();
        assert_eq!((&*meta.name, meta.size, meta.records), (name, size, 1), "{window}");
        let told = query.meta().clamped.first().map(|clamped| (clamped.asked.unwrap(), clamped.given));
        assert_eq!(told, clamped, "{window}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_past_is_read_by_event_time_over_all_partitions_so_that_nothing_is_late() {
    for topic in [memory(), disk()] {
        let fixture = fixture(&topic, Config { read_max_bytes: 500, ..config() });
        // The partitions have different numbers of records.
        let mut expected: BTreeMap<i64, u64> = BTreeMap::new();
        for n in 0..1_000 {
            for key in (0..8).filter(|key| n < 200 + 100 * key) {
                let time_ms = 10 * n + key;
                fixture.send(&format!("k{key}"), &[at(time_ms).to_string()]);
                *expected.entry(time_ms / 100).or_default() += 1;
            }
        }
        let query = "SELECT COUNT(*) AS n FROM STREAM() WINDOWING TUMBLING(100, TIME) ON at DELAY 10";
        let request = QueryRequest { deliver: Deliver::Sse, from: Start::Earliest, ..QueryRequest::new(query) };
        let (windows, meta) = rest(fixture.submit(request).await).await;
        let expected: Vec<Given> = (1..)
            .zip(&expected)
            .map(|(number, (hundred, n))| counts(number, hundred * 100, hundred * 100 + 100, *n))
            .collect();
        assert_eq!(windows, expected);
        assert_eq!((meta.late, meta.cause), (0, Some(Cause::Until)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_query_goes_on_in_mid_window_after_a_crash_and_an_orderly_end() {
    for ending in [Ending::Crash, Ending::Clean] {
        for (window, expected) in [
            ("SESSION(10, TIME) ON at", vec![("b", 1), ("a", 2), ("a", 2), ("c", 1)]),
            ("TUMBLING(100, TIME) ON at", vec![("a", 4), ("b", 1), ("c", 1)]),
            (
                "EVERY(100, TIME, LAST, 200, TIME) ON at",
                vec![("a", 4), ("b", 1), ("a", 4), ("b", 1), ("c", 1), ("c", 1)],
            ),
        ] {
            let mut fixture = fixture_on_disk(&disk(), Config { keep_every_ms: 20, ..config() });
            let text = format!("SELECT k, COUNT(*) AS n FROM STREAM() GROUP BY k WINDOWING {window}");
            let request = QueryRequest { deliver: Deliver::Sse, keep: true, ..QueryRequest::new(text) };
            let query = fixture.submit(request).await;
            let id = query.id();
            let of = |k: &str, time_ms: i64| json!({"k": k, "at": time_ms});
            fixture.tell(&query, &[of("a", 1), of("b", 3)], 2).await;
            drop(query);
            fixture.clock.advance(Duration::from_secs(1));
            eventually_async("the query is kept", || {
                !fixture.kept_of(&id.to_string())["states"]["placed"]["windows"][0].is_null()
            })
            .await;
            fixture.restart(ending, Duration::from_secs(60));
            let query = fixture.engine.attach(&fixture.tenant, id).unwrap();
            fixture.tell(&query, &[of("a", 9), of("a", 40), of("a", 45), of("c", 350)], 6).await;
            fixture.engine.kill(&fixture.tenant, id).unwrap();
            let (windows, meta) = rest(query).await;
            let told: Vec<(String, u64)> = windows
                .iter()
                .flat_map(|(.., rows)| rows)
                .map(|row| (row["k"].as_str().unwrap().to_owned(), row["n"].as_u64().unwrap()))
                .collect();
            let expected: Vec<(String, u64)> = expected.iter().map(|(k, n)| ((*k).to_owned(), *n)).collect();
            assert_eq!((told, meta.late), (expected, 0), "{window} {ending:?}");
        }
    }
}

#[tokio::test]
async fn open_windows_count_towards_the_limit_of_states_and_give_their_memory_back() {
    let fixture = fixture(&memory(), Config { states_max_bytes: 4 << 20, ..config() });
    let query =
        fixture.live("SELECT k, COUNT(*) AS n FROM STREAM() GROUP BY k WINDOWING SESSION(10, TIME) ON at").await;
    let batch = |from: i64| (from..from + 2_000).map(|k| json!({"k": k, "at": k / 100})).collect::<Vec<_>>();
    for round in 0..20 {
        fixture.tell(&query, &batch(20_000 * round), 2_000 * (round as u64 + 1)).await;
    }
    assert_eq!(query.meta().cause, None, "a session that has ended takes no memory");
    let greedy =
        fixture.live("SELECT k, COUNT(*) AS n FROM STREAM() GROUP BY k WINDOWING SESSION(100000, TIME) ON at").await;
    for round in 0..20 {
        fixture.send("k", &batch(2_000 * round).iter().map(Value::to_string).collect::<Vec<_>>());
    }
    eventually_async("the limit ends it", || greedy.meta().cause == Some(Cause::Limit)).await;
}

/// The windows of one key by their bounds, of records that are all in time.
fn expected(window: &Shape, times: &[i64]) -> BTreeMap<(i64, i64), u64> {
    let mut windows: BTreeMap<(i64, i64), u64> = BTreeMap::new();
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    match *window {
        Shape::Sliding { size, slide } => {
            for time_ms in sorted {
                let ends = (-300..900).map(|number| number * slide);
                for end in ends.filter(|end| end - size <= time_ms && time_ms < *end) {
                    *windows.entry((end - size, end)).or_default() += 1;
                }
            }
        }
        Shape::Session { gap } => {
            let mut session: Option<(i64, i64, u64)> = None;
            for time_ms in sorted {
                session = match session {
                    Some((start, end, n)) if time_ms - end <= gap => Some((start, time_ms, n + 1)),
                    ended => {
                        windows.extend(ended.map(|(start, end, n)| ((start, end), n)));
                        Some((time_ms, time_ms, 1))
                    }
                };
            }
            windows.extend(session.map(|(start, end, n)| ((start, end), n)));
        }
    }
    windows
}

#[derive(Debug, Clone)]
enum Shape {
    Sliding { size: i64, slide: i64 },
    Session { gap: i64 },
}

/// Records of several partitions and out of order, cut in any way, are in the windows of their times.
#[tokio::test]
async fn each_record_is_in_the_windows_of_its_time() {
    let mut random = Random::from_seed();
    for _ in 0..40 {
        let (shape, window) = match random.below(2) {
            0 => {
                let slide = 1 + random.below(20) as i64;
                let size = slide * (1 + random.below(4) as i64);
                (Shape::Sliding { size, slide }, format!("EVERY({slide}, TIME, LAST, {size}, TIME)"))
            }
            _ => {
                let gap = 1 + random.below(20) as i64;
                (Shape::Session { gap }, format!("SESSION({gap}, TIME)"))
            }
        };
        let fixture = fixture(&memory(), config());
        let query =
            fixture.live(&format!("SELECT COUNT(*) AS n FROM STREAM() WINDOWING {window} ON at DELAY 60")).await;
        let (mut times, mut keys) = (Vec::new(), BTreeSet::new());
        for number in 0..1 + random.below(60) as i64 {
            let (time_ms, key) = (5 * number - random.below(50) as i64, random.below(4));
            times.push(time_ms);
            fixture.send(&format!("k{key}"), &[at(time_ms).to_string()]);
            // A partition holds time back from its first record on, which is late if others were read far before it.
            if keys.insert(key) || random.one_in(2) {
                fixture.seen(&query, times.len() as u64).await;
            }
        }
        fixture.seen(&query, times.len() as u64).await;
        fixture.engine.kill(&fixture.tenant, query.id()).unwrap();
        let (windows, meta) = rest(query).await;
        assert!(windows.is_sorted_by_key(|(_, _, end, _)| *end), "{windows:?}");
        let bounds = |(_, start, end, rows): &Given| ((start.unwrap(), end.unwrap()), rows[0]["n"].as_u64().unwrap());
        let told: BTreeMap<(i64, i64), u64> = windows.iter().map(bounds).collect();
        assert_eq!((told.len(), meta.late), (windows.len(), 0), "{window} {times:?}");
        assert_eq!(told, expected(&shape, &times), "{window} {times:?}");
    }
}
