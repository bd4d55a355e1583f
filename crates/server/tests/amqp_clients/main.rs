//! AMQP 1.0 clients that are not ours, as applications run them: Qpid Proton, rhea, Qpid JMS, Eclipse Hono's own and go-amqp.
//! `scripts/setup-clients` installs them.
//!
//! Each receives telemetry, events and responses, sends a command when it receives the telemetry `go`, and prints a line for all that
//! it has seen. It ends by itself with the response.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kills;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use millstream_testkit::{Process, ask, installed};
use tempfile::TempDir;

/// Beyond what any check waits for; a client that hangs is ended.
const PATIENCE_S: &str = "120";
const SECRET: &str = "0123456789abcdef";
const JSON: (&str, &str) = ("Content-Type", "application/json");
const DEVICE: (&str, &str) = ("Authorization", "Basic ZEBkZWZhdWx0OnB3");

/// A server with a device and the token of an application.
struct World {
    process: Process,
    dir: TempDir,
}

impl World {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("millstream.toml");
        let roles = "[\"reader\", \"writer\", \"admin\"]";
        let token = format!("[[applications.tokens]]\nname = \"app\"\ntoken = \"{SECRET}\"\nroles = {roles}\n");
        std::fs::write(config, token).unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        let world = Self { process: Self::process(&dir), dir };
        world.admin("POST", "/v1/devices/default/d", "{}");
        let secrets = r#"[{"type":"hashed-password","auth-id":"d","secrets":[{"pwd-plain":"pw"}]}]"#;
        world.admin("PUT", "/v1/credentials/default/d", secrets);
        world
    }

    fn process(dir: &TempDir) -> Process {
        let config = dir.path().join("millstream.toml");
        Process::start_on(&dir.path().join("data"), &["--config", config.to_str().unwrap()])
    }

    fn admin(&self, method: &str, path: &str, body: &str) {
        let bearer = format!("Bearer {SECRET}");
        let answer = ask(self.process.applications, method, path, &[JSON, ("Authorization", &bearer)], body.as_bytes());
        assert!(matches!(answer.status, 201 | 204), "{method} {path}: {}", answer.text());
    }

    fn send(&self, stream: &str, body: &str) {
        let headers = [DEVICE, ("Content-Type", "text/plain"), ("qos-level", "1")];
        let answer = ask(self.process.devices, "POST", &format!("/{stream}"), &headers, body.as_bytes());
        assert_eq!(answer.status, 202, "{}", answer.text());
    }

    /// Waits for a command, and answers it.
    fn answer_command(&self) {
        let notification = ("Content-Type", "application/vnd.eclipse-hono-empty-notification");
        let told = ask(self.process.devices, "POST", "/telemetry?hono-ttd=50", &[DEVICE, notification], b"");
        assert_eq!((told.status, told.header("hono-command")), (200, Some("on")), "{}", told.text());
        assert_eq!(told.text(), "input");
        let id = told.header("hono-cmd-req-id").unwrap();
        let path = format!("/command/res/{id}?hono-cmd-status=200");
        let answer = ask(self.process.devices, "POST", &path, &[DEVICE, ("Content-Type", "text/plain")], b"output");
        assert_eq!(answer.status, 202, "{}", answer.text());
    }

    /// Starts a client with host, port, name and secret as its arguments.
    fn client(&self, mut command: Command, arguments: &[&str]) -> Client {
        let (host, port) = (self.process.amqp.ip().to_string(), self.process.amqp.port().to_string());
        // Nothing is written beside the sources.
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("RHEA_HOME", installed("amqp/js"));
        command.args([&host, &port, "app", SECRET]).args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Client { child, lines }
    }

    /// Has a client go through everything.
    fn tour(&self, command: Command) {
        self.send("event", "before");
        let mut client = self.client(command, &[]);
        client.until("ready");
        self.send("telemetry", "t-1");
        self.send("event", "e-1");
        std::thread::scope(|scope| {
            scope.spawn(|| self.answer_command());
            // The device listens once its own notification is seen.
            let mut seen = client.until("telemetry d ");
            self.send("telemetry", "go");
            seen.extend(client.lines.by_ref().map(Result::unwrap));
            seen.sort_unstable();
            let expected = [
                "command_response d output 200 c-1",
                "event d before",
                "event d e-1",
                "outcome accepted",
                "telemetry d ",
                "telemetry d go",
                "telemetry d t-1",
            ];
            assert_eq!(seen, expected);
        });
        assert!(client.child.wait().unwrap().success());
    }
}

/// A client that runs.
struct Client {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Client {
    /// The lines up to this one.
    fn until(&mut self, last: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let line = self.lines.next().unwrap_or_else(|| panic!("no '{last}' after {seen:?}")).unwrap();
            seen.push(line);
            if seen.last().is_some_and(|line| line == last) {
                return seen;
            }
        }
    }
}

fn beside(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/amqp_clients").join(file)
}

/// A command that is ended when it takes too long.
fn patient(program: &Path) -> Command {
    let is_by_name = program.components().count() == 1;
    assert!(is_by_name || program.exists(), "{} is missing: run scripts/setup-clients", program.display());
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", PATIENCE_S]).arg(program);
    command
}

fn python(script: &str) -> Command {
    let mut command = patient(&installed("amqp/venv/bin/python"));
    command.arg(beside(script));
    command
}

fn java(class: &str) -> Command {
    let mut command = patient(Path::new("java"));
    let jars = installed("amqp/jars");
    assert!(jars.exists(), "{} is missing: run scripts/setup-clients", jars.display());
    // What a client logs goes where nobody reads it for a result.
    command.args(["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", jars.join("*").to_str().unwrap()]);
    command.arg(beside(class));
    command
}

#[test]
fn qpid_proton_receives_sends_a_command_and_gets_the_response() {
    World::start().tour(python("proton_tour.py"));
}

#[test]
fn rhea_receives_sends_a_command_and_gets_the_response() {
    let mut command = patient(Path::new("node"));
    command.arg(beside("rhea.mjs"));
    World::start().tour(command);
}

#[test]
fn qpid_jms_receives_sends_a_command_and_gets_the_response() {
    let world = World::start();
    for prefetch in ["1000", "0"] {
        let mut command = java("JmsTour.java");
        command.env("PREFETCH", prefetch);
        world.tour(command);
    }
}

#[test]
fn the_client_of_eclipse_hono_receives_sends_a_command_and_gets_the_response() {
    World::start().tour(java("HonoTour.java"));
}

#[test]
#[ignore = "takes long"]
fn go_amqp_receives_sends_a_command_and_gets_the_response() {
    World::start().tour(patient(&installed("amqp/go_amqp")));
}
