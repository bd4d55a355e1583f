//! The limits of a listener's connections.

use std::time::Duration;

use millstream_types::MemoryBudget;
use tokio::time::Instant;

/// The limits of a listener's connections.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// Largest number of connections at a time that have logged in. Those of the tenant that has most make room for those of
    /// others.
    pub connections_max: usize,
    /// The setting behind `connections_max`, for refusals.
    pub setting: &'static str,
    /// Memory that each connection takes from `memory`; one with TLS takes 24 KiB more.
    pub connection_bytes: u64,
    /// The budget that connections take their memory from.
    pub memory: MemoryBudget,
    /// Time that a client has until its login. As many as a quarter of `connections_max`, and no more than one for each 512 KiB
    /// of `memory`, may be without one at the same time, beside those that have one.
    pub login_timeout: LoginTimeout,
}

/// The time that a client has to log in, and the setting that says so.
#[derive(Debug, Clone, Copy)]
pub struct LoginTimeout {
    /// The name of the setting.
    pub setting: &'static str,
    /// Its value in milliseconds.
    pub limit_ms: u64,
}

impl LoginTimeout {
    /// The end of that time, if it begins now.
    pub(crate) fn due(self) -> Instant {
        Instant::now() + Duration::from_millis(self.limit_ms)
    }
}
