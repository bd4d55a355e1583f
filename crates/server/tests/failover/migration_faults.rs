//! Brokers that stand still or die while a log is moved to them.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use millstream_testkit::{Process, RealKafka};
use serde_json::{Value, json};

use crate::load::stored;
use crate::migration::{create, migrate_to};
use crate::signal;

const PARTITIONS: u64 = 6;
/// Many more than wait for their acknowledgements at a time.
const RECORDS: u64 = 60_000;

/// The arguments of a server on these brokers.
fn arguments(kafka: &RealKafka) -> Vec<String> {
    let brokers: Vec<_> = kafka.brokers().iter().map(|broker| format!("{:?}", broker.address)).collect();
    let settings = ["log.engine=kafka".to_owned(), format!("log.kafka.brokers=[{}]", brokers.join(","))];
    settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]).collect()
}

fn fill(server: &Process) {
    create(server, "PUT", "/api/streams/many", &json!({"partitions": PARTITIONS}));
    let all: Vec<u64> = (0..RECORDS).collect();
    for part in all.chunks(1_000) {
        let record = |n: &u64| json!({"partition": n % PARTITIONS, "value": {"n": n, "text": "x".repeat(900)}});
        create(server, "POST", "/api/streams/many/records", &json!(part.iter().map(record).collect::<Vec<Value>>()));
    }
}

/// A run of the migration, once it has copied some of the records.
fn begun(arguments: &[String], dir: &Path) -> Child {
    let mut run = migrate_to(arguments, dir).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let told = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("records copied")));
    assert!(told.is_some(), "it has ended");
    // What it tells later is of no interest.
    std::thread::spawn(move || lines.for_each(drop));
    run
}

#[test]
#[ignore = "takes long"]
fn a_migration_goes_on_when_brokers_stand_still_or_die_and_it_is_killed_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start_on(dir.path(), &[]);
    fill(&server);
    server.stop();
    let mut kafka = RealKafka::start(3);
    let arguments = arguments(&kafka);

    // A replica that stands still keeps what leaders have from being seen.
    let mut killed = begun(&arguments, dir.path());
    signal(kafka.brokers()[1].pid, "-STOP");
    std::thread::sleep(Duration::from_millis(500));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let (pid, named, of_run) = (kafka.brokers()[1].pid, arguments.clone(), dir.path().to_owned());
    let run = std::thread::spawn(move || begun(&named, &of_run));
    std::thread::sleep(Duration::from_secs(3));
    signal(pid, "-CONT");
    let mut run = run.join().unwrap();
    kafka.kill(0);
    assert!(run.wait().unwrap().success());

    kafka.start_again(0);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let server = Process::start_on(dir.path(), &arguments);
    for partition in 0..PARTITIONS {
        let expected: Vec<u64> = (0..RECORDS).filter(|n| n % PARTITIONS == partition).collect();
        assert!(stored(&server, "many", Some(partition)) == expected, "partition {partition} differs");
    }
}
