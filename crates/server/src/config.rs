//! The configuration: one typed tree, from defaults, file, environment and flags, in this order of increasing weight.
//!
//! Each crate owns its part; this file composes them. Unknown keys are refused and the nearest known one is named.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use figment::error::Kind;
use figment::providers::{Env, Format as _, Serialized, Toml};
use figment::value::{Dict, Value};
use figment::{Figment, Profile, Provider};
use millstream_types::{Grant, MemoryBudget};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The file that is read if it is there and `--config` names no other.
pub(crate) const DEFAULT_FILE: &str = "millstream.toml";
/// `MILLSTREAM__LOG__SYNC_INTERVAL_MS` is `log.sync_interval_ms`.
pub(crate) const ENVIRONMENT_PREFIX: &str = "MILLSTREAM__";
/// Keys whose values are never shown.
const SECRET_KEYS: [&str; 2] = ["token", "secret"];

/// All settings.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Directory of everything that is kept. Default `data`.
    pub(crate) data_dir: PathBuf,
    /// Where Millstream listens.
    pub(crate) listen: Listen,
    /// Who may call the applications' listener.
    pub(crate) applications: Applications,
    /// What connections to any HTTP listener may cost.
    pub(crate) http: millstream_http::ListenerLimits,
    /// Memory.
    pub(crate) memory: Memory,
    /// Threads.
    pub(crate) threads: Threads,
    /// What is written to standard error.
    pub(crate) logging: Logging,
    /// How long a shutdown waits for running requests, in milliseconds. Default 5,000.
    pub(crate) shutdown_timeout_ms: u64,
    /// The log.
    pub(crate) log: millstream_log::LogConfig,
    /// Devices.
    pub(crate) connect: millstream_connect::ConnectConfig,
    /// Entities.
    pub(crate) context: millstream_context::ContextConfig,
    /// What entities were over time.
    pub(crate) history: millstream_history::HistoryConfig,
    /// Live queries.
    pub(crate) query: millstream_query::Config,
    /// Clients that speak Kafka's protocol.
    pub(crate) kafka: millstream_kafka::KafkaConfig,
    /// How fast clients and tenants may write to the log and read from it.
    pub(crate) quota: millstream_types::QuotaConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("data"),
            listen: Listen::default(),
            applications: Applications::default(),
            http: millstream_http::ListenerLimits::default(),
            memory: Memory::default(),
            threads: Threads::default(),
            logging: Logging::default(),
            shutdown_timeout_ms: 5_000,
            log: millstream_log::LogConfig::default(),
            connect: millstream_connect::ConnectConfig::default(),
            context: millstream_context::ContextConfig::default(),
            history: millstream_history::HistoryConfig::default(),
            query: millstream_query::Config::default(),
            kafka: millstream_kafka::KafkaConfig::default(),
            quota: millstream_types::QuotaConfig::default(),
        }
    }
}

/// The listeners.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Listen {
    /// Console, registry, entities, queries, metrics: HOST:PORT or `off`. Default 127.0.0.1:8000.
    pub(crate) applications: Door,
    /// Devices over HTTP: HOST:PORT or `off`. Default 127.0.0.1:8080.
    pub(crate) devices_http: Door,
    /// Devices over MQTT: HOST:PORT or `off`. Default 127.0.0.1:1883.
    pub(crate) devices_mqtt: Door,
    /// Clients of the log that speak Kafka's protocol: HOST:PORT or `off`. Default 127.0.0.1:9092.
    pub(crate) kafka: Door,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            applications: Door::loopback(8000),
            devices_http: Door::loopback(8080),
            devices_mqtt: Door::loopback(1883),
            kafka: Door::loopback(9092),
        }
    }
}

/// An address to listen on, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// Nothing listens.
    Off,
    /// Listens here; port 0 takes a free one.
    At(SocketAddr),
}

impl Door {
    fn loopback(port: u16) -> Self {
        Self::At(SocketAddr::from(([127, 0, 0, 1], port)))
    }
}

