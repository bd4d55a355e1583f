//! Limits and advertised address of the Kafka listener.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::namespace::check_device_prefix;

/// Most groups, and most transactional ids, that can be configured: each takes some 500 bytes of memory.
const COUNT_MAX: usize = 1_000_000;

/// The listener of Kafka clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaConfig {
    /// HOST:PORT at which clients are told to reach this broker. Set it behind a proxy or in a container. Default empty:
    /// the address to which each client has connected.
    pub advertised: String,
    /// The same for clients that have connected with TLS. Default empty: the server name that each client has asked for, or else
    /// the address to which it has connected.
    pub advertised_tls: String,
    /// Creates a topic that does not exist when a client asks for it, if the client allows that. Default true.
    pub auto_create_topics: bool,
    /// Prefix of the names of devices' topics (`telemetry.`, `event.`, `command.`, `command_response.`) for Kafka clients:
    /// with `hono.` they are called as in Eclipse Hono (`hono.telemetry.acme`). Default empty.
    pub device_topic_prefix: String,
    /// Connections at a time that have logged in, which tenants share; more are closed. At most a quarter of this number may be
    /// waiting for their login. Default 2,000.
    pub connections_max: usize,
    /// Time from the start of a connection to its login, where logins are required, in milliseconds. Default 10,000.
    pub login_timeout_ms: u64,
    /// Time after which a login must be repeated over the same connection, in milliseconds: Kafka's `connections.max.reauth.ms`.
    /// Clients do so by themselves; a connection that is used later without it is closed. A login with a token that expires lasts no
    /// longer than the token, whatever this says. 0 sets no limit. Default 0.
    pub connections_max_reauth_ms: u64,
    /// Time that a connection may stay open without a request, in milliseconds. Default 600,000.
    pub idle_timeout_ms: u64,
    /// Time that the remainder of a request may take to arrive, and that a client may leave its answer
    /// unread, in milliseconds. Default 30,000.
    pub request_timeout_ms: u64,
    /// Largest request, in bytes. Default 8 MiB.
    pub request_max_bytes: usize,
    /// Bytes of all requests that are being read or answered; while there is no room, sockets are not read. A tenant takes
    /// as much as it leaves free, so half of it if it is alone, and one connection at most an eighth, or one request of the
    /// largest size. Default 64 MiB.
    pub requests_max_bytes: usize,
    /// Requests of one connection that may be in progress; beyond it the connection is not read. Default 64.
    pub in_flight_max: usize,
    /// Largest sum of record bytes in one response, whatever the client allows; a single batch may exceed it. Default 8 MiB.
    pub fetch_max_bytes: usize,
    /// Largest replication factor and `min.insync.replicas` that clients may ask for, as programs for Kafka clusters do. A topic has one
    /// copy here whatever they ask for, and they are told 1. With 1 others are refused, as by a single Kafka broker. Default 3.
    pub replication_factor_max: u16,
    /// How far ahead of the server's clock the time of a record may be, in milliseconds; a batch with a later one is refused with
    /// `INVALID_TIMESTAMP`. Kafka's `log.message.timestamp.after.max.ms`, for all topics that keep the producer's time. 9223372036854775807
    /// is no limit. Default 3,600,000 (an hour).
    pub message_timestamp_after_max_ms: u64,
    /// Consumer groups of all tenants, with members or with committed positions only. A tenant begins no more of them than it leaves
    /// free, so half of them if it is alone. Default 20,000.
    pub groups_max: usize,
    /// Consumer groups of one tenant. For a further one the group without members that nobody has used for longest is
    /// forgotten with its positions; if all have members the new one is refused with `POLICY_VIOLATION`. Default 10,000.
    pub groups_per_tenant_max: usize,
    /// Time that the positions of a group are kept after its last member has left or the last position was committed without
    /// one, in minutes; looked for every ten minutes. Default 10,080 (seven days).
    pub offsets_retention_minutes: u32,
    /// Time after its last heartbeat at which a member that speaks the consumer protocol (`group.protocol=consumer`) is removed from
    /// its group, in milliseconds: Kafka's `group.consumer.session.timeout.ms`. Members with the classic protocol choose theirs. Default 45,000.
    pub group_consumer_session_timeout_ms: u32,
    /// Interval at which such members send heartbeats, and at which the topics are looked for that they subscribe to, in milliseconds:
    /// Kafka's `group.consumer.heartbeat.interval.ms`. Default 5,000.
    pub group_consumer_heartbeat_interval_ms: u32,
    /// Transactional ids of all tenants that are known at a time. A tenant begins no more of them than it leaves free, so half of them
    /// if it is alone. Default 20,000.
    pub transactional_ids_max: usize,
    /// Transactional ids of one tenant. For a further one the id without an open transaction that nobody has used for
    /// longest is forgotten; if all have one the new id is refused with `POLICY_VIOLATION`. Default 10,000.
    pub transactional_ids_per_tenant_max: usize,
    /// Time after which a transactional id that nobody uses is forgotten, in
    /// milliseconds. Default 604,800,000 (seven days).
    pub transactional_id_expiration_ms: u64,
    /// Partitions of one transaction, and positions of groups in it, each. Default 1,000.
    pub transaction_partitions_max: usize,
    /// Longest timeout that a transactional producer may ask for, in milliseconds; a producer that crashes can hold back
    /// readers with `read_committed` for that long. Default 900,000.
    pub transaction_timeout_max_ms: u32,
}

