//! Programs of others at the same brokers: what they read of ours, and what is read of theirs.

use std::io::Write as _;
use std::process::{Command, Stdio};

use millstream_log::{AckLevel, Done, Error, Log as _, LogFigures as _, TopicConfig};
use millstream_log_kafka::OnKafka;
use millstream_testkit::{eventually, xtask};
use millstream_types::{Header, Record, TopicPartition};

use crate::{answer, commit, config, topic, values};

/// The output of a program that ends well.
fn output(mut command: Command, input: &str) -> String {
    let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    program.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let ended = program.wait_with_output().unwrap();
    assert!(ended.status.success(), "{command:?}: {}", ended.status);
    String::from_utf8(ended.stdout).unwrap()
}

fn kcat(bootstrap: &str, arguments: &[&str], input: &str) -> String {
    let mut kcat = Command::new("kcat");
    kcat.args(["-q", "-b", bootstrap]).args(arguments);
    output(kcat, input)
}

/// Records with key and headers, a commit, and an aborted transaction.
fn write(log: &OnKafka, name: &str) -> Result<(), Error> {
    let name = topic(name);
    log.create_topic(&name, &TopicConfig { partitions: 1, ..TopicConfig::default() })?;
    let partition = log.partition(&TopicPartition::new(name.clone(), 0))?;
    let headers = [Header { key: "source", value: Some(b"shop") }];
    let with_headers = Record { timestamp_ms: 77, key: Some(b"o-1"), value: Some(b"bolt"), headers: &headers };
    let tombstone = Record { key: Some(b"o-1"), ..Record::default() };
    let (done, answer) = answer();
    partition.append(&[with_headers, tombstone], AckLevel::Synced, done)?;
    answer()?;
    let writer = log.writer("outside")?;
    commit(&*writer, &name, &[0], "committed")?;
    writer.append(partition.id(), &[Record { value: Some(b"void"), ..Record::default() }])?;
    eventually("the record of the open transaction is there", || partition.offsets().high > partition.offsets().stable);
    writer.abort()?;
    commit(&*writer, &name, &[0], "last").map(drop)
}

#[test]
fn kcat_and_java_read_what_is_committed() {
    let kafka = crate::conformance::brokers();
    let log = OnKafka::open(config(kafka)).unwrap();
    write(&log, "read-outside").unwrap();
    let committed = ["-X", "isolation.level=read_committed"];
    let all = ["-C", "-t", "read-outside", "-o", "beginning", "-e", "-f", "%k %s %h\\n"];
    let read = kcat(&kafka.bootstrap(), &[&all[..], &committed[..]].concat(), "");
    assert_eq!(read, "o-1 bolt source=shop\no-1  \nk committed \nk last \n");
    let times = kcat(&kafka.bootstrap(), &["-C", "-t", "read-outside", "-o", "beginning", "-e", "-f", "%T\n"], "");
    let times: Vec<i64> = times.lines().map(|time| time.parse().unwrap()).collect();
    assert!(
        times.iter().all(|time| *time > 1_000_000_000_000),
        "the time of a record is that of its append: {times:?}"
    );

    let mut java = Command::new(xtask());
    java.args(["kafka-tools", "org.apache.kafka.tools.consumer.ConsoleConsumer"]);
    java.args(["--bootstrap-server", &kafka.bootstrap(), "--topic", "read-outside", "--from-beginning"]);
    java.args(["--isolation-level", "read_committed", "--max-messages", "4"]);
    java.args(["--property", "print.key=true", "--property", "print.headers=true"]);
    let expected = "source:shop\to-1\tbolt\nNO_HEADERS\to-1\tnull\nNO_HEADERS\tk\tcommitted\nNO_HEADERS\tk\tlast\n";
    assert_eq!(output(java, ""), expected);
}

#[test]
fn what_kcat_writes_is_read_in_each_compression() {
    let kafka = crate::conformance::brokers();
    let log = OnKafka::open(config(kafka)).unwrap();
    let name = topic("written-outside");
    log.create_topic(&name, &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
    let mut expected = Vec::new();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        kcat(&kafka.bootstrap(), &["-P", "-t", "written-outside", "-K", ":", "-z", codec], &format!("k:{codec}\n"));
        expected.push(codec.to_owned());
        eventually("it is read", || values(&log, &name, 0) == expected);
    }
}

#[test]
fn records_that_nobody_awaits_and_that_a_broker_refuses_are_counted() {
    let kafka = crate::conformance::brokers();
    let log = OnKafka::open(config(kafka)).unwrap();
    let name = topic("limited-outside");
    log.create_topic(&name, &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
    let mut limit = Command::new(xtask());
    limit.args(["kafka-tools", "kafka.admin.ConfigCommand", "--bootstrap-server", &kafka.bootstrap(), "--alter"]);
    limit.args(["--topic", "limited-outside", "--add-config", "max.message.bytes=500"]);
    output(limit, "");
    let partition = log.partition(&TopicPartition::new(name.clone(), 0)).unwrap();
    let large = Record { value: Some(&[0xa7; 1_000]), ..Record::default() };
    partition.append(&[large; 3], AckLevel::Memory, Done::ignore()).unwrap();
    eventually("they are counted", || log.stats().records_lost == 3);
    let (done, answer) = answer();
    partition.append(&[large; 2], AckLevel::Synced, done).unwrap();
    assert!(matches!(answer(), Err(Error::Refused { .. })), "it is answered");
    partition.append(&[Record::default()], AckLevel::Memory, Done::ignore()).unwrap();
    eventually("it is stored", || partition.offsets().stable.0 == 1);
    assert_eq!(log.stats().records_lost, 3);
}
