//! Apache Flink's sink for Kafka, exactly once: a transactional id of its own for each subtask and checkpoint.

use std::path::Path;
use std::process::Command;

use millstream_testkit::{ask, installed};

use crate::broker::{Broker, output, patient};

const CHECKPOINTS: &str = "200";
/// Flink's serializers look into Java's own classes.
const OPENED: [&str; 4] = ["java.lang", "java.util", "java.util.concurrent", "java.net"];

#[test]
#[ignore = "takes long"]
fn flinks_sink_writes_each_number_once_under_more_transactional_ids_than_a_tenant_may_have() {
    let Some(broker) = Broker::configured("[kafka]\ntransactional_ids_per_tenant_max = 50\n") else { return };
    let process = broker.process().unwrap();
    let json = [("Content-Type", "application/json")];
    assert_eq!(ask(process.applications, "PUT", "/api/streams/numbers", &json, br#"{"partitions": 1}"#).status, 201);

    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka_clients/flink/CountedCheckpoints.java");
    let jars = installed("kafka/flink").join("*");
    let mut compiler = Command::new("javac");
    compiler.arg("-nowarn").arg("-cp").arg(&jars).arg("-d").arg(dir.path()).arg(source);
    output(compiler, "");
    let mut job = patient("java");
    job.args(["-Xmx400m", "-XX:+UseSerialGC", "-XX:-UsePerfData"]);
    job.args(OPENED.iter().flat_map(|package| ["--add-opens".to_owned(), format!("java.base/{package}=ALL-UNNAMED")]));
    job.arg("-cp").arg(format!("{}:{}", dir.path().display(), jars.display()));
    job.args(["CountedCheckpoints", &broker.address, "numbers", CHECKPOINTS]);
    let said = output(job, "");
    assert_eq!(said, "completed true failed true\n", "it was restarted once on the way");

    let all = ["-C", "-t", "numbers", "-p", "0", "-o", "beginning", "-e", "-X", "isolation.level=read_committed"];
    let mut written: Vec<u64> = broker.kcat(&all, "").lines().map(|line| line.parse().unwrap()).collect();
    // Two subtasks write side by side.
    written.sort_unstable();
    assert!(written.len() as u64 > CHECKPOINTS.parse().unwrap(), "{} numbers", written.len());
    assert!((0..).zip(&written).all(|(expected, number)| expected == *number), "a number is missing or there twice");
}
