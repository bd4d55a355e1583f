//! The configuration of the listener for AMQP 1.0.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Settings for applications that connect over AMQP 1.0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AmqpConfig {
    /// Connections at a time that have logged in, which tenants share; more are turned away. Default 10,000.
    pub connections_max: usize,
    /// Largest frame that a client may send, in bytes. Default 16,384.
    pub frame_max_bytes: u32,
    /// Sessions that one connection may have. Default 256.
    pub sessions_max: u16,
    /// Links that one session may have. Default 256.
    pub links_max: u32,
    /// Messages that one connection may have received and not settled; while it has as many, it gets no others. Default 10,000.
    pub unsettled_max: usize,
    /// Bytes of frames that have arrived in part, of messages on their way to clients and of what is known of unsettled ones, of all
    /// connections; a link takes 64 KiB. Default 64 MiB.
    pub buffers_max_bytes: usize,
    /// Time for a new connection to log in and to open, in milliseconds. Default 10,000.
    pub login_timeout_ms: u64,
    /// Time for the rest of a frame to arrive once it has begun, in milliseconds. Default 10,000.
    pub frame_timeout_ms: u64,
    /// Time for a client to read the bytes sent to it before its connection is closed, in milliseconds. Default 10,000.
    pub write_timeout_ms: u64,
    /// Time without any frame after which a connection is closed, in milliseconds. Clients are told half of it and send empty
    /// frames meanwhile. Default 120,000.
    pub idle_timeout_ms: u32,
}

impl Default for AmqpConfig {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            frame_max_bytes: 16 << 10,
            sessions_max: 256,
            links_max: 256,
            unsettled_max: 10_000,
            buffers_max_bytes: 64 << 20,
            login_timeout_ms: 10_000,
            frame_timeout_ms: 10_000,
            write_timeout_ms: 10_000,
            idle_timeout_ms: 120_000,
        }
    }
}

impl AmqpConfig {
    /// Checks what only has a meaning within bounds.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] names the setting, its value and the rule.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |setting, value: String, rule| Err(Error::InvalidSetting { setting, value, rule });
        if !(512..=16 << 20).contains(&self.frame_max_bytes) {
            return refuse("connect.amqp.frame_max_bytes", self.frame_max_bytes.to_string(), "use 512 to 16777216");
        }
        if self.sessions_max == 0 {
            return refuse("connect.amqp.sessions_max", "0".to_owned(), "use 1 to 65535");
        }
        if self.links_max == 0 {
            return refuse("connect.amqp.links_max", "0".to_owned(), "use 1 or more");
        }
        if self.unsettled_max == 0 {
            return refuse("connect.amqp.unsettled_max", "0".to_owned(), "use 1 or more");
        }
        if self.idle_timeout_ms < 2_000 {
            return refuse("connect.amqp.idle_timeout_ms", self.idle_timeout_ms.to_string(), "use 2000 or more");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_an_invalid_setting_is_refused_with_its_rule() {
        AmqpConfig::default().validate().unwrap();
        let default = AmqpConfig::default;
        for (config, told) in [
            (AmqpConfig { frame_max_bytes: 511, ..default() }, "connect.amqp.frame_max_bytes = 511: use 512"),
            (AmqpConfig { sessions_max: 0, ..default() }, "connect.amqp.sessions_max = 0: use"),
            (AmqpConfig { links_max: 0, ..default() }, "connect.amqp.links_max = 0: use"),
            (AmqpConfig { unsettled_max: 0, ..default() }, "connect.amqp.unsettled_max = 0: use"),
            (AmqpConfig { idle_timeout_ms: 1_999, ..default() }, "connect.amqp.idle_timeout_ms = 1999: use 2000"),
        ] {
            let refusal = config.validate().unwrap_err().to_string();
            assert!(refusal.contains(told), "{refusal}");
        }
    }
}
