//! MQTT clients that are not ours, as devices run them: paho-mqtt, gmqtt, MQTT.js, mosquitto_pub and mosquitto_sub.
//! `scripts/setup-clients` installs them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod acknowledged;
mod commands;
mod refused_subscriptions;
mod sessions;
mod simulated;
mod tour;

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use millstream_testkit::{Process, ask};
use tempfile::TempDir;

/// Beyond what any check waits for; a client that hangs is ended.
const PATIENCE_S: &str = "240";
const COUNT: usize = 500;

/// A server with a gateway, a device behind it and one that is not.
struct World {
    process: Process,
    dir: TempDir,
}

impl World {
    fn start() -> Self {
        Self::start_by(millstream_testkit::millstream(), &[])
    }

    fn start_by(program: Command, arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::start_by(program, dir.path(), arguments);
        let json = [("Content-Type", "application/json")];
        for (device, body) in [("gateway", "{}"), ("behind", r#"{"via":["gateway"]}"#), ("stranger", "{}")] {
            let path = format!("/v1/devices/default/{device}");
            assert_eq!(ask(process.applications, "POST", &path, &json, body.as_bytes()).status, 201);
            let credentials =
                format!(r#"[{{"type":"hashed-password","auth-id":"{device}","secrets":[{{"pwd-plain":"pw"}}]}}]"#);
            let path = format!("/v1/credentials/default/{device}");
            assert_eq!(ask(process.applications, "PUT", &path, &json, credentials.as_bytes()).status, 204);
        }
        Self { process, dir }
    }

    /// Has messages under `tele/` be telemetry as well, those under `alarm/` events.
    fn map_topics(&self) {
        let rules =
            r#"{"ext":{"mqtt-mapping":[{"topic":"tele/#","to":"telemetry"},{"topic":"alarm/#","to":"event"}]}}"#;
        let json = [("Content-Type", "application/json")];
        let answer = ask(self.process.applications, "PUT", "/v1/tenants/default", &json, rules.as_bytes());
        assert_eq!(answer.status, 204, "{}", answer.text());
    }

    /// `kill -9`, and the same again.
    fn kill_and_start(self) -> Self {
        self.process.kill();
        Self { process: Process::start(self.dir.path()), dir: self.dir }
    }

    fn kill(self) {
        self.process.kill();
    }

    /// Values of a topic's records that begin with `begin`, sorted.
    fn values(&self, topic: &str, begin: &str) -> Vec<String> {
        let path = format!("/api/streams/{topic}?from=earliest&until=latest");
        let headers = [("Accept", "text/event-stream")];
        let text = ask(self.process.applications, "GET", &path, &headers, b"").text();
        let quoted = format!("\"{begin}");
        let mut values: Vec<String> =
            text.match_indices(&quoted).map(|(at, _)| text[at + 1..].split('"').next().unwrap().to_owned()).collect();
        values.sort_unstable();
        values
    }

    /// Checks that each of a client's messages is there, once.
    fn expect_all(&self, begin: &str) {
        let mut expected: Vec<String> = (0..COUNT).map(|at| format!("{begin}-{at}")).collect();
        expected.sort_unstable();
        assert_eq!(self.values("telemetry.default", &format!("{begin}-")), expected);
    }

    fn run(&self, program: &Path, script: &str, version: &str) {
        self.run_with(program, script, &[&self.process.mqtt.to_string(), version, &COUNT.to_string()]);
    }

    fn run_with(&self, program: &Path, script: &str, arguments: &[&str]) {
        let is_by_name = program.components().count() == 1;
        assert!(is_by_name || program.exists(), "{} is missing: run scripts/setup-clients", program.display());
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mqtt_clients");
        let mut command = patient(program.to_str().unwrap());
        // Nothing is written beside the sources.
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("MQTTJS_HOME", target().join("mqtt/js"));
        command.arg(beside.join(script)).args(arguments);
        let said = output(command);
        assert!(said.contains("ok "), "{said}");
    }

    /// mosquitto_pub or mosquitto_sub, logged in.
    fn mosquitto(&self, program: &str, arguments: &[&str]) -> Command {
        let (host, port) = (self.process.mqtt.ip().to_string(), self.process.mqtt.port().to_string());
        // What it says is read line by line.
        let mut command = patient("stdbuf");
        command.args(["-oL", program, "-h", &host, "-p", &port, "-u", "gateway@default", "-P", "pw"]).args(arguments);
        command
    }
}

#[test]
fn paho_sends_at_both_qualities_hears_of_errors_and_is_turned_away_with_a_wrong_password() {
    let world = World::start();
    let python = target().join("mqtt/venv/bin/python");
    for version in ["4", "5"] {
        world.run(&python, "paho_client.py", version);
        world.expect_all(&format!("paho-{version}"));
        assert_eq!(world.values("event.default", &format!("paho-{version}")), [format!("paho-{version}-event")]);
    }
}

#[test]
fn gmqtt_sends_in_both_versions() {
    let world = World::start();
    let python = target().join("mqtt/venv/bin/python");
    for version in ["4", "5"] {
        world.run(&python, "gmqtt_client.py", version);
        world.expect_all(&format!("gmqtt-{version}"));
    }
}

#[test]
fn mqttjs_sends_in_both_versions() {
    let world = World::start();
    for version in ["4", "5"] {
        world.run(Path::new("node"), "mqttjs.mjs", version);
        world.expect_all(&format!("mqttjs-{version}"));
    }
}

#[test]
fn mosquitto_pub_sends_lines_at_both_qualities_and_mosquitto_sub_hears_of_errors() {
    let world = World::start();
    for version in ["311", "5"] {
        for qos in ["0", "1"] {
            let begin = format!("mosquitto-{version}-{qos}");
            let lines: Vec<String> = (0..COUNT).map(|at| format!("{begin}-{at}")).collect();
            let arguments = ["-V", version, "-q", qos, "-t", "telemetry", "-l"];
            let mut child = world.mosquitto("mosquitto_pub", &arguments).stdin(Stdio::piped()).spawn().unwrap();
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), lines.join("\n").as_bytes()).unwrap();
            assert!(child.wait().unwrap().success());
            if qos == "1" {
                world.expect_all(&begin);
            } else {
                // At most once; but the connection has ended in order, so all of it was read.
                while world.values("telemetry.default", &begin).len() < COUNT {}
            }
        }
    }
    // Subscribed to errors on its own connection, it hears of none of others, and is refused any other filter.
    for (filter, is_granted) in [("error//+/#", true), ("telemetry/#", false)] {
        let arguments = ["-V", "5", "-t", filter, "-E", "-d"];
        let out = world.mosquitto("mosquitto_sub", &arguments).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert_eq!(said.contains("Subscribed (mid: 1): 0\n"), is_granted, "{filter}: {said}");
    }
}

