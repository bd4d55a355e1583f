//! `millstream bench`: what this program does per second on this machine, beside something that is known.
//!
//! Suites
//! - `log`: the log's engine, called in this process ([`log`]), beside a bare loop over the same bytes ([`bare`]).
//! - `log --peer kafka`: Kafka's own clients against `millstream serve` and against a real broker in turn ([`kafka`]).
//! - `reader`: producers of `millstream serve` beside a consumer that has fallen far behind ([`reader`]).
//! - `connect`: devices over HTTP and MQTT, against `millstream serve` and, if asked for, others in turn ([`connect`]).
//! - `context`: entities, their queries, subscriptions and history, against `millstream serve` ([`context`]).
//! - `query`: live queries by the published tests of Bullet and beyond, against `millstream serve` ([`query`]).
//!
//! Every suite ends in the same report: a table on standard output, and the same figures as JSON if asked for.

mod append;
mod bare;
mod child;
mod connect;
mod context;
mod cores;
mod kafka;
mod log;
mod machine;
mod page;
mod process;
mod query;
mod reader;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use millstream_load::report::{BenchCase, table, write_json};

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
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
    /// Entities: updates, reads and queries among a million, subscriptions and how long notifications take, history
    Context(context::ContextArgs),
    /// Live queries: the first answer, one record found, and up to 100,000 queries that must get exactly their records out of
    /// a stream of 1.8 KiB records
    Query(query::QueryArgs),
}

#[derive(Debug, Args)]
struct LogArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Runs this beside Millstream, with the same clients. It must have been fetched: `cargo xtask kafka-fetch`
    #[arg(long, value_enum)]
    peer: Option<LogPeer>,
    /// Only the cases with this in their name, such as 'consume' or 'produce 1024 B'; what they build on runs shortly, and
    /// is not told
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

/// How long a suite takes.
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

    /// How long each case is measured: `quick` or `full`, whichever was asked for.
    fn case_time(&self, quick: Duration, full: Duration) -> Duration {
        if self.full && !self.quick { full } else { quick }
    }
}

/// What a suite has to say.
#[derive(Debug)]
struct Report {
    /// What was measured and how, before the table.
    heading: String,
    cases: Vec<BenchCase>,
    /// Below the table, a line each.
    notes: Vec<String>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}\n\n{}", self.heading, table(&self.cases))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}

pub(crate) fn run(arguments: &BenchArgs) -> anyhow::Result<()> {
    let (report, run) = match &arguments.suite {
        Suite::Log(LogArgs { run, peer: Some(LogPeer::Kafka), only }) => {
            (kafka::measure(run.length(), only.as_deref())?, run)
        }
        Suite::Log(LogArgs { run, peer: None, .. }) => (log::measure(run.case_time(log::QUICK, log::FULL))?, run),
        Suite::Reader(run) => (reader::measure(run.length())?, run),
        Suite::Context(arguments) => (context::measure(arguments)?, &arguments.run),
        Suite::Connect(arguments) => (arguments.measure()?, &arguments.run),
        Suite::Query(arguments) => (query::measure(arguments)?, &arguments.run),
    };
    print!("{report}");
    if let Some(path) = &run.json {
        write_json(path, &report.cases)?;
    }
    Ok(())
}
