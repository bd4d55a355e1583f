//! The configuration of the adapter for devices over HTTP.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the adapter for devices over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpAdapterConfig {
    /// Largest payload of a message, in bytes. Default 2,048.
    pub payload_max_bytes: u64,
    /// Longest time that the log may take to accept a message, in milliseconds.
    /// After this time the device is answered 503. Default 1,000.
    pub send_timeout_ms: u64,
    /// Longest time of a request, including the arrival of its body and its login, in milliseconds. Default 10,000.
    pub request_timeout_ms: u64,
    /// Longest time that a device may say it waits for a command (`hono-ttd`), in seconds; at most four fifths of
    /// `http.idle_timeout_ms`. Default 60.
    pub ttd_max_s: u32,
    /// If true, devices must log in unless their tenant's own setting says otherwise. Default true.
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
