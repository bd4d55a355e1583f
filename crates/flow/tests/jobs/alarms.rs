//! Alarms: conditions that hold for a time, and keys that are silent.

use std::time::Duration;

use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::node::Node;

const MINUTE_MS: i64 = 60_000;

/// A job that raises an alarm after two minutes above 30 degrees, and notices ten minutes of silence.
fn watch(parallelism: u32) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "watch", "delivery": "exactly_once", "checkpoint": {"interval": "20ms"},
        "sources": {"in": {
            "type": "stream", "config": {"topic": "readings"}, "batch": {"size": 7},
            "event_time": {"field": "at", "idle_timeout": "100ms"}, "parallelism": 2,
        }},
        "transforms": {"hot": {
            "type": "alarm", "inputs": ["in"], "key_by": ["device"], "parallelism": parallelism,
            "config": {"raise": "temp > 30", "clear": "temp < 28", "for": "2m", "absent_after": "10m"},
        }},
        "sinks": {"out": {"type": "stream", "inputs": ["hot"], "config": {"topic": "alarms"}}},
    })
}

/// A reading some minutes after the beginning of time.
fn reading(device: u32, minute: i64, temp: f64) -> (String, String) {
    let value = json!({"device": format!("d{device}"), "at": 1_000_000 + minute * MINUTE_MS, "temp": temp});
    (format!("d{device}"), value.to_string())
}

/// The events so far as `device event minute`, in order of devices and then of records.
fn events(node: &Node) -> Vec<String> {
    let minute = |at: &Value| {
        let at: jiff::Timestamp = at.as_str().unwrap().parse().unwrap();
        (at.as_millisecond() - 1_000_000) as f64 / MINUTE_MS as f64
    };
    let mut events: Vec<(String, String)> = Vec::new();
    for (key, value) in node.read("alarms") {
        assert_eq!((&value["key"], &value["alarm"]), (&json!(key), &json!("hot")));
        let event = format!("{key} {} {}", value["event"].as_str().unwrap(), minute(&value["at"]));
        events.push((key, event));
    }
    events.sort_by(|a, b| a.0.cmp(&b.0));
    events.into_iter().map(|(_, event)| event).collect()
}

fn open_alarms(node: &Node) -> Vec<String> {
    let told = node.jobs.alarms(&node.tenant, None, 100);
    let alarms = told["alarms"].as_array().unwrap();
    assert_eq!(told["open"], alarms.len());
    let shown = |alarm: &Value| format!("{} {}", alarm["key"].as_str().unwrap(), alarm["state"].as_str().unwrap());
    alarms.iter().map(shown).collect()
}

fn run_through(parallelism: u32) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("readings", 3);
    node.create("alarms", 2);
    let of_all =
        |minute| (0..9).map(move |device| reading(device, minute, 20.0 + f64::from(device) * 2.0)).collect::<Vec<_>>();
    node.append("readings", &of_all(0));
    let id = node.run(&watch(parallelism));
    let is_committed = |node: &Node| node.job(&id)["lag"] == 0 && node.job(&id)["checkpoint"]["epoch"].is_u64();
    eventually("all are read", || is_committed(&node));
    assert_eq!(open_alarms(&node), Vec::<String>::new());
    node.close();

    // Three were above 30 before the restart.
    let node = Node::open(dir.path());
    node.append("readings", &of_all(3));
    let raised = ["d6 raised 2", "d7 raised 2", "d8 raised 2"];
    eventually("alarms are raised", || events(&node) == raised);
    assert_eq!(open_alarms(&node), ["d6 raised", "d7 raised", "d8 raised"]);
    node.append("readings", &[reading(6, 4, 29.0), reading(7, 4, 27.5), reading(8, 4, 40.0)]);
    eventually("one ends, one is in between", || {
        events(&node) == ["d6 raised 2", "d7 raised 2", "d7 cleared 4", "d8 raised 2"]
    });
    eventually("the list follows", || open_alarms(&node) == ["d6 raised", "d8 raised"]);
    eventually("it is committed", || is_committed(&node));
    node.close();

    let node = Node::open(dir.path());
    eventually("the list is there after a restart", || open_alarms(&node) == ["d6 raised", "d8 raised"]);
    // An old record says nothing about now, and d1 speaks for the time of all others.
    node.append("readings", &[reading(8, 1, 10.0), reading(1, 14, 20.0)]);
    let absent = [
        "d0 absent 13",
        "d1 absent 13",
        "d1 returned 14",
        "d2 absent 13",
        "d3 absent 13",
        "d4 absent 13",
        "d5 absent 13",
    ];
    let all =
        ["d6 raised 2", "d6 absent 14", "d7 raised 2", "d7 cleared 4", "d7 absent 14", "d8 raised 2", "d8 absent 14"];
    eventually("d6 is absent", || events(&node).iter().any(|event| event == "d6 absent 14"));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(events(&node), [&absent[..], &all[..]].concat());
    let list = ["d0 absent", "d2 absent", "d3 absent", "d4 absent", "d5 absent", "d6 absent", "d7 absent", "d8 absent"];
    assert_eq!(open_alarms(&node), list);
    let watermark = |number: usize| node.job(&id)["nodes"][number]["watermark"].clone();
    assert_eq!((watermark(0), watermark(1)), (json!("1970-01-01T00:20:40.000Z"), json!("1970-01-01T00:30:40.000Z")));
    let told = node.jobs.alarms(&node.tenant, Some("watch"), 7);
    assert_eq!((&told["open"], told["alarms"].as_array().unwrap().len()), (&json!(8), 7));
    assert_eq!(told["alarms"][5]["raised_since"], "1970-01-01T00:16:40.000Z");
    assert_eq!(told["alarms"][5]["record"]["temp"], 32.0);
    assert_eq!(node.jobs.alarms(&millstream_types::TenantId::new("other").unwrap(), None, 7)["open"], 0);
    assert_eq!(node.jobs.alarms(&node.tenant, Some("others"), 7)["open"], 0);
    node.close();
}

