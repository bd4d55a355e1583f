//! Connections before their login: a share of all connections, each for a limited time.
//!
//! Invariants
//! - If logins are required, each connection is in the list from its acceptance until its login or its end.
//! - The list has at most `max` entries. A further connection displaces the oldest, so that idle clients
//!   cannot keep new ones out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::KafkaConfig;
use crate::error::ConnectionError;

/// One in this many connections may be before its login.
const CONNECTIONS_PART: usize = 4;

/// All connections that have not logged in, oldest first.
pub(crate) struct PendingLogins {
    max: usize,
    limit_ms: u64,
    oldest_first: Mutex<VecDeque<Arc<Notify>>>,
}

impl PendingLogins {
    pub(crate) fn new(config: &KafkaConfig) -> Self {
        let max = (config.connections_max / CONNECTIONS_PART).max(1);
        Self { max, limit_ms: config.login_timeout_ms, oldest_first: Mutex::default() }
    }

    /// Adds a connection; if there are too many, displaces the oldest.
    pub(crate) fn begin(self: &Arc<Self>) -> PendingLogin {
        let displaced = Arc::new(Notify::new());
        let mut oldest_first = self.oldest_first.lock();
        if oldest_first.len() >= self.max
            && let Some(oldest) = oldest_first.pop_front()
        {
            oldest.notify_one();
        }
        oldest_first.push_back(Arc::clone(&displaced));
        PendingLogin { all: Arc::clone(self), until: Instant::now() + Duration::from_millis(self.limit_ms), displaced }
    }
}

/// The entry of one connection, removed on drop.
pub(crate) struct PendingLogin {
    all: Arc<PendingLogins>,
    until: Instant,
    displaced: Arc<Notify>,
}

impl PendingLogin {
    /// Completes when the connection must be closed for lack of a login, with the reason.
    pub(crate) fn overdue(&self) -> impl Future<Output = ConnectionError> + Send + 'static {
        let (displaced, until) = (Arc::clone(&self.displaced), self.until);
        let (max, limit_ms) = (self.all.max, self.all.limit_ms);
        async move {
            tokio::select! {
                () = displaced.notified() => ConnectionError::LoginDisplaced { max },
                () = sleep_until(until) => ConnectionError::LoginOverdue { limit_ms },
            }
        }
    }
}

impl Drop for PendingLogin {
    fn drop(&mut self) {
        self.all.oldest_first.lock().retain(|other| !Arc::ptr_eq(other, &self.displaced));
    }
}
