//! A listener for commands.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::delivery::CommandDelivery;

/// The commands that a listener receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Commands for this device, received by itself or by the gateway `via`.
    Device { device: Arc<str>, via: Option<Arc<str>> },
    /// Commands for any device behind this gateway.
    Behind { gateway: Arc<str> },
}

/// The channel to a listener.
#[derive(Debug)]
pub(crate) enum Way {
    /// Takes one command at most (a waiting HTTP request). The latest of several requests for the same commands
    /// gets it; the receivers of the others fail at once.
    Once(Once),
    /// Takes commands as they come (an MQTT subscription). A command that finds it full is released.
    Stream(mpsc::Sender<CommandDelivery>),
}

/// The slot of a request that takes one command. Listeners that share a slot close once it is filled.
#[derive(Debug, Clone)]
pub(crate) struct Once(Arc<Mutex<Option<oneshot::Sender<CommandDelivery>>>>);

impl Once {
    pub(crate) fn new(outbox: oneshot::Sender<CommandDelivery>) -> Self {
        Self(Arc::new(Mutex::new(Some(outbox))))
    }

    /// Fills the slot, or returns the command if the slot is full or the request has ended.
    pub(super) fn give(&self, delivery: CommandDelivery) -> Result<(), CommandDelivery> {
        match self.0.lock().take() {
            Some(outbox) => outbox.send(delivery),
            None => Err(delivery),
        }
    }
}
