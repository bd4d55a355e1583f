//! Guides that are pasted from beginning to end, each on a fresh server of its own.

use std::path::Path;

use millstream_testkit::{Process, has_kafka_listener};
use serde_json::{Value, json};

use crate::{output, patient, target};

/// The guide as one shell session: programs are written to the files that their first lines name, the rest is run.
fn session(guide: &str) -> String {
    let mut session = String::from("set -euo pipefail\n");
    for fenced in guide.split("\n```").skip(1).step_by(2) {
        let (language, block) = fenced.split_once('\n').unwrap();
        match language {
            "sh" => session += &format!("{block}\necho '--'\n"),
            "python" | "js" => {
                let name = block.lines().next().unwrap().trim_start_matches(['#', '/', ' ']);
                session += &format!("cat > {name} <<'END OF PROGRAM'\n{block}\nEND OF PROGRAM\n");
            }
            _ => {}
        }
    }
    session
}

/// Follows a guide from its first block to its last, on a server of its own; the output of each block, and what follows the last.
fn followed(guide: &str, venv: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    std::os::unix::fs::symlink(target().join("mqtt/js/node_modules"), dir.path().join("node_modules")).unwrap();
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(guide);
    let (host, port) = (process.mqtt.ip(), process.mqtt.port());
    let session = session(&std::fs::read_to_string(guide).unwrap())
        .replace("127.0.0.1:8000", &process.applications.to_string())
        .replace("127.0.0.1:8080", &process.devices.to_string())
        .replace("127.0.0.1:9092", &process.kafka.to_string())
        .replace("127.0.0.1:1883", &process.mqtt.to_string())
        .replace("\"127.0.0.1\", 1883", &format!("\"{host}\", {port}"))
        .replace("-h 127.0.0.1 -p 1883", &format!("-h {host} -p {port}"));
    let millstream = Path::new(env!("CARGO_BIN_EXE_millstream")).parent().unwrap();
    let (python, path) = (target().join(venv).join("venv/bin"), std::env::var("PATH").unwrap());
    let mut bash = patient("bash");
    bash.args(["-c", &session]).current_dir(dir.path());
    bash.env("PATH", format!("{}:{}:{path}", python.display(), millstream.display()));
    bash.env("MILLSTREAM_SERVER", process.applications_url()).env("PYTHONDONTWRITEBYTECODE", "1");
    let said = output(bash);
    process.stop();
    said.split("--\n").map(str::to_owned).collect()
}

#[test]
fn the_guide_to_commands_runs_alone_from_top_to_bottom() {
    if !has_kafka_listener() {
        return;
    }
    let said = followed("docs/connect-commands.md", "kafka");
    let parts: Vec<String> = said.iter().map(|part| part.replace('\r', "").to_ascii_lowercase()).collect();
    let [registered, waits, taken, answered, by_kafka, end] = parts.as_slice() else { panic!("{parts:?}") };
    assert!(registered.contains(r#""id":"sensor-1""#), "{registered}");
    assert!(waits.starts_with("http/1.1 202") && waits.contains("waiting"), "{waits}");
    assert!(taken.starts_with("http/1.1 200") && taken.contains("\nhono-command: set-interval\n"), "{taken}");
    assert!(taken.ends_with(r#"{"seconds": 30}"#), "{taken}");
    assert!(answered.starts_with(r#"{"seconds": 60}http/1.1 200"#), "{answered}");
    assert!(answered.contains("\nhono-cmd-status: 200\n") && answered.ends_with("every minute"), "{answered}");
    assert_eq!(by_kafka, "{\"seconds\": 30}every half minute\n");
    assert_eq!(end, "");
}

#[test]
fn the_guide_to_devices_runs_alone_from_top_to_bottom() {
    let said = followed("docs/connect.md", "mqtt");
    let parts: Vec<&str> = said.iter().map(String::as_str).collect();
    let [registered, curl, http, mosquitto, mqtt, stream, entity, behind, sent, python, javascript, woken, end] =
        parts.as_slice()
    else {
        panic!("{} blocks: {said:?}", parts.len() - 1)
    };
    assert!(registered.contains(r#"{"id":"lamp-1"}"#), "{registered}");
    assert_eq!((*curl, *http, *mosquitto, *mqtt), ("202\n202\n", "202\n202\n", "", ""));
    let mut temperatures: Vec<&str> = stream.lines().collect();
    temperatures.sort_unstable();
    let expected =
        [r#"{"temp": 21.8}"#, r#"{"temp": 21.9}"#, r#"{"temp": 22}"#, r#"{"temp": 21.5}"#, r#"{"temp": 21.6}"#];
    assert!(expected.iter().all(|sent| temperatures.contains(sent)) && temperatures.len() == 6, "{stream}");
    assert!(entity.contains(r#""id":"urn:ngsi-ld:Device:sensor-1""#) && entity.contains("\"temp\""), "{entity}");
    assert_eq!((*behind, *sent), ("202\n", ""));
    assert_eq!(*python, "lamp-1 switch on\nit is on");
    assert!(javascript.contains("lamp-1 switch off\n") && javascript.contains("it is off"), "{javascript}");
    assert_eq!(woken.replace('\r', "").as_str(), "30hono-command: set-interval\n");
    assert_eq!(*end, "");
}

#[test]
fn the_guide_to_mqtt_runs_alone_from_top_to_bottom() {
    let said = followed("docs/connect-mqtt.md", "mqtt");
    let parts: Vec<&str> = said.iter().map(String::as_str).collect();
    let [registered, sent, door, socket, open, commands, kept, shared, panel, restricted, mapped, behind, end] =
        parts.as_slice()
    else {
        panic!("{} blocks: {said:?}", parts.len() - 1)
    };
    assert!(registered.contains(r#"{"id":"sensor-1"}"#), "{registered}");
    assert_eq!((*sent, *door, *socket, *mapped), ("", "", "", ""));
    assert!(open.contains(r#"{"id":"open"}"#), "{open}");
    // A command that is not acknowledged within a second is delivered again.
    let mut heard: Vec<&str> = commands.split('\n').filter(|line| *line != "set 21.5").collect();
    heard.dedup();
    assert_eq!(heard, ["set b'21.5'", "did 21.5set 21.5", "did 21.5"]);
    assert_eq!((*kept, *shared), ("21.5\n", "now\n"));
    assert!(panel.starts_with("house/7/light b'on'\n"), "{panel}");
    assert!(restricted.contains(r#"{"id":"shutter-7"}"#), "{restricted}");
    let records = behind.strip_prefix(r#"{"id":"bridge-1"}"#).unwrap_or_else(|| panic!("{behind}"));
    let records = records.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told = |record: Value| {
        let header = |name: &str| record["headers"][name].as_str().unwrap().to_owned();
        (header("device_id"), header("orig_address"), record["value"].clone())
    };
    let mut told: Vec<_> = records.map(told).collect();
    told.sort_by_key(|(_, address, value)| (address.clone(), value.to_string()));
    let expected = [
        ("sensor-1", "tele/tasmota/SENSOR", json!({"AM2301": {"Temperature": 21.5}})),
        ("sensor-1", "telemetry", json!({"temp": 21.5})),
        ("sensor-1", "telemetry", json!({"temp": 21.6})),
        ("kitchen", "zigbee2mqtt/kitchen", json!({"temperature": 20.1})),
    ];
    assert_eq!(told, expected.map(|(device, address, value)| (device.to_owned(), address.to_owned(), value)));
    assert_eq!(*end, "");
}
