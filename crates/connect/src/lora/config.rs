//! The configuration of the adapter for LoRaWAN network servers.

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
}

impl Default for LoraConfig {
    fn default() -> Self {
        Self { body_max_bytes: 65_536, payload_max_bytes: 2_048, repeats_max_per_tenant: 10_000 }
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
        Ok(())
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
        ] {
            let refusal = config.validate().unwrap_err().to_string();
            assert!(refusal.contains(told), "{refusal}");
        }
    }
}
