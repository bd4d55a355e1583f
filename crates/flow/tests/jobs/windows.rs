//! Aggregates in windows: over restarts, with several instances, and with late records.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_flow::{Error, ParallelismChange};
use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::node::Node;

const MINUTE_MS: i64 = 60_000;

/// A job that counts and adds up by device in windows.
fn sums(name: &str, window: &Value, parallelism: u32) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": name, "delivery": "exactly_once", "checkpoint": {"interval": "20ms"},
        "sources": {"in": {
            "type": "stream", "config": {"topic": "readings"}, "batch": {"size": 7}, "parallelism": 2,
            "event_time": {"field": "at", "max_out_of_orderness": "5m", "idle_timeout": "1d"},
        }},
        "transforms": {"sums": {
            "type": "aggregate", "inputs": ["in"], "key_by": ["device"], "parallelism": parallelism,
            "window": window, "aggregates": "SUM(n) AS sum, COUNT(*) AS count",
        }},
        "sinks": {"out": {"type": "stream", "inputs": ["sums"], "config": {"topic": "sums"}}},
    })
}

/// The reading `number`: its device, its minute, which is out of order by up to four minutes, and its value.
fn reading(number: i64) -> (i64, i64, i64) {
    (number % 7, number / 7 + (number * 31) % 5, number)
}

fn record((device, minute, n): (i64, i64, i64)) -> (String, String) {
    let value = json!({"device": format!("d{device}"), "at": minute * MINUTE_MS, "n": n});
    (format!("d{device}"), value.to_string())
}

/// Sum and count by device and minute of the window's beginning.
type Sums = BTreeMap<(String, i64), (i64, i64)>;

fn found(node: &Node) -> Sums {
    let mut sums = Sums::new();
    for (key, value) in node.read("sums") {
        let start: jiff::Timestamp = value["window"]["start"].as_str().unwrap().parse().unwrap();
        assert_eq!(value["device"], key);
        let of = (value["sum"].as_i64().unwrap(), value["count"].as_i64().unwrap());
        let former = sums.insert((key, start.as_millisecond() / MINUTE_MS), of);
        assert_eq!(former, None, "a window is there twice: {value}");
    }
    sums
}

fn expected(readings: impl Iterator<Item = (i64, i64, i64)>, size: i64, slide: i64) -> Sums {
    let mut sums = Sums::new();
    for (device, minute, n) in readings {
        for start in (minute - size + 1..=minute).filter(|start| start.rem_euclid(slide) == 0) {
            let sum = sums.entry((format!("d{device}"), start)).or_default();
            (sum.0, sum.1) = (sum.0 + n, sum.1 + 1);
        }
    }
    sums
}

fn go_through_restarts(window: &Value, size: i64, slide: i64) {
    const ROUNDS: i64 = 6;
    const READINGS: i64 = 300;
    let dir = tempfile::tempdir().unwrap();
    for round in 0..ROUNDS {
        let node = Node::open(dir.path());
        if round == 0 {
            node.create("readings", 3);
            node.create("sums", 2);
            node.run(&sums("sums", window, 3));
        }
        let readings: Vec<_> =
            (round * READINGS..(round + 1) * READINGS).map(|number| record(reading(number))).collect();
        node.append("readings", &readings);
        if round % 2 == 1 {
            eventually("some are there", || found(&node).len() as i64 > round * 20);
        }
        node.close();
    }
    // A reading of each partition far ahead ends all windows.
    let node = Node::open(dir.path());
    let last = ROUNDS * READINGS;
    let ahead: Vec<_> = (0..40).map(|number| record((100 + number, last * 10, 0))).collect();
    node.append("readings", &ahead);
    let expected = expected((0..last).map(reading), size, slide);
    eventually("all windows are there", || found(&node).len() >= expected.len());
    let found = found(&node);
    let wrong: Vec<_> = expected.iter().filter(|(window, sum)| found.get(window) != Some(*sum)).collect();
    assert!(
        wrong.is_empty() && found.len() == expected.len(),
        "{wrong:?} of {}, {} found",
        expected.len(),
        found.len()
    );
    node.close();
}

