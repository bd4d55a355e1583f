//! The stored values of each operator with state, as the API shows them.

use millstream_flow::StopMode;
use millstream_testkit::eventually;
use serde_json::{Value, json};

use crate::node::Node;

const MINUTE_MS: i64 = 60_000;

/// A job with this transform over the topic `readings`, whose times are exact.
fn job(transform: Value) -> Value {
    let source = |topic: &str| {
        json!({
            "type": "stream", "config": {"topic": topic},
            "event_time": {"field": "at", "max_out_of_orderness": "0s", "idle_timeout": "1d"},
        })
    };
    let inputs = transform["inputs"].as_array().unwrap();
    let sources: serde_json::Map<String, Value> =
        inputs.iter().map(|name| (name.as_str().unwrap().to_owned(), source(name.as_str().unwrap()))).collect();
    json!({
        "version": 1, "kind": "Job", "name": "job", "delivery": "exactly_once", "checkpoint": {"interval": "20ms"},
        "sources": sources, "transforms": {"node": transform},
        "sinks": {"out": {"type": "blackhole", "inputs": ["node"]}},
    })
}

fn reading(device: &str, minute: i64, n: i64) -> (String, String) {
    (device.to_owned(), json!({"device": device, "at": minute * MINUTE_MS, "n": n}).to_string())
}

fn time(minute: i64) -> Value {
    json!(format!("1970-01-01T{:02}:{:02}:00.000Z", minute / 60, minute % 60))
}

fn open(dir: &tempfile::TempDir) -> Node {
    let node = Node::open(dir.path());
    node.create("readings", 1);
    node.create("payments", 1);
    node
}

/// Stops a job once it has read so many records.
fn stop_after(node: &Node, id: &str, records: usize) {
    let sources = |job: &Value| {
        let nodes = job["nodes"].as_array().cloned().unwrap_or_default();
        nodes.iter().filter(|of| of["role"] == "source").filter_map(|of| of["records_out"].as_u64()).sum::<u64>()
    };
    eventually("all are read", || sources(&node.job(id)) == records as u64);
    node.stop(id, StopMode::Checkpoint);
    node.ended(id);
}

/// The stored values of the node, by key.
fn values(node: &Node, id: &str, limit: usize) -> Vec<(Value, Value)> {
    let state = node.jobs.state(&node.tenant, id, "node", None, limit).unwrap();
    let values = state["values"].as_array().unwrap().iter();
    values
        .map(|one| {
            assert!(one["bytes"].as_u64() > Some(0), "{state:#}");
            (one["key"].clone(), one["value"].clone())
        })
        .collect()
}

/// The stored values after the readings of two devices.
fn after(transform: Value, readings: &[(String, String)]) -> Vec<(Value, Value)> {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.append("readings", readings);
    let id = node.run(&job(transform));
    stop_after(&node, &id, readings.len());
    let values = values(&node, &id, 10);
    node.close();
    values
}

fn of_two_devices() -> Vec<(String, String)> {
    vec![reading("d1", 1, 3), reading("d2", 2, 4), reading("d1", 3, 5), reading("d1", 4, 5)]
}

#[test]
fn deduplicate_tells_until_when_a_key_is_known() {
    let transform =
        json!({"type": "deduplicate", "inputs": ["readings"], "key_by": ["device"], "config": {"ttl": "1h"}});
    let found = after(transform, &of_two_devices());
    let known = |minute: i64| json!({"passed": time(minute), "until": time(minute + 60)});
    assert_eq!(found, [(json!("d1"), known(1)), (json!("d2"), known(2))]);
}

#[test]
fn a_map_tells_the_last_values_of_its_calls() {
    let transform = json!({
        "type": "map", "inputs": ["readings"], "key_by": ["device"],
        "select": "LAG(n, 2) AS a, RUNNING_SUM(n) AS b, SINCE_CHANGE(n) AS c, CHANGED(n) AS d",
    });
    let of = |last: i64, lag: Value, sum: i64, n: i64, since: i64| {
        let since = json!({"value": n, "since": time(since)});
        let values = json!({"LAG(n, 2)": lag, "RUNNING_SUM(n)": sum, "SINCE_CHANGE(n)": since, "CHANGED(n)": n});
        json!({"last": time(last), "values": values})
    };
    let expected = [(json!("d1"), of(4, json!([5, 5]), 13, 5, 3)), (json!("d2"), of(2, json!([4]), 4, 4, 2))];
    assert_eq!(after(transform, &of_two_devices()), expected);
}

