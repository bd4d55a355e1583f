//! Windows that triggers send: over restarts, taken back, by the clock, and late records apart.

use std::collections::BTreeMap;

use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::node::Node;

const MINUTE_MS: i64 = 60_000;

/// A job that lists and adds up the numbers of each device in windows.
fn lists(window: &Value, triggers: &Value) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "lists", "delivery": "exactly_once", "checkpoint": {"interval": "20ms"},
        "sources": {"in": {
            "type": "stream", "config": {"topic": "readings"}, "batch": {"size": 7}, "parallelism": 2,
            "event_time": {"field": "at", "idle_timeout": "1d"},
        }},
        "transforms": {"lists": {
            "type": "aggregate", "inputs": ["in"], "key_by": ["device"], "parallelism": 3,
            "window": window, "triggers": triggers,
            "aggregates": [{"op": "collect", "field": "n", "as": "all"}, {"op": "sum", "field": "n", "as": "sum"}],
        }},
        "sinks": {"out": {"type": "stream", "inputs": ["lists"], "config": {"topic": "lists"}}},
    })
}

fn record(device: i64, minute: i64, n: i64) -> (String, String) {
    let value = json!({"device": format!("d{device}"), "at": minute * MINUTE_MS, "n": n});
    (format!("d{device}"), value.to_string())
}

/// The lists that were sent for each device, in their order.
fn found(node: &Node) -> BTreeMap<String, Vec<Vec<i64>>> {
    let mut found: BTreeMap<String, Vec<Vec<i64>>> = BTreeMap::new();
    for (key, value) in node.read("lists") {
        let all = value["all"].as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect();
        found.entry(key).or_default().push(all);
    }
    found
}

fn open(dir: &std::path::Path) -> Node {
    let node = Node::open(dir);
    node.create("readings", 3);
    node.create("lists", 2);
    node
}

#[test]
fn records_are_counted_over_restarts() {
    const ROUNDS: i64 = 5;
    const READINGS: i64 = 200;
    let dir = tempfile::tempdir().unwrap();
    let documents = [
        json!([{"on": "count", "every": 10, "mode": "discarding"}]),
        json!([{"on": "punctuation", "when": "n % 70 < 7", "mode": "discarding"}]),
    ];
    for (number, triggers) in documents.iter().enumerate() {
        let dir = dir.path().join(number.to_string());
        for round in 0..ROUNDS {
            let node = if round == 0 { open(&dir) } else { Node::open(&dir) };
            if round == 0 {
                node.run(&lists(&json!({"type": "global"}), triggers));
            }
            let readings = round * READINGS..(round + 1) * READINGS;
            node.append("readings", &readings.map(|n| record(n % 7, n, n)).collect::<Vec<_>>());
            if round % 2 == 1 {
                eventually("some are there", || found(&node).values().map(Vec::len).sum::<usize>() as i64 > round * 10);
            }
            node.close();
        }
        let node = Node::open(&dir);
        let of_device = |device: i64| (0..ROUNDS * READINGS).filter(move |n| n % 7 == device);
        let expected: BTreeMap<String, Vec<Vec<i64>>> = (0..7)
            .map(|device| {
                let mut lists = vec![Vec::new()];
                for (count, n) in (1..).zip(of_device(device)) {
                    lists.last_mut().unwrap().push(n);
                    let is_sent = if number == 0 { count % 10 == 0 } else { n % 70 < 7 };
                    if is_sent {
                        lists.push(Vec::new());
                    }
                }
                lists.pop();
                (format!("d{device}"), lists)
            })
            .collect();
        let count: usize = expected.values().map(Vec::len).sum();
        eventually("all are there", || found(&node).values().map(Vec::len).sum::<usize>() >= count);
        assert_eq!(found(&node), expected);
        node.close();
    }
}

