//! `millstream config check`: tells all faults of a configuration at once, and starts nothing.
//!
//! Each setting that a file, the environment or the command line gives is put over the defaults alone, so that one fault
//! hides no other. Rules that join several settings are checked once all can be read.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use figment::Figment;
use figment::error::Kind;
use figment::providers::Serialized;
use figment::value::{Dict, Value};
use millstream_cli::show;
use millstream_http::Metrics;
use millstream_types::SystemClock;

use crate::config::{CommandLine, Config, Flags, Loaded, explain, read_sources};
use crate::listen::ListenerEndpoints;

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Configuration files, each of which is checked alone [default: that of --config]
    #[arg(value_name = "FILE", conflicts_with = "config")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

/// Prints the faults of each file; fails if there are any.
pub(crate) fn run(arguments: &CheckArgs) -> anyhow::Result<()> {
    let mut checked = Vec::new();
    if arguments.files.is_empty() {
        checked.push(arguments.flags.clone());
    }
    checked.extend(arguments.files.iter().map(|file| {
        let config = Some(file.clone());
        Flags { config, ..arguments.flags.clone() }
    }));
    let mut faults_of_all = 0;
    for flags in checked {
        let name = flags.config.as_ref().map_or_else(|| "configuration".to_owned(), |file| file.display().to_string());
        let faults = faults(&flags);
        faults_of_all += faults.len();
        let told = match faults.as_slice() {
            [] => format!("{name}: no faults\n"),
            faults => faults.iter().map(|fault| format!("{name}: {fault}\n")).collect(),
        };
        show(&told)?;
    }
    match faults_of_all {
        0 => Ok(()),
        1 => bail!("1 fault"),
        count => bail!("{count} faults"),
    }
}

/// All that a start with these settings would refuse, as far as it can be told without one.
fn faults(flags: &Flags) -> Vec<String> {
    let sources = match read_sources(flags) {
        Ok(sources) => sources,
        Err(failure) => return vec![format!("{failure:#}")],
    };
    match Loaded::of(sources.clone()) {
        Ok(loaded) => broken_rules(&loaded.config),
        Err(first) => {
            let faults = faults_of_settings(&sources);
            if faults.is_empty() { vec![format!("{first:#}")] } else { faults }
        }
    }
}

/// The rules that settings break which can be read.
fn broken_rules(config: &Config) -> Vec<String> {
    fn told<E: Into<anyhow::Error>>(checked: Result<(), E>) -> Option<String> {
        checked.err().map(|failure| format!("{:#}", failure.into()))
    }
    let broken = [
        told(config.memory_budget().map(drop)),
        config.quota.validate().err(),
        told(config.oidc.validate()),
        told(config.log.validate()),
        told(config.connect.validate()),
        told(config.context.validate()),
        told(config.history.validate()),
        told(config.kafka.validate()),
        told(readable_tls(config)),
    ];
    broken.into_iter().flatten().collect()
}

/// Reads certificate and key if an address needs them.
fn readable_tls(config: &Config) -> anyhow::Result<()> {
    let clock = Arc::new(SystemClock::default());
    ListenerEndpoints::of(&config.listen, &config.tls, &clock, &Metrics::default()).map(drop)
}

/// The faults of the settings, each looked at alone.
fn faults_of_settings(sources: &Figment) -> Vec<String> {
    let given: Dict = match sources.extract() {
        Ok(given) => given,
        Err(error) => return vec![explain(&error)],
    };
    let mut paths = Vec::new();
    leaves("", &Value::from(given), &mut paths);
    paths.into_iter().filter_map(|(path, value)| fault_of(sources, &path, value)).collect()
}

fn leaves(path: &str, value: &Value, into: &mut Vec<(String, Value)>) {
    match value {
        Value::Dict(_, members) if !members.is_empty() => {
            for (name, member) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(&path, member, into);
            }
        }
        value => into.push((path.to_owned(), value.clone())),
    }
}

fn fault_of(sources: &Figment, path: &str, value: Value) -> Option<String> {
    let alone = Figment::from(Serialized::defaults(Config::default())).merge(CommandLine::setting(path, value));
    let mut error = alone.extract::<Config>().err()?;
    // A value that a table lacks may stand in another setting of it.
    if matches!(error.kind, Kind::MissingField(_)) {
        return None;
    }
    error.metadata = sources.find_metadata(path).cloned();
    Some(explain(&error))
}