#[test]
fn paho_gmqtt_and_mqttjs_talk_to_themselves_in_the_private_space() {
    let world = World::start();
    let python = target().join("mqtt/venv/bin/python");
    let (tcp, count) = (world.process.mqtt.to_string(), "200");
    for version in ["4", "5"] {
        world.run_with(&python, "private/paho_private.py", &[&tcp, version, count, "tcp"]);
        world.run_with(&python, "private/gmqtt_private.py", &[&tcp, version, count]);
        world.run_with(Path::new("node"), "private/mqttjs_private.mjs", &[&format!("mqtt://{tcp}"), version, count]);
    }
}

#[test]
fn paho_and_mqttjs_do_the_same_over_websocket() {
    let world = World::start();
    let python = target().join("mqtt/venv/bin/python");
    let (http, count) = (world.process.devices.to_string(), "200");
    for version in ["4", "5"] {
        world.run_with(&python, "private/paho_private.py", &[&http, version, count, "websockets"]);
        world.run_with(
            Path::new("node"),
            "private/mqttjs_private.mjs",
            &[&format!("ws://{http}/mqtt"), version, count],
        );
    }
    let answer = ask(world.process.devices, "GET", "/mqtt", &[], b"");
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("subprotocol mqtt"), "{}", answer.text());
    world.kill();
}