#[test]
fn results_that_are_taken_back_leave_the_last_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected: BTreeMap<(i64, i64), i64> = BTreeMap::new();
    for round in 0..4 {
        let node = if round == 0 { open(dir.path()) } else { Node::open(dir.path()) };
        if round == 0 {
            let window = json!({"type": "session", "gap": "3m", "allowed_lateness": "1d"});
            node.run(&lists(&window, &json!([{"on": "watermark", "mode": "retracting"}])));
        }
        let mut readings = Vec::new();
        for n in round * 100..(round + 1) * 100 {
            // Sessions grow together from both sides, long after they were sent.
            let (device, minute) = (n % 5, (n * 37) % 200);
            *expected.entry((device, minute)).or_default() += n;
            readings.push(record(device, minute, n));
        }
        node.append("readings", &readings);
        eventually("some are there", || node.read("lists").len() > round as usize * 20);
        node.close();
    }
    let node = Node::open(dir.path());
    node.append("readings", &(100..140).map(|device| record(device, 1_000, 0)).collect::<Vec<_>>());
    let of_devices: i64 = expected.values().sum();
    let left = |node: &Node| {
        let mut left: BTreeMap<String, i64> = BTreeMap::new();
        for (key, mut value) in node.read("lists") {
            let change = match value["op"].as_str().unwrap() {
                "insert" => 1,
                "retract" => -1,
                other => panic!("{other}"),
            };
            value.as_object_mut().unwrap().remove("op");
            let count = left.entry(format!("{key} {value}")).or_default();
            *count += change;
            assert!((0..=1).contains(count), "{value} is sent once before it is taken back");
        }
        left.retain(|_, count| *count == 1);
        let value = |text: &String| text.split_once(' ').unwrap().1.parse::<Value>().unwrap();
        left.keys().map(value).filter(|value| value["device"].as_str().unwrap().len() == 2).collect::<Vec<_>>()
    };
    let sum = |left: &[Value]| left.iter().map(|value| value["sum"].as_i64().unwrap()).sum::<i64>();
    eventually("all records are in a session", || sum(&left(&node)) == of_devices);
    // Every device has one session in the end, as its minutes are that close.
    let mut sessions = 0;
    for device in 0..5 {
        let mut minutes: Vec<i64> = expected.keys().filter(|key| key.0 == device).map(|key| key.1).collect();
        minutes.sort_unstable();
        sessions += 1 + minutes.windows(2).filter(|pair| pair[1] - pair[0] > 3).count();
    }
    assert_eq!(left(&node).len(), sessions);
    node.close();
}

#[test]
fn the_clock_sends_windows_of_a_topic_that_has_fallen_silent_and_then_rests() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path());
    let window = json!({"type": "tumbling", "size": "1h"});
    let id = node.run(&lists(
        &window,
        &json!([{"id": "final", "on": "watermark"}, {"id": "early", "on": "interval", "every": "50ms"}]),
    ));
    node.append("readings", &(0..20).map(|n| record(n % 3, n, n)).collect::<Vec<_>>());
    eventually("early results are there", || {
        found(&node).values().filter_map(|lists| lists.last()).map(Vec::len).sum::<usize>() == 20
    });
    assert!(node.read("lists").iter().all(|(_, value)| value["window"]["trigger"] == "early"));
    let sent = node.read("lists").len();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(node.read("lists").len(), sent, "what has not changed is not sent again");
    // After a restart, too.
    node.close();
    let node = Node::open(dir.path());
    node.append("readings", &[record(0, 30, 100)]);
    eventually("the next is there", || found(&node)["d0"].last().unwrap().last() == Some(&100));
    node.running(&id);
    node.close();
}

