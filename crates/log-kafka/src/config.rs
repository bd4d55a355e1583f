//! The settings as the engine uses them, checked.

use std::path::PathBuf;
use std::time::Duration;

use millstream_log::{Error, KafkaClusterConfig, LogConfig};

use crate::local_copies::CopyLimits;
use crate::security::{Security, invalid};

/// Longest prefix: what is left of a name in Kafka is enough for a topic of devices.
const PREFIX_MAX_CHARS: usize = 100;
/// Names by which Kafka, and the topics of other tenants, begin.
const TAKEN_PREFIXES: [&str; 3] = [".", "__", "_tenant."];

/// The cluster, and the limits of the engine.
#[derive(Debug)]
pub(crate) struct EngineConfig {
    pub(crate) brokers: Vec<String>,
    pub(crate) security: Security,
    pub(crate) prefix: String,
    pub(crate) replication_factor: i16,
    pub(crate) min_insync_replicas: i16,
    pub(crate) request_timeout: Duration,
    pub(crate) delivery_timeout: Duration,
    pub(crate) retry_backoff: Duration,
    pub(crate) session_timeout: Duration,
    pub(crate) batch_max_bytes: usize,
    pub(crate) pending_max_bytes: usize,
    /// Bytes of batches near the tails of all partitions that stay in memory for readers, shared equally.
    pub(crate) tail_bytes: usize,
    pub(crate) copies: CopyLimits,
    /// The directory of copies.
    pub(crate) copies_dir: PathBuf,
    /// The directory of all that is kept on this machine.
    pub(crate) local_dir: PathBuf,
    /// Rules for topics, whichever engine keeps them.
    pub(crate) of_log: LogConfig,
}

impl EngineConfig {
    /// # Errors
    /// [`Error::InvalidSetting`].
    pub(crate) fn new(config: LogConfig) -> Result<Self, Error> {
        let cluster = &config.kafka;
        check(cluster)?;
        let replicas = |count: u16| i16::try_from(count).unwrap_or(i16::MAX);
        Ok(Self {
            brokers: cluster.brokers.clone(),
            security: Security::of(cluster)?,
            prefix: cluster.prefix.clone(),
            replication_factor: replicas(cluster.replication_factor),
            min_insync_replicas: replicas(cluster.min_insync_replicas),
            request_timeout: Duration::from_millis(cluster.request_timeout_ms),
            delivery_timeout: Duration::from_millis(cluster.delivery_timeout_ms),
            retry_backoff: Duration::from_millis(cluster.retry_backoff_ms),
            session_timeout: Duration::from_millis(cluster.session_timeout_ms),
            batch_max_bytes: config.batch_max_bytes,
            pending_max_bytes: config.pending_max_bytes,
            tail_bytes: config.cache_bytes,
            copies: CopyLimits { max_bytes: cluster.copies_max_bytes, disk_free_min_bytes: config.disk_free_min_bytes },
            copies_dir: config.dir.with_file_name("log-copies"),
            local_dir: config.dir.parent().map(PathBuf::from).unwrap_or_default(),
            of_log: config,
        })
    }
}

