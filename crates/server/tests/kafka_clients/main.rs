//! Kafka clients that are not ours, as their users run them: kcat, librdkafka in Python, kafka-python, Kafka's own
//! Java classes. `scripts/setup-clients` installs them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod broker;
mod codecs;
mod damage;
mod documented;
mod flink;
mod java;
mod keys;
mod lag;
mod login;
mod notifications;
mod relay;
mod rows;

use broker::{Broker, xtask};
use codecs::CODECS;
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
    for compression in CODECS {
        broker.script("confluent.py", &["records", compression]);
    }
    broker.script("confluent.py", &["records", "none", "1"]);
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
    for compression in ["none", "gzip", "lz4", "zstd"] {
        broker.script("pure_python.py", &["records", compression]);
    }
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
    let (broker, tools) = (Broker::start(), xtask());
    for client in ["librdkafka", "kafka-python", "java"] {
        broker.script("groups.py", &["leave-and-kill", client, tools.to_str().unwrap()]);
    }
}

#[test]
fn a_member_that_slept_through_its_session_commits_nothing() {
    let broker = Broker::start();
    for client in ["librdkafka", "kafka-python"] {
        broker.script("groups.py", &["stale", client]);
    }
}

/// Members with the consumer protocol have the timeouts of the server: these are those of the classic ones in the script.
const CONSUMER_PROTOCOL: &str =
    "[kafka]\ngroup_consumer_session_timeout_ms = 6000\ngroup_consumer_heartbeat_interval_ms = 500\n";

#[test]
fn a_group_with_the_consumer_protocol_processes_every_record_while_one_leaves_and_one_is_killed() {
    let Some(broker) = Broker::configured(CONSUMER_PROTOCOL) else { return };
    let tools = xtask();
    for client in ["librdkafka-kip-848", "java-kip-848"] {
        broker.script("groups.py", &["leave-and-kill", client, tools.to_str().unwrap()]);
    }
    broker.script("groups.py", &["stale", "librdkafka-kip-848"]);
}

#[test]
fn a_client_over_its_rate_is_slowed_down_and_another_is_not() {
    let Some(broker) = Broker::configured("[quota]\nclient_produce_bytes_per_second = 20000\n") else { return };
    for client in ["librdkafka", "kafka-python"] {
        broker.script("quotas.py", &[client]);
    }
}

#[test]
fn applications_and_devices_talk_under_honos_topic_names() {
    let Some(broker) = Broker::configured("[kafka]\ndevice_topic_prefix = \"hono.\"\n") else { return };
    let process = broker.process().unwrap();
    broker.script("hono_names.py", &["both-ways", &process.applications_url(), &process.devices_url()]);
}

#[test]
fn readers_get_to_the_end_after_the_server_was_killed() {
    let (relay, dir) = (Relay::start(0), tempfile::tempdir().unwrap());
    let server = Broker::start_behind(&relay, dir.path());
    let broker = Broker::at(&relay.address);
    broker.kcat(&["-P", "-t", "ended", "-p", "0"], "a\nb\n");
    server.kill();
    let server = Broker::start_behind(&relay, dir.path());
    assert_eq!(broker.kcat(&["-C", "-t", "ended", "-p", "0", "-o", "beginning", "-e"], ""), "a\nb\n");
    broker.kcat(&["-P", "-t", "ended", "-p", "0"], "c\n");
    assert_eq!(broker.kcat(&["-C", "-t", "ended", "-p", "0", "-o", "beginning", "-e"], ""), "a\nb\nc\n");
    server.stop();
}

/// `MILLSTREAM_KILLS` sets another number.
const KILLS: usize = 3;

#[test]
#[ignore = "takes long"]
fn answers_to_clients_hold_although_the_server_is_killed_again_and_again() {
    let (relay, dir) = (Relay::start(0), tempfile::tempdir().unwrap());
    let mut server = Some(Broker::start_behind(&relay, dir.path()));
    let kills = std::env::var("MILLSTREAM_KILLS").map_or(KILLS, |count| count.parse().unwrap());
    Broker::at(&relay.address).script_around("crash.py", &["crash", &kills.to_string()], kills, || {
        server.take().unwrap().kill();
        server = Some(Broker::start_behind(&relay, dir.path()));
    });
}

#[test]
fn librdkafka_repeats_stored_batches_and_they_are_stored_once_and_in_order() {
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
        let mut server = Some(Broker::start_behind(&relay, dir.path()));
        let broker = Broker::at(&relay.address);
        let topic = broker.topic("transactions-restart");
        broker.script_around("transactions.py", &["restart", &topic, how], 1, || {
            server.take().unwrap().kill();
            server = Some(Broker::start_behind(&relay, dir.path()));
        });
    }
}

#[test]
fn transactions_go_on_on_a_server_that_was_restored_from_a_backup() {
    for how in ["commit", "abort"] {
        let (relay, dir) = (Relay::start(0), tempfile::tempdir().unwrap());
        let [data, backups, restored] = ["data", "backups", "restored"].map(|name| dir.path().join(name));
        std::fs::create_dir(&data).unwrap();
        let mut server = Some(Broker::start_behind(&relay, &data));
        let broker = Broker::at(&relay.address);
        let topic = broker.topic("transactions-restored");
        broker.script_around("transactions.py", &["restart", &topic, how], 1, || {
            let running = server.take().unwrap();
            let mut backup = millstream_testkit::millstream();
            backup.args(["backup", "--server", &running.applications_url(), "--to"]).arg(&backups);
            let mut restore = millstream_testkit::millstream();
            restore.arg("restore").arg("--from").arg(&backups).arg("--data-dir").arg(&restored);
            assert!(backup.status().unwrap().success());
            running.kill();
            assert!(restore.status().unwrap().success());
            server = Some(Broker::start_behind(&relay, &restored));
        });
    }
}

#[test]
fn kafka_python_commits_and_aborts_transactions() {
    Broker::start().script("pure_python.py", &["transactions"]);
}
