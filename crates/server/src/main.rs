//! The binary `millstream`: configuration, wiring, command line.

mod audit;
mod backup_command;
mod backups;
mod built;
mod bullet;
mod config;
mod config_check;
mod config_show;
mod console;
mod data_dir;
mod demo;
mod demo_job;
mod drain;
mod figures;
mod health;
mod history_rules;
mod job_entities;
mod jobs;
mod kept_log;
mod listen;
mod live_table;
mod lives;
mod log_command;
mod logging;
mod login_route;
mod logins;
mod mapping_errors;
mod mappings;
#[cfg(feature = "kafka")]
mod migrate_command;
mod oidc;
mod planes;
mod process_metrics;
mod queries;
mod query_problem;
mod rate_history;
mod redis;
mod remedy;
mod restore_command;
mod schema;
mod serve;
mod sparing;
mod stats;
mod streams;
mod tls_command;
mod tokens;
mod waiting;
mod writing;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser, Subcommand};
use millstream_cli::{
    CommandArgs, DeviceArgs, EntityArgs, GroupArgs, HealthArgs, JobArgs, KvArgs, QueryArgs, TenantArgs, TokenArgs,
    TopicArgs, Unhealthy, is_broken_pipe, show,
};

use crate::config::Flags;

/// Most of what requests allocate is freed by another thread: an entity's new version by its owner, an answer by its socket's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Made by `cargo xtask notices`.
const THIRD_PARTY_NOTICES: &str = include_str!("../third_party_notices.txt");

/// One program for live device data: devices connect, their state is kept as entities, questions are asked of data as it arrives.
#[derive(Debug, Parser)]
#[command(name = "millstream", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the server until it is told to stop (SIGINT, SIGTERM)
    Serve(Flags),
    /// Ask a server whether it can serve: exit status 0 if so, 1 if it answers that it cannot, 2 if it does not answer
    Health(HealthArgs),
    /// Start a server on a fresh directory and replay a year of New York weather through it
    Demo(demo::DemoArgs),
    /// Ask a live query and print its rows as they come
    Query(QueryArgs),
    /// List, create, describe, change and delete topics; print and append records
    Topic(TopicArgs),
    /// List consumer groups; show how far they have read
    Group(GroupArgs),
    /// Create, list, show, update and delete tenants
    Tenant(TenantArgs),
    /// Register, list, show and remove devices; set their passwords
    Device(DeviceArgs),
    /// Send a command to a device and print its answer
    #[command(name = "command")]
    Send(CommandArgs),
    /// Begin, check, test, run, submit, list, show, tap, stop and kill jobs
    Job(JobArgs),
    /// List, show, set and delete entities
    Entity(EntityArgs),
    /// Make, list and delete buckets; store, read, list, watch, import and export their keys
    Kv(KvArgs),
    /// Look through the stored log while no server runs, and repair it
    Log {
        #[command(subcommand)]
        command: log_command::LogCommand,
    },
    /// Copy a running server's data into a directory; list and check such backups
    Backup(backup_command::BackupArgs),
    /// Put a backup into an empty data directory
    Restore(restore_command::RestoreArgs),
    /// Move the log of a stopped server to Apache Kafka, with everything in it
    #[cfg(feature = "kafka")]
    Migrate(migrate_command::MigrateArgs),
    /// Make, list and revoke API tokens
    Token(TokenArgs),
    /// Simulate devices
    Sim(millstream_load::sim::SimArgs),
    /// Measure this program on this machine
    Bench(millstream_bench::BenchArgs),
    /// Look at the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Make certificates for a try of TLS
    Tls {
        #[command(subcommand)]
        command: tls_command::TlsCommand,
    },
    /// Print the licences of the software that this program contains
    Licenses,
    /// Print a script that completes commands and options in a shell, such as: source <(millstream completions bash)
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write a manual page for each command into a directory, such as /usr/local/share/man/man1
    Man {
        /// The directory, which is made if it is missing
        directory: PathBuf,
    },
    /// Print the version
    Version,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print every setting in force and where it came from
    Show {
        #[command(flatten)]
        flags: Flags,
        /// Print what each setting means instead of where it came from
        #[arg(long)]
        explain: bool,
    },
    /// Tell all faults of a configuration at once, without starting anything
    Check(config_check::CheckArgs),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has had enough.
        Err(failure) if is_broken_pipe(&failure) => ExitCode::SUCCESS,
        Err(failure) => {
            let remedy = remedy::of(&failure).map(|remedy| format!("; {remedy}"));
            eprintln!("millstream: {failure:#}{}", remedy.unwrap_or_default());
            failure.downcast_ref::<Unhealthy>().map_or(ExitCode::FAILURE, |reason| reason.exit_status().into())
        }
    }
}

fn run(command: CliCommand) -> anyhow::Result<()> {
    match command {
        CliCommand::Serve(flags) => serve::run(&config::load(&flags)?.config),
        CliCommand::Demo(arguments) => demo::run(&arguments),
        CliCommand::Query(arguments) => arguments.run(),
        CliCommand::Health(arguments) => arguments.run(),
        CliCommand::Topic(arguments) => arguments.run(),
        CliCommand::Group(arguments) => arguments.run(),
        CliCommand::Tenant(arguments) => arguments.run(),
        CliCommand::Device(arguments) => arguments.run(),
        CliCommand::Send(arguments) => arguments.run(),
        CliCommand::Job(arguments) => arguments.run(|file| {
            let flags = Flags { config: Some(file.to_owned()), ..Flags::default() };
            Ok(config::load(&flags)?.config.flow)
        }),
        CliCommand::Entity(arguments) => arguments.run(),
        CliCommand::Kv(arguments) => arguments.run(),
        CliCommand::Token(arguments) => arguments.run(),
        CliCommand::Backup(arguments) => backup_command::run(&arguments),
        CliCommand::Restore(arguments) => restore_command::run(&arguments),
        #[cfg(feature = "kafka")]
        CliCommand::Migrate(arguments) => migrate_command::run(&arguments),
        CliCommand::Log { command } => log_command::run(&command),
        CliCommand::Sim(arguments) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(millstream_load::sim::run(arguments))?;
            Ok(())
        }
        CliCommand::Bench(arguments) => millstream_bench::run(&arguments),
        CliCommand::Config { command: ConfigCommand::Show { flags, explain } } => {
            let loaded = config::load(&flags)?;
            show(&if explain { loaded.explain()? } else { loaded.show()? })
        }
        CliCommand::Config { command: ConfigCommand::Check(arguments) } => config_check::run(&arguments),
        CliCommand::Tls { command } => tls_command::run(&command),
        CliCommand::Licenses => show(THIRD_PARTY_NOTICES),
        CliCommand::Completions { shell } => {
            // The generator panics where it cannot write, such as into a pipe whose reader has gone.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "millstream", &mut script);
            show(&String::from_utf8(script)?)
        }
        CliCommand::Man { directory } => {
            let cannot = || format!("cannot write manual pages into {}", directory.display());
            std::fs::create_dir_all(&directory).with_context(cannot)?;
            clap_mangen::generate_to(Arguments::command(), &directory).with_context(cannot)
        }
        CliCommand::Version => show(&format!("millstream {}\n", env!("CARGO_PKG_VERSION"))),
    }
}
