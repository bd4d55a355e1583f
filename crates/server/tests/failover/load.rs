//! Changes in all planes, each with a ledger of what was sent and what was acknowledged.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use millstream_testkit::{Process, ask, try_ask};
use serde_json::{Value, json};

/// The login of the device `d`.
pub(crate) const LOGIN: &str = "Basic ZEBkZWZhdWx0Omh1c2g=";

/// A change in one of the planes.
pub(crate) struct Change {
    pub(crate) name: &'static str,
    /// A message of a device, to the listener for these.
    is_of_device: bool,
    method: &'static str,
    path: &'static str,
    body: fn(u64) -> Value,
}

/// The number of kinds whose changes wait for the brokers once they are accepted, and take effect later.
pub(crate) const GO_ON: usize = 3;
pub(crate) const KINDS: usize = 6;
pub(crate) const CHANGES: [Change; KINDS] = [
    Change {
        name: "an entity",
        is_of_device: false,
        method: "PATCH",
        path: "/v2/entities/e/attrs",
        body: |n| json!({"n": {"value": n}}),
    },
    Change { name: "a key", is_of_device: false, method: "PUT", path: "/kv/keys/k", body: |n| json!(n) },
    Change {
        name: "a device",
        is_of_device: false,
        method: "PUT",
        path: "/v1/devices/default/d",
        body: |n| json!({"ext": {"n": n}}),
    },
    Change {
        name: "records of two partitions",
        is_of_device: false,
        method: "POST",
        path: "/api/streams/both/records",
        body: |n| json!([{"partition": 0, "value": n}, {"partition": 1, "value": n}]),
    },
    Change {
        name: "a record that a job reads",
        is_of_device: false,
        method: "POST",
        path: "/api/streams/read/records",
        body: |n| json!([{"partition": 0, "value": {"n": n}}]),
    },
    Change { name: "a message", is_of_device: true, method: "POST", path: "/telemetry", body: |n| json!({"n": n}) },
];

/// The numbers that were sent in one kind of change.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) last: u64,
    pub(crate) acknowledged: Vec<u64>,
}

/// The listeners of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listeners {
    pub(crate) applications: SocketAddr,
    devices: SocketAddr,
}

impl From<&Process> for Listeners {
    fn from(server: &Process) -> Self {
        Self { applications: server.applications, devices: server.devices }
    }
}

impl Change {
    /// Sends the next number. Returns the status, and the text; 0 without an answer.
    pub(crate) fn send(&self, to: Listeners, ledger: &Mutex<Ledger>) -> (u16, String) {
        let number = {
            let mut ledger = ledger.lock().unwrap();
            ledger.last += 1;
            ledger.last
        };
        let headers = [("Content-Type", "application/json"), ("Authorization", LOGIN), ("qos-level", "1")];
        let (headers, listener) =
            if self.is_of_device { (&headers[..], to.devices) } else { (&headers[..1], to.applications) };
        let answer = try_ask(listener, self.method, self.path, headers, (self.body)(number).to_string().as_bytes());
        let (status, text) = answer.map_or((0, String::new()), |answer| (answer.status, answer.text()));
        if (200..300).contains(&status) {
            ledger.lock().unwrap().acknowledged.push(number);
        }
        (status, text)
    }
}

impl Ledger {
    /// Checks the numbers in a place: each acknowledged one is there, and none twice.
    pub(crate) fn check(&self, found: &[u64], place: &str) {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        found.iter().for_each(|number| *counts.entry(*number).or_default() += 1);
        let doubled: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
        assert!(doubled.is_empty(), "{place}: doubled: {doubled:?}");
        let lost: Vec<_> = self.acknowledged.iter().filter(|number| !counts.contains_key(number)).collect();
        assert!(lost.is_empty(), "{place}: lost: {lost:?}");
    }
}

