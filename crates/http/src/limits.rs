//! The limits of a route's requests and of a listener's connections.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The limits of one request of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest body, bytes; 0 allows none.
    pub body_max_bytes: u64,
    /// The name of the setting for the largest body, as refusals quote it.
    pub body_max_setting: &'static str,
    /// Time from the request's head to the head of its answer; a `Request-Timeout` header can only lower it.
    pub timeout: Duration,
}

/// Limits of a listener's connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListenerLimits {
    /// Connections at a time that have made a request, which tenants share; requests of more are answered 503. Default 20,000.
    pub connections_max: usize,
    /// Time for a request's head to arrive, and for a peer that reads nothing of its
    /// answer, in milliseconds. Default 10,000.
    pub head_timeout_ms: u64,
    /// Time that a connection may stay idle between requests, in milliseconds. Default 75,000.
    pub idle_timeout_ms: u64,
    /// Largest sum of header names and values of a request, in bytes. Default 16 KiB.
    pub head_max_bytes: usize,
    /// Longest path and query of a request, in bytes. Default 8 KiB.
    pub uri_max_bytes: usize,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            connections_max: 20_000,
            head_timeout_ms: 10_000,
            idle_timeout_ms: 75_000,
            head_max_bytes: 16 * 1024,
            uri_max_bytes: 8 * 1024,
        }
    }
}

impl ListenerLimits {
    pub(crate) fn head_timeout(&self) -> Duration {
        Duration::from_millis(self.head_timeout_ms.max(1))
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.idle_timeout_ms.max(1))
    }

    /// Buffer size that also holds a head a little over its limits, so that the refusal can state its size; a larger
    /// head is refused without a body (431).
    pub(crate) fn buffer_max_bytes(&self) -> usize {
        (2 * (self.head_max_bytes + self.uri_max_bytes)).max(64 * 1024)
    }
}