impl Default for KafkaConfig {
    fn default() -> Self {
        Self {
            advertised: String::new(),
            advertised_tls: String::new(),
            auto_create_topics: true,
            device_topic_prefix: String::new(),
            connections_max: 2_000,
            login_timeout_ms: 10_000,
            connections_max_reauth_ms: 0,
            idle_timeout_ms: 600_000,
            request_timeout_ms: 30_000,
            request_max_bytes: 8 << 20,
            requests_max_bytes: 64 << 20,
            in_flight_max: 64,
            fetch_max_bytes: 8 << 20,
            replication_factor_max: 3,
            message_timestamp_after_max_ms: 3_600_000,
            groups_max: 20_000,
            groups_per_tenant_max: 10_000,
            offsets_retention_minutes: 7 * 24 * 60,
            group_consumer_session_timeout_ms: 45_000,
            group_consumer_heartbeat_interval_ms: 5_000,
            transactional_ids_max: 20_000,
            transactional_ids_per_tenant_max: 10_000,
            transactional_id_expiration_ms: 7 * 24 * 3_600_000,
            transaction_partitions_max: 1_000,
            transaction_timeout_max_ms: 900_000,
        }
    }
}

impl KafkaConfig {
    /// Checks that the limits are consistent.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] names the setting, its value and the rule.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |setting, value: String, rule| Err(Error::InvalidSetting { setting, value, rule });
        if !(1024..=1 << 30).contains(&self.request_max_bytes) {
            return refuse("kafka.request_max_bytes", self.request_max_bytes.to_string(), "use 1024 to 1073741824");
        }
        if self.requests_max_bytes < self.request_max_bytes || self.requests_max_bytes > 1 << 34 {
            let rule = "use at least kafka.request_max_bytes, and at most 17179869184";
            return refuse("kafka.requests_max_bytes", self.requests_max_bytes.to_string(), rule);
        }
        if !(1..=10_000).contains(&self.in_flight_max) {
            return refuse("kafka.in_flight_max", self.in_flight_max.to_string(), "use 1 to 10000");
        }
        if self.login_timeout_ms == 0 {
            return refuse("kafka.login_timeout_ms", "0".to_owned(), "use at least 1");
        }
        let counts = [
            ("kafka.groups_max", self.groups_max),
            ("kafka.groups_per_tenant_max", self.groups_per_tenant_max),
            ("kafka.transactional_ids_max", self.transactional_ids_max),
            ("kafka.transactional_ids_per_tenant_max", self.transactional_ids_per_tenant_max),
        ];
        for (setting, count) in counts {
            if !(1..=COUNT_MAX).contains(&count) {
                return refuse(setting, count.to_string(), "use 1 to 1000000");
            }
        }
        if !(1..=i16::MAX.cast_unsigned()).contains(&self.replication_factor_max) {
            let value = self.replication_factor_max.to_string();
            return refuse("kafka.replication_factor_max", value, "use 1 to 32767");
        }
        if !(1..=i32::MAX.cast_unsigned()).contains(&self.offsets_retention_minutes) {
            let value = self.offsets_retention_minutes.to_string();
            return refuse("kafka.offsets_retention_minutes", value, "use 1 to 2147483647");
        }
        let (session_ms, interval_ms) =
            (self.group_consumer_session_timeout_ms, self.group_consumer_heartbeat_interval_ms);
        if !(1..=i32::MAX.cast_unsigned()).contains(&session_ms) {
            let setting = "kafka.group_consumer_session_timeout_ms";
            return refuse(setting, session_ms.to_string(), "use 1 to 2147483647");
        }
        if interval_ms == 0 || interval_ms >= session_ms {
            let rule = "use at least 1, and less than kafka.group_consumer_session_timeout_ms";
            return refuse("kafka.group_consumer_heartbeat_interval_ms", interval_ms.to_string(), rule);
        }
        if !(1..=10_000).contains(&self.transaction_partitions_max) {
            let value = self.transaction_partitions_max.to_string();
            return refuse("kafka.transaction_partitions_max", value, "use 1 to 10000");
        }
        if self.transaction_timeout_max_ms == 0 {
            return refuse("kafka.transaction_timeout_max_ms", "0".to_owned(), "use at least 1");
        }
        if check_device_prefix(&self.device_topic_prefix).is_err() {
            let rule = "use letters, digits, '.', '_' and '-' that begin no name of Millstream's own, such as hono., or leave it empty";
            return refuse("kafka.device_topic_prefix", self.device_topic_prefix.clone(), rule);
        }
        let advertised = [("kafka.advertised", &self.advertised), ("kafka.advertised_tls", &self.advertised_tls)];
        for (setting, value) in advertised {
            if !value.is_empty() && host_and_port(value).is_none() {
                let rule = "use HOST:PORT, such as broker.example.org:9092, or leave it empty";
                return refuse(setting, value.clone(), rule);
            }
        }
        Ok(())
    }
}

