//! The configuration of this plane.

use axum::http::HeaderValue;
use millstream_http::Cors;
use millstream_view::ViewsConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cors::origins;
use crate::{AmqpConfig, CommandsConfig, Error, HttpAdapterConfig, LoraConfig, MqttConfig};

/// Most partitions that a topic may have.
const PARTITIONS_MAX: u32 = 10_000;

/// Settings of the device registry and of the adapters for devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConnectConfig {
    /// Partitions of the registry's state topic; fixed when the data directory is made. Default 4.
    pub registry_partitions: u32,
    /// Bytes of changes of the registry that may be on their way to the log or missing from its checkpoint.
    /// Further changes wait. Default 64 MiB.
    pub registry_dirty_max_bytes: usize,
    /// Bytes of changes of the registry that may wait to be decided, over all partitions.
    /// Further changes are answered 503. Default 32 MiB.
    pub registry_inbox_max_bytes: usize,
    /// Bytes of notes (the usage of tenants and the last message of devices) that may be on their way to the log or
    /// missing from the checkpoint. Default 16 MiB.
    pub usage_notes_max_bytes: usize,
    /// If true, an event is appended each time a device connects or disconnects over MQTT. Default false.
    pub connection_events: bool,
    /// Partitions that a tenant's topics of telemetry, events, commands and responses are created with. Default 4.
    pub topic_partitions: u32,
    /// Threads that check passwords whose hash is slow (bcrypt, argon2). Default 1.
    pub logins_threads: usize,
    /// Logins that may wait for a password check; further ones are answered 503. One tenant takes no more
    /// of these places than it leaves free. Default 2,048.
    pub logins_max_waiting: usize,
    /// Verified logins that are remembered, so that their password is not hashed again. Default 100,000.
    pub logins_cached_max: usize,
    /// Requests to the registry that may wait for a plain password to be hashed.
    /// Further requests are answered 503. One tenant takes no more of these places than it leaves free. Default 512.
    pub hashing_max_waiting: usize,
    /// Searches over many resources of the registry that may wait for a thread.
    /// Further searches are answered 503. One tenant takes no more of these places than it leaves free. Default 512.
    pub searches_max_waiting: usize,
    /// Memory that hashing a new password takes (argon2id), in KiB. Default 19,456.
    pub hashing_memory_kib: u32,
    /// Passes over the memory when a new password is hashed (argon2id). Default 2.
    pub hashing_passes: u32,
    /// Highest cost of a bcrypt hash that the registry accepts. Default 10.
    pub bcrypt_max_cost: u32,
    /// Origin whose pages may call the registry (`/v1`), as `scheme://host:port`, or `*` for any. Default none.
    pub registry_cors_origin: String,
    /// Secrets that the credentials of one device may have in all. Default 50.
    pub secrets_max_per_device: usize,
    /// Settings of the adapter for devices over HTTP.
    pub http: HttpAdapterConfig,
    /// Settings of the adapter for LoRaWAN network servers.
    pub lora: LoraConfig,
    /// Settings of the adapter for devices over MQTT.
    pub mqtt: MqttConfig,
    /// Settings of the listener for AMQP 1.0.
    pub amqp: AmqpConfig,
    /// Settings of the commands that applications send to devices.
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
            logins_max_waiting: 2_048,
            logins_cached_max: 100_000,
            hashing_max_waiting: 512,
            searches_max_waiting: 512,
            hashing_memory_kib: 19_456,
            hashing_passes: 2,
            bcrypt_max_cost: 10,
            registry_cors_origin: String::new(),
            secrets_max_per_device: 50,
            http: HttpAdapterConfig::default(),
            lora: LoraConfig::default(),
            mqtt: MqttConfig::default(),
            amqp: AmqpConfig::default(),
            commands: CommandsConfig::default(),
        }
    }
}

impl ConnectConfig {
    /// Returns the memory, in bytes, of the threads that check logins and of the thread that hashes new passwords.
    pub fn hashing_max_bytes(&self) -> u64 {
        u64::from(self.hashing_memory_kib) * 1024 * (self.logins_threads.max(1) as u64 + 1)
    }

    /// The view of the registry.
    pub(crate) fn registry_views(&self) -> ViewsConfig {
        ViewsConfig {
            partitions: self.registry_partitions,
            dirty_max_bytes: self.registry_dirty_max_bytes,
            inbox_max_bytes: self.registry_inbox_max_bytes,
            inbox_setting: "connect.registry_inbox_max_bytes",
            ..ViewsConfig::default()
        }
    }

    /// The view of the notes of usage, and that of the times of devices' last messages. They share the limit.
    pub(crate) fn notes_views(&self) -> ViewsConfig {
        let quarter = self.usage_notes_max_bytes / 4;
        ViewsConfig {
            partitions: self.registry_partitions,
            dirty_max_bytes: quarter,
            inbox_max_bytes: quarter,
            inbox_setting: "connect.usage_notes_max_bytes",
            ..ViewsConfig::default()
        }
    }

    /// The view of the devices that listen for commands.
    pub(crate) fn presence_views(&self) -> ViewsConfig {
        let half = self.mqtt.presence_max_bytes / 2;
        ViewsConfig {
            partitions: self.registry_partitions,
            dirty_max_bytes: half,
            inbox_max_bytes: half,
            inbox_setting: "connect.mqtt.presence_max_bytes",
            ..ViewsConfig::default()
        }
    }

    /// CORS settings of the registry; `None` if pages of other origins may not call it.
    pub(crate) fn registry_cors(&self) -> Result<Option<Cors>, Error> {
        if self.registry_cors_origin.is_empty() {
            return Ok(None);
        }
        Ok(Some(Cors {
            origins: origins("connect.registry_cors_origin", &self.registry_cors_origin)?,
            allowed_headers: HeaderValue::from_static("authorization, content-type, if-match"),
            exposed_headers: HeaderValue::from_static("etag, location"),
            max_age_s: 3_600,
        }))
    }

    /// Checks the settings that have bounds.
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
        self.registry_cors()?;
        self.commands.validate()?;
        self.lora.validate()?;
        self.mqtt.validate()?;
        self.amqp.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_an_invalid_number_of_partitions_is_refused_with_its_rule() {
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