/// Makes all that the changes are made in, and a job that copies topic `read` to topic `copied`.
pub(crate) fn create_all(server: &Process, delivery: &str) {
    let create = |method: &str, path: &str, body: &Value| {
        let headers = [("Content-Type", "application/json")];
        let created = ask(server.applications, method, path, &headers, body.to_string().as_bytes());
        assert!(created.status < 300, "{path}: {}", created.text());
    };
    create("POST", "/v2/entities", &json!({"id": "e", "type": "T", "n": {"value": 0}}));
    create("PUT", "/buckets/keys", &json!({"partitions": 2}));
    create("POST", "/v1/devices/default/d", &json!({}));
    let password = json!([{"type": "hashed-password", "auth-id": "d", "secrets": [{"pwd-plain": "hush"}]}]);
    create("PUT", "/v1/credentials/default/d", &password);
    for topic in ["both", "read", "copied"] {
        create("PUT", &format!("/api/streams/{topic}"), &json!({"partitions": 2}));
    }
    let job = json!({
        "version": 1, "kind": "Job", "name": "copy", "delivery": delivery,
        "sources": {"s": {"type": "stream", "config": {"topic": "read"}}},
        "sinks": {"o": {"type": "stream", "inputs": ["s"], "config": {"topic": "copied"}}},
    });
    create("POST", "/api/jobs", &job);
}

/// The numbers in a partition of a topic, or in all; records of other values are left out.
pub(crate) fn stored(server: &Process, topic: &str, partition: Option<u64>) -> Vec<u64> {
    let (mut found, mut from) = (Vec::new(), "earliest".to_owned());
    let only = partition.map(|number| format!("&partition={number}")).unwrap_or_default();
    loop {
        let page = server.get_json(&format!("/api/streams/{topic}?from={from}&limit=1000{only}"));
        let records = page["records"].as_array().unwrap();
        if records.is_empty() {
            return found;
        }
        let number = |record: &Value| {
            let (value, n) = (&record["value"], &record["value"]["n"]);
            // Messages change an entity of the device, too.
            value.as_u64().or_else(|| n.as_u64()).or_else(|| n["value"].as_u64().filter(|_| value["id"] == "e"))
        };
        found.extend(records.iter().filter_map(number));
        from = page["next"].as_str().unwrap().to_owned();
    }
}

/// The values that history has of the entity.
fn points(server: &Process) -> Vec<u64> {
    let found = server.get_json("/ngsi-ld/v1/temporal/entities/e?options=temporalValues");
    let points = found["n"]["values"].as_array().unwrap();
    points.iter().map(|point| point[0].as_u64().unwrap()).collect()
}

/// Checks everything that was sent against what is there.
pub(crate) fn check_all(server: &Process, ledgers: &[Mutex<Ledger>; KINDS]) {
    let [entity, key, device, both, read, message] = ledgers.each_ref().map(|ledger| ledger.lock().unwrap());
    // A change that was not acknowledged may have taken effect, and was sent behind those that were.
    let check_state = |ledger: &Ledger, value: &Value, place: &str| {
        let (number, least) = (value.as_u64().unwrap(), ledger.acknowledged.iter().max().copied().unwrap_or_default());
        assert!((least..=ledger.last).contains(&number), "{place}: {number}, and {least} was acknowledged");
    };
    check_state(&entity, &server.get_json("/v2/entities/e/attrs/n/value"), "entity");
    check_state(&key, &server.get_json("/kv/keys/k"), "key");
    check_state(&device, &server.get_json("/v1/devices/default/d")["ext"]["n"], "device");
    entity.check(&stored(server, "context.default", None), "changes of the entity");
    entity.check(&points(server), "history");
    let halves = [0, 1].map(|partition| stored(server, "both", Some(partition)));
    assert_eq!(halves[0], halves[1], "an append of both is torn");
    both.check(&halves[0], "both");
    read.check(&stored(server, "read", None), "read");
    message.check(&stored(server, "telemetry.default", None), "telemetry");
    drop((entity, key, device, both, message));
    millstream_testkit::eventually("the job has copied everything", || {
        stored(server, "copied", None).len() >= stored(server, "read", None).len()
    });
    read.check(&stored(server, "copied", None), "copied");
}
