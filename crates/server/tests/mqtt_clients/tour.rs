//! The ten minutes of docs/connect.md, pasted from beginning to end by somebody who follows them.

use std::path::Path;

use crate::process::Process;
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

#[test]
fn whoever_follows_the_guide_sends_over_http_and_mqtt_through_a_gateway_and_is_commanded() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    std::os::unix::fs::symlink(target().join("mqtt/js/node_modules"), dir.path().join("node_modules")).unwrap();
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/connect.md");
    let (host, port) = (process.mqtt.ip(), process.mqtt.port());
    let session = session(&std::fs::read_to_string(guide).unwrap())
        .replace("127.0.0.1:8000", &process.applications.to_string())
        .replace("127.0.0.1:8080", &process.devices.to_string())
        .replace("127.0.0.1:1883", &process.mqtt.to_string())
        .replace("\"127.0.0.1\", 1883", &format!("\"{host}\", {port}"))
        .replace("-h 127.0.0.1 -p 1883", &format!("-h {host} -p {port}"));
    let millstream = Path::new(env!("CARGO_BIN_EXE_millstream")).parent().unwrap();
    let (python, path) = (target().join("mqtt/venv/bin"), std::env::var("PATH").unwrap());
    let mut bash = patient("bash");
    bash.args(["-c", &session]).current_dir(dir.path());
    bash.env("PATH", format!("{}:{}:{path}", python.display(), millstream.display()));
    bash.env("MILLSTREAM_SERVER", process.applications_url()).env("PYTHONDONTWRITEBYTECODE", "1");
    let said = output(bash);
    let parts: Vec<&str> = said.split("--\n").collect();
    let [registered, curl, http, mosquitto, mqtt, stream, entity, behind, sent, python, javascript, woken, end] =
        parts.as_slice()
    else {
        panic!("{} blocks: {said}", parts.len() - 1)
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
    process.stop();
}
