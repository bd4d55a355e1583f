//! Clients that are closed for what they do: counted for `/metrics`, and told in the log.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use millstream_net::LogRateLimit;
use tokio::time::Instant;

use crate::resp::codec::ForeignProtocol;

/// The reason why a client is closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClosedFor {
    #[error("it speaks {0} instead of Redis's protocol; a web page may be behind it")]
    ForeignProtocol(ForeignProtocol),
}

impl ClosedFor {
    /// The reasons as metrics tell them apart, in the order of [`ClosedFor::index`].
    const NAMES: [&str; 1] = ["foreign_protocol"];

    fn index(&self) -> usize {
        match self {
            Self::ForeignProtocol(_) => 0,
        }
    }
}

/// The clients that were closed for what they did.
#[derive(Debug, Default)]
pub(crate) struct ClosedClients {
    counts: [AtomicU64; ClosedFor::NAMES.len()],
    log_limit: LogRateLimit,
}

impl ClosedClients {
    pub(crate) fn tell(&self, peer: SocketAddr, why: &ClosedFor) {
        self.counts[why.index()].fetch_add(1, Relaxed);
        if let Some(left_out) = self.log_limit.admit(Instant::now()) {
            let reason = ClosedFor::NAMES[why.index()];
            tracing::warn!(%peer, reason, %why, left_out, "closed a Redis client");
        }
    }

    /// The number of clients for each reason.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        ClosedFor::NAMES.into_iter().zip(self.counts.iter().map(|count| count.load(Relaxed))).collect()
    }
}