#[test]
fn mosquitto_sub_gets_messages_of_mosquitto_pub_at_all_three_qualities() {
    let world = World::start();
    for version in ["311", "5"] {
        for qos in ["0", "1", "2"] {
            let topic = format!("m/{version}/{qos}");
            let arguments = ["-V", version, "-q", "2", "-t", "m/#", "-C", "50", "-d", "-F", "got %t %q %p"];
            let mut reader = world.mosquitto("mosquitto_sub", &arguments);
            let mut reader = reader.stdout(Stdio::piped()).spawn().unwrap();
            let mut said = std::io::BufReader::new(reader.stdout.take().unwrap()).lines().map(Result::unwrap);
            assert!(said.any(|line| line.contains("Subscribed")));
            let lines: Vec<String> = (0..50).map(|at| at.to_string()).collect();
            let arguments = ["-V", version, "-q", qos, "-t", &topic, "-l"];
            let mut child = world.mosquitto("mosquitto_pub", &arguments).stdin(Stdio::piped()).spawn().unwrap();
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), lines.join("\n").as_bytes()).unwrap();
            assert!(child.wait().unwrap().success());
            let expected: Vec<String> = lines.iter().map(|line| format!("got {topic} {qos} {line}")).collect();
            assert_eq!(said.filter(|line| line.starts_with("got")).collect::<Vec<_>>(), expected);
            assert!(reader.wait().unwrap().success());
        }
    }
}

#[test]
fn three_mosquitto_subs_share_the_messages_of_one_mosquitto_pub() {
    let world = World::start();
    let mut readers: Vec<_> = (0..3)
        .map(|_| {
            let arguments = ["-V", "5", "-q", "1", "-t", "$share/g/jobs/#", "-d", "-F", "got %p"];
            let mut reader = world.mosquitto("mosquitto_sub", &arguments).stdout(Stdio::piped()).spawn().unwrap();
            let mut said = std::io::BufReader::new(reader.stdout.take().unwrap()).lines().map(Result::unwrap);
            assert!(said.any(|line| line.contains("Subscribed")));
            let lines = std::thread::spawn(move || said.filter(|line| line.starts_with("got")).collect::<Vec<_>>());
            (reader, lines)
        })
        .collect();
    let lines: Vec<String> = (0..COUNT).map(|at| at.to_string()).collect();
    let mut child = world.mosquitto("mosquitto_pub", &["-V", "5", "-q", "1", "-t", "jobs/x", "-l"]);
    let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), lines.join("\n").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    // Each has got what it has acknowledged; the end of the server ends them.
    let delivered =
        || world.process.get("/metrics").text().contains(&format!("connect_mqtt_delivered_total {COUNT}\n"));
    while !delivered() {}
    world.kill();
    let mut got = Vec::new();
    for (mut reader, lines) in readers.drain(..) {
        // `timeout` hands the signal on to what it runs.
        Command::new("kill").args(["-TERM", &reader.id().to_string()]).status().unwrap();
        reader.wait().unwrap();
        let of_one = lines.join().unwrap();
        assert!(!of_one.is_empty(), "everybody has a share");
        got.extend(of_one);
    }
    got.sort_unstable();
    let mut expected: Vec<String> = lines.iter().map(|line| format!("got {line}")).collect();
    expected.sort_unstable();
    assert_eq!(got, expected);
}

/// The target directory, where `scripts/setup-clients` puts what it fetches.
fn target() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_millstream")).ancestors().nth(2).unwrap().to_owned()
}

fn patient(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", PATIENCE_S, program]);
    command
}

fn output(mut command: Command) -> String {
    let out = command.stdin(Stdio::null()).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{command:?}: {}\n{said}\n{complained}", out.status);
    said.into_owned()
}
