//! Limits of commands.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Largest permitted value of the payload limit. One append has room for all commands that one step takes.
const PAYLOAD_LIMIT_BYTES: usize = 128 << 10;

/// Settings of the commands that applications send to devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CommandsConfig {
    /// Partitions of the topic that keeps waiting commands; fixed when the data directory is made. Default 4.
    pub state_partitions: u32,
    /// Bytes of changes to waiting commands that may be on their way to the log or missing from the checkpoint; further
    /// changes wait. Default 32 MiB.
    pub state_dirty_max_bytes: usize,
    /// Bytes of commands that may wait to be recorded. Default 16 MiB.
    pub state_inbox_max_bytes: usize,
    /// Largest payload of a command, in bytes, at most 128 KiB. Default 65,536.
    pub payload_max_bytes: usize,
    /// Commands that may wait for one device, including those on their way to it.
    /// Further commands are rejected. Default 1,000.
    pub waiting_max_per_device: usize,
    /// Bytes of commands that may wait for the devices of one tenant; each partition of the state gets an equal part.
    /// Further commands are rejected. Default 16 MiB.
    pub waiting_max_bytes_per_tenant: usize,
    /// Longest time that a command may wait for its device, in seconds.
    /// It replaces a longer time that a command asks for. Default 604,800 (seven days).
    pub ttl_max_s: u64,
    /// Requests over HTTP that may wait for the answer to their command; further ones are answered 503.
    /// One tenant takes no more of these places than it leaves free. Default 20,000.
    pub requests_max_waiting: usize,
    /// Longest time that a request may wait for the answer to its command, in milliseconds. Default 60,000.
    pub request_timeout_max_ms: u64,
}

impl Default for CommandsConfig {
    fn default() -> Self {
        Self {
            state_partitions: 4,
            state_dirty_max_bytes: 32 << 20,
            state_inbox_max_bytes: 16 << 20,
            payload_max_bytes: 64 << 10,
            waiting_max_per_device: 1_000,
            waiting_max_bytes_per_tenant: 16 << 20,
            ttl_max_s: 7 * 24 * 3_600,
            requests_max_waiting: 20_000,
            request_timeout_max_ms: 60_000,
        }
    }
}

impl CommandsConfig {
    /// Checks each setting by itself.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let rules: [(_, _, RangeInclusive<u64>, _); 4] = [
            ("connect.commands.state_partitions", self.state_partitions.into(), 1..=10_000, "use 1 to 10000"),
            (
                "connect.commands.payload_max_bytes",
                self.payload_max_bytes as u64,
                1..=PAYLOAD_LIMIT_BYTES as u64,
                "use 1 to 131072",
            ),
            ("connect.commands.ttl_max_s", self.ttl_max_s, 1..=315_360_000, "use 1 to 315360000 (ten years)"),
            (
                "connect.commands.request_timeout_max_ms",
                self.request_timeout_max_ms,
                1..=3_600_000,
                "use 1 to 3600000 (an hour)",
            ),
        ];
        match rules.into_iter().find(|(_, value, legal, _)| !legal.contains(value)) {
            None => Ok(()),
            Some((setting, value, _, rule)) => Err(Error::InvalidSetting { setting, value: value.to_string(), rule }),
        }
    }
}