#[test]
fn alarms_and_their_list_go_on_after_restarts() {
    run_through(1);
    run_through(3);
}

#[test]
fn a_topic_that_is_silent_as_a_whole_makes_its_keys_absent_once_also_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("readings", 3);
    node.create("alarms", 2);
    let mut document = watch(2);
    document["sources"]["in"]["event_time"] = json!({"idle_timeout": "50ms"});
    document["transforms"]["hot"]["config"] = json!({"absent_after": "500ms"});
    let readings: Vec<_> = (0..5).map(|device| reading(device, 0, 20.0)).collect();
    node.append("readings", &readings);
    let id = node.run(&document);
    let words = |node: &Node| -> Vec<String> {
        node.read("alarms")
            .into_iter()
            .map(|(key, value)| format!("{key} {}", value["event"].as_str().unwrap()))
            .collect()
    };
    let absent = |node: &Node| {
        let mut words = words(node);
        words.sort();
        words
    };
    eventually("all are read", || node.job(&id)["lag"] == 0);
    node.close();
    for _ in 0..3 {
        let node = Node::open(dir.path());
        let all = ["d0 absent", "d1 absent", "d2 absent", "d3 absent", "d4 absent"];
        eventually("all are absent", || absent(&node) == all);
        eventually("the list has them", || open_alarms(&node) == all);
        eventually("an idle job takes no turn", || {
            let turns = node.job(&id)["turns"].as_u64();
            std::thread::sleep(Duration::from_millis(300));
            node.job(&id)["turns"].as_u64() == turns
        });
        node.close();
    }
    let node = Node::open(dir.path());
    node.append("readings", &readings[..1]);
    eventually("one is back", || words(&node).iter().any(|word| word == "d0 returned"));
    node.close();
}

#[test]
fn each_event_is_sent_once_whenever_the_job_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for device in 0..20 {
        for round in 0..8 {
            expected.push(format!("d{device:02} raised {}", round * 8 + 2));
            expected.push(format!("d{device:02} cleared {}", round * 8 + 4));
        }
    }
    for round in 0..8 {
        let node = Node::open(dir.path());
        if round == 0 {
            node.create("readings", 3);
            node.create("alarms", 2);
            node.run(&watch(3));
        }
        for (minute, temp) in [(0, 31.0), (3, 33.0), (4, 20.0)] {
            let readings: Vec<_> = (0..20).map(|device| reading(device, i64::from(round) * 8 + minute, temp)).collect();
            node.append("readings", &readings);
        }
        if round % 3 == 2 {
            eventually("some are there", || node.read("alarms").len() > round as usize * 30);
        }
        node.close();
    }
    let node = Node::open(dir.path());
    let padded =
        |event: &String| format!("d{:0>2}{}", &event[1..event.find(' ').unwrap()], &event[event.find(' ').unwrap()..]);
    let found = || {
        let mut found: Vec<String> = events(&node).iter().map(padded).collect();
        found.sort_by(|a, b| a[..3].cmp(&b[..3]));
        found
    };
    eventually("each event is there", || found().len() >= expected.len());
    assert_eq!(found(), expected);
    node.close();
}

#[test]
fn records_without_a_time_and_values_of_another_kind_take_the_error_route() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.create("readings", 1);
    node.create("alarms", 1);
    node.create("errors", 1);
    let mut document = watch(1);
    document["sinks"]["errors"] = json!({"type": "stream", "inputs": ["in", "hot"], "config": {"topic": "errors"}});
    let select = "error.code AS code, error.node AS node";
    document["routes"] = json!([
        {"from": "in", "on_error": true, "to": ["errors"], "select": select, "stop": true},
        {"from": "in", "to": ["hot"]},
        {"from": "hot", "on_error": true, "to": ["errors"], "select": select, "stop": true},
        {"from": "hot", "to": ["out"]},
    ]);
    let record = |value: Value| ("d1".to_owned(), value.to_string());
    node.append(
        "readings",
        &[
            record(json!({"device": "d1", "at": "yesterday", "temp": 40})),
            record(json!({"device": "d1", "temp": 40})),
            record(json!({"device": "d1", "at": 0, "temp": "hot"})),
            record(json!({"device": "d1", "at": 1, "temp": 40})),
            record(json!({"device": "d1", "at": 120_001, "temp": null})),
            record(json!({"device": "d1", "at": 120_002, "temp": 40})),
        ],
    );
    node.run(&document);
    eventually("the alarm is raised", || node.read("alarms").len() == 1);
    let mut errors: Vec<Value> = node.read("errors").into_iter().map(|(_, value)| value).collect();
    errors.sort_by_key(|error| error["node"] != "in");
    let (code, at) = (|code: &str, at: &str| json!({"code": code, "node": at}), "hot");
    assert_eq!(errors[..2], [code("no_time", "in"), code("no_event_time", at)], "{errors:?}");
    node.close();
}
