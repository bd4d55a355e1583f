//! The server's binary as a process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;

use crate::{Answer, Server, Target, kafka_arguments, runs_on_kafka};

/// A running `millstream serve`; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// The address of the listener for applications.
    pub applications: SocketAddr,
    /// The address of the listener for devices over HTTP.
    pub devices: SocketAddr,
    /// The address of the listener for Kafka's clients.
    pub kafka: SocketAddr,
    /// The address of the listener for devices over MQTT.
    pub mqtt: SocketAddr,
    /// The address of the listener for Redis clients.
    pub redis: SocketAddr,
    /// The address of the listener for applications over AMQP 1.0.
    pub amqp: SocketAddr,
}

/// Two addresses that no other process listens on or calls from: each process has a loopback address of its own, while
/// the system gives ports of 127.0.0.1.
pub fn own_addresses() -> [SocketAddr; 2] {
    static NEXT_PORT: AtomicU16 = AtomicU16::new(20_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let address = [127, high | 0x80, middle, low];
    [(); 2].map(|()| SocketAddr::from((address, NEXT_PORT.fetch_add(1, Ordering::Relaxed))))
}

/// The path of the server's binary, which lies beside the directory of the running test.
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("millstream")
}

/// A path below the target directory that `scripts/setup-clients` makes.
///
/// # Panics
/// If it is not there.
pub fn installed(path: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(3).unwrap().join(path);
    assert!(path.exists(), "{} is missing: run scripts/setup-clients", path.display());
    path
}

/// The server's binary, without arguments.
pub fn millstream() -> Command {
    Command::new(binary())
}

/// SIGTERM; waits for an orderly end.
pub fn terminate(server: &mut Child) {
    let told = Command::new("kill").args(["-TERM", &server.id().to_string()]).status().unwrap();
    assert!(told.success());
    let status = server.wait().unwrap();
    assert!(status.success(), "{status}");
}

impl Process {
    /// Starts on a data directory and returns once it listens.
    pub fn start(data_dir: &Path) -> Self {
        Self::start_on(data_dir, &[])
    }

    /// Starts with these arguments and returns once it listens.
    pub fn start_on(data_dir: &Path, arguments: &[&str]) -> Self {
        Self::start_by(millstream(), data_dir, arguments)
    }

    /// The same, by a command to which the program's arguments are added.
    pub fn start_by(program: Command, data_dir: &Path, arguments: &[&str]) -> Self {
        Self::start_at(program, data_dir, [SocketAddr::from(([127, 0, 0, 1], 0)); 2], arguments)
    }

    /// The same, with the addresses for applications and for devices over HTTP.
    pub fn start_at(
        mut program: Command,
        data_dir: &Path,
        [applications, devices]: [SocketAddr; 2],
        arguments: &[&str],
    ) -> Self {
        let names_engine = arguments.contains(&"log.engine=kafka");
        let on_kafka = names_engine || runs_on_kafka();
        program.arg("serve").args(["--listen-kafka", if on_kafka { "off" } else { "127.0.0.1:0" }]);
        if on_kafka && !names_engine {
            program.args(kafka_arguments(data_dir));
        }
        let mut child = program
            .arg("--data-dir")
            .arg(data_dir)
            .args(["--listen-applications", &applications.to_string()])
            .args(["--listen-devices-http", &devices.to_string()])
            .args(["--listen-devices-mqtt", "127.0.0.1:0"])
            .args(["--listen-redis", "127.0.0.1:0", "--listen-amqp", "127.0.0.1:0"])
            .args(["--set", "logging.level=warn"])
            // A disk or a processor that stalls under other tests must not refuse a login or a message.
            .args(["--set", "connect.http.send_timeout_ms=60000", "--set", "connect.mqtt.send_timeout_ms=60000"])
            .args(["--set", "connect.http.request_timeout_ms=60000", "--set", "context.timeout_ms=60000"])
            .args(["--set", "connect.mqtt.connect_timeout_ms=60000"])
            .args(arguments)
            .current_dir(data_dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut listening = |name: &str| -> SocketAddr {
            let line = lines.next().expect("the server says where it listens before it ends").unwrap();
            let rest = line.strip_prefix("listening ").unwrap_or_else(|| panic!("unexpected line {line:?}"));
            let (listener, url) = rest.split_once(' ').unwrap();
            assert_eq!(listener, name);
            url.rsplit("//").next().unwrap().parse().unwrap()
        };
        let (applications, devices) = (listening("applications"), listening("devices-http"));
        // Clients of Kafka speak to the brokers, if those keep the log.
        let kafka = if on_kafka { SocketAddr::from(([127, 0, 0, 1], 1)) } else { listening("kafka") };
        let mqtt = listening("devices-mqtt");
        let redis = listening("redis");
        let amqp = listening("amqp");
        Self { child, applications, devices, kafka, mqtt, redis, amqp }
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, without waiting.
    pub fn tell_to_stop(&self) {
        let told = Command::new("kill").args(["-TERM", &self.id().to_string()]).status().unwrap();
        assert!(told.success());
    }

    /// SIGTERM; waits for an orderly end.
    pub fn stop(mut self) {
        terminate(&mut self.child);
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the resident memory of the process, in bytes.
    pub fn rss_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// Returns the most resident memory that the process has had, in bytes.
    pub fn peak_rss_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    fn status_bytes(&self, figure: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(figure)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// The URL of the listener for applications.
    pub fn applications_url(&self) -> String {
        format!("http://{}", self.applications)
    }

    /// The URL of the listener for devices.
    pub fn devices_url(&self) -> String {
        format!("http://{}", self.devices)
    }

    /// Asks the listener for applications.
    pub fn get(&self, path: &str) -> Answer {
        Server::get(self, path)
    }

    /// The same; the JSON of an answer with 200.
    pub fn get_json(&self, path: &str) -> Value {
        Server::get_json(self, path)
    }
}

impl Server for Process {
    fn applications(&self) -> Target {
        self.applications.into()
    }

    fn devices(&self) -> SocketAddr {
        self.devices
    }

    fn kafka(&self) -> SocketAddr {
        self.kafka
    }

    fn mqtt(&self) -> SocketAddr {
        self.mqtt
    }

    fn redis(&self) -> SocketAddr {
        self.redis
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
