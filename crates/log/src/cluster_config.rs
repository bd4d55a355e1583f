//! The settings of a log that Apache Kafka keeps.

use std::path::PathBuf;

use millstream_types::LoginMechanism;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The engine that keeps the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogEngine {
    /// The built-in one, on the disk of this machine.
    #[default]
    Embedded,
    /// Apache Kafka: [`KafkaClusterConfig`].
    Kafka,
}

/// The cluster that keeps the log.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaClusterConfig {
    /// Addresses (`host:port`) of brokers by which the others are found. Default none.
    pub brokers: Vec<String>,
    /// Beginning of the names of all topics and transactional ids of this installation, for a cluster that others use too.
    /// Processes with the same brokers and prefix are one installation: one of them works, and another one takes over. Default none.
    pub prefix: String,
    /// `true` connects with TLS. Default false.
    pub tls: bool,
    /// Certificates in PEM of the authorities that are trusted; without it those of the system. Default none.
    pub tls_authorities: Option<PathBuf>,
    /// This client's certificate with its chain in PEM, for brokers that ask for one. Default none.
    pub tls_certificate: Option<PathBuf>,
    /// The private key of that certificate, in PEM. Default none.
    pub tls_key: Option<PathBuf>,
    /// The way in which the password is proven: `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`. Default SCRAM-SHA-512.
    pub sasl_mechanism: LoginMechanism,
    /// The user that logs in; without it there is no login. Default none.
    pub user: Option<String>,
    /// The password of that user. Default none.
    pub password: Option<String>,
    /// Replicas of each topic that is created. Default 3.
    pub replication_factor: u16,
    /// Replicas that must have a record before it is acknowledged. Default 2.
    pub min_insync_replicas: u16,
    /// Time after which a request without an answer is given up, in milliseconds. Default 4,000.
    pub request_timeout_ms: u64,
    /// Time after which an append or another call that does not succeed is given up, in milliseconds. Default 30,000.
    pub delivery_timeout_ms: u64,
    /// Pause before a request is repeated, in milliseconds. Default 10.
    pub retry_backoff_ms: u64,
    /// Time without a sign of the process that works after which another one takes over, in milliseconds. Default 6,000.
    pub session_timeout_ms: u64,
    /// Bytes of copies on the disk of this machine, from which values of the store are read; beyond it the oldest go. With 0 values that
    /// are not in memory are read from Kafka. Default 8 GiB.
    pub copies_max_bytes: u64,
}

impl Default for KafkaClusterConfig {
    fn default() -> Self {
        Self {
            brokers: Vec::new(),
            prefix: String::new(),
            tls: false,
            tls_authorities: None,
            tls_certificate: None,
            tls_key: None,
            sasl_mechanism: LoginMechanism::default(),
            user: None,
            password: None,
            replication_factor: 3,
            min_insync_replicas: 2,
            request_timeout_ms: 4_000,
            delivery_timeout_ms: 30_000,
            retry_backoff_ms: 10,
            session_timeout_ms: 6_000,
            copies_max_bytes: 8 << 30,
        }
    }
}

/// All but the password.
impl std::fmt::Debug for KafkaClusterConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KafkaClusterConfig({}, prefix {:?})", self.brokers.join(", "), self.prefix)
    }
}
