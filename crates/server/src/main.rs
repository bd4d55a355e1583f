//! The binary `millstream`: configuration, wiring, command line.

mod bench;
mod built;
mod bullet;
mod client;
mod config;
mod console;
mod demo;
mod figures;
mod health;
mod history_rules;
mod logging;
mod mappings;
mod queries;
mod query_command;
mod remedy;
mod schema;
mod serve;
mod sparing;
mod stats;
mod streams;
mod topic_command;
mod writing;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::Flags;

/// Most of what requests allocate is freed by another thread: an entity's new version by its owner, an answer by its socket's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One program for live device data: devices connect, their state is kept as entities, questions are asked of data as it arrives.
#[derive(Debug, Parser)]
#[command(name = "millstream", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server until it is told to stop (SIGINT, SIGTERM)
    Serve(Flags),
    /// Start a server on a fresh directory and replay a year of New York weather through it
    Demo(demo::DemoArgs),
    /// Ask a live query and print its rows as they come
    Query(query_command::QueryArgs),
    /// List, create, describe and delete topics; print their records
    Topic(topic_command::TopicArgs),
    /// Simulate devices
    Sim(millstream_load::sim::SimArgs),
    /// Measure this program on this machine
    Bench(bench::BenchArgs),
    /// Look at the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Print the version
    Version,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print every setting in force and where it came from
    Show(Flags),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let remedy = remedy::of(&failure).map(|remedy| format!("; {remedy}"));
            eprintln!("millstream: {failure:#}{}", remedy.unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve(flags) => serve::run(&config::load(&flags)?.config),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Query(arguments) => query_command::run(&arguments),
        Command::Topic(arguments) => topic_command::run(&arguments),
        Command::Sim(arguments) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(millstream_load::sim::run(arguments))?;
            Ok(())
        }
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Config { command: ConfigCommand::Show(flags) } => {
            print!("{}", config::load(&flags)?.show()?);
            Ok(())
        }
        Command::Version => {
            println!("millstream {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
    }
}
