//! A takeover with much state: a server that stands by answers for all of it soon after the one that worked is gone.

use std::time::Instant;

use millstream_testkit::mqtt::{Hello, Mqtt};
use millstream_testkit::{Process, Server as _, ask, kafka_arguments};
use serde_json::{Value, json};

const ENTITIES: usize = 100_000;
const DEVICES: usize = 1_000;
const KEYS: usize = 10_000;
const SESSIONS: usize = 100;
/// Entities in one request.
const AT_ONCE: usize = 1_000;

fn send(server: &Process, method: &str, path: &str, body: &Value) {
    let headers = [("Content-Type", "application/json")];
    let answer = ask(server.applications(), method, path, &headers, body.to_string().as_bytes());
    assert!(answer.status < 300, "{path}: {} {}", answer.status, answer.text());
}

fn session(number: usize) -> (String, String) {
    (format!("session-{number}"), format!("d{number}@default"))
}

/// Connects the device of a session that is kept; returns the connection, and whether the session was there.
async fn connect(server: &Process, number: usize) -> (Mqtt, bool) {
    let (client, user) = session(number);
    let login = Some((&*user, "pw"));
    let hello = Hello { level: 4, keep_alive_s: 60, client: &client, clean: false, login, properties: &[], will: None };
    let (device, answer) = Mqtt::connect(server.mqtt(), &hello).await;
    assert_eq!(answer[1], 0, "the login is refused");
    (device, answer[0] == 1)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes long"]
async fn a_server_that_takes_over_answers_for_a_hundred_thousand_entities() {
    let installation = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| installation.path().join(name));
    let start = |dir: &std::path::Path| {
        std::fs::create_dir_all(dir).unwrap();
        let arguments = kafka_arguments(installation.path());
        Process::start_on(dir, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let first = start(&one);
    for from in (0..ENTITIES).step_by(AT_ONCE) {
        let entity = |n: usize| json!({"id": format!("e{n}"), "type": "T", "n": {"value": n}});
        let entities: Vec<_> = (from..from + AT_ONCE).map(entity).collect();
        send(&first, "POST", "/v2/op/update", &json!({"actionType": "append", "entities": entities}));
    }
    for n in 0..DEVICES {
        send(&first, "POST", &format!("/v1/devices/default/d{n}"), &json!({"ext": {"n": n}}));
        if n < SESSIONS {
            let password =
                json!([{"type": "hashed-password", "auth-id": format!("d{n}"), "secrets": [{"pwd-plain": "pw"}]}]);
            send(&first, "PUT", &format!("/v1/credentials/default/d{n}"), &password);
        }
    }
    send(&first, "PUT", "/buckets/keys", &json!({"partitions": 4}));
    for n in 0..KEYS {
        send(&first, "PUT", &format!("/kv/keys/k{n}"), &json!(n));
    }
    for n in 0..SESSIONS {
        let (mut device, _) = connect(&first, n).await;
        assert_eq!(device.subscribe("command///req/#", 1).await, 1);
    }

    let second = {
        let (two, start) = (two.clone(), &start);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || start(&two));
            std::thread::sleep(std::time::Duration::from_secs(10));
            assert!(!waiting.is_finished(), "two servers work at a time");
            let killed = Instant::now();
            first.kill();
            let second = waiting.join().unwrap();
            println!("it listens {:.1} s after the kill", killed.elapsed().as_secs_f32());
            let last = ENTITIES - 1;
            assert_eq!(second.get_json(&format!("/v2/entities/e{last}/attrs/n/value")), json!(last));
            assert_eq!(second.get_json("/v1/devices/default/d999")["ext"]["n"], json!(999));
            assert_eq!(second.get_json("/kv/keys/k9999"), json!(9_999));
            println!("entities, devices and keys are answered {:.1} s after the kill", killed.elapsed().as_secs_f32());
            second
        })
    };
    for n in 0..SESSIONS {
        assert!(connect(&second, n).await.1, "session {n} is gone");
    }
    let counted = ask(second.applications(), "GET", "/v2/entities?limit=1&options=count", &[], b"");
    assert_eq!(counted.header("fiware-total-count"), Some(&*ENTITIES.to_string()));
    for n in (0..KEYS).step_by(97) {
        assert_eq!(second.get_json(&format!("/kv/keys/k{n}")), json!(n));
    }
    for n in (0..DEVICES).step_by(97) {
        assert_eq!(second.get_json(&format!("/v1/devices/default/d{n}"))["ext"]["n"], json!(n));
    }
    send(&second, "PATCH", "/v2/entities/e0/attrs", &json!({"n": {"value": "changed"}}));
}
