//! Who waits for commands.

use std::sync::Arc;

use millstream_types::TenantId;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::delivery::Delivery;
use super::router::Router;

/// Which commands a listener waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Those of this device: it listens itself, or `via` does, a gateway.
    Device { device: Arc<str>, via: Option<Arc<str>> },
    /// Those of any device behind this gateway.
    Behind { gateway: Arc<str> },
}

/// How commands are handed over.
#[derive(Debug)]
pub(crate) enum Way {
    /// One at most (an HTTP request that waits). The latest of several for the same commands gets it; the others are
    /// told at once: their receiver fails.
    Once(Once),
    /// As they come (an MQTT subscription). What finds it full counts as released.
    Stream(mpsc::Sender<Delivery>),
}

/// The hands of a request that takes one command. Listeners that share them are gone once one of them has been given it.
#[derive(Debug, Clone)]
pub(crate) struct Once(Arc<Mutex<Option<oneshot::Sender<Delivery>>>>);

impl Once {
    pub(crate) fn new(outbox: oneshot::Sender<Delivery>) -> Self {
        Self(Arc::new(Mutex::new(Some(outbox))))
    }

    /// Hands a command over, or back if the request has one or is gone.
    pub(super) fn give(&self, delivery: Delivery) -> Result<(), Delivery> {
        match self.0.lock().take() {
            Some(outbox) => outbox.send(delivery),
            None => Err(delivery),
        }
    }
}

/// Listens until it is dropped.
pub(crate) struct Listening {
    pub(super) router: Arc<Router>,
    pub(super) tenant: TenantId,
    pub(super) whose: Whose,
    pub(super) id: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.router.unlisten(&self.tenant, &self.whose, self.id);
    }
}