#[test]
fn each_tumbling_window_is_sent_once_whenever_the_job_ends() {
    go_through_restarts(&json!({"type": "tumbling", "size": "10m"}), 10, 10);
}

#[test]
fn each_sliding_window_is_sent_once_whenever_the_job_ends() {
    go_through_restarts(&json!({"type": "sliding", "size": "12m", "slide": "4m"}), 12, 4);
}

#[test]
fn each_window_is_sent_once_while_the_parallelism_changes() {
    const ROUNDS: i64 = 6;
    const READINGS: i64 = 300;
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("readings", 3);
    node.create("sums", 2);
    let id = node.run(&sums("sums", &json!({"type": "sliding", "size": "12m", "slide": "4m"}), 2));
    for round in 0..ROUNDS {
        let numbers = round * READINGS..(round + 1) * READINGS;
        node.append("readings", &numbers.map(|number| record(reading(number))).collect::<Vec<_>>());
        if round % 2 == 1 {
            eventually("some are there", || found(&node).len() as i64 > round * 20);
        }
        let change = ParallelismChange::All(json!(1 + (round + 2) % 4));
        node.rescale(&id, change, Duration::from_secs(30)).unwrap();
    }
    let last = ROUNDS * READINGS;
    let ahead: Vec<_> = (0..40).map(|number| record((100 + number, last * 10, 0))).collect();
    node.append("readings", &ahead);
    let expected = expected((0..last).map(reading), 12, 4);
    eventually("all windows are there", || found(&node).len() >= expected.len());
    assert_eq!(found(&node), expected);
    node.close();
}

#[test]
fn open_windows_and_event_time_go_over_to_the_job_that_replaces_theirs() {
    const ROUNDS: i64 = 5;
    const READINGS: i64 = 300;
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("readings", 3);
    node.create("sums", 2);
    let window = json!({"type": "tumbling", "size": "10m"});
    for round in 0..ROUNDS {
        let numbers = round * READINGS..(round + 1) * READINGS;
        node.append("readings", &numbers.map(|number| record(reading(number))).collect::<Vec<_>>());
        node.replace(&sums("sums", &window, 1 + round as u32 % 3), Duration::from_secs(30)).unwrap();
        if round % 2 == 1 {
            eventually("some are there", || found(&node).len() as i64 > round * 20);
        }
    }
    // Windows that are open cannot become others.
    let mut others = [
        sums("sums", &json!({"type": "tumbling", "size": "5m"}), 1),
        sums("sums", &json!({"type": "count", "size": 10}), 1),
        sums("sums", &json!({"type": "tumbling", "size": "1d", "timezone": "UTC"}), 1),
        // They have a state each then.
        sums("sums", &window, 1),
    ];
    others[3]["transforms"]["sums"]["triggers"] = json!([{"on": "count", "every": 5}]);
    for other in others {
        match node.replace(&other, Duration::from_secs(30)) {
            Err(Error::Invalid { findings }) => assert_eq!(findings[0].path, "transforms.sums", "{findings:?}"),
            answer => panic!("{answer:?} to {other}"),
        }
    }
    let same = json!({"type": "sliding", "size": "600s", "slide": "10m"});
    node.replace(&sums("sums", &same, 2), Duration::from_secs(30)).unwrap();
    let last = ROUNDS * READINGS;
    let ahead: Vec<_> = (0..40).map(|number| record((100 + number, last * 10, 0))).collect();
    node.append("readings", &ahead);
    let expected = expected((0..last).map(reading), 10, 10);
    eventually("all windows are there", || found(&node).len() >= expected.len());
    assert!(found(&node) == expected);
    node.close();
}

