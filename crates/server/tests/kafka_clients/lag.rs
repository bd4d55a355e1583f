//! What a group still has to read is told everywhere where topics are.

use serde_json::json;

use crate::broker::Broker;
use crate::process::millstream;

#[test]
fn the_lag_of_a_group_is_told_over_http_in_the_terminal_and_among_the_counters() {
    let broker = Broker::start();
    let Some(process) = broker.process() else { return };
    for (partition, records) in [("0", "a\nb\nc\n"), ("1", "d\ne\n")] {
        broker.kcat(&["-P", "-t", "read", "-p", partition], records);
    }
    broker.script("confluent.py", &["commit", "read", "readers", "1", "2"]);
    let info = process.get_json("/api/streams/read/info");
    let partition =
        |partition: u32, position: u64, lag: u64| json!({"partition": partition, "position": position, "lag": lag});
    let expected = json!({"group": "readers", "lag": 2, "partitions": [partition(0, 1, 2), partition(1, 2, 0)]});
    assert_eq!(info["groups"], json!([expected]));
    assert_eq!(info["partitions"][0]["stable"], 3);

    let described = millstream()
        .args(["topic", "describe", "read"])
        .env("MILLSTREAM_SERVER", process.applications_url())
        .output()
        .unwrap();
    let described = String::from_utf8(described.stdout).unwrap();
    let rows: Vec<Vec<&str>> = described.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [["GROUP", "PARTITION", "POSITION", "LAG"], ["readers", "0", "1", "2"], ["readers", "1", "2", "0"]] {
        assert!(rows.iter().any(|shown| *shown == row), "{row:?} in {described}");
    }

    let stats = process.get_json("/stats");
    assert_eq!(stats["log"]["lags"], json!([{"group": "readers", "topic": "read", "lag": 2}]));
    let counters = process.get("/metrics").text();
    for line in [
        "millstream_group_lag{group=\"readers\",tenant=\"default\",topic=\"read\"} 2",
        "millstream_topic_stable_offsets{tenant=\"default\",topic=\"read\"} 5",
    ] {
        assert!(counters.lines().any(|shown| shown == line), "{line} in {counters}");
    }
}