/// Host and port of an advertised address, unless it is empty.
pub(crate) fn host_and_port(advertised: &str) -> Option<(String, u16)> {
    let (host, port) = advertised.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then_some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_an_invalid_setting_is_refused_with_its_rule() {
        KafkaConfig::default().validate().unwrap();
        type Change = fn(&mut KafkaConfig);
        let table: [(Change, &str); 18] = [
            (|c| c.replication_factor_max = 0, "kafka.replication_factor_max = 0: "),
            (|c| c.transactional_ids_max = 0, "kafka.transactional_ids_max = 0: "),
            (|c| c.transactional_ids_per_tenant_max = 0, "kafka.transactional_ids_per_tenant_max = 0: "),
            (|c| c.groups_max = 0, "kafka.groups_max = 0: "),
            (|c| c.groups_per_tenant_max = 1_000_001, "kafka.groups_per_tenant_max = 1000001: "),
            (|c| c.offsets_retention_minutes = 0, "kafka.offsets_retention_minutes = 0: "),
            (|c| c.group_consumer_session_timeout_ms = 0, "kafka.group_consumer_session_timeout_ms = 0: "),
            (|c| c.group_consumer_session_timeout_ms = 5_000, "kafka.group_consumer_heartbeat_interval_ms = 5000: "),
            (|c| c.group_consumer_heartbeat_interval_ms = 0, "kafka.group_consumer_heartbeat_interval_ms = 0: "),
            (|c| c.transaction_partitions_max = 0, "kafka.transaction_partitions_max = 0: "),
            (|c| c.transaction_timeout_max_ms = 0, "kafka.transaction_timeout_max_ms = 0: "),
            (|c| c.login_timeout_ms = 0, "kafka.login_timeout_ms = 0: "),
            (|c| c.request_max_bytes = 9, "kafka.request_max_bytes = 9: "),
            (|c| c.requests_max_bytes = 2048, "kafka.requests_max_bytes = 2048: "),
            (|c| c.in_flight_max = 0, "kafka.in_flight_max = 0: "),
            (|c| c.device_topic_prefix = "kv.".to_owned(), "kafka.device_topic_prefix = kv.: "),
            (|c| c.advertised = "nowhere".to_owned(), "kafka.advertised = nowhere: "),
            (|c| c.advertised_tls = ":9093".to_owned(), "kafka.advertised_tls = :9093: "),
        ];
        for (change, expected) in table {
            let mut config = KafkaConfig::default();
            change(&mut config);
            let refusal = config.validate().unwrap_err().to_string();
            assert!(refusal.contains(expected), "{refusal}");
        }
        assert_eq!(host_and_port("[::1]:9092"), Some(("::1".to_owned(), 9092)));
    }
}
