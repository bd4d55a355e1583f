//! A server whose log is built in moves to Kafka, and goes on there as if nothing had happened.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use millstream_testkit::mqtt::{Hello, Mqtt, packet};
use millstream_testkit::{Process, ask, eventually, kafka_arguments, millstream};
use serde_json::{Value, json};

use crate::load::{CHANGES, Ledger, check_all, create_all, stored};

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];
/// A session of the device `d` that is kept for an hour.
const KEPT: Hello<'static> = Hello {
    level: 5,
    keep_alive_s: 60,
    client: "kept",
    clean: false,
    login: Some(("d@default", "hush")),
    properties: &[0x11, 0, 0, 0x0E, 0x10],
    will: None,
};

pub(crate) fn migrate(installation: &Path, dir: &Path) -> Command {
    migrate_to(&kafka_arguments(installation), dir)
}

/// As [`migrate`], with the arguments of a server there.
pub(crate) fn migrate_to(named: &[String], dir: &Path) -> Command {
    let mut command = millstream();
    // The engine of the configuration is that of the server that was stopped.
    command.args(["migrate", "--to", "kafka", "--data-dir"]).arg(dir);
    command.args(named.chunks(2).filter(|pair| pair[1] != "log.engine=kafka").flatten());
    command
}

pub(crate) fn on_kafka(installation: &Path, dir: &Path) -> Process {
    let arguments = kafka_arguments(installation);
    Process::start_on(dir, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A server that is expected to refuse its start.
fn serve_on_kafka(installation: &Path, dir: &Path) -> Command {
    let mut command = millstream();
    command.args(["serve", "--listen-kafka", "off", "--data-dir"]).arg(dir).args(kafka_arguments(installation));
    command
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr[..]].concat()).unwrap()
}