impl std::str::FromStr for Door {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let address = text.replace("localhost:", "127.0.0.1:");
        address
            .parse()
            .map(Self::At)
            .map_err(|_| format!("'{text}' is no address: use HOST:PORT, such as 127.0.0.1:8000, or off"))
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

impl Serialize for Door {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Door {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Who may call the applications' listener.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Applications {
    /// API tokens. Without any, everybody may call, on loopback only. Clients that speak Kafka's protocol log in with a
    /// token's name and its secret. Default none.
    pub(crate) tokens: Vec<millstream_http::ApiToken>,
}

/// Memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Memory {
    /// Bytes that queues, caches, connections, request bodies and answers may hold together. The log, its topics in memory
    /// and the views have theirs set aside for them at start; connections, bodies, answers and the rows of live queries
    /// draw on the rest. Entities, devices and keys come on top: they are data. Default 2 GiB.
    pub(crate) budget_bytes: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Self { budget_bytes: 2 << 30 }
    }
}

/// Threads.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Threads {
    /// Threads that own state; 0 takes as many as cores. Default 0.
    pub(crate) shards: usize,
    /// Threads that serve sockets; 0 takes as many as cores. Default 0.
    pub(crate) rim: usize,
}

/// What is written to standard error.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Logging {
    /// `text` or `json`. Default text.
    pub(crate) format: LogFormat,
    /// A level (`error`, `warn`, `info`, `debug`, `trace`), or levels per module. Default `info`.
    pub(crate) level: String,
}

impl Default for Logging {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned() }
    }
}

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Settings given on the command line, the weightiest source.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Flags {
    /// Configuration file [default: millstream.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Directory of everything that is kept [default: data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Listener of applications and console, or off [default: 127.0.0.1:8000]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen_applications: Option<Door>,
    /// Listener of devices over HTTP, or off [default: 127.0.0.1:8080]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen_devices_http: Option<Door>,
    /// Listener of devices over MQTT, or off [default: 127.0.0.1:1883]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen_devices_mqtt: Option<Door>,
    /// Listener of Kafka clients, or off [default: 127.0.0.1:9092]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen_kafka: Option<Door>,
    /// Any setting, such as --set log.sync_interval_ms=20; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
}

/// The settings in force and where each came from.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    sources: Figment,
}

/// Reads all sources.
pub(crate) fn load(flags: &Flags) -> anyhow::Result<Loaded> {
    let mut sources = Figment::from(Serialized::defaults(Config::default()));
    match &flags.config {
        Some(path) if !path.is_file() => bail!("configuration file {} is not there; correct --config", path.display()),
        Some(path) => sources = sources.merge(Toml::file_exact(path)),
        None if Path::new(DEFAULT_FILE).is_file() => sources = sources.merge(Toml::file_exact(DEFAULT_FILE)),
        None => {}
    }
    let sources =
        sources.merge(Env::prefixed(ENVIRONMENT_PREFIX).split("__")).merge(CommandLine(flags_as_dict(flags)?));
    let mut config: Config = sources.extract().map_err(|e| anyhow::anyhow!(explain(&e)))?;
    config.limit_waits();
    let loaded = Loaded { config, sources };
    loaded.config.memory_budget()?;
    loaded.config.quota.validate().map_err(anyhow::Error::msg)?;
    Ok(loaded)
}

/// The flags as a source with a name of its own.
struct CommandLine(Dict);

impl Provider for CommandLine {
    fn metadata(&self) -> figment::Metadata {
        figment::Metadata::named("command line")
    }

    fn data(&self) -> figment::Result<figment::value::Map<Profile, Dict>> {
        Ok([(Profile::Default, self.0.clone())].into())
    }
}

