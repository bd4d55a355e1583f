//! Settings of registrations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Limits of registrations, and of requests that are forwarded to context providers. Hosts and certificates of providers are
/// allowed as those of receivers of notifications are (`context.notifications`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RegistrationsConfig {
    /// Registrations of one tenant; further ones are answered 429. Default 200,000.
    pub max: usize,
    /// Requests to providers that one request of a client may cause; 0 forwards nothing. Default 1,000.
    pub forward_limit: usize,
    /// Time that a provider may take to answer, in milliseconds; one that takes longer counts as having nothing. Default
    /// 5,000.
    pub timeout_ms: u64,
    /// Largest answer of a provider, in bytes; a larger one counts as none. Default 1 MiB.
    pub answer_max_bytes: usize,
    /// Requests to providers that may be in flight; further ones are not made. One tenant takes no more of these places than
    /// it leaves free. Default 2,000.
    pub waiting_max: usize,
}

impl Default for RegistrationsConfig {
    fn default() -> Self {
        Self { max: 200_000, forward_limit: 1_000, timeout_ms: 5_000, answer_max_bytes: 1 << 20, waiting_max: 2_000 }
    }
}

impl RegistrationsConfig {
    /// Checks each setting by itself.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] names the setting, its value and the rule.
    pub fn validate(&self) -> Result<(), Error> {
        let rules = [
            ("context.registrations.timeout_ms", self.timeout_ms),
            ("context.registrations.answer_max_bytes", self.answer_max_bytes as u64),
            ("context.registrations.waiting_max", self.waiting_max as u64),
        ];
        match rules.into_iter().find(|(_, value)| *value == 0) {
            None => Ok(()),
            Some((setting, value)) => {
                Err(Error::InvalidSetting { setting, value: value.to_string(), rule: "use 1 or more" })
            }
        }
    }
}
