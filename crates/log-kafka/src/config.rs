//! The configuration of the engine.

use std::time::Duration;

use crate::KafkaSecurity;

/// The cluster, and the limits of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaConfig {
    /// Addresses (`host:port`) of brokers by which the others are found.
    pub brokers: Vec<String>,
    /// The way to the brokers. Default: neither TLS nor a login.
    pub security: KafkaSecurity,
    /// Beginning of the transactional ids of this installation. Others in the same cluster have another one. Default `millstream.`
    pub transactional_id_prefix: String,
    /// Replicas of each topic that is created. Default 3.
    pub replication_factor: i16,
    /// Replicas that must have a record before it is acknowledged. Default 2.
    pub min_insync_replicas: i16,
    /// Time after which a request without an answer is given up. Default 4 s.
    pub request_timeout: Duration,
    /// Time after which an append or another call that does not succeed is given up. Default 30 s.
    pub delivery_timeout: Duration,
    /// Pause before a request is repeated. Default 10 ms.
    pub retry_backoff: Duration,
    /// Size at which a batch is sealed and the next begun, in bytes. Default 1 MiB.
    pub batch_max_bytes: usize,
    /// Bytes accepted and not yet acknowledged, over all partitions; further appends are refused as overloaded.
    /// Default 64 MiB.
    pub pending_max_bytes: usize,
    /// Bytes of batches near the tails of all partitions that stay in memory for readers, shared equally. Default 64 MiB.
    pub tail_bytes: usize,
}

impl Default for KafkaConfig {
    fn default() -> Self {
        Self {
            brokers: Vec::new(),
            security: KafkaSecurity::default(),
            transactional_id_prefix: "millstream.".to_owned(),
            replication_factor: 3,
            min_insync_replicas: 2,
            request_timeout: Duration::from_secs(4),
            delivery_timeout: Duration::from_secs(30),
            retry_backoff: Duration::from_millis(10),
            batch_max_bytes: 1 << 20,
            pending_max_bytes: 64 << 20,
            tail_bytes: 64 << 20,
        }
    }
}
