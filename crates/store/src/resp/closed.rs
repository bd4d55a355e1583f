//! Clients that are closed for what they do: counted for `/metrics`, and told in the log.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use millstream_net::LogRateLimit;
use tokio::time::Instant;

use crate::resp::codec::ForeignProtocol;
use crate::resp::messages::{SLOW_BYTES, SLOW_MAX_MS, WAITING_MAX_BYTES};

/// The reason why a client is closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClosedFor {
    #[error("it speaks {0} instead of Redis's protocol; a web page may be behind it")]
    ForeignProtocol(ForeignProtocol),
    #[error("{bytes} bytes of messages would wait for it, and {WAITING_MAX_BYTES} may")]
    UnreadMessages { bytes: usize },
    #[error("{bytes} bytes of messages wait for it, and more than {SLOW_BYTES} may for {} s only", SLOW_MAX_MS / 1_000)]
    UnreadForLong { bytes: usize },
    #[error("memory.budget_bytes has no room for more messages, and {bytes} bytes wait for it")]
    NoMemory { bytes: usize },
    #[error("it did not take its replies for store.redis.write_timeout_ms = {}", .0.as_millis())]
    UnreadReplies(Duration),
}

impl ClosedFor {
    /// The reasons as metrics tell them apart, in the order of [`ClosedFor::index`].
    const NAMES: [&str; 5] = ["foreign_protocol", "unread_messages", "unread_for_long", "no_memory", "unread_replies"];

    fn index(&self) -> usize {
        match self {
            Self::ForeignProtocol(_) => 0,
            Self::UnreadMessages { .. } => 1,
            Self::UnreadForLong { .. } => 2,
            Self::NoMemory { .. } => 3,
            Self::UnreadReplies(_) => 4,
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