#[test]
fn late_records_go_to_a_node_of_their_own_as_they_came() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    // Time goes on with each record of the one partition.
    ["readings", "lists", "late"].iter().for_each(|topic| node.create(topic, 1));
    let window = json!({"type": "tumbling", "size": "10m", "late_to": "late"});
    let mut document = lists(&window, &json!([{"on": "watermark"}]));
    document["sources"]["in"]["parallelism"] = json!(1);
    document["transforms"]["lists"]["where"] = json!("n < 1000");
    document["sinks"]["late"] = json!({"type": "stream", "config": {"topic": "late"}});
    let id = node.run(&document);
    let minutes = [3, 25, 4, 26, 5, 40, 24, 1];
    node.append("readings", &(0..).zip(minutes).map(|(n, minute)| record(1, minute, n)).collect::<Vec<_>>());
    node.append("readings", &[record(1, 2, 5_000), record(1, 90, 99)]);
    eventually("all late ones are there", || node.read("late").len() == 4);
    let late: Vec<_> = node.read("late").into_iter().map(|(key, value)| (key, value["n"].clone())).collect();
    assert_eq!(late, [2, 4, 6, 7].map(|n| ("d1".to_owned(), json!(n))));
    eventually("the windows are there", || found(&node).get("d1").is_some_and(|lists| lists.len() == 3));
    assert_eq!(found(&node)["d1"], [vec![0], vec![1, 3], vec![5]]);
    let job = node.job(&id);
    let nodes = job["nodes"].as_array().unwrap();
    assert_eq!(nodes.iter().find(|node| node["name"] == "lists").unwrap()["late"], 4, "{job:#}");
    node.close();
}

#[test]
fn a_list_that_has_as_much_as_can_be_stored_fails_further_records_and_not_the_job() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    ["readings", "lists", "dead"].iter().for_each(|topic| node.create(topic, 1));
    let mut document = lists(&json!({"type": "global"}), &json!([{"on": "punctuation", "when": "n = 99"}]));
    document["transforms"]["lists"]["aggregates"] =
        json!("ARRAY_AGG(n) AS all, ARRAY_AGG(text) AS texts, COUNT(*) AS count");
    document["sinks"]["dead"] = json!({"type": "stream", "inputs": ["lists"], "config": {"topic": "dead"}});
    document["routes"] = json!([
        {"from": "lists", "on_error": true, "to": ["dead"], "select": "error.code AS code, input.n AS n", "stop": true},
        {"from": "lists", "to": ["out"]},
    ]);
    let id = node.run(&document);
    let text = "x".repeat(100_000);
    for n in 0..12 {
        node.append(
            "readings",
            &[("d1".to_owned(), json!({"device": "d1", "at": n, "n": n, "text": text}).to_string())],
        );
    }
    node.append("readings", &[("d2".to_owned(), json!({"device": "d2", "at": 20, "n": 99}).to_string())]);
    eventually("another key is not affected", || found(&node).contains_key("d2"));
    let dead: Vec<_> = node.read("dead").into_iter().map(|(_, value)| value).collect();
    assert_eq!(dead, (7..12).map(|n| json!({"code": "window_too_large", "n": n})).collect::<Vec<_>>());
    eventually("all is committed", || node.job(&id)["lag"] == 0);
    node.close();
    // What was stored is whole.
    let node = Node::open(dir.path());
    node.append("readings", &[("d1".to_owned(), json!({"device": "d1", "at": 30, "n": 99}).to_string())]);
    eventually("the list is there", || found(&node).contains_key("d1"));
    assert_eq!(found(&node)["d1"], [[0, 1, 2, 3, 4, 5, 6, 99]]);
    assert_eq!(node.job(&id)["restarts"], 0);
    node.close();
}

#[test]
fn a_record_on_which_a_trigger_cannot_be_decided_fails_and_is_in_no_window() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    ["readings", "lists", "dead"].iter().for_each(|topic| node.create(topic, 1));
    let mut document = lists(&json!({"type": "global"}), &json!([{"on": "punctuation", "when": "10 / n = 1"}]));
    document["sinks"]["dead"] = json!({"type": "stream", "inputs": ["lists"], "config": {"topic": "dead"}});
    document["routes"] = json!([
        {"from": "lists", "on_error": true, "to": ["dead"], "select": "error.code AS code, input.n AS n", "stop": true},
        {"from": "lists", "to": ["out"]},
    ]);
    node.run(&document);
    node.append("readings", &[3, 0, 4, 0, 10].map(|n| record(1, n, n)));
    eventually("the list is there", || found(&node).contains_key("d1"));
    assert_eq!(found(&node)["d1"], [[3, 4, 10]]);
    let dead: Vec<_> = node.read("dead").into_iter().map(|(_, value)| value).collect();
    assert_eq!(dead, [(); 2].map(|()| json!({"code": "division_by_zero", "n": 0})));
    node.close();
}
