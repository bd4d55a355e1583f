//! The configuration: one typed tree. Defaults are overridden by the file, the file by the environment, and that by flags.
//!
//! Each crate owns its part; this file composes them. Unknown keys are refused and the nearest known one is named.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use figment::error::Kind;
use figment::providers::{Env, Format as _, Serialized, Toml};
use figment::value::{Dict, Value};
use figment::{Figment, Profile, Provider};
use millstream_log::LogEngine;
use millstream_types::{Grant, MemoryBudget};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::listen::{Door, Listen};
use crate::oidc::OidcConfig;

/// The configuration file that is read if it exists and `--config` is not given.
pub(crate) const DEFAULT_FILE: &str = "millstream.toml";
/// `MILLSTREAM__LOG__SYNC_INTERVAL_MS` is `log.sync_interval_ms`.
pub(crate) const ENVIRONMENT_PREFIX: &str = "MILLSTREAM__";

/// All settings of the server.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Directory that holds all data. Default `data`.
    pub(crate) data_dir: PathBuf,
    /// The listeners of the server.
    pub(crate) listen: Listen,
    /// Certificates and rules of the addresses with TLS.
    pub(crate) tls: millstream_net::TlsConfig,
    /// Rules for callers of the applications' listener.
    pub(crate) applications: Applications,
    /// An OpenID Connect provider whose access tokens log applications and people in.
    pub(crate) oidc: OidcConfig,
    /// Limits of connections to any HTTP listener.
    pub(crate) http: millstream_http::ListenerLimits,
    /// Limits of the server's memory.
    pub(crate) memory: Memory,
    /// Numbers of threads for each purpose.
    pub(crate) threads: Threads,
    /// Format and level of the log lines on standard error.
    pub(crate) logging: Logging,
    /// Time that a stop waits for others, in milliseconds: for running requests, clients that take their last answer, and
    /// receivers of notifications and jobs. What is left is cut off. Nothing accepted is lost by that; jobs and durable
    /// notifications send again. Default 1,000.
    pub(crate) shutdown_timeout_ms: u64,
    /// Settings of the log.
    pub(crate) log: millstream_log::LogConfig,
    /// Settings of the connections of devices.
    pub(crate) connect: millstream_connect::ConnectConfig,
    /// Settings of entities and their subscriptions.
    pub(crate) context: millstream_context::ContextConfig,
    /// Settings of the history of entities.
    pub(crate) history: millstream_history::HistoryConfig,
    /// Settings of live queries on streams.
    pub(crate) query: millstream_query::Config,
    /// Settings of the jobs on streams.
    pub(crate) flow: millstream_flow::FlowConfig,
    /// Settings of the store of keys.
    pub(crate) store: millstream_store::StoreConfig,
    /// Clients that speak Kafka's protocol.
    pub(crate) kafka: millstream_kafka::KafkaConfig,
    /// Rates at which clients and tenants may write to the log and read from it.
    pub(crate) quota: millstream_types::QuotaConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("data"),
            listen: Listen::default(),
            tls: millstream_net::TlsConfig::default(),
            applications: Applications::default(),
            oidc: OidcConfig::default(),
            http: millstream_http::ListenerLimits::default(),
            memory: Memory::default(),
            threads: Threads::default(),
            logging: Logging::default(),
            shutdown_timeout_ms: 1_000,
            log: millstream_log::LogConfig::default(),
            connect: millstream_connect::ConnectConfig::default(),
            context: millstream_context::ContextConfig::default(),
            history: millstream_history::HistoryConfig::default(),
            query: millstream_query::Config::default(),
            flow: millstream_flow::FlowConfig::default(),
            store: millstream_store::StoreConfig::default(),
            kafka: millstream_kafka::KafkaConfig::default(),
            quota: millstream_types::QuotaConfig::default(),
        }
    }
}

