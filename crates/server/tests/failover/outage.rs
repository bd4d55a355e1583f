//! Brokers that are gone for longer than an append waits for them: everything is refused with the reason, and goes on by itself
//! once they are back.

use std::ops::Range;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use millstream_testkit::{Process, RealKafka, ask, eventually, try_ask};
use serde_json::{Value, json};

/// A change in one of the planes.
struct Change {
    name: &'static str,
    method: &'static str,
    path: &'static str,
    body: fn(u64) -> Value,
}

/// The number of kinds whose changes wait for the brokers once they are accepted, and take effect later.
const GO_ON: usize = 3;
const CHANGES: [Change; 5] = [
    Change { name: "an entity", method: "PATCH", path: "/v2/entities/e/attrs", body: |n| json!({"n": {"value": n}}) },
    Change { name: "a key", method: "PUT", path: "/kv/keys/k", body: |n| json!(n) },
    Change { name: "a device", method: "PUT", path: "/v1/devices/default/d", body: |n| json!({"ext": {"n": n}}) },
    Change {
        name: "records of two partitions",
        method: "POST",
        path: "/api/streams/both/records",
        body: |n| json!([{"partition": 0, "value": n}, {"partition": 1, "value": n}]),
    },
    Change {
        name: "a record that a job reads",
        method: "POST",
        path: "/api/streams/read/records",
        body: |n| json!([{"partition": 0, "value": {"n": n}}]),
    },
];

/// The numbers that were sent in one kind of change.
#[derive(Default)]
struct Ledger {
    last: u64,
    acknowledged: Vec<u64>,
}

impl Change {
    /// Sends the next number. Returns the status; 0 without an answer.
    fn send(&self, server: &Process, ledger: &Mutex<Ledger>) -> (u16, String) {
        let number = {
            let mut ledger = ledger.lock().unwrap();
            ledger.last += 1;
            ledger.last
        };
        let (headers, body) = ([("Content-Type", "application/json")], (self.body)(number).to_string());
        let answer = try_ask(server.applications, self.method, self.path, &headers, body.as_bytes());
        let (status, text) = answer.map_or((0, String::new()), |answer| (answer.status, answer.text()));
        if (200..300).contains(&status) {
            ledger.lock().unwrap().acknowledged.push(number);
        }
        (status, text)
    }
}

fn create(server: &Process, method: &str, path: &str, body: &[u8]) {
    let created = ask(server.applications, method, path, &[("Content-Type", "application/json")], body);
    assert!(created.status < 300, "{path}: {}", created.text());
}

/// The numbers in a partition of a topic.
fn stored(server: &Process, topic: &str, partition: u64, number: fn(&Value) -> &Value) -> Vec<u64> {
    let page = server.get_json(&format!("/api/streams/{topic}?from=earliest&partition={partition}&limit=1000"));
    let records = page["records"].as_array().unwrap().iter();
    records.map(|record| number(&record["value"]).as_u64().unwrap()).collect()
}

fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

#[test]
fn every_plane_goes_on_by_itself_after_brokers_were_gone_for_long() {
    let kafka = RealKafka::start(1);
    let dir = tempfile::tempdir().unwrap();
    let brokers = format!("log.kafka.brokers=[{:?}]", kafka.bootstrap());
    let settings = [
        "log.engine=kafka",
        &brokers,
        "log.kafka.replication_factor=1",
        "log.kafka.min_insync_replicas=1",
        "log.kafka.request_timeout_ms=1000",
        "log.kafka.delivery_timeout_ms=2000",
    ];
    let arguments: Vec<&str> = settings.into_iter().flat_map(|setting| ["--set", setting]).collect();
    let server = Process::start_on(dir.path(), &arguments);
    create(&server, "POST", "/v2/entities", br#"{"id": "e", "type": "T", "n": {"value": 0}}"#);
    create(&server, "PUT", "/buckets/keys", br#"{"partitions": 2}"#);
    create(&server, "POST", "/v1/devices/default/d", b"{}");
    for topic in ["both", "read", "copied"] {
        create(&server, "PUT", &format!("/api/streams/{topic}"), br#"{"partitions": 2}"#);
    }
    let job = json!({
        "version": 1, "kind": "Job", "name": "copy",
        "sources": {"s": {"type": "stream", "config": {"topic": "read"}}},
        "sinks": {"o": {"type": "stream", "inputs": ["s"], "config": {"topic": "copied"}}},
    });
    create(&server, "POST", "/api/jobs", job.to_string().as_bytes());
    let ledgers: [Mutex<Ledger>; CHANGES.len()] = Default::default();
    let send = |at: usize| CHANGES[at].send(&server, &ledgers[at]);
    let send_all = |expected: Range<u16>| {
        for (at, change) in CHANGES.iter().enumerate() {
            let (status, text) = send(at);
            assert!(expected.contains(&status), "{}: {status} {text}", change.name);
        }
    };
    (0..3).for_each(|_| send_all(200..300));

    signal(kafka.brokers()[0].pid, "-STOP");
    thread::scope(|scope| {
        let send = &send;
        let in_flight: Vec<_> = (0..CHANGES.len()).map(|at| scope.spawn(move || send(at))).collect();
        eventually("it is told that no broker answers", || {
            let told = server.get("/readyz");
            told.status == 503 && told.text().contains("no broker has answered")
        });
        // The patience with appends ends after that with requests.
        let given_up: Vec<_> = in_flight.into_iter().skip(GO_ON).map(|change| change.join().unwrap()).collect();
        assert!(given_up.iter().all(|(status, _)| *status == 503), "{given_up:?}");
        send_all(503..504);
        signal(kafka.brokers()[0].pid, "-CONT");
    });
    for (at, change) in CHANGES.iter().enumerate() {
        eventually(change.name, || (200..300).contains(&send(at).0));
    }
    send_all(200..300);
    eventually("the server is ready", || server.get("/readyz").status == 200);
    let [entity, key, device, both, read] = ledgers.map(|ledger| ledger.into_inner().unwrap());
    let last = |ledger: &Ledger| json!(ledger.acknowledged.iter().max());
    assert_eq!(server.get_json("/v2/entities/e/attrs/n/value"), last(&entity));
    assert_eq!(server.get_json("/kv/keys/k"), last(&key));
    assert_eq!(server.get_json("/v1/devices/default/d")["ext"]["n"], last(&device));
    // A refused append may be there, since a time-out is no proof; an acknowledged one is there once.
    let check = |ledger: &Ledger, found: Vec<u64>, place: &str| {
        assert!(found.is_sorted_by(|a, b| a < b), "{place}: doubled or out of order: {found:?}");
        let lost: Vec<_> = ledger.acknowledged.iter().filter(|number| !found.contains(number)).collect();
        assert!(lost.is_empty(), "{place}: lost {lost:?} of {found:?}");
    };
    let halves = [0, 1].map(|partition| stored(&server, "both", partition, |value| value));
    assert_eq!(halves[0], halves[1], "an append of both is torn");
    check(&both, halves[0].clone(), "both");
    let of_job = |topic: &str| stored(&server, topic, 0, |value| &value["n"]);
    check(&read, of_job("read"), "read");
    eventually("the job has copied everything", || of_job("copied").len() >= of_job("read").len());
    check(&read, of_job("copied"), "copied");
}
