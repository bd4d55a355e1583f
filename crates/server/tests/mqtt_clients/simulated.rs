//! The simulator's devices over MQTT, against this server and against a Mosquitto.

use std::process::{Child, Command, Stdio};

use millstream_testkit::{eventually, millstream, own_addresses};

use crate::World;

/// A Mosquitto without logins; ended when dropped.
struct Mosquitto {
    child: Child,
    url: String,
    _dir: tempfile::TempDir,
}

impl Mosquitto {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [address, _] = own_addresses();
        let file = dir.path().join("mosquitto.conf");
        std::fs::write(&file, format!("listener {} {}\nallow_anonymous true\n", address.port(), address.ip())).unwrap();
        let program =
            ["/usr/sbin/mosquitto", "/usr/bin/mosquitto"].into_iter().find(|path| std::fs::exists(path).unwrap());
        let program = program.expect("mosquitto is missing: run scripts/setup-clients");
        let child = Command::new(program).arg("-c").arg(file).stderr(Stdio::null()).spawn().unwrap();
        eventually("Mosquitto to listen", || std::net::TcpStream::connect(address).is_ok());
        Self { child, url: format!("mqtt://{address}"), _dir: dir }
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs `millstream sim` over MQTT with 20 devices and 400 messages; what it reports.
fn simulate(url: &str, options: &[&str]) -> serde_json::Value {
    report(&[&["--protocol", "mqtt", "--devices-url", url], options].concat())
}

/// Runs `millstream sim` with 20 devices and 400 messages; what it reports.
fn report(options: &[&str]) -> serde_json::Value {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("result.json");
    let mut command = millstream();
    command.args(["sim", "-n", "20", "--period", "0", "--count", "400"]);
    let out = command.args(options).arg("--json").arg(&json).output().unwrap();
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let has_accepted = report["accepted"].as_u64() > Some(0);
    assert_eq!(out.status.success(), has_accepted, "{options:?}: {}", String::from_utf8_lossy(&out.stderr));
    report
}

#[test]
fn simulated_devices_log_in_and_their_accepted_messages_are_in_the_topic() {
    let world = World::start();
    let (mqtt, registry) = (format!("mqtt://{}", world.process.mqtt), world.process.applications_url());
    let register = ["--register", "--registry-url", &registry];
    for (options, topic, begin) in [
        (&["--qos", "0", "--in-flight", "8"][..], "telemetry.default", "q0"),
        (&["--qos", "1", "--in-flight", "8"], "telemetry.default", "q1"),
        (&["--kind", "event"], "event.default", "e1"),
    ] {
        let template = format!("\"{begin}-${{device}}-${{count}}\"");
        let options = [options, &register, &["--template", &template]].concat();
        let report = simulate(&mqtt, &options);
        assert_eq!((&report["accepted"], &report["failures"]), (&400.into(), &serde_json::json!({})), "{begin}");
        if begin == "q0" {
            // What nobody waits for is taken at once and seen a moment later.
            eventually("the last of them is seen", || world.values(topic, begin).len() == 400);
        }
        assert_eq!(world.values(topic, begin).len(), 400, "{begin}");
    }
    // Other topics are the private space's, where the third quality is at home.
    let report = simulate(&mqtt, &["--qos", "2", "--in-flight", "8", "--topic", "own/${device}"]);
    assert_eq!((&report["accepted"], &report["failures"]), (&400.into(), &serde_json::json!({})));
    let report = simulate(&mqtt, &["--password", "wrong"]);
    // 20 failures of each device are fewer than each may have.
    assert_eq!((&report["accepted"], &report["failures"]), (&0.into(), &serde_json::json!({"refused 4": 400})));
    world.kill();
}

#[test]
fn simulated_devices_answer_the_commands_of_a_simulated_application() {
    let world = World::start();
    let (mqtt, registry) = (format!("mqtt://{}", world.process.mqtt), world.process.applications_url());
    let http = world.process.devices_url();
    for (options, begin) in [
        (&["--protocol", "mqtt", "--devices-url", &mqtt][..], "q0"),
        (&["--protocol", "mqtt", "--devices-url", &mqtt, "--qos", "1", "--threads", "2"], "q1"),
        (&["--protocol", "http", "--devices-url", &http], "h0"),
    ] {
        let template = format!("\"{begin}-${{device}}-${{count}}\"");
        let register = ["--kind", "command", "--register", "--registry-url", &registry, "--timeout", "30s"];
        let report = report(&[options, &register, &["--template", &template]].concat());
        assert_eq!((&report["accepted"], &report["failures"]), (&400.into(), &serde_json::json!({})), "{begin}");
        let (commands, answers) =
            (world.values("command.default", begin), world.values("command_response.default", begin));
        assert_eq!((commands.len(), answers.len()), (400, 400), "{begin}");
    }
    // Nobody can log in, so nobody listens.
    let wrong = ["--protocol", "mqtt", "--devices-url", &mqtt, "--kind", "command", "--password", "wrong"];
    let report = report(&[&wrong[..], &["--registry-url", &registry]].concat());
    assert_eq!((&report["accepted"], &report["failures"]["503"]), (&0.into(), &400.into()), "{report}");
    world.kill();
}

#[test]
fn mosquitto_takes_all_three_qualities_of_the_same_devices() {
    let mosquitto = Mosquitto::start();
    for qos in ["0", "1", "2"] {
        for in_flight in ["1", "8"] {
            let options = ["--qos", qos, "--in-flight", in_flight, "--topic", "t/${device}"];
            let report = simulate(&mosquitto.url, &options);
            assert_eq!((&report["accepted"], &report["failures"]), (&400.into(), &serde_json::json!({})), "{qos}");
        }
    }
}
