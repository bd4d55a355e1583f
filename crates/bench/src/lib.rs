//! `millstream bench`: measures this program on this machine and compares it with peers.
//!
//! Suites
//! - `log`: the log's engine, called in this process, beside a bare loop over the same bytes.
//! - `log --peer kafka`: Kafka's own clients against `millstream serve` and against a real broker in turn.
//! - `reader`: producers of `millstream serve` beside a consumer that has fallen far behind.
//! - `connect`: devices over HTTP and MQTT, against `millstream serve` and, if asked for, others in turn.
//! - `cluster`: entities, atomic appends and devices with the log in Apache Kafka, beside the built-in log and a bare loop.
//! - `context`: entities, their queries, subscriptions and history, against `millstream serve`.
//! - `query`: live queries by the published tests of Bullet and beyond, against `millstream serve`.
//! - `flow`: jobs, run in this process, beside bare loops; devices beside a job, against `millstream serve`.
//! - `tls`: handshakes beside nginx, messages over TLS beside those without.
//! - `store`: values behind keys, over HTTP and the Redis protocol against `millstream serve` and, if asked for, Redis in turn.
//!
//! Every suite ends in the same report: a table on standard output, and the same figures as JSON if asked for.

mod append;
mod bare_loop;
mod cluster;
mod connect;
mod context;
mod cores;
mod findings;
mod flow;
mod kafka;
mod log;
mod machine;
mod page;
mod peer_process;
mod process;
mod query;
mod reader;
mod server_process;
mod store;
mod tls;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use millstream_load::report::{BenchCase, table, write_json};

/// The arguments of `millstream bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// Appends to the log, called as a library, beside a bare loop that writes the same bytes with the same syncs; or, with
    /// --peer, clients of Kafka's protocol against this server and another in turn
    Log(LogArgs),
    /// Producers whose records must be synced, alone and beside a consumer that reads an old topic from its start
    Reader(RunArgs),
    /// Devices that send over HTTP and MQTT to a server of their own, as fast as it answers and at 70 % of that; or many
    /// that are idle, come back at once and log in; or more and more until it is too much
    Connect(ConnectArgs),
    /// The log in Apache Kafka, on three brokers that this starts: updates of entities and messages of devices beside the
    /// built-in log, atomic appends beside a loop of the same transactions
    Cluster(cluster::ClusterArgs),
    /// Entities: updates, reads and queries among a million, subscriptions and how long notifications take, history
    Context(context::ContextArgs),
    /// Live queries: the first answer, one record found, and up to 100,000 queries that must get exactly their records out of
    /// a stream of 1.8 KiB records
    Query(query::QueryArgs),
    /// Jobs: the published job of six stages and its shapes, a topic into a topic, both beside loops without the engine; and
    /// devices beside a job that could use all cores
    Flow(flow::FlowArgs),
    /// Values behind keys: writes over HTTP beside a loop that writes the same bytes, reads beside a loop of pread, caches and
    /// durable keys over the Redis protocol, updates beside compaction, kill -9 in the middle of writes
    Store(store::StoreArgs),
    /// TLS: the server's CPU time for a handshake, beside nginx, and for a message, beside one without TLS
    Tls(RunArgs),
}

#[derive(Debug, Args)]
struct LogArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Runs this beside Millstream, with the same clients. It must have been fetched: `cargo xtask kafka-fetch`
    #[arg(long, value_enum)]
    peer: Option<LogPeer>,
    /// Only the cases with this in their name, such as 'consume' or 'produce 1024 B'; cases on which they depend run briefly
    /// and are left out of the report
    #[arg(long, value_name = "TEXT", requires = "peer")]
    only: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogPeer {
    /// A broker of Apache Kafka, and its own performance classes
    Kafka,
}

#[derive(Debug, Args)]
struct ConnectArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Runs this beside Millstream, with the same generator; may be given twice
    #[arg(long, value_enum, conflicts_with_all = ["many", "scale"])]
    peer: Vec<connect::ConnectPeer>,
    /// Connections that are mostly idle, devices that come back all at once, first logins by the kind of hash
    #[arg(long, conflicts_with = "scale")]
    many: bool,
    /// The step test that Eclipse Hono was published with: 2,000 devices more in each step, until one fails
    #[arg(long)]
    scale: bool,
    /// Draws the steps as a page with charts
    #[arg(long, value_name = "FILE", requires = "scale")]
    html: Option<PathBuf>,
}

impl ConnectArgs {
    fn measure(&self) -> anyhow::Result<Report> {
        match (self.many, self.scale) {
            (true, _) => connect::many::measure(self.run.length()),
            (_, true) => connect::scale::measure(self.run.length(), self.html.as_deref()),
            _ => connect::measure(self.run.length(), &self.peer),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Quick,
    Default,
    Full,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Within a minute; the default where there is no peer
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Several minutes, for figures that last
    #[arg(long)]
    full: bool,
    /// Writes the cases as JSON to this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl RunArgs {
    fn length(&self) -> Length {
        match (self.quick, self.full) {
            (true, _) => Length::Quick,
            (_, true) => Length::Full,
            _ => Length::Default,
        }
    }

    /// Returns the measured time of a case: `quick` or `full`, as requested.
    fn case_time(&self, quick: Duration, full: Duration) -> Duration {
        if self.full && !self.quick { full } else { quick }
    }
}

#[derive(Debug)]
struct Report {
    /// Text before the table: subject and method of the measurement.
    heading: String,
    cases: Vec<BenchCase>,
    /// Lines below the table, one per note.
    notes: Vec<String>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}\n\n{}", self.heading, table(&self.cases))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}

/// Runs a suite and prints its report.
///
/// # Errors
/// A server, a peer or the disk fails, or a case does not do its work.
pub fn run(arguments: &BenchArgs) -> anyhow::Result<()> {
    let (report, run) = match &arguments.suite {
        Suite::Log(LogArgs { run, peer: Some(LogPeer::Kafka), only }) => {
            (kafka::measure(run.length(), only.as_deref())?, run)
        }
        Suite::Log(LogArgs { run, peer: None, .. }) => (log::measure(run.case_time(log::QUICK, log::FULL))?, run),
        Suite::Reader(run) => (reader::measure(run.length())?, run),
        Suite::Cluster(arguments) => (cluster::measure(arguments)?, &arguments.run),
        Suite::Context(arguments) => (context::measure(arguments)?, &arguments.run),
        Suite::Connect(arguments) => (arguments.measure()?, &arguments.run),
        Suite::Query(arguments) => (query::measure(arguments)?, &arguments.run),
        Suite::Flow(arguments) => (flow::measure(arguments)?, &arguments.run),
        Suite::Store(arguments) => (store::measure(arguments)?, &arguments.run),
        Suite::Tls(run) => (tls::measure(run.length())?, run),
    };
    print!("{report}");
    if let Some(path) = &run.json {
        write_json(path, &report.cases)?;
    }
    Ok(())
}