fn check(cluster: &KafkaClusterConfig) -> Result<(), Error> {
    let KafkaClusterConfig { prefix, replication_factor, min_insync_replicas, .. } = cluster;
    let has_port = |broker: &String| {
        broker.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
    };
    if let Some(broker) = cluster.brokers.iter().find(|broker| !has_port(broker)) {
        return Err(invalid("log.kafka.brokers", broker, "each is host:port"));
    }
    if cluster.brokers.is_empty() {
        return Err(invalid("log.kafka.brokers", "[]", "name at least one broker as host:port"));
    }
    let is_legal = |char: char| char.is_ascii_alphanumeric() || "._-".contains(char);
    if prefix.len() > PREFIX_MAX_CHARS || !prefix.chars().all(is_legal) {
        let rule = "use at most 100 of a-z, A-Z, 0-9, '.', '_' and '-', such as 'plant-7.'";
        return Err(invalid("log.kafka.prefix", prefix, rule));
    }
    if TAKEN_PREFIXES.iter().any(|taken| prefix.starts_with(taken)) {
        return Err(invalid("log.kafka.prefix", prefix, "do not begin with '.', '__' or '_tenant.'"));
    }
    if !(1..=32).contains(replication_factor) {
        return Err(invalid("log.kafka.replication_factor", replication_factor, "use 1 to 32"));
    }
    if *min_insync_replicas == 0 || min_insync_replicas > replication_factor {
        let rule = "use 1 up to log.kafka.replication_factor";
        return Err(invalid("log.kafka.min_insync_replicas", min_insync_replicas, rule));
    }
    let times = [
        ("log.kafka.request_timeout_ms", cluster.request_timeout_ms, 100..=600_000, "use 100 to 600000"),
        (
            "log.kafka.delivery_timeout_ms",
            cluster.delivery_timeout_ms,
            cluster.request_timeout_ms..=3_600_000,
            "use log.kafka.request_timeout_ms up to 3600000",
        ),
        ("log.kafka.retry_backoff_ms", cluster.retry_backoff_ms, 1..=60_000, "use 1 to 60000"),
        ("log.kafka.session_timeout_ms", cluster.session_timeout_ms, 1_000..=600_000, "use 1000 to 600000"),
    ];
    match times.into_iter().find(|(_, value, range, _)| !range.contains(value)) {
        Some((setting, value, _, rule)) => Err(invalid(setting, value, rule)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_setting_that_is_no_good_is_named_with_its_rule() {
        type Change = fn(&mut KafkaClusterConfig);
        let table: [(Change, &str); 15] = [
            (|c| c.brokers.clear(), "log.kafka.brokers = []"),
            (|c| c.brokers = vec!["kafka-1".to_owned()], "log.kafka.brokers = kafka-1: each is host:port"),
            (|c| c.brokers = vec![":9092".to_owned()], "log.kafka.brokers = :9092"),
            (|c| c.prefix = "a/b".to_owned(), "log.kafka.prefix = a/b"),
            (|c| c.prefix = "__x".to_owned(), "log.kafka.prefix = __x"),
            (|c| c.prefix = "x".repeat(101), "use at most 100"),
            (|c| c.replication_factor = 0, "log.kafka.replication_factor = 0"),
            (|c| c.min_insync_replicas = 4, "log.kafka.min_insync_replicas = 4"),
            (|c| c.request_timeout_ms = 5, "log.kafka.request_timeout_ms = 5"),
            (|c| c.delivery_timeout_ms = 3_999, "log.kafka.delivery_timeout_ms = 3999"),
            (|c| c.session_timeout_ms = 9, "log.kafka.session_timeout_ms = 9"),
            (|c| c.retry_backoff_ms = 0, "log.kafka.retry_backoff_ms = 0"),
            (|c| c.password = Some("secret".to_owned()), "log.kafka.user"),
            (|c| c.tls_key = Some(PathBuf::from("key.pem")), "log.kafka.tls_key = key.pem"),
            (|c| c.tls_authorities = Some(PathBuf::from("ca.pem")), "log.kafka.tls = true"),
        ];
        let good = KafkaClusterConfig { brokers: vec!["kafka-1:9092".to_owned()], ..KafkaClusterConfig::default() };
        EngineConfig::new(LogConfig { kafka: good.clone(), ..LogConfig::default() }).unwrap();
        for (change, expected) in table {
            let mut kafka = good.clone();
            change(&mut kafka);
            let refusal = EngineConfig::new(LogConfig { kafka, ..LogConfig::default() }).unwrap_err().to_string();
            assert!(refusal.contains(expected) && !refusal.contains("secret"), "{refusal}");
        }
    }
}
