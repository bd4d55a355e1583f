//! The configuration of the adapter for LoRaWAN network servers.

use millstream_outgoing::{InvalidSetting, Outgoing, OutgoingSettings};
use millstream_types::RemoteCallers;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Settings of the adapter for LoRaWAN network servers. The times are those of `connect.http`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoraConfig {
    /// Largest body of a network server's request, in bytes. Default 65,536.
    pub body_max_bytes: u64,
    /// Largest payload of an uplink, once it is decoded from base64 or hexadecimal digits, in bytes. Default 2,048.
    pub payload_max_bytes: usize,
    /// Uplinks of a tenant that are remembered, for five minutes, so that a network server that sends one again does not
    /// store it twice; 0 to 1,000,000. Default 10,000.
    pub repeats_max_per_tenant: usize,
    /// Hosts that commands may be posted to: names, `*.` and a domain, addresses, networks such as `10.0.0.0/8`, and the
    /// words `public` and `private`. Default empty: public addresses, and private ones while no caller logs in.
    pub allowed_targets: Vec<String>,
    /// File (PEM) of certificate authorities that are trusted for network servers over TLS, beside the system's.
    /// Default empty: the system's only.
    pub ca_file: String,
    /// Time that a network server may take to answer a command, in milliseconds; 1 to 60,000. Default 5,000.
    pub downlink_timeout_ms: u64,
    /// Commands of a tenant that may be on their way to its network servers, of which one takes half at most; 1 to 10,000.
    /// Default 32.
    pub downlinks_max_per_tenant: usize,
}

impl Default for LoraConfig {
    fn default() -> Self {
        Self {
            body_max_bytes: 65_536,
            payload_max_bytes: 2_048,
            repeats_max_per_tenant: 10_000,
            allowed_targets: Vec::new(),
            ca_file: String::new(),
            downlink_timeout_ms: 5_000,
            downlinks_max_per_tenant: 32,
        }
    }
}

impl LoraConfig {
    /// Checks the settings that have bounds.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] names the setting, its value and the rule.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |setting, value: String, rule| Err(Error::InvalidSetting { setting, value, rule });
        if !(1_024..=1 << 20).contains(&self.body_max_bytes) {
            let value = self.body_max_bytes.to_string();
            return refuse("connect.lora.body_max_bytes", value, "use 1024 to 1048576");
        }
        if self.repeats_max_per_tenant > 1_000_000 {
            let value = self.repeats_max_per_tenant.to_string();
            return refuse("connect.lora.repeats_max_per_tenant", value, "use 0 to 1000000");
        }
        if !(1..=60_000).contains(&self.downlink_timeout_ms) {
            return refuse("connect.lora.downlink_timeout_ms", self.downlink_timeout_ms.to_string(), "use 1 to 60000");
        }
        if !(1..=10_000).contains(&self.downlinks_max_per_tenant) {
            let value = self.downlinks_max_per_tenant.to_string();
            return refuse("connect.lora.downlinks_max_per_tenant", value, "use 1 to 10000");
        }
        Ok(())
    }

    /// The rules for connections to network servers.
    pub(super) fn outgoing(&self, callers: RemoteCallers) -> Result<Outgoing, Error> {
        let settings = OutgoingSettings {
            allowed_setting: "connect.lora.allowed_targets",
            allowed: &self.allowed_targets,
            ca_setting: "connect.lora.ca_file",
            ca_file: &self.ca_file,
            insecure: false,
        };
        let outgoing = Outgoing::new(&settings, callers);
        outgoing.map_err(|InvalidSetting { setting, value, rule }| Error::InvalidSetting { setting, value, rule })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_an_invalid_setting_is_refused_with_its_rule() {
        LoraConfig::default().validate().unwrap();
        for (config, told) in [
            (LoraConfig { body_max_bytes: 9, ..LoraConfig::default() }, "connect.lora.body_max_bytes = 9: use 1024"),
            (
                LoraConfig { body_max_bytes: 2 << 20, ..LoraConfig::default() },
                "connect.lora.body_max_bytes = 2097152: use 1024",
            ),
            (
                LoraConfig { repeats_max_per_tenant: 1_000_001, ..LoraConfig::default() },
                "connect.lora.repeats_max_per_tenant = 1000001: use 0",
            ),
            (
                LoraConfig { downlink_timeout_ms: 0, ..LoraConfig::default() },
                "connect.lora.downlink_timeout_ms = 0: use 1",
            ),
            (
                LoraConfig { downlinks_max_per_tenant: 0, ..LoraConfig::default() },
                "connect.lora.downlinks_max_per_tenant = 0: use 1",
            ),
        ] {
            let refusal = config.validate().unwrap_err().to_string();
            assert!(refusal.contains(told), "{refusal}");
        }
    }
}
