//! Kafka clients that are not ours, as their users run them: kcat, librdkafka in Python, kafka-python, Kafka's own
//! Java classes. `scripts/setup-clients` installs them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod broker;
mod lag;
mod login;
#[path = "../main_job/process.rs"]
#[allow(dead_code, reason = "the main job's tests use more of it")]
mod process;
mod relay;

use broker::Broker;
use relay::Relay;

const FIRST_MS: u64 = 1_700_000_000_000;

#[test]
fn kcat_lists_produces_and_consumes_in_order() {
    let broker = Broker::start();
    let topic = broker.topic("kcat");
    let lines: Vec<String> = (0..1000).map(|at| format!("key-{}:value-{at}", at % 7)).collect();
    let sent = lines.join("\n");
    broker.kcat(&["-P", "-t", &topic, "-p", "0", "-K", ":", "-z", "lz4"], &sent);
    let all = ["-C", "-t", &*topic, "-p", "0", "-o", "beginning", "-e", "-f", "%k:%s\n"];
    assert_eq!(broker.kcat(&all, "").trim_end(), sent);
    let tail = ["-C", "-t", &*topic, "-p", "0", "-o", "-3", "-e", "-f", "%o %s\n"];
    assert_eq!(broker.kcat(&tail, ""), "997 value-997\n998 value-998\n999 value-999\n");
    let listed = broker.kcat(&["-L"], "");
    assert!(listed.contains(&format!("topic \"{topic}\"")), "{listed}");
}

#[test]
fn kcat_keeps_headers_and_tombstones() {
    let broker = Broker::start();
    let topic = broker.topic("kcat-headers");
    broker.kcat(&["-P", "-t", &topic, "-p", "0", "-H", "a=1", "-H", "a=2", "-K", ":", "-Z"], "gone:\nthere:v\n");
    let read = broker.kcat(&["-C", "-t", &topic, "-p", "0", "-e", "-f", "%k %S %h\n"], "");
    assert_eq!(read, "gone -1 a=1,a=2\nthere 1 a=1,a=2\n");
}

#[test]
fn kcat_finds_offsets_by_time() {
    let broker = Broker::start();
    let topic = broker.topic("kcat-time");
    broker.kcat(&["-P", "-t", &topic, "-p", "0"], "then\n");
    let long_ago = broker.kcat(&["-Q", "-t", &format!("{topic}:0:{FIRST_MS}")], "");
    assert!(long_ago.contains("offset 0"), "{long_ago}");
    let from = broker.kcat(&["-C", "-t", &topic, "-p", "0", "-o", &format!("s@{FIRST_MS}"), "-e"], "");
    assert_eq!(from, "then\n");
}

#[test]
fn librdkafka_reads_each_record_once_and_in_order_per_key() {
    let broker = Broker::start();
    for compression in ["none", "lz4", "zstd"] {
        broker.script("confluent.py", &["records", compression]);
    }
    broker.script("confluent.py", &["records", "none", "1"]);
}

#[test]
fn librdkafka_is_told_about_compressions_that_are_not_known() {
    let broker = Broker::start();
    for compression in ["gzip", "snappy"] {
        broker.script("confluent.py", &["works-or-refused", compression]);
    }
}

#[test]
fn librdkafka_produces_idempotently() {
    Broker::start().script("confluent.py", &["idempotent"]);
}

#[test]
fn librdkafka_creates_describes_and_deletes_topics() {
    Broker::start().script("confluent.py", &["admin"]);
}

#[test]
fn librdkafka_seeks_by_time() {
    Broker::start().script("confluent.py", &["seek-by-time"]);
}

#[test]
fn kafka_python_reads_each_record_once_and_in_order_per_key() {
    let broker = Broker::start();
    for compression in ["none", "lz4", "zstd"] {
        broker.script("pure_python.py", &["records", compression]);
    }
}

#[test]
fn kafka_python_is_told_about_gzip() {
    Broker::start().script("pure_python.py", &["gzip"]);
}

#[test]
fn kafka_python_produces_idempotently() {
    Broker::start().script("pure_python.py", &["idempotent"]);
}

#[test]
fn kafka_python_creates_and_deletes_topics() {
    Broker::start().script("pure_python.py", &["admin"]);
}

#[test]
fn kafka_python_seeks_by_time() {
    Broker::start().script("pure_python.py", &["seek-by-time"]);
}

#[test]
fn a_group_processes_every_record_while_one_leaves_and_one_is_killed() {
    Broker::start().script("groups.py", &["leave-and-kill"]);
}

#[test]
fn a_member_that_slept_through_its_session_commits_nothing() {
    Broker::start().script("groups.py", &["stale"]);
}

