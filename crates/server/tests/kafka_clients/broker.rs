//! The clients' peer: `millstream serve`, or any broker that `MILLSTREAM_TEST_KAFKA=HOST:PORT` names. The checks hold
//! against a real Kafka (`cargo xtask kafka`), too, which shows that they ask for what clients get there.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use millstream_testkit::{Process, installed};
use tempfile::TempDir;

use crate::relay::Relay;

/// Names a broker that runs already.
const OTHER_BROKER: &str = "MILLSTREAM_TEST_KAFKA";
/// Beyond what any check waits for; a client that hangs is ended.
const PATIENCE_S: &str = "900";

/// A broker that listens.
pub(crate) struct Broker {
    pub(crate) address: String,
    /// Ended, and its data removed, at the end of the test.
    own: Option<(Process, TempDir)>,
}

impl Broker {
    pub(crate) fn start() -> Self {
        if let Ok(address) = std::env::var(OTHER_BROKER) {
            return Self { address, own: None };
        }
        let dir = tempfile::tempdir().unwrap();
        let process = Process::start(dir.path());
        let address = process.kafka.to_string();
        Self { address, own: Some((process, dir)) }
    }

    /// `true` if the tests go to a broker that runs already.
    pub(crate) fn is_another() -> bool {
        std::env::var(OTHER_BROKER).is_ok()
    }

    /// A broker of our own with this configuration; `None` if the tests go to another one.
    pub(crate) fn configured(settings: &str) -> Option<Self> {
        if Self::is_another() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("settings.toml");
        std::fs::write(&file, settings).unwrap();
        let process = Process::start_on(dir.path(), &["--config", file.to_str().unwrap()]);
        Some(Self { address: process.kafka.to_string(), own: Some((process, dir)) })
    }

    /// The process behind the address; `None` if the broker is another one.
    pub(crate) fn process(&self) -> Option<&Process> {
        self.own.as_ref().map(|(process, _)| process)
    }

    /// A server behind `relay`, to which it leads from now on. Its data stay in `dir`.
    pub(crate) fn start_behind(relay: &Relay, dir: &Path) -> Process {
        let advertised = format!("kafka.advertised={}", relay.address);
        let process = Process::start_on(dir, &["--set", &advertised]);
        relay.lead_to(process.kafka);
        process
    }

    /// Whatever listens there; nothing of it ends with the test.
    pub(crate) fn at(address: &SocketAddr) -> Self {
        Self { address: address.to_string(), own: None }
    }

    /// Another name for each run, for brokers that outlive it.
    pub(crate) fn topic(&self, what: &str) -> String {
        format!("{what}-{}", std::process::id())
    }

    /// Runs `kcat` with these arguments and this input; answers what it prints.
    pub(crate) fn kcat(&self, arguments: &[&str], input: &str) -> String {
        let mut kcat = patient("kcat");
        kcat.args(["-q", "-b", &self.address]).args(arguments);
        output(kcat, input)
    }

    /// As [`Broker::kcat`]; what it says if it fails.
    pub(crate) fn try_kcat(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut kcat = patient("kcat");
        kcat.args(["-q", "-b", &self.address]).args(arguments);
        try_output(kcat, input)
    }

    /// Runs a case of one of the Python scripts beside this file.
    pub(crate) fn script(&self, script: &str, case: &[&str]) {
        let said = output(self.scripted(script, case), "");
        assert!(said.trim_end().ends_with(&format!("ok {}", case[0])), "{said}");
    }

    /// As [`Broker::script`], of a case that says `open` so many times and then waits: does `meanwhile` each time, and lets
    /// it go on.
    pub(crate) fn script_around(&self, script: &str, case: &[&str], times: usize, mut meanwhile: impl FnMut()) {
        let mut command = self.scripted(script, case);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        for _ in 0..times {
            line.clear();
            said.read_line(&mut line).unwrap();
            assert_eq!(line, "open\n");
            meanwhile();
            child.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
        }
        said.read_line(&mut line).unwrap();
        assert!(child.wait().unwrap().success() && line.ends_with(&format!("ok {}\n", case[0])), "{line}");
    }

    fn scripted(&self, script: &str, case: &[&str]) -> Command {
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka_clients");
        let mut command = python();
        command.arg(beside.join(script)).arg(&self.address).args(case);
        command
    }

    /// Runs a Python program; answers what it prints.
    pub(crate) fn python(&self, program: &str) -> String {
        let mut command = python();
        command.args(["-c", program]);
        output(command, "")
    }

    /// Runs a program of one Java class.
    pub(crate) fn java_source(&self, file: &str, program: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(file);
        std::fs::write(&file, program).unwrap();
        output(java(file.to_str().unwrap(), &[]), "")
    }

    /// Runs a JavaScript module.
    pub(crate) fn javascript(&self, program: &str) -> String {
        let home = installed("kafka/js/node_modules").parent().unwrap().to_owned();
        let mut node = patient("node");
        node.args(["--input-type=module", "-e", program]).current_dir(home);
        output(node, "")
    }

    /// Runs one of Kafka's own command-line classes.
    pub(crate) fn java(&self, class: &str, arguments: &[&str], input: &str) -> String {
        output(java(&in_tools(class), arguments), input)
    }

    /// As [`Broker::java`], for what may fail: then what it complains of.
    pub(crate) fn try_java(&self, class: &str, arguments: &[&str]) -> Result<String, String> {
        try_output(java(&in_tools(class), arguments), "")
    }
}

/// Runs Kafka's own programs; `scripts/setup-clients` builds it beside the binary under test.
pub(crate) fn xtask() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_millstream")).with_file_name("xtask");
    assert!(path.exists(), "{} is missing: run scripts/setup-clients", path.display());
    path
}

fn python() -> Command {
    let mut command = patient(installed("kafka/venv/bin/python").to_str().unwrap());
    // Nothing is written beside the sources.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// A class by its whole name, or a file with the source of one.
fn java(class: &str, arguments: &[&str]) -> Command {
    let mut command = patient(xtask().to_str().unwrap());
    // A tool lives for a second: what the second compiler and more garbage collectors would prepare is never used.
    command.env("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData");
    command.args(["kafka-tools", class]).args(arguments);
    command
}

/// Most of Kafka's own command-line classes lie in one package.
fn in_tools(class: &str) -> String {
    if class.starts_with("kafka.") { class.to_owned() } else { format!("org.apache.kafka.tools.{class}") }
}

pub(crate) fn patient(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", PATIENCE_S, program]);
    command
}

fn run(command: &mut Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Runs the command with this input. Returns its output, with that of errors if it fails.
fn try_output(mut command: Command, input: &str) -> Result<String, String> {
    let Output { status, stdout, stderr } = run(&mut command, input);
    let said = String::from_utf8_lossy(&stdout).into_owned();
    if status.success() { Ok(said) } else { Err(said + &String::from_utf8_lossy(&stderr)) }
}

pub(crate) fn output(mut command: Command, input: &str) -> String {
    let Output { status, stdout, stderr } = run(&mut command, input);
    let (said, complained) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{said}\n{complained}");
    said.into_owned()
}
