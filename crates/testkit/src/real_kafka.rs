//! A cluster of real Kafka brokers.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::{Raw, Relay};

/// A library that sets the clock of the processes that load it before others.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *time) {
  int (*of_system)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
  int status = of_system(id, time);
  if (id == CLOCK_REALTIME) time->tv_sec += AHEAD_S;
  return status;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  struct timespec now;
  int status = clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return status;
}
"#;

/// Brokers on loopback, each a process; they end with this value, and at the latest with the process that holds it, but for
/// those that were started again.
#[derive(Debug)]
pub struct RealKafka {
    process: Child,
    brokers: Vec<RealBroker>,
    /// The command of each broker that was killed.
    killed: HashMap<usize, Vec<String>>,
    /// The brokers that were started again.
    again: Vec<Child>,
    relays: Vec<Relay>,
}

/// A running broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealBroker {
    /// The address by which clients reach it.
    pub address: String,
    /// Id of its process.
    pub pid: u32,
}

impl RealKafka {
    /// Starts one broker, or three, on ports that are free; they serve clients when this returns.
    ///
    /// # Panics
    /// If they do not start.
    pub fn start(brokers: usize) -> Self {
        Self::with_settings(brokers, "")
    }

    /// Starts as many as `MILLSTREAM_TEST_BROKERS` says, or one.
    ///
    /// # Panics
    /// If they do not start, or that is no number.
    pub fn of_environment() -> Self {
        let brokers = std::env::var("MILLSTREAM_TEST_BROKERS").ok();
        Self::start(brokers.map_or(1, |brokers| brokers.parse().expect("MILLSTREAM_TEST_BROKERS is a number")))
    }

    /// As [`RealKafka::start`], with further lines of `server.properties`, which win over the others.
    ///
    /// # Panics
    /// If they do not start.
    pub fn with_settings(brokers: usize, settings: &str) -> Self {
        Self::behind_relays(brokers, settings, 0)
    }

    /// As [`RealKafka::with_settings`], with `ways` relays to each broker. Clients that are given the addresses of
    /// [`RealKafka::way`] reach all brokers by its relays.
    ///
    /// # Panics
    /// If they do not start.
    pub fn behind_relays(brokers: usize, settings: &str, ways: usize) -> Self {
        Self::start_by(&mut Command::new(xtask()), brokers, settings, ways)
    }

    /// As [`RealKafka::start`], with clocks that are ahead of this machine's by so many seconds, or behind.
    ///
    /// # Panics
    /// If they do not start, or this machine has no C compiler.
    pub fn with_clocks_ahead(brokers: usize, ahead_s: i64) -> Self {
        let dir = tempfile::tempdir().expect("there is room for a directory");
        let (source, library) = (dir.path().join("clock.c"), dir.path().join("clock.so"));
        std::fs::write(&source, CLOCK).expect("the file takes the text");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg(format!("-DAHEAD_S=({ahead_s})"));
        let compiled = compiler.args(["-ldl"]).status();
        assert!(compiled.is_ok_and(|status| status.success()), "cc does not compile the clock");
        // The brokers have loaded it once they serve clients.
        Self::start_by(Command::new(xtask()).env("LD_PRELOAD", &library), brokers, "", 0)
    }

