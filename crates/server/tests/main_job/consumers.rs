//! A tenant whose telemetry is not to be kept for nobody: an outside reader is a consumer while it reads.

use std::any::Any;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_testkit::{Events, Live, Process, ask, eventually, has_kafka_listener};
use serde_json::json;

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Opens a door; what it gives reads until it is dropped.
type Opening<'a> = dyn Fn() -> Box<dyn Any> + 'a;

#[test]
fn readers_of_each_door_are_consumers_while_they_read() {
    // Apache Kafka does not tell who reads.
    if !has_kafka_listener() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let credentials =
        json!([{"type": "hashed-password", "auth-id": "d", "secrets": [{"pwd-plain": "pw"}]}]).to_string();
    let tenant = json!({"ext": {"telemetry-without-consumer": "refused"}}).to_string();
    for (method, path, body) in [
        ("PUT", "/v1/tenants/default", &tenant[..]),
        ("POST", "/v1/devices/default/d", "{}"),
        ("PUT", "/v1/credentials/default/d", &credentials),
    ] {
        assert!(ask(process.applications, method, path, &[JSON], body.as_bytes()).status < 300, "{path}");
    }
    let login = format!("Basic {}", BASE64.encode("d@default:pw"));
    let send = || ask(process.devices, "POST", "/telemetry", &[("Authorization", &login), JSON], b"{\"n\": 1}").status;
    assert_eq!(send(), 503);

    let sse =
        || Box::new(Events::get(&process, "/api/streams/telemetry.default", &[("Accept", "text/event-stream")])) as _;
    let query = || Box::new(Live::ask(&process, "SELECT n FROM \"telemetry.default\"")) as _;
    let kcat = || {
        let mut kcat = Command::new("kcat");
        kcat.args(["-C", "-q", "-b", &process.kafka.to_string(), "-t", "telemetry.default", "-o", "end"]);
        Box::new(Killed(kcat.stdout(Stdio::null()).spawn().unwrap())) as _
    };
    let doors: [(&str, &Opening<'_>); 3] = [("sse", &sse), ("query", &query), ("kcat", &kcat)];
    for (door, open) in doors {
        let consumer = open();
        eventually(&format!("{door} is a consumer"), || send() == 202);
        drop(consumer);
        eventually(&format!("{door} is none any more"), || send() == 503);
    }
    process.stop();
}

struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
