//! `cargo xtask`: what working on Millstream needs beside the compiler. None of it is part of the product.

mod brokers;
mod jars;
mod notices;

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand, ValueEnum};

use brokers::{Brokers, Relayed};
use jars::Jars;

#[derive(Debug, Parser)]
#[command(name = "xtask", about)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Starts a real Apache Kafka on loopback, for comparisons and tests; Ctrl-C ends it
    Kafka(KafkaArguments),
    /// Writes the licence texts of the crates that the binary links; `millstream licenses` prints them
    Notices(NoticesArguments),
    /// Fetches what the other two need and prints where it lies
    KafkaFetch,
    /// Runs one of Kafka's own command-line classes, for instance `org.apache.kafka.tools.ConsoleProducer`
    KafkaTools {
        /// The class, then its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct NoticesArguments {
    /// Writes nothing; fails if the notices are out of date
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Args)]
struct KafkaArguments {
    /// How many brokers make the cluster; each takes about half a GiB of memory
    #[arg(long, value_enum, default_value_t = Count::One)]
    brokers: Count,
    /// Keeps the data here; otherwise it is gone when the cluster ends
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The first broker's port; two ports a broker and one for each of its relays are used from here on. 0 takes any that are free
    #[arg(long, default_value_t = 19092)]
    port: u16,
    /// Also ends when standard input does, so that no broker outlives the program that asked for it
    #[arg(long)]
    end_with_input: bool,
    /// A file with further settings of each broker (server.properties); they win over those of this program.
    #[arg(long)]
    settings: Option<PathBuf>,
    /// Ports of relays between clients and brokers, one for each broker in turn: a broker has a listener of its own behind each
    /// of its relays, and names the relay's port to the clients there. A line `relay FROM to TO` tells where each leads.
    #[arg(long, value_delimiter = ',')]
    relays: Vec<u16>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Count {
    #[value(name = "1")]
    One = 1,
    #[value(name = "3")]
    Three = 3,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Kafka(arguments) => kafka(&arguments),
        Task::Notices(arguments) => notices::run(arguments.check),
        Task::KafkaFetch => {
            println!("{}", Jars::fetched()?.dir().display());
            Ok(())
        }
        Task::KafkaTools { command } => {
            let mut java = Jars::fetched()?.java(jars::TOOL_HEAP_MB);
            Err(jars::no_java(java.args(command).exec()))
        }
    }
}

fn kafka(arguments: &KafkaArguments) -> anyhow::Result<()> {
    let jars = Jars::fetched()?;
    let own = if arguments.dir.is_none() { Some(tempfile::tempdir()?) } else { None };
    let dir = match (&arguments.dir, &own) {
        (Some(dir), _) => std::path::absolute(dir)?,
        (None, Some(own)) => own.path().to_owned(),
        (None, None) => unreachable!("one of the two is there"),
    };
    let further = match &arguments.settings {
        Some(file) => std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?,
        None => String::new(),
    };
    let ports = brokers::ports(arguments.brokers as usize, arguments.port, &arguments.relays)?;
    let mut brokers = Brokers::start(&jars, &ports, &dir, &further)?;
    for (address, pid) in brokers.addresses_and_pids() {
        println!("broker {address} pid {pid}");
    }
    for Relayed { from, to } in ports.iter().flat_map(|ports| &ports.relayed) {
        println!("relay 127.0.0.1:{from} to 127.0.0.1:{to}");
    }
    println!("ready {}", brokers.bootstrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let ended = runtime.block_on(brokers.until_ended(arguments.end_with_input));
    // A read of standard input that is still waiting must not hold the end back.
    runtime.shutdown_background();
    brokers.end();
    ended
}
