//! What the guides to MQTT and to commands show, as it stands there.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::guide::blocks;
use crate::process::{Answer, Process, ask, until};
use crate::{output, patient, target};

const MQTT: &str = "docs/connect-mqtt.md";
const COMMANDS: &str = "docs/connect-commands.md";

/// A server that knows the guides' device.
struct World {
    process: Process,
    dir: tempfile::TempDir,
}

impl World {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::start(dir.path());
        std::os::unix::fs::symlink(target().join("mqtt/js/node_modules"), dir.path().join("node_modules")).unwrap();
        let credentials = r#"[{"type": "hashed-password", "auth-id": "sensor-1", "secrets": [{"pwd-plain": "hush"}]}]"#;
        for (method, path, body) in
            [("POST", "/v1/devices/default/sensor-1", "{}"), ("PUT", "/v1/credentials/default/sensor-1", credentials)]
        {
            let json = [("Content-Type", "application/json")];
            assert!(ask(process.applications, method, path, &json, body.as_bytes()).status < 300, "{path}");
        }
        Self { process, dir }
    }

    /// A block of a guide, for the addresses of this server.
    fn block(&self, document: &str, language: &str, about: &str) -> String {
        let found = blocks(document, language).into_iter().find(|block| block.contains(about));
        self.here(&found.unwrap_or_else(|| panic!("{document} has no {language} block about {about}")))
    }

    fn here(&self, text: &str) -> String {
        let (host, port) = (self.process.mqtt.ip(), self.process.mqtt.port());
        text.replace("127.0.0.1:8000", &self.process.applications.to_string())
            .replace("127.0.0.1:8080", &self.process.devices.to_string())
            .replace("127.0.0.1:9092", &self.process.kafka.to_string())
            .replace("\"127.0.0.1\", 1883", &format!("\"{host}\", {port}"))
            .replace("-h 127.0.0.1 -p 1883", &format!("-h {host} -p {port}"))
    }

    /// A program that runs in the server's directory.
    fn program(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = patient(program);
        command.args(arguments).current_dir(self.dir.path()).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    fn shell(&self, block: &str) -> String {
        output(self.program("bash", &["-ec", block]))
    }

    fn python(&self, venv: &str, block: &str) -> Command {
        let python = target().join(venv).join("venv/bin/python");
        self.program(python.to_str().unwrap(), &["-u", "-c", block])
    }

    fn publish(&self, topic: &str) {
        let line = "mosquitto_pub -h 127.0.0.1 -p 1883 -u sensor-1@default -P hush -q 1 -m now -t";
        self.shell(&self.here(&format!("{line} {topic}")));
    }

    fn records(&self, topic: &str) -> Vec<Value> {
        let page = self.process.get_json(&format!("/api/streams/{topic}?from=earliest"));
        page["records"].as_array().unwrap().clone()
    }

    fn values(&self, topic: &str) -> Vec<Value> {
        self.records(topic).into_iter().map(|record| record["value"].clone()).collect()
    }

    /// A request of the device.
    fn device(&self, path: &str, body: &[u8]) -> Answer {
        let login = format!("Basic {}", BASE64.encode("sensor-1@default:hush"));
        let headers = [("Authorization", login.as_str()), ("Content-Type", "application/json")];
        ask(self.process.devices, "POST", path, &headers, body)
    }

    /// Waits for a command as the device, and answers it; its name and payload.
    fn obey(&self, answer: &[u8]) -> (String, String) {
        let command = self.device("/telemetry?hono-ttd=50", b"{}");
        let (name, id) = (command.header("hono-command").unwrap(), command.header("hono-cmd-req-id").unwrap());
        let done = self.device(&format!("/command/res/{id}?hono-cmd-status=200"), answer);
        assert_eq!(done.status, 202, "{}", done.text());
        (name.to_owned(), command.text())
    }
}

#[test]
fn what_the_guide_to_mqtt_shows_of_messages_is_taken() {
    let world = World::start();
    world.shell(&world.block(MQTT, "sh", "-t telemetry"));
    world.shell(&world.block(MQTT, "sh", "device-authentication-required"));
    let open = world.process.get_json("/v1/tenants/open");
    assert_eq!(open["adapters"][0]["device-authentication-required"], false);
    assert_eq!(world.values("telemetry.default"), [json!({"temp": 21.5})]);
    output(world.python("mqtt", &world.block(MQTT, "python", "\"event\"")));
    assert!(world.values("event.default").contains(&json!({"door": "open"})));
    std::fs::write(world.dir.path().join("socket.mjs"), world.block(MQTT, "js", "ws://")).unwrap();
    output(world.program("node", &["socket.mjs"]));
    assert_eq!(world.values("telemetry.default").len(), 2);
    world.process.stop();
}

