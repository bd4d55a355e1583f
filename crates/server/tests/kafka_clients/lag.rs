//! The lag of a group is told everywhere where topics are.

use millstream_testkit::{Process, millstream};
use serde_json::json;

use crate::broker::Broker;

/// The words of each line that the terminal shows of the topic `read`.
fn described(process: &Process) -> Vec<Vec<String>> {
    let described = millstream()
        .args(["topic", "describe", "read"])
        .env("MILLSTREAM_SERVER", process.applications_url())
        .output()
        .unwrap();
    let lines = String::from_utf8(described.stdout).unwrap();
    lines.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn the_lag_of_a_group_is_shown_over_http_in_the_terminal_and_in_the_metrics() {
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

    let described = described(process);
    for row in [["GROUP", "PARTITION", "POSITION", "LAG"], ["readers", "0", "1", "2"], ["readers", "1", "2", "0"]] {
        assert!(described.iter().any(|shown| *shown == row), "{row:?} in {described:?}");
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

#[test]
fn after_kill_9_the_lag_counts_the_records_that_are_there() {
    if Broker::is_another() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let broker = Broker::at(&process.kafka);
    broker.kcat(&["-P", "-t", "read", "-p", "0"], "a\nb\n");
    broker.script("confluent.py", &["commit", "read", "readers", "2"]);
    process.kill();

    let process = Process::start(dir.path());
    let broker = Broker::at(&process.kafka);
    let of_group = || process.get_json("/api/streams/read/info")["groups"][0]["lag"].clone();
    assert_eq!(of_group(), 0, "nothing has come since");
    broker.kcat(&["-P", "-t", "read", "-p", "0"], "c\n");
    let stable = process.get_json("/api/streams/read/info")["partitions"][0]["stable"].as_u64().unwrap();
    assert!(stable > 1 << 20, "the start has skipped offsets: {stable}");
    assert_eq!(of_group(), 1);
    assert_eq!(process.get_json("/stats")["log"]["lags"], json!([{"group": "readers", "topic": "read", "lag": 1}]));
    let counters = process.get("/metrics").text();
    let line = "millstream_group_lag{group=\"readers\",tenant=\"default\",topic=\"read\"} 1";
    assert!(counters.lines().any(|shown| shown == line), "{counters}");
    let described = described(&process);
    assert!(described.iter().any(|shown| *shown == ["readers", "0", "2", "1"]), "{described:?}");
    broker.script("confluent.py", &["lag", "read", "readers", "1"]);
}

#[test]
fn kafkajs_resets_a_group_to_either_end_of_a_topic() {
    let broker = Broker::start();
    let topic = broker.topic("kafkajs-reset");
    broker.kcat(&["-P", "-t", &topic, "-p", "0"], "a\nb\nc\n");
    let address = &broker.address;
    let program = format!(
        r#"
        import {{ Kafka, logLevel }} from "kafkajs";
        const admin = new Kafka({{ brokers: ["{address}"], logLevel: logLevel.ERROR }}).admin();
        await admin.connect();
        for (const earliest of [true, false]) {{
          await admin.resetOffsets({{ groupId: "reset", topic: "{topic}", earliest }});
          const found = await admin.fetchOffsets({{ groupId: "reset", topics: ["{topic}"], resolveOffsets: true }});
          const first = found[0].partitions.find((of) => of.partition === 0);
          console.log(first.offset);
        }}
        await admin.disconnect();
        "#
    );
    assert_eq!(broker.javascript(&program), "0\n3\n");
}