fn flags_as_dict(flags: &Flags) -> anyhow::Result<Dict> {
    let mut all = Dict::new();
    let named = [
        ("data_dir", flags.data_dir.as_deref().map(Path::display).map(|path| path.to_string())),
        ("listen.applications", flags.listen_applications.map(|door| door.to_string())),
        ("listen.devices_http", flags.listen_devices_http.map(|door| door.to_string())),
        ("listen.devices_mqtt", flags.listen_devices_mqtt.map(|door| door.to_string())),
        ("listen.kafka", flags.listen_kafka.map(|door| door.to_string())),
    ];
    for (key, value) in named {
        if let Some(value) = value {
            insert(&mut all, key, Value::from(value));
        }
    }
    for setting in &flags.settings {
        let (key, value) = setting
            .split_once('=')
            .with_context(|| format!("--set {setting}: use KEY=VALUE, such as log.sync_interval_ms=20"))?;
        let Ok(value) = value.parse::<Value>();
        insert(&mut all, key, value);
    }
    Ok(all)
}

fn insert(into: &mut Dict, key: &str, value: Value) {
    match key.split_once('.') {
        None => drop(into.insert(key.to_owned(), value)),
        Some((first, rest)) => {
            let inner = into.entry(first.to_owned()).or_insert_with(|| Value::from(Dict::new()));
            if let Value::Dict(_, inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

/// The first problem, as a person needs it: key, value, rule, and where it was set.
fn explain(error: &figment::Error) -> String {
    let origin = error.metadata.as_ref().map_or_else(|| "the configuration".to_owned(), origin_of);
    let path = error.path.join(".");
    match &error.kind {
        Kind::UnknownField(name, known) => {
            let whole = match path.as_str() {
                "" => name.clone(),
                path if path == name || path.ends_with(&format!(".{name}")) => path.to_owned(),
                path => format!("{path}.{name}"),
            };
            let nearest = known.iter().min_by_key(|candidate| distance(candidate, name));
            let advice = nearest.map_or_else(String::new, |nearest| format!("; did you mean '{nearest}'?"));
            format!("'{whole}' in {origin} is no setting{advice} ('millstream config show' lists all)")
        }
        kind => format!("setting '{path}' in {origin}: {kind}"),
    }
}

/// Edits between two names (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let substitute = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn origin_of(metadata: &figment::Metadata) -> String {
    match &metadata.source {
        Some(figment::Source::File(path)) => path.display().to_string(),
        Some(figment::Source::Code(_)) | None if metadata.name.contains("environment") => "environment".to_owned(),
        Some(figment::Source::Code(_)) => "default".to_owned(),
        _ => metadata.name.to_string(),
    }
}

impl Config {
    /// Every queue and cache whose bytes are set aside at start, so that what was accepted never lacks them.
    fn set_aside(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("log.pending_max_bytes", self.log.pending_max_bytes as u64),
            ("log.journal_max_bytes", self.log.journal_max_bytes),
            ("log.cache_bytes", self.log.cache_bytes as u64),
            ("log.memory_topics_max_bytes", self.log.memory_topics_max_bytes as u64),
            ("log.compaction_map_bytes", self.log.compaction_map_bytes as u64),
            ("connect.registry_dirty_max_bytes", self.connect.registry_dirty_max_bytes as u64),
            ("connect.registry_inbox_max_bytes", self.connect.registry_inbox_max_bytes as u64),
            // Each thread that hashes keeps what it works in.
            ("connect.hashing_memory_kib", self.connect.hashing_max_bytes()),
            ("connect.usage_notes_max_bytes", self.connect.usage_notes_max_bytes as u64),
            ("connect.mqtt.presence_max_bytes", self.connect.mqtt.presence_max_bytes as u64),
            ("connect.commands.state_dirty_max_bytes", self.connect.commands.state_dirty_max_bytes as u64),
            ("connect.commands.state_inbox_max_bytes", self.connect.commands.state_inbox_max_bytes as u64),
            ("context.dirty_max_bytes", self.context.dirty_max_bytes as u64),
            ("context.inbox_max_bytes", self.context.inbox_max_bytes as u64),
            ("history.recent_max_bytes", self.history.recent_max_bytes as u64),
            ("history.index_cache_bytes", self.history.index_cache_bytes as u64),
            ("kafka.requests_max_bytes", self.kafka_requests_max_bytes()),
        ]
    }

    /// Whoever waits for a command is answered well before a connection would count as idle.
    fn limit_waits(&mut self) {
        let share_s = u32::try_from(self.http.idle_timeout_ms.saturating_mul(4) / 5_000).unwrap_or(u32::MAX).max(1);
        let ttd_max_s = &mut self.connect.http.ttd_max_s;
        *ttd_max_s = share_s.min(*ttd_max_s);
    }

    fn kafka_requests_max_bytes(&self) -> u64 {
        if self.listen.kafka == Door::Off { 0 } else { self.kafka.requests_max_bytes as u64 }
    }

    /// The budget, and what is set aside of it for as long as the server runs.
    pub(crate) fn memory_budget(&self) -> anyhow::Result<(MemoryBudget, Vec<Grant>)> {
        let budget = MemoryBudget::new("memory.budget_bytes", self.memory.budget_bytes);
        let parts = self.set_aside();
        let Some(grants) = parts.iter().map(|(_, bytes)| budget.take(*bytes)).collect() else {
            let list: Vec<String> = parts.iter().map(|(key, bytes)| format!("{key} = {bytes}")).collect();
            bail!(
                "{} = {} is too little for what is set aside at start ({}); lower one or raise the budget",
                budget.setting(),
                budget.limit_bytes(),
                list.join(", ")
            );
        };
        Ok((budget, grants))
    }
}

impl Loaded {
    /// Every setting, its value and where it came from, one a line.
    pub(crate) fn show(&self) -> anyhow::Result<String> {
        let mut lines = Vec::new();
        self.walk("", &Value::serialize(&self.config)?, &mut lines);
        let width = lines.iter().map(|(setting, _)| setting.len()).max().unwrap_or_default();
        Ok(lines.into_iter().map(|(setting, origin)| format!("{setting:width$}  # {origin}\n")).collect())
    }

    fn walk(&self, path: &str, value: &Value, lines: &mut Vec<(String, String)>) {
        if let Value::Dict(_, members) = value
            && !members.is_empty()
        {
            for (name, member) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                self.walk(&path, member, lines);
            }
            return;
        }
        let origin = self.sources.find_metadata(path).map_or_else(|| "default".to_owned(), origin_of);
        lines.push((format!("{path} = {}", render(value)), origin));
    }
}

/// A value as TOML writes it, secrets masked.
fn render(value: &Value) -> String {
    match value {
        Value::String(_, text) => format!("{text:?}"),
        Value::Char(_, c) => format!("{:?}", c.to_string()),
        Value::Bool(_, b) => b.to_string(),
        Value::Num(_, number) => match (number.to_i128(), number.to_u128(), number.to_f64()) {
            (Some(n), _, _) => n.to_string(),
            (None, Some(n), _) => n.to_string(),
            (None, None, Some(n)) => n.to_string(),
            (None, None, None) => "0".to_owned(),
        },
        Value::Empty(..) => "none".to_owned(),
        Value::Array(_, items) => format!("[{}]", items.iter().map(render).collect::<Vec<_>>().join(", ")),
        Value::Dict(_, members) if members.is_empty() => "{}".to_owned(),
        Value::Dict(_, members) => {
            let members = members.iter().map(|(name, value)| {
                let shown = if SECRET_KEYS.contains(&name.as_str()) { "\"***\"".to_owned() } else { render(value) };
                format!("{name} = {shown}")
            });
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_a_command_ends_before_four_fifths_of_the_idle_timeout() {
        for (idle_timeout_ms, ttd_max_s) in [(75_000, 60), (10_000, 8), (600_000, 60), (500, 1)] {
            let mut config = Config::default();
            config.http.idle_timeout_ms = idle_timeout_ms;
            config.limit_waits();
            assert_eq!(config.connect.http.ttd_max_s, ttd_max_s, "{idle_timeout_ms}");
        }
    }
}
