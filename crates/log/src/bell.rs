//! Wakes readers, on plain threads and in async tasks alike.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

/// Rung when something has changed; remembers one ring that nobody has heard yet, so none is missed.
///
/// One listener per bell. A ring says *look again*, not what has changed.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
    tasks: Notify,
    is_of_consumer: bool,
}

impl Bell {
    /// The bell of somebody outside who reads what arrives: where it watches a partition, there is a consumer
    /// ([`crate::Partition::has_consumer`]).
    pub fn of_consumer() -> Self {
        Self { is_of_consumer: true, ..Self::default() }
    }

    pub(crate) fn is_of_consumer(&self) -> bool {
        self.is_of_consumer
    }

    /// Rings.
    pub fn ring(&self) {
        *self.rung.lock() = true;
        self.heard.notify_one();
        self.tasks.notify_one();
    }

    /// Blocks until it rings, or `timeout` has passed. Whether it rang.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut rung = self.rung.lock();
        if !*rung {
            self.heard.wait_for(&mut rung, timeout);
        }
        std::mem::take(&mut *rung)
    }

    /// Waits in a task until it rings.
    pub async fn rung(&self) {
        self.tasks.notified().await;
        *self.rung.lock() = false;
    }
}