    fn start_by(command: &mut Command, brokers: usize, settings: &str, ways: usize) -> Self {
        let mut file = tempfile::NamedTempFile::new().expect("there is room for a file");
        file.write_all(settings.as_bytes()).expect("the file takes the settings");
        command.args(["kafka", "--port", "0", "--end-with-input", "--brokers", &brokers.to_string()]);
        command.arg("--settings").arg(file.path());
        let relays: Vec<Relay> = (0..ways * brokers).map(|_| Relay::listen()).collect();
        if !relays.is_empty() {
            let ports: Vec<String> = relays.iter().map(|relay| relay.address().port().to_string()).collect();
            command.args(["--relays", &ports.join(",")]);
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("xtask starts");
        let output = process.stdout.take().expect("its output is a pipe");
        let mut started = Self { process, brokers: Vec::new(), killed: HashMap::new(), again: Vec::new(), relays };
        for line in BufReader::new(output).lines() {
            let line = line.expect("it writes text");
            match line.split_once(' ') {
                Some(("broker", broker)) => started.brokers.push(RealBroker::read(broker)),
                Some(("relay", relay)) => started.lead(relay),
                Some(("ready", _)) => return started,
                _ => {}
            }
        }
        panic!("the brokers have not started");
    }

    /// The brokers.
    pub fn brokers(&self) -> &[RealBroker] {
        &self.brokers
    }

    fn lead(&self, line: &str) {
        let addresses = line.split_once(" to ").expect("a relay has two ends");
        let [from, to] = [addresses.0, addresses.1].map(|address| address.parse::<SocketAddr>().expect("an address"));
        let relay = self.relays.iter().find(|relay| relay.address() == from).expect("it is one of ours");
        relay.lead_to(to);
    }

    /// The relays of a way, one to each broker.
    pub fn way(&self, number: usize) -> &[Relay] {
        let brokers = self.brokers.len();
        &self.relays[number * brokers..][..brokers]
    }

    /// The broker that coordinates the transactions of this id.
    ///
    /// # Panics
    /// If none does for long.
    pub fn coordinator(&self, transactional_id: &str) -> usize {
        let found = crate::found("a coordinator", || {
            let asked = self.brokers.iter().find_map(|broker| TcpStream::connect(&broker.address).ok())?;
            Raw(asked).kafka_coordinator(transactional_id)
        });
        // Nodes are counted from one.
        found - 1
    }

    /// Kills a broker of several with -9.
    ///
    /// # Panics
    /// If there is no such process.
    pub fn kill(&mut self, broker: usize) {
        let pid = self.brokers[broker].pid;
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("the broker runs");
        self.killed.insert(broker, command.split_terminator('\0').map(str::to_owned).collect());
        let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
        assert!(killed.is_ok_and(|status| status.success()), "broker {broker} is not killed");
        if let Some(child) = self.again.iter_mut().find(|child| child.id() == pid) {
            child.wait().expect("it ends");
        }
    }

    /// Starts a broker again that was killed, with its data; it serves clients when this returns.
    ///
    /// # Panics
    /// If it was not killed, or does not start.
    pub fn start_again(&mut self, broker: usize) {
        let command = self.killed.remove(&broker).expect("it was killed");
        let mut java = Command::new(&command[0]);
        java.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = java.spawn().expect("it starts");
        self.brokers[broker].pid = process.id();
        self.again.push(process);
        let address = self.brokers[broker].address.clone();
        crate::eventually("the broker listens again", || TcpStream::connect(&address).is_ok());
    }

    /// The addresses of the brokers, with commas between them.
    pub fn bootstrap(&self) -> String {
        self.brokers.iter().map(|broker| &*broker.address).collect::<Vec<_>>().join(",")
    }
}

impl RealBroker {
    fn read(line: &str) -> Self {
        let (address, pid) = line.split_once(" pid ").expect("a broker has an address and a process");
        Self { address: address.to_owned(), pid: pid.parse().expect("a process has a number") }
    }
}

impl Drop for RealKafka {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
        for broker in &mut self.again {
            let _ = broker.kill();
            let _ = broker.wait();
        }
    }
}

/// The program that runs Kafka and its tools, which `scripts/setup-clients` builds beside the programs of tests.
///
/// # Panics
/// If it is not there.
pub fn xtask() -> PathBuf {
    let test = std::env::current_exe().expect("a program has a path");
    let found = test.ancestors().map(|dir| dir.join("xtask")).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("xtask is not beside {}: run scripts/setup-clients", test.display()))
}