#[test]
fn what_the_guide_to_mqtt_shows_of_topics_of_ones_own_works() {
    let world = World::start();
    let heard = world.shell(&format!("{}\nwait", world.block(MQTT, "sh", "house/+/temperature")));
    assert_eq!(heard, "21.5\n");

    // It goes on until it is ended; here after a message.
    let shared = format!("exec {} -C 1", world.block(MQTT, "sh", "$share").trim_end());
    let mut worker = world.program("bash", &["-c", &shared]).stdout(Stdio::piped()).spawn().unwrap();
    until("the worker has a job", || {
        world.publish("jobs/1");
        worker.try_wait().unwrap().is_some()
    });
    let first = BufReader::new(worker.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert_eq!(first, "now");

    let mut panel = world.python("mqtt", &world.block(MQTT, "python", "panel-7"));
    let mut panel = panel.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(panel.stdout.take().unwrap()).lines();
    let reading = thread::spawn(move || lines.map_while(Result::ok).next());
    until("the panel shows something", || {
        world.publish("house/7/light");
        reading.is_finished()
    });
    assert_eq!(reading.join().unwrap().as_deref(), Some("house/7/light b'now' False"));
    // `timeout` hands the signal on to what it runs.
    Command::new("kill").args(["-TERM", &panel.id().to_string()]).status().unwrap();
    panel.wait().unwrap();

    world.shell(&world.block(MQTT, "sh", "mqtt-access").replace("curl ", "curl -sf "));
    let device = world.process.get_json("/v1/devices/default/sensor-1");
    assert_eq!(device["ext"]["mqtt-access"]["publish"][0], "house/7/#");
    world.process.stop();
}

#[test]
fn what_the_guide_to_mqtt_shows_of_firmware_with_topics_of_its_own_is_telemetry() {
    let world = World::start();
    for about in ["tele/tasmota/SENSOR", "zigbee2mqtt/kitchen"] {
        world.shell(&world.block(MQTT, "sh", about).replace("curl ", "curl -sf "));
    }
    let mut records = world.records("telemetry.default");
    records.sort_by_key(|record| record["headers"]["orig_address"].to_string());
    let told = |record: &Value| {
        let header = |name: &str| record["headers"][name].clone();
        json!([header("device_id"), header("orig_address"), record["value"]])
    };
    assert_eq!(
        records.iter().map(told).collect::<Vec<_>>(),
        [
            json!(["sensor-1", "tele/tasmota/SENSOR", {"AM2301": {"Temperature": 21.5}}]),
            json!(["kitchen", "zigbee2mqtt/kitchen", {"temperature": 20.1}]),
        ]
    );
    assert_eq!(world.values("mqtt.default").len(), 2);
    world.process.stop();
}

#[test]
fn what_the_guide_to_commands_shows_is_taken_and_answered() {
    let world = World::start();
    let (name, payload) = ("set-interval".to_owned(), "{\"seconds\": 30}".to_owned());
    thread::scope(|scope| {
        let sent = scope.spawn(|| world.shell(&world.block(COMMANDS, "sh", "/api/commands/")));
        assert_eq!(world.obey(b"as you say"), (name.clone(), payload.clone()));
        let answer = sent.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("as you say"), "{answer}");
        assert!(answer.to_ascii_lowercase().contains("hono-cmd-status: 200"), "{answer}");
    });
    output(world.python("kafka", &world.block(COMMANDS, "python", "confluent_kafka")));
    assert_eq!(world.obey(b"{\"done\": 1}"), (name, payload));
    let answers = world.records("command_response.default");
    let answer = answers.iter().find(|record| record["headers"]["correlation-id"] == "42");
    let answer = answer.unwrap_or_else(|| panic!("{answers:?}"));
    assert_eq!((&answer["value"]["done"], &answer["headers"]["status"]), (&1.into(), &"200".into()));
    world.process.stop();
}