pub(crate) fn done(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

pub(crate) fn refused(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    said(&output)
}

pub(crate) fn create(server: &Process, method: &str, path: &str, body: &Value) -> String {
    let answer = ask(server.applications, method, path, &JSON, body.to_string().as_bytes());
    assert!(answer.status < 300, "{method} {path}: {}", answer.text());
    answer.text()
}

/// Everything beside the changes of [`CHANGES`].
fn create_more(server: &Process) {
    create(server, "PUT", "/api/streams/answers", &json!({"partitions": 1}));
    create(server, "PUT", "/api/streams/live", &json!({"partitions": 1, "storage": "memory"}));
    create(server, "PUT", "/api/streams/state", &json!({"partitions": 2, "cleanup": "compact"}));
    create(server, "POST", "/v2/entities", &json!({"id": "quiet", "type": "Quiet", "n": {"value": 7}}));
    let subscription = json!({
        "description": "kept", "subject": {"entities": [{"idPattern": ".*", "type": "Quiet"}]},
        "notification": {"http": {"url": "http://127.0.0.1:9/none"}},
    });
    create(server, "POST", "/v2/subscriptions", &subscription);
    let query = json!({"query": "SELECT n FROM \"read\"", "deliver": {"topic": "answers"}, "keep": true});
    create(server, "POST", "/api/queries", &query);
    for number in 0..40 {
        let record = json!([{"key": format!("k{}", number % 5), "value": {"n": number}}]);
        create(server, "POST", "/api/streams/state/records", &record);
        create(server, "POST", "/api/streams/live/records", &record);
        create(server, "PUT", &format!("/kv/keys/old{}", number % 10), &json!(number));
    }
}

/// The answers that stay the same.
fn answers(server: &Process) -> BTreeMap<String, Value> {
    let mut paths: Vec<String> = [
        "/v2/entities?orderBy=id",
        "/v2/subscriptions",
        "/ngsi-ld/v1/temporal/entities/e?attrs=n",
        "/v1/devices/default",
        "/v1/devices/default/d",
        "/kv/keys",
        "/api/streams/both",
        "/api/streams/state",
        "/api/streams/both?from=earliest&limit=1000",
        "/api/streams/read?from=earliest&limit=1000",
        "/api/streams/state?from=earliest&limit=1000",
        "/api/streams/answers?from=earliest&limit=1000",
    ]
    .map(str::to_owned)
    .to_vec();
    paths.extend((0..10).map(|number| format!("/kv/keys/old{number}")));
    let answer = |path: String| {
        let answer = ask(server.applications, "GET", &path, &[], b"");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let etag = answer.header("etag").map(str::to_owned);
        let mut body = serde_json::from_str::<Value>(&answer.text()).unwrap_or_default();
        // A page may go on before or behind a gap, and then with another partition.
        body.as_object_mut().map(|body| body.remove("next"));
        if let Some(Value::Array(records)) = body.get_mut("records") {
            records.sort_by_key(|record| (record["partition"].as_u64(), record["offset"].as_u64()));
        }
        (path, json!({"etag": etag, "body": body}))
    };
    paths.into_iter().map(answer).collect()
}

/// Changes everything a few times.
fn change(server: &Process, ledgers: &[Mutex<Ledger>; 6]) {
    for _ in 0..20 {
        for (change, ledger) in CHANGES.iter().zip(ledgers) {
            let (status, text) = change.send(server.into(), ledger);
            assert!((200..300).contains(&status), "{}: {status} {text}", change.name);
        }
    }
}

/// Waits until the job and the query have read everything. Results of a query may come again after a crash.
fn settle(server: &Process) {
    eventually("the job and the query have read everything", || {
        let read = stored(server, "read", None).len();
        let answered: BTreeSet<u64> = stored(server, "answers", None).into_iter().collect();
        stored(server, "copied", None).len() == read && answered.len() == read
    });
}

/// The numbers in each partition of a topic.
pub(crate) fn by_partition(server: &Process, topic: &str) -> [Vec<u64>; 4] {
    [0, 1, 2, 3].map(|partition| stored(server, topic, Some(partition)))
}

#[test]
fn a_server_goes_on_on_kafka_where_its_built_in_log_has_ended() {
    let installation = tempfile::tempdir().unwrap();
    let dir = installation.path().join("data");
    std::fs::create_dir(&dir).unwrap();
    let mqtt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Process::start_on(&dir, &[]);
    create_all(&server, "exactly_once");
    create_more(&server);
    let ledgers: [Mutex<Ledger>; 6] = Default::default();
    change(&server, &ledgers);
    // A start after a crash leaves offsets out: those of keys up to the time of the start.
    server.kill();
    let server = Process::start_on(&dir, &[]);
    eventually("it is ready", || server.get("/readyz").status == 200);
    change(&server, &ledgers);
    settle(&server);
    mqtt.block_on(async {
        let (mut away, _) = Mqtt::connect(server.mqtt, &KEPT).await;
        assert_eq!(away.subscribe("news/#", 1).await, 1);
        away.send(&[0xE0, 0]).await;
        away.expect_end().await;
        let (mut sender, _) = Mqtt::connect(server.mqtt, &Hello { client: "sender", clean: true, ..KEPT }).await;
        for number in 1..=3 {
            sender.publish(1, number, "news/1", number.to_string().as_bytes()).await;
            assert_eq!(sender.next().await.0, 0x40);
        }
    });
    let in_use = refused(migrate(installation.path(), &dir));
    assert!(in_use.contains(&format!("pid {}", server.id())) && in_use.contains("stop it"), "{in_use}");
    let before = answers(&server);
    let page = server.get_json("/api/streams/both?from=earliest&limit=1000");
    let read_up_to = page["next"].as_str().unwrap();
    server.stop();

    let told = refused(serve_on_kafka(installation.path(), &dir));
    assert!(told.contains("was not moved there; run 'millstream migrate --to kafka'"), "{told}");
    let told = done(migrate(installation.path(), &dir));
    assert!(told.contains("records are in Kafka") && told.contains("log.engine = \"kafka\""), "{told}");
    let told = done(migrate(installation.path(), &dir));
    assert!(told.contains("was moved to Kafka before"), "{told}");

    let server = on_kafka(installation.path(), &dir);
    eventually("it is ready", || server.get("/readyz").status == 200);
    let after = answers(&server);
    for (path, answer) in &before {
        assert_eq!(after.get(path).map(Value::to_string), Some(answer.to_string()), "{path}");
    }
    mqtt.block_on(async {
        let (mut back, answer) = Mqtt::connect(server.mqtt, &KEPT).await;
        assert_eq!(answer[..2], [1, 0], "its session is there");
        for number in 1..=3 {
            let message = back.message().await;
            assert_eq!(message.text(), ("news/1", &*number.to_string()));
            back.send(&packet(0x40, &message.id.to_be_bytes())).await;
        }
    });
    // A version that a client holds is that of its key, and no other.
    let version = before["/kv/keys/old3"]["etag"].as_str().unwrap();
    let conditional = [("Content-Type", "application/json"), ("If-Match", version)];
    let taken = ask(server.applications, "PUT", "/kv/keys/old3", &conditional, b"1000");
    assert!(taken.status < 300, "{}", taken.text());
    assert_eq!(ask(server.applications, "PUT", "/kv/keys/old3", &conditional, b"1001").status, 412);
    // A consumer goes on behind the offset that it knows.
    change(&server, &ledgers);
    let page = server.get_json(&format!("/api/streams/both?from={read_up_to}&limit=1000"));
    assert_eq!(page["records"].as_array().unwrap().len(), 40);
    check_all(&server, &ledgers);
    settle(&server);
    server.kill();
    let server = on_kafka(installation.path(), &dir);
    check_all(&server, &ledgers);
    change(&server, &ledgers);
    settle(&server);
    check_all(&server, &ledgers);
    server.stop();

    // The built-in log has gone on since.
    Process::start_on(&dir, &[]).stop();
    let told = refused(serve_on_kafka(installation.path(), &dir));
    assert!(told.contains("an earlier state of this log"), "{told}");
}

#[test]
fn a_place_where_a_server_works_takes_no_other_log() {
    let installation = tempfile::tempdir().unwrap();
    let [dir, other] = ["data", "other"].map(|name| installation.path().join(name));
    for dir in [&dir, &other] {
        std::fs::create_dir(dir).unwrap();
    }
    let server = Process::start_on(&other, &[]);
    create_all(&server, "exactly_once");
    server.stop();
    let server = on_kafka(installation.path(), &dir);
    create_all(&server, "exactly_once");
    let ledgers: [Mutex<Ledger>; 6] = Default::default();
    change(&server, &ledgers);
    let told = refused(migrate(installation.path(), &other));
    assert!(told.contains("set another log.kafka.prefix") && told.contains("if no server needs them"), "{told}");
    change(&server, &ledgers);
    check_all(&server, &ledgers);
    server.kill();
    let server = on_kafka(installation.path(), &dir);
    check_all(&server, &ledgers);
    server.stop();
    Process::start_on(&other, &[]).stop();
}

#[test]
fn a_migration_that_is_killed_goes_on_and_no_server_starts_before_its_end() {
    let installation = tempfile::tempdir().unwrap();
    let dir = installation.path().join("data");
    std::fs::create_dir(&dir).unwrap();
    let server = Process::start_on(&dir, &[]);
    create_all(&server, "exactly_once");
    create_more(&server);
    let ledgers: [Mutex<Ledger>; 6] = Default::default();
    change(&server, &ledgers);
    create(&server, "PUT", "/api/streams/many", &json!({"partitions": 4}));
    let records: Vec<Value> =
        (0..4_000).map(|n| json!({"key": format!("k{n}"), "value": {"n": n, "text": "x".repeat(100)}})).collect();
    for _ in 0..10 {
        create(&server, "POST", "/api/streams/many/records", &json!(records));
    }
    settle(&server);
    let before = answers(&server);
    let many = by_partition(&server, "many");
    server.stop();
    let mut killed = 0;
    for wait_ms in (1..).map(|round| round * 250) {
        let mut run = migrate(installation.path(), &dir).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let until = Instant::now() + Duration::from_millis(wait_ms);
        while run.try_wait().unwrap().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some(status) = run.try_wait().unwrap() {
            assert!(status.success());
            break;
        }
        run.kill().unwrap();
        run.wait().unwrap();
        killed += 1;
        let mut start = millstream();
        start
            .args(["serve", "--listen-kafka", "off", "--data-dir"])
            .arg(&dir)
            .args(kafka_arguments(installation.path()));
        let told = refused(start);
        assert!(told.contains("millstream migrate --to kafka"), "{told}");
    }
    assert!(killed > 0, "it was faster than the first kill");
    let server = on_kafka(installation.path(), &dir);
    let after = answers(&server);
    for (path, answer) in &before {
        assert_eq!(after.get(path).map(Value::to_string), Some(answer.to_string()), "{path}");
    }
    assert!(by_partition(&server, "many") == many, "records of the large topic differ");
    change(&server, &ledgers);
    check_all(&server, &ledgers);
}
