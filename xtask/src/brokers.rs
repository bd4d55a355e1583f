//! A cluster of real brokers on loopback, each also a controller (KRaft), each a process with its own directory.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::signal::unix::{SignalKind, signal};

use crate::jars::{Jars, no_java};

const HEAP_MB: u32 = 350;
/// The options that Kafka's own start script gives the JVM of a broker.
const JVM: [&str; 5] = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
];
/// A cluster of three on a busy machine of two cores takes half a minute.
const PATIENCE: Duration = Duration::from_secs(120);
const SIGKILL: i32 = 9;
const POLL: Duration = Duration::from_millis(100);
/// The text that a broker writes once it serves clients.
const STARTED: &str = "Kafka Server started";
/// Any name of sixteen bytes in base64 does, as long as all brokers are given the same.
const CLUSTER_ID: &str = "millstream-peer-kafkaA";
const LOGGING: &str = include_str!("log4j2.properties");

/// Running brokers; ended when dropped.
#[derive(Debug)]
pub(crate) struct Brokers {
    brokers: Vec<Broker>,
}

#[derive(Debug)]
struct Broker {
    process: Child,
    address: String,
    output: PathBuf,
}

/// The ports that a broker listens at.
#[derive(Debug)]
pub(crate) struct Ports {
    clients: u16,
    controllers: u16,
    pub(crate) relayed: Vec<Relayed>,
}

/// A listener behind a relay.
#[derive(Debug)]
pub(crate) struct Relayed {
    /// The port of the relay.
    pub(crate) from: u16,
    /// The port of the listener.
    pub(crate) to: u16,
}

impl Brokers {
    /// Starts a broker at each of `ports`, with their data under `dir` and `further` settings behind those of this program; they
    /// serve clients when this returns.
    pub(crate) fn start(jars: &Jars, ports: &[Ports], dir: &Path, further: &str) -> anyhow::Result<Self> {
        let mut started = Self { brokers: Vec::new() };
        for (number, own) in ports.iter().enumerate() {
            let dir = dir.join(format!("broker-{}", number + 1));
            std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
            let properties = properties(&dir, number, ports) + further;
            started.brokers.push(Broker::start(jars, &dir, &properties, own)?);
        }
        let deadline = Instant::now() + PATIENCE;
        started.brokers.iter_mut().try_for_each(|broker| broker.wait_until_started(deadline))?;
        Ok(started)
    }

    pub(crate) fn addresses_and_pids(&self) -> impl Iterator<Item = (&str, u32)> {
        self.brokers.iter().map(|broker| (&*broker.address, broker.process.id()))
    }

    /// The addresses by which clients find the cluster.
    pub(crate) fn bootstrap(&self) -> String {
        self.brokers.iter().map(|broker| &*broker.address).collect::<Vec<_>>().join(",")
    }

    /// Returns on SIGINT, SIGTERM, SIGHUP or, if asked for, the end of standard input.
    /// # Errors
    /// A broker has ended by itself.
    pub(crate) async fn until_ended(&mut self, with_input: bool) -> anyhow::Result<()> {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut hang_up = signal(SignalKind::hangup())?;
        let mut tick = tokio::time::interval(POLL);
        let input = async {
            if with_input {
                // An error is an end as well.
                drop(tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink())).await);
            } else {
                std::future::pending().await
            }
        };
        tokio::pin!(input);
        loop {
            tokio::select! {
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
                _ = hang_up.recv() => return Ok(()),
                () = &mut input => return Ok(()),
                _ = tick.tick() => self.check()?,
            }
        }
    }

    /// Checks that the brokers run. One of several may be killed, to see what its clients do then.
    fn check(&mut self) -> anyhow::Result<()> {
        let may_be_killed = self.brokers.len() > 1;
        self.brokers.iter_mut().try_for_each(|broker| match broker.process.try_wait()? {
            Some(status) if may_be_killed && status.signal() == Some(SIGKILL) => Ok(()),
            _ => broker.still_runs(),
        })
    }

    /// Ends all brokers and waits for them; kills those that take longer than the patience for a start.
    pub(crate) fn end(&mut self) {
        for broker in &self.brokers {
            // A broker that is gone already cannot be told.
            drop(Command::new("kill").arg(broker.process.id().to_string()).stderr(Stdio::null()).status());
        }
        let deadline = Instant::now() + PATIENCE;
        for broker in &mut self.brokers {
            while matches!(broker.process.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(POLL);
            }
        }
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        for broker in &mut self.brokers {
            // It has ended already unless the start failed.
            drop(broker.process.kill());
            drop(broker.process.wait());
        }
    }
}

