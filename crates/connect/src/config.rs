//! What an operator may set.

use serde::{Deserialize, Serialize};

use crate::{CommandsConfig, Error, MqttConfig};

/// Most partitions that a topic may have.
const PARTITIONS_MAX: u32 = 10_000;

/// Devices, their registry and their adapters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConnectConfig {
    /// Partitions of the registry's state topic; fixed when the data directory is made. Default 4.
    pub registry_partitions: u32,
    /// Bytes of changes of the registry that may be on their way to the log or missing from its checkpoint before further
    /// ones wait. Default 64 MiB.
    pub registry_dirty_max_bytes: usize,
    /// Bytes of changes of the registry that may wait to be decided, over all partitions; further ones are answered 503.
    /// Default 32 MiB.
    pub registry_inbox_max_bytes: usize,
    /// Bytes of notes of what tenants have used that may be on their way to the log or missing from the checkpoint.
    /// Default 16 MiB.
    pub usage_notes_max_bytes: usize,
    /// Whether an event tells applications of each device that connects or goes. Default false.
    pub connection_events: bool,
    /// Partitions that a tenant's topics of telemetry, events, commands and responses are created with. Default 4.
    pub topic_partitions: u32,
    /// Threads that check passwords whose hash is slow (bcrypt, argon2). Default 1.
    pub logins_threads: usize,
    /// Logins that may wait for such a check; further ones are answered 503. Default 1,024.
    pub logins_max_waiting: usize,
    /// Verified logins that are remembered, so that their password is not hashed again. Default 100,000.
    pub logins_cached_max: usize,
    /// Requests to the registry that may wait for a plain password to be hashed; further ones are answered 503.
    /// Default 256.
    pub hashing_max_waiting: usize,
    /// Searches over many resources of the registry that may wait for a thread; further ones are answered 503. Default
    /// 256.
    pub searches_max_waiting: usize,
    /// Memory that hashing a new password takes (argon2id), KiB. Default 19,456.
    pub hashing_memory_kib: u32,
    /// Passes over that memory. Default 2.
    pub hashing_passes: u32,
    /// Highest cost of a bcrypt hash that the registry takes. Default 10.
    pub bcrypt_max_cost: u32,
    /// Secrets that the credentials of one device may have in all. Default 50.
    pub secrets_max_per_device: usize,
    /// The HTTP adapter.
    pub http: HttpAdapterConfig,
    /// Devices over MQTT.
    pub mqtt: MqttConfig,
    /// Commands to devices.
    pub commands: CommandsConfig,
}

impl Default for ConnectConfig {
    fn default() -> Self {
        Self {
            registry_partitions: 4,
            registry_dirty_max_bytes: 64 << 20,
            registry_inbox_max_bytes: 32 << 20,
            usage_notes_max_bytes: 16 << 20,
            connection_events: false,
            topic_partitions: 4,
            logins_threads: 1,
            logins_max_waiting: 1_024,
            logins_cached_max: 100_000,
            hashing_max_waiting: 256,
            searches_max_waiting: 256,
            hashing_memory_kib: 19_456,
            hashing_passes: 2,
            bcrypt_max_cost: 10,
            secrets_max_per_device: 50,
            http: HttpAdapterConfig::default(),
            mqtt: MqttConfig::default(),
            commands: CommandsConfig::default(),
        }
    }
}

impl ConnectConfig {
    /// Memory that threads keep to hash passwords in, bytes: those that check logins, and the one that hashes new passwords.
    pub fn hashing_max_bytes(&self) -> u64 {
        u64::from(self.hashing_memory_kib) * 1024 * (self.logins_threads.max(1) as u64 + 1)
    }

    /// Checks what only has a meaning within bounds.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] names the setting, its value and the rule.
    pub fn validate(&self) -> Result<(), Error> {
        for (setting, value) in [
            ("connect.registry_partitions", self.registry_partitions),
            ("connect.topic_partitions", self.topic_partitions),
        ] {
            if !(1..=PARTITIONS_MAX).contains(&value) {
                return Err(Error::InvalidSetting { setting, value: value.to_string(), rule: "use 1 to 10000" });
            }
        }
        self.commands.validate()?;
        self.mqtt.validate()
    }
}

/// Devices over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpAdapterConfig {
    /// Largest payload of a message, bytes. Default 2,048.
    pub payload_max_bytes: u64,
    /// How long the log may take to accept a message before the device is answered 503, ms. Default 1,000.
    pub send_timeout_ms: u64,
    /// How long a request may take in all, its body's arrival and its login included, ms. Default 10,000.
    pub request_timeout_ms: u64,
    /// Longest time that a device may say it waits for a command (`hono-ttd`), s; at most four fifths of
    /// `http.idle_timeout_ms`. Default 60.
    pub ttd_max_s: u32,
    /// Whether devices must log in where their tenant says nothing about it. Default true.
    pub authentication_required: bool,
    /// Origin whose pages may call the adapter, or `*` for any. Default `*`.
    pub cors_allowed_origin: String,
}

impl Default for HttpAdapterConfig {
    fn default() -> Self {
        Self {
            payload_max_bytes: 2_048,
            send_timeout_ms: 1_000,
            request_timeout_ms: 10_000,
            ttd_max_s: 60,
            authentication_required: true,
            cors_allowed_origin: "*".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_holds_and_a_number_of_partitions_that_cannot_be_is_named_with_its_rule() {
        ConnectConfig::default().validate().unwrap();
        for (config, told) in [
            (
                ConnectConfig { registry_partitions: 0, ..ConnectConfig::default() },
                "connect.registry_partitions = 0: use",
            ),
            (
                ConnectConfig { topic_partitions: 10_001, ..ConnectConfig::default() },
                "connect.topic_partitions = 10001: use",
            ),
        ] {
            let refusal = config.validate().unwrap_err().to_string();
            assert!(refusal.contains(told), "{refusal}");
        }
    }
}