/// Rules for callers of the applications' listener.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Applications {
    /// API tokens, beside those that are made while the server runs. Without any, only programs on this machine may call,
    /// and they need no token. Kafka clients log in with a token's name and secret. Default none.
    pub(crate) tokens: Vec<millstream_http::ApiToken>,
    /// Host names, without port, under which programs and browsers may call while there are no tokens,
    /// beside `localhost` and IP addresses. Other names are refused because a web page could make its own
    /// name mean 127.0.0.1. Default none.
    pub(crate) hosts: Vec<String>,
    /// Days that events of the audit trail are kept, in the topic `_audit`; at least 1. Default 90.
    pub(crate) audit_retention_days: u16,
}

impl Default for Applications {
    fn default() -> Self {
        Self { tokens: Vec::new(), hosts: Vec::new(), audit_retention_days: 90 }
    }
}

/// Limits of the server's memory.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Memory {
    /// Bytes of memory for queues, caches, connections, request bodies and answers together. The shares of the log, its
    /// topics in memory and the views are reserved at start; connections, bodies, answers and rows of live queries share
    /// the remainder. Entities, devices and keys are data and come on top. Raise it where requests are refused for lack
    /// of memory. Default 2 GiB.
    pub(crate) budget_bytes: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Self { budget_bytes: 2 << 30 }
    }
}

/// Numbers of threads for each purpose.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Threads {
    /// Threads that own state; 0 takes as many as cores. Default 0.
    pub(crate) shards: usize,
    /// Threads that serve sockets; 0 takes as many as cores. Default 0.
    pub(crate) io: usize,
}

/// Format and level of the log lines on standard error.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
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

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Text for people to read.
    Text,
    /// One JSON object a line.
    Json,
}

/// Settings given on the command line; they override all others.
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
    /// Listener of Redis clients, or off [default: 127.0.0.1:6379]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen_redis: Option<Door>,
    /// Listener of applications over AMQP 1.0, or off [default: off]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen_amqp: Option<Door>,
    /// Listener of applications and console with TLS, or off [default: off]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen_applications_tls: Option<Door>,
    /// Listener of devices over HTTP with TLS, or off [default: off]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen_devices_http_tls: Option<Door>,
    /// Listener of devices over MQTT with TLS, or off [default: off]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen_devices_mqtt_tls: Option<Door>,
    /// Listener of Kafka clients with TLS, or off [default: off]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen_kafka_tls: Option<Door>,
    /// Listener of Redis clients with TLS, or off [default: off]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen_redis_tls: Option<Door>,
    /// Listener of applications over AMQP 1.0 with TLS, or off [default: off]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen_amqp_tls: Option<Door>,
    /// The server's certificate for TLS, in PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The private key of that certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Any setting, such as --set log.sync_interval_ms=20; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
}

/// The effective settings and the source of each.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) sources: Figment,
}

/// Reads the settings from all sources and checks them.
pub(crate) fn load(flags: &Flags) -> anyhow::Result<Loaded> {
    let loaded = Loaded::of(read_sources(flags)?)?;
    loaded.config.memory_budget()?;
    loaded.config.quota.validate().map_err(anyhow::Error::msg)?;
    loaded.config.oidc.validate()?;
    Ok(loaded)
}

/// Reads all sources of settings.
pub(crate) fn read_sources(flags: &Flags) -> anyhow::Result<Figment> {
    let mut sources = Figment::from(Serialized::defaults(Config::default()));
    match &flags.config {
        Some(path) => sources = sources.merge(readable_toml(path)?),
        None if Path::new(DEFAULT_FILE).is_file() => sources = sources.merge(readable_toml(Path::new(DEFAULT_FILE))?),
        None => {}
    }
    Ok(sources.merge(Env::prefixed(ENVIRONMENT_PREFIX).split("__")).merge(CommandLine(flags_as_dict(flags)?)))
}

impl Loaded {
    /// Reads the settings that the sources give; rules that join several are not checked.
    pub(crate) fn of(sources: Figment) -> anyhow::Result<Self> {
        let mut config: Config = sources.extract().map_err(|e| anyhow::anyhow!(explain(&e)))?;
        config.limit_waits();
        Ok(Self { config, sources })
    }
}