#[test]
fn librdkafka_repeats_what_was_stored_and_it_is_stored_once_and_in_order() {
    let (relay, dir) = (Relay::start(7), tempfile::tempdir().unwrap());
    let _server = Broker::start_behind(&relay, dir.path());
    Broker::at(&relay.address).script("transactions.py", &["idempotent-in-order"]);
    assert!(relay.lost() > 3, "{} answers were lost", relay.lost());
}

#[test]
fn librdkafka_commits_and_aborts_transactions() {
    let broker = Broker::start();
    broker.script("transactions.py", &["commit-and-abort"]);
    broker.script("transactions.py", &["open"]);
}

#[test]
fn a_producer_whose_transactional_id_has_another_owner_commits_nothing() {
    Broker::start().script("transactions.py", &["zombie"]);
}

#[test]
fn a_transaction_that_nobody_ends_is_aborted_when_its_time_is_up() {
    Broker::start().script("transactions.py", &["time-out"]);
}

#[test]
fn records_are_transformed_exactly_once_although_the_process_is_killed() {
    Broker::start().script("transactions.py", &["consume-transform-produce"]);
}

#[test]
fn transactions_go_on_after_the_server_was_killed() {
    for how in ["commit", "abort"] {
        let (relay, dir) = (Relay::start(0), tempfile::tempdir().unwrap());
        let server = Broker::start_behind(&relay, dir.path());
        let broker = Broker::at(&relay.address);
        let topic = broker.topic("transactions-restart");
        let mut again = None;
        broker.script_around("transactions.py", &["restart", &topic, how], || {
            server.kill();
            again = Some(Broker::start_behind(&relay, dir.path()));
        });
    }
}

#[test]
fn kafka_python_commits_and_aborts_transactions() {
    Broker::start().script("pure_python.py", &["transactions"]);
}

#[test]
fn javas_performance_and_console_classes_use_transactions() {
    let broker = Broker::start();
    let topic = broker.topic("transactional");
    let bootstrap = format!("bootstrap.servers={}", broker.address);
    let count = ["--topic", &*topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"];
    let transactional = ["--transactional-id", &*topic, "--transaction-duration-ms", "100"];
    let arguments = [&count[..], &transactional, &["--producer-props", &bootstrap]].concat();
    let sent = broker.java("ProducerPerformance", &arguments, "");
    assert!(sent.contains("20000 records sent"), "{sent}");
    let all = ["--bootstrap-server", &*broker.address, "--topic", &*topic, "--from-beginning"];
    let committed = ["--isolation-level", "read_committed", "--max-messages", "20000", "--timeout-ms", "60000"];
    let read = broker.java("consumer.ConsoleConsumer", &[&all[..], &committed].concat(), "");
    assert_eq!(read.lines().count(), 20_000);
}

#[test]
fn javas_topic_command_and_console_clients_run() {
    let broker = Broker::start();
    let topic = broker.topic("console");
    let common = ["--bootstrap-server", &*broker.address, "--topic", &*topic];
    broker.java("TopicCommand", &[&common[..], &["--create", "--partitions", "1"]].concat(), "");
    let lines: Vec<String> = (0..500).map(|at| format!("key-{}:value-{at}", at % 7)).collect();
    let sent = lines.join("\n") + "\n";
    let keyed = ["--property", "parse.key=true", "--property", "key.separator=:"];
    broker.java("ConsoleProducer", &[&common[..], &keyed].concat(), &sent);
    let printed = ["--property", "print.key=true", "--property", "key.separator=:"];
    let all = ["--partition", "0", "--offset", "earliest", "--max-messages", "500", "--timeout-ms", "60000"];
    assert_eq!(broker.java("consumer.ConsoleConsumer", &[&common[..], &printed, &all].concat(), ""), sent);
    let in_a_group = ["--group", "console", "--from-beginning", "--max-messages", "500", "--timeout-ms", "60000"];
    assert_eq!(broker.java("consumer.ConsoleConsumer", &[&common[..], &printed, &in_a_group].concat(), ""), sent);
}

#[test]
fn javas_performance_classes_run() {
    let broker = Broker::start();
    let topic = broker.topic("performance");
    let bootstrap = format!("bootstrap.servers={}", broker.address);
    let count = ["--topic", &*topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"];
    for acks in ["acks=1", "acks=all"] {
        let sent =
            broker.java("ProducerPerformance", &[&count[..], &["--producer-props", &bootstrap, acks]].concat(), "");
        assert!(sent.contains("20000 records sent"), "{sent}");
    }
    let count = ["--bootstrap-server", &*broker.address, "--topic", &*topic, "--messages", "20000"];
    let read = broker.java("ConsumerPerformance", &[&count[..], &["--timeout", "60000"]].concat(), "");
    let figures = read.lines().last().unwrap();
    let records: u64 = figures.split(", ").nth(4).unwrap().parse().unwrap();
    assert!(records >= 20_000, "{read}");
}
