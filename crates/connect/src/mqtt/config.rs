//! The configuration of devices over MQTT.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::broker::BrokerConfig;
use crate::Error;

/// Settings for devices that connect over MQTT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MqttConfig {
    /// Connections at a time that have logged in, which tenants share; more are turned away. Default 50,000.
    pub connections_max: usize,
    /// If true, clients must log in. If not, one without user name may send for devices of tenants whose entry for
    /// `hono-mqtt` says `"device-authentication-required": false`. Default true.
    pub authentication_required: bool,
    /// Largest payload on the topics of telemetry and events, in bytes. Default 2,048.
    pub payload_max_bytes: usize,
    /// Largest packet of a client that has logged in, in bytes. What it publishes has to fit into a record of the log, too.
    /// Default 1 MiB.
    pub packet_max_bytes: usize,
    /// Bytes of packets that have arrived in part, of all connections. Default 64 MiB.
    pub buffers_max_bytes: usize,
    /// Messages of one connection that may wait for the log; while there are more, its socket is not read. MQTT 5
    /// calls it receive maximum. Default 1,024.
    pub in_flight_max: u16,
    /// Topic aliases that a client may set. Default 16.
    pub aliases_max: u16,
    /// Longest keep alive, in seconds. A client of MQTT 5 gets it if it asks for a longer one or none. Default 3,600.
    pub keep_alive_max_s: u16,
    /// Time for the CONNECT of a new connection, and for its login, in milliseconds. Default 10,000.
    pub connect_timeout_ms: u64,
    /// Time for the rest of a packet to arrive once it has begun, in milliseconds. Default 10,000.
    pub packet_timeout_ms: u64,
    /// Time for a client to read the bytes sent to it before its connection is closed, in milliseconds. Default 10,000.
    pub write_timeout_ms: u64,
    /// Time for the log to accept a message, in milliseconds. Default 1,000.
    pub send_timeout_ms: u64,
    /// Time for a client to acknowledge a command at QoS 1, in milliseconds. After that the command is released.
    /// A command at QoS 0 needs no acknowledgement. Default 1,000.
    pub command_ack_timeout_ms: u64,
    /// Commands that may be on their way to one connection and not acknowledged; further ones are released. Default 32.
    pub commands_in_flight_max: usize,
    /// Subscriptions to commands that one connection may have. Default 100.
    pub command_subscriptions_max: usize,
    /// Bytes of records of the devices that listen for commands that may be on their way to the log or be missing
    /// from the checkpoint. Default 16 MiB.
    pub presence_max_bytes: usize,
    /// Settings of the private space.
    pub broker: BrokerConfig,
}

impl Default for MqttConfig {
    fn default() -> Self {
        Self {
            connections_max: 50_000,
            authentication_required: true,
            payload_max_bytes: 2_048,
            packet_max_bytes: 1 << 20,
            buffers_max_bytes: 64 << 20,
            in_flight_max: 1_024,
            aliases_max: 16,
            keep_alive_max_s: 3_600,
            connect_timeout_ms: 10_000,
            packet_timeout_ms: 10_000,
            write_timeout_ms: 10_000,
            send_timeout_ms: 1_000,
            command_ack_timeout_ms: 1_000,
            commands_in_flight_max: 32,
            command_subscriptions_max: 100,
            presence_max_bytes: 16 << 20,
            broker: BrokerConfig::default(),
        }
    }
}

impl MqttConfig {
    /// Checks what only has a meaning within bounds.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] names the setting, its value and the rule.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |setting, value: String, rule| Err(Error::InvalidSetting { setting, value, rule });
        if !(1_024..=16 << 20).contains(&self.packet_max_bytes) {
            let value = self.packet_max_bytes.to_string();
            return refuse("connect.mqtt.packet_max_bytes", value, "use 1024 to 16777216");
        }
        if self.in_flight_max == 0 {
            return refuse("connect.mqtt.in_flight_max", "0".to_owned(), "use 1 to 65535");
        }
        if self.keep_alive_max_s == 0 {
            return refuse("connect.mqtt.keep_alive_max_s", "0".to_owned(), "use 1 to 65535");
        }
        if self.commands_in_flight_max == 0 {
            return refuse("connect.mqtt.commands_in_flight_max", "0".to_owned(), "use 1 or more");
        }
        self.broker.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_an_invalid_setting_is_refused_with_its_rule() {
        MqttConfig::default().validate().unwrap();
        for (config, told) in [
            (MqttConfig { packet_max_bytes: 9, ..MqttConfig::default() }, "connect.mqtt.packet_max_bytes = 9: use"),
            (MqttConfig { in_flight_max: 0, ..MqttConfig::default() }, "connect.mqtt.in_flight_max = 0: use"),
            (MqttConfig { keep_alive_max_s: 0, ..MqttConfig::default() }, "connect.mqtt.keep_alive_max_s = 0: use"),
            (
                MqttConfig {
                    broker: BrokerConfig { subscriptions_max: 5_001, ..BrokerConfig::default() },
                    ..MqttConfig::default()
                },
                "connect.mqtt.broker.subscriptions_max = 5001: use 1 to 5000",
            ),
        ] {
            let refusal = config.validate().unwrap_err().to_string();
            assert!(refusal.contains(told), "{refusal}");
        }
    }
}