impl Broker {
    fn start(jars: &Jars, dir: &Path, properties: &str, ports: &Ports) -> anyhow::Result<Self> {
        let settings = dir.join("server.properties");
        std::fs::write(&settings, properties).context("cannot write a broker's settings")?;
        let logging = dir.join("log4j2.properties");
        std::fs::write(&logging, LOGGING).context("cannot write a broker's settings")?;
        let output = dir.join("output.log");
        let file = File::create(&output).with_context(|| format!("cannot write {}", output.display()))?;
        let java = |heap_mb| -> anyhow::Result<Command> {
            let mut java = jars.java(heap_mb);
            java.arg(format!("-Dlog4j2.configurationFile={}", logging.display()));
            java.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file.try_clone()?);
            Ok(java)
        };
        let mut format = java(HEAP_MB)?;
        format.args(["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", CLUSTER_ID, "-c"]);
        if !format.arg(&settings).status().map_err(no_java)?.success() {
            bail!("Kafka could not format {}; {}", dir.display(), tail(&output));
        }
        let mut broker = java(HEAP_MB)?;
        // In a group of its own: Ctrl-C is for this program, which then ends all brokers in order.
        let process = broker.args(JVM).arg("kafka.Kafka").arg(&settings).process_group(0).spawn().map_err(no_java)?;
        Ok(Self { process, address: format!("127.0.0.1:{}", ports.clients), output })
    }

    fn wait_until_started(&mut self, deadline: Instant) -> anyhow::Result<()> {
        loop {
            self.still_runs()?;
            let output = std::fs::read_to_string(&self.output).unwrap_or_default();
            if output.contains(STARTED) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the broker at {} has not started within {PATIENCE:?}; {}", self.address, tail(&self.output));
            }
            std::thread::sleep(POLL);
        }
    }

    fn still_runs(&mut self) -> anyhow::Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => {
                bail!("the broker at {} has ended by itself ({status}); {}", self.address, tail(&self.output))
            }
        }
    }
}

/// The end of what a broker said.
fn tail(output: &Path) -> String {
    let text = std::fs::read_to_string(output).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    format!("it said:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"))
}

/// Two ports a broker and one for each of its relays: those asked for, or any that nobody listens on.
///
/// # Errors
/// Relays that do not come out even, or a port that is taken.
pub(crate) fn ports(count: usize, first: u16, relays: &[u16]) -> anyhow::Result<Vec<Ports>> {
    if !relays.len().is_multiple_of(count) {
        bail!("--relays: {} ports for {count} brokers; give as many to each", relays.len());
    }
    let each = 2 + relays.len() / count;
    let last = usize::from(first) + each * count - 1;
    if last > usize::from(u16::MAX) {
        bail!("--port {first}: {count} brokers take {} ports, up to {last}, and ports end at 65535", each * count);
    }
    // All are held until all are known, so that none is told twice.
    let mut held = Vec::new();
    for number in 0..each * count {
        let port = if first == 0 { 0 } else { first + number as u16 };
        let listener = TcpListener::bind(("127.0.0.1", port));
        held.push(
            listener.with_context(|| format!("--port {first}: cannot listen on 127.0.0.1:{port}; choose another"))?,
        );
    }
    let ports = held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<io::Result<Vec<_>>>()?;
    let of_broker = |(number, own): (usize, &[u16])| {
        let from = relays.iter().skip(number).step_by(count);
        let relayed = from.zip(&own[2..]).map(|(from, to)| Relayed { from: *from, to: *to }).collect();
        Ports { clients: own[0], controllers: own[1], relayed }
    };
    Ok(ports.chunks(each).enumerate().map(of_broker).collect())
}

/// A broker's settings: Kafka's own defaults, but for what a cluster on one machine needs and what tests wait for.
fn properties(dir: &Path, number: usize, ports: &[Ports]) -> String {
    let Ports { clients, controllers, relayed } = &ports[number];
    // Brokers speak to each other at the listener of the name PLAINTEXT.
    let (mut listeners, mut advertised, mut protocols) = (String::new(), String::new(), String::new());
    for (way, Relayed { from, to }) in relayed.iter().enumerate() {
        listeners += &format!(",RELAYED_{way}://127.0.0.1:{to}");
        advertised += &format!(",RELAYED_{way}://127.0.0.1:{from}");
        protocols += &format!(",RELAYED_{way}:PLAINTEXT");
    }
    let voters = ports.iter().enumerate();
    let voters: Vec<_> = voters.map(|(at, ports)| format!("{}@127.0.0.1:{}", at + 1, ports.controllers)).collect();
    let replicas = ports.len();
    format!(
        "process.roles=broker,controller\n\
         node.id={node}\n\
         controller.quorum.voters={voters}\n\
         controller.listener.names=CONTROLLER\n\
         listeners=PLAINTEXT://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controllers}{listeners}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{clients}{advertised}\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}\n\
         log.dirs={data}\n\
         default.replication.factor={replicas}\n\
         offsets.topic.replication.factor={replicas}\n\
         offsets.topic.num.partitions=8\n\
         transaction.state.log.replication.factor={replicas}\n\
         transaction.state.log.min.isr={in_sync}\n\
         min.insync.replicas={in_sync}\n\
         transaction.state.log.num.partitions=8\n\
         group.initial.rebalance.delay.ms=0\n",
        node = number + 1,
        in_sync = replicas.min(2),
        voters = voters.join(","),
        data = dir.join("data").display(),
    )
}