/// A configuration file that can be read as text.
fn readable_toml(path: &Path) -> anyhow::Result<figment::providers::Data<Toml>> {
    if path.is_dir() {
        bail!("configuration file {} is a directory; name a file with --config", path.display());
    }
    if let Err(cause) = std::fs::read_to_string(path) {
        bail!("configuration file {} cannot be read: {cause}; correct --config or the file", path.display());
    }
    Ok(Toml::file_exact(path))
}

/// Names the flags as the source of their settings.
pub(crate) struct CommandLine(Dict);

impl CommandLine {
    /// One setting, and nothing else.
    pub(crate) fn setting(path: &str, value: Value) -> Self {
        let mut all = Dict::new();
        insert(&mut all, path, value);
        Self(all)
    }
}

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
    let path = |path: &Option<PathBuf>| path.as_deref().map(|path| path.display().to_string());
    let door = |door: Option<Door>| door.map(|door| door.to_string());
    let named = [
        ("data_dir", path(&flags.data_dir)),
        ("listen.applications", door(flags.listen_applications)),
        ("listen.devices_http", door(flags.listen_devices_http)),
        ("listen.devices_mqtt", door(flags.listen_devices_mqtt)),
        ("listen.kafka", door(flags.listen_kafka)),
        ("listen.redis", door(flags.listen_redis)),
        ("listen.amqp", door(flags.listen_amqp)),
        ("listen.applications_tls", door(flags.listen_applications_tls)),
        ("listen.devices_http_tls", door(flags.listen_devices_http_tls)),
        ("listen.devices_mqtt_tls", door(flags.listen_devices_mqtt_tls)),
        ("listen.kafka_tls", door(flags.listen_kafka_tls)),
        ("listen.redis_tls", door(flags.listen_redis_tls)),
        ("listen.amqp_tls", door(flags.listen_amqp_tls)),
        ("tls.certificate", path(&flags.tls_certificate)),
        ("tls.key", path(&flags.tls_key)),
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

/// Describes the first problem: key, value, rule, and the source that sets it.
pub(crate) fn explain(error: &figment::Error) -> String {
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
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            format!(
                "setting '{path}' in {origin}{}: {} was expected, found {found}",
                line_of(error),
                in_words(expected)
            )
        }
        Kind::Message(reason) if path.is_empty() => {
            format!("{origin} is not a configuration in TOML: {}", reason.trim_end())
        }
        kind => format!("setting '{path}' in {origin}{}: {kind}", line_of(error)),
    }
}

/// Replaces Serde's and Rust's names of types by plain words.
fn in_words(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" | "bool" => "true or false",
        "a string" | "string" | "path string" => "a text in quotes",
        "a sequence" => "a list in [ ]",
        other => other,
    }
}

/// `, line N` for the line of the file that sets the key; empty if the line is not found.
fn line_of(error: &figment::Error) -> String {
    let file = match error.metadata.as_ref().and_then(|metadata| metadata.source.as_ref()) {
        Some(figment::Source::File(path)) => std::fs::read_to_string(path).ok(),
        _ => None,
    };
    let line = file.and_then(|text| line_that_sets(&text, &error.path));
    line.map_or_else(String::new, |line| format!(", line {line}"))
}

/// The number, from 1, of the first line of a TOML text that sets the key at `path`.
fn line_that_sets(text: &str, path: &[String]) -> Option<usize> {
    let wanted = path.join(".");
    let mut table = String::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').filter(|_| !line.starts_with("[[")) {
            table = name.split(']').next().unwrap_or_default().trim().to_owned() + ".";
        } else if let Some((key, _)) = line.split_once('=')
            && format!("{table}{}", key.trim()) == wanted
        {
            return Some(at + 1);
        }
    }
    None
}

/// The Levenshtein distance of two names.
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

pub(crate) fn origin_of(metadata: &figment::Metadata) -> String {
    match &metadata.source {
        Some(figment::Source::File(path)) => path.display().to_string(),
        Some(figment::Source::Code(_)) | None if metadata.name.contains("environment") => "environment".to_owned(),
        Some(figment::Source::Code(_)) => "default".to_owned(),
        _ => metadata.name.to_string(),
    }
}