#[test]
fn a_batch_job_gives_the_windows_that_are_open_at_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("readings", 3);
    node.create("sums", 2);
    node.append("readings", &(0..500).map(|number| record(reading(number))).collect::<Vec<_>>());
    for (name, parallelism) in [("one", 1), ("three", 3)] {
        let mut document = sums(name, &json!({"type": "global"}), parallelism);
        document["mode"] = json!("batch");
        document["sources"]["in"]["config"]["stop_at"] = json!("end");
        let before = node.read("sums").len();
        let id = node.run(&document);
        assert_eq!(node.ended(&id)["state"], "completed", "{:#}", node.job(&id));
        let results = node.read("sums");
        assert_eq!(results.len() - before, 7);
        let sum: i64 = results.iter().map(|(_, value)| value["sum"].as_i64().unwrap()).sum();
        assert_eq!(sum, (0..500).sum::<i64>() * (before as i64 / 7 + 1));
    }
    node.close();
}

#[test]
fn late_records_are_counted_and_a_stop_gives_no_open_window() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("readings", 1);
    node.create("sums", 1);
    let document = sums("late", &json!({"type": "tumbling", "size": "10m"}), 1);
    let id = node.run(&document);
    node.append("readings", &[record((1, 3, 1)), record((2, 20, 1)), record((1, 4, 1)), record((1, 16, 1))]);
    eventually("the first window is there", || found(&node).len() == 1);
    eventually("a late record is counted", || node.job(&id)["nodes"][1]["late"] == 1);
    node.stop(&id, millstream_flow::StopMode::Graceful);
    assert_eq!(node.ended(&id)["state"], "stopped");
    assert_eq!(found(&node).len(), 1);
    node.close();
}

#[test]
fn a_record_that_is_late_before_a_restart_is_late_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("readings", 8);
    node.create("sums", 1);
    let of_all = |minute: i64| (0..40).map(move |device| record((device, minute, 1)));
    let mut document = sums("late", &json!({"type": "tumbling", "size": "10m"}), 3);
    document["sources"]["in"]["parallelism"] = json!(8);
    let id = node.run(&document);
    node.append("readings", &of_all(3).chain(of_all(20)).collect::<Vec<_>>());
    eventually("the first windows are there", || found(&node).len() == 40);
    eventually("all is committed", || node.job(&id)["lag"] == 0);
    node.close();
    let node = Node::open(dir.path());
    node.append("readings", &of_all(4).chain(of_all(40)).collect::<Vec<_>>());
    eventually("the next windows are there", || found(&node).len() == 80);
    assert_eq!(node.job(&id)["nodes"][1]["late"], 40, "{:#}", node.job(&id));
    node.close();
}

#[test]
fn a_window_of_a_topic_that_is_silent_stays_open_until_a_record_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut document = sums("silent", &json!({"type": "tumbling", "size": "1ms"}), 1);
    document["sources"]["in"]["event_time"] = json!({"field": "at", "idle_timeout": "50ms"});
    let node = Node::open(dir.path());
    node.create("readings", 2);
    node.create("sums", 1);
    let id = node.run(&document);
    for round in 0..3 {
        // Silence, in which the clock passes the end of the window many times, and a restart.
        node.append("readings", &[record((1, 7, 1))]);
        eventually("it is read", || node.job(&id)["nodes"][1]["records_in"] == round + 1);
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert_eq!(node.read("sums"), []);
    }
    node.close();
    let node = Node::open(dir.path());
    node.append("readings", &[record((1, 7, 1))]);
    eventually("it is read", || node.job(&id)["nodes"][1]["records_in"] == 1);
    std::thread::sleep(std::time::Duration::from_millis(200));
    node.append("readings", &[record((1, 8, 1))]);
    eventually("the window is there", || !node.read("sums").is_empty());
    let counts: Vec<_> = node.read("sums").iter().map(|(_, value)| value["count"].clone()).collect();
    assert_eq!(counts, [4]);
    assert_eq!(node.job(&id)["nodes"][1]["late"], Value::Null);
    node.close();
}