#[test]
fn an_alarm_tells_its_state_and_since_when() {
    let transform = json!({
        "type": "alarm", "inputs": ["readings"], "key_by": ["device"],
        "config": {"raise": "n > 4", "severity": "'high'", "absent_after": "1h"},
    });
    let found = after(transform, &of_two_devices());
    assert_eq!(found.len(), 2, "{found:#?}");
    let (raised, normal) = (&found[0].1, &found[1].1);
    assert_eq!((&raised["state"], &raised["since"], &raised["last"]), (&json!("raised"), &time(3), &time(4)));
    assert_eq!((&raised["severity"], &raised["record"]["n"]), (&json!("high"), &json!(5)), "{raised:#}");
    assert_eq!(normal, &json!({"state": "normal", "since": time(2), "last": time(2)}));
}

#[test]
fn an_aggregate_tells_its_open_windows_with_their_values() {
    let of = |device: &str, start: i64, sum: i64, count: i64| json!({"device": device, "sum": sum, "count": count, "window": {"start": time(start), "end": time(start + 10)}});
    let mut readings = of_two_devices();
    readings.extend([reading("d1", 11, 7), reading("d2", 12, 8)]);
    let aggregate = |triggers: Value| {
        json!({
            "type": "aggregate", "inputs": ["readings"], "key_by": ["device"],
            "window": {"type": "tumbling", "size": "10m"}, "triggers": triggers,
            "aggregates": "SUM(n) AS sum, COUNT(*) AS count",
        })
    };
    let mut by_time = aggregate(json!([]));
    by_time.as_object_mut().unwrap().remove("triggers");
    let open = |device: &str, windows: Vec<Value>| (json!(device), json!({"windows": windows}));
    let expected = [open("d1", vec![of("d1", 10, 7, 1)]), open("d2", vec![of("d2", 10, 8, 1)])];
    assert_eq!(after(by_time, &readings), expected);

    let expected = [
        open("d1", vec![of("d1", 0, 13, 3), of("d1", 10, 7, 1)]),
        open("d2", vec![of("d2", 0, 4, 1), of("d2", 10, 8, 1)]),
    ];
    let late = json!([{"on": "watermark", "delay": "1h"}, {"on": "count", "every": 2}]);
    assert_eq!(after(aggregate(late), &readings), expected);

    let counted = json!({
        "type": "aggregate", "inputs": ["readings"], "key_by": ["device"], "window": {"type": "count", "size": 2},
        "aggregates": "SUM(n) AS sum",
    });
    assert_eq!(
        after(counted, &readings[..4]),
        [open("d1", vec![json!({"device": "d1", "sum": 5})]), open("d2", vec![json!({"device": "d2", "sum": 4})]),]
    );
}

#[test]
fn a_join_tells_how_many_records_of_each_side_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(&dir);
    node.append("readings", &of_two_devices());
    node.append("payments", &[reading("d1", 2, 1), reading("d3", 2, 1)]);
    let id = node.run(&job(json!({
        "type": "join", "inputs": ["readings", "payments"],
        "config": {"left": "readings", "right": "payments", "on": "device", "within": "1h"},
    })));
    stop_after(&node, &id, 6);
    let of = |key: &str, left: u64, right: u64, oldest: i64| {
        (json!(key), json!({"left": left, "right": right, "oldest": time(oldest)}))
    };
    let expected = [of("d1", 3, 1, 1), of("d2", 1, 0, 2), of("d3", 0, 1, 2)];
    assert_eq!(values(&node, &id, 10), expected);
    // A limit and a key are those of the join.
    assert_eq!(values(&node, &id, 2), expected[..2]);
    let state = node.jobs.state(&node.tenant, &id, "node", Some("d1"), 10).unwrap();
    assert_eq!((state["values"].as_array().unwrap().len(), &state["more"]), (1, &json!(false)));
    assert_eq!(state["values"][0]["value"], expected[0].1);
    node.close();
}
