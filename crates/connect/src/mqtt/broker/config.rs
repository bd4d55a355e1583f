//! The configuration of the private space.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Messages between the clients of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BrokerConfig {
    /// If true, an acknowledged message at least or exactly once survives power loss; if false, only the end of the
    /// process. Holds for tenants that connect for the first time. Default true.
    pub synced: bool,
    /// Time that messages are kept for sessions that are away, in seconds. Holds for tenants that connect for the
    /// first time. Default seven days.
    pub retention_s: u64,
    /// Bytes of messages that are kept, of each tenant. Holds for tenants that connect for the first time. Default 1 GiB.
    pub retention_max_bytes: u64,
    /// Partitions of the state topic of sessions and retained messages; fixed when the data directory is made. Default 4.
    pub state_partitions: u32,
    /// Bytes of changes of sessions and retained messages that may be on their way to the log or missing from their
    /// checkpoint before further ones wait. Default 64 MiB.
    pub state_dirty_max_bytes: usize,
    /// Bytes of changes of sessions and retained messages that may wait to be decided, over all partitions; further ones
    /// are refused. Default 32 MiB.
    pub state_inbox_max_bytes: usize,
    /// Bytes of retained messages of one tenant. Default 16 MiB.
    pub retained_max_bytes: u64,
    /// Longest time that a session outlives its connection, in seconds. Default seven days.
    pub session_expiry_max_s: u32,
    /// Sessions of one tenant, connected or away. Default 100,000.
    pub sessions_max: usize,
    /// Subscriptions of one session. Default 1,000.
    pub subscriptions_max: usize,
    /// Bytes of memory for subscriptions, of all tenants; further ones are refused. One tenant takes as much as it leaves free.
    /// Default 512 MiB.
    pub subscriptions_max_bytes: u64,
    /// Filters in one SUBSCRIBE. Default 100.
    pub filters_max: usize,
    /// Messages that may wait for one session; the oldest make room. Default 10,000.
    pub queue_max_messages: usize,
    /// Bytes of messages that may wait for one session, in the log; the oldest make room. Default 64 MiB.
    pub queue_max_bytes: u64,
    /// Bytes of memory for what waits in queues, the messages themselves aside (96 for each), of all tenants; where there is
    /// no more, the oldest message of a session makes room for its next. One tenant takes as much as it leaves free. Default
    /// 256 MiB.
    pub queues_max_bytes: u64,
    /// Messages that are kept in memory for one connection, and messages at most once that may wait for it. Default 1,000.
    pub live_max_messages: usize,
    /// Bytes of messages in memory that wait for connections, of all tenants. One tenant takes as much as it leaves free.
    /// Default 64 MiB.
    pub live_max_bytes: u64,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            synced: true,
            retention_s: 7 * 24 * 3_600,
            retention_max_bytes: 1 << 30,
            state_partitions: 4,
            state_dirty_max_bytes: 64 << 20,
            state_inbox_max_bytes: 32 << 20,
            retained_max_bytes: 16 << 20,
            session_expiry_max_s: 7 * 24 * 3_600,
            sessions_max: 100_000,
            subscriptions_max: 1_000,
            subscriptions_max_bytes: 512 << 20,
            filters_max: 100,
            queue_max_messages: 10_000,
            queue_max_bytes: 64 << 20,
            queues_max_bytes: 256 << 20,
            live_max_messages: 1_000,
            live_max_bytes: 64 << 20,
        }
    }
}

impl BrokerConfig {
    /// Checks what only has a meaning within bounds.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        // As many fit into the record in which a session is kept.
        if !(1..=5_000).contains(&self.subscriptions_max) {
            let (setting, value) = ("connect.mqtt.broker.subscriptions_max", self.subscriptions_max.to_string());
            return Err(Error::InvalidSetting { setting, value, rule: "use 1 to 5000" });
        }
        for (setting, value) in [
            ("connect.mqtt.broker.sessions_max", self.sessions_max),
            ("connect.mqtt.broker.filters_max", self.filters_max),
            ("connect.mqtt.broker.queue_max_messages", self.queue_max_messages),
            ("connect.mqtt.broker.live_max_messages", self.live_max_messages),
        ] {
            if value == 0 {
                return Err(Error::InvalidSetting { setting, value: "0".to_owned(), rule: "use at least 1" });
            }
        }
        if !(1..=10_000).contains(&self.state_partitions) {
            let (setting, value) = ("connect.mqtt.broker.state_partitions", self.state_partitions.to_string());
            return Err(Error::InvalidSetting { setting, value, rule: "use 1 to 10000" });
        }
        Ok(())
    }
}