impl Config {
    /// The queues and caches whose bytes are reserved at start, so that accepted data always finds room in them.
    fn set_aside(&self) -> Vec<(&'static str, u64)> {
        let of_embedded = |bytes: u64| if self.log.engine == LogEngine::Embedded { bytes } else { 0 };
        vec![
            ("log.pending_max_bytes", self.log.pending_max_bytes as u64),
            ("log.journal_max_bytes", of_embedded(self.log.journal_max_bytes)),
            ("log.cache_bytes", self.log.cache_bytes as u64),
            ("log.memory_topics_max_bytes", of_embedded(self.log.memory_topics_max_bytes as u64)),
            ("log.compaction_map_bytes", of_embedded(self.log.compaction_map_bytes as u64)),
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
            ("store.dirty_max_bytes", self.store.dirty_max_bytes as u64),
            ("store.inbox_max_bytes", self.store.inbox_max_bytes as u64),
            ("history.recent_max_bytes", self.history.recent_max_bytes as u64),
            ("history.index_cache_bytes", self.history.index_cache_bytes as u64),
            ("kafka.requests_max_bytes", of_embedded(self.kafka_requests_max_bytes())),
        ]
    }

    /// Limits the time that devices wait for a command, so that the answer comes before their connection counts as idle.
    fn limit_waits(&mut self) {
        let share_s = u32::try_from(self.http.idle_timeout_ms.saturating_mul(4) / 5_000).unwrap_or(u32::MAX).max(1);
        let ttd_max_s = &mut self.connect.http.ttd_max_s;
        *ttd_max_s = share_s.min(*ttd_max_s);
    }

    fn kafka_requests_max_bytes(&self) -> u64 {
        if self.listen.kafka == Door::Off && self.listen.kafka_tls == Door::Off {
            0
        } else {
            self.kafka.requests_max_bytes as u64
        }
    }

    /// The memory budget, and its reserved parts, which are held as long as the server runs.
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

    #[test]
    fn an_error_in_a_file_names_file_line_key_and_expected_value() {
        let dir = tempfile::tempdir().unwrap();
        let rows: [(&str, &[&str]); 7] = [
            (
                "[log]\n\nsync_interval_ms = \"soon\"\n",
                &["log.sync_interval_ms", "line 3", "a whole number of 0 or more", "soon"],
            ),
            (
                "[log]\nsync_interval_ms = -1\n",
                &["log.sync_interval_ms", "line 2", "a whole number of 0 or more", "-1"],
            ),
            ("[listen]\nkafka = 5\n", &["listen.kafka", "line 2", "a text in quotes", "5"]),
            ("[listen]\nkafka = \"nine\"\n", &["listen.kafka", "line 2", "HOST:PORT", "nine"]),
            ("[log]\nsync_intervall_ms = 1\n", &["log.sync_intervall_ms", "did you mean 'sync_interval_ms'"]),
            ("[log\n", &["is not a configuration in TOML", "line 1"]),
            ("[[applications.tokens]]\nname = \"a\"\n", &["applications.tokens.0", "token"]),
        ];
        for (text, expected) in rows {
            let path = dir.path().join("millstream.toml");
            std::fs::write(&path, text).unwrap();
            let flags = Flags { config: Some(path.clone()), ..Flags::default() };
            let error = load(&flags).unwrap_err().to_string();
            for part in expected.iter().chain([&path.to_str().unwrap()]) {
                assert!(error.contains(part), "{text}: {error:?} does not say {part:?}");
            }
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("binary.toml"), [0xff, 0xfe, 0x00]).unwrap();
        for (name, reason) in [("", "is a directory"), ("absent.toml", "No such file"), ("binary.toml", "UTF-8")] {
            let path = dir.path().join(name);
            let flags = Flags { config: Some(path.clone()), ..Flags::default() };
            let error = load(&flags).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(path.to_str().unwrap()), "{error}");
        }
    }
}
