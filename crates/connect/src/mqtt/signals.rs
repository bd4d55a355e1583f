//! Signals from the listener to its connections.

use millstream_net::Shutdown;
use tokio::sync::watch;

/// The events of the listener and the registry that a connection watches.
#[derive(Clone)]
pub(super) struct Signals {
    /// Begins when the listener stops.
    pub(super) shutdown: Shutdown,
    /// Changes whenever the registry has.
    pub(super) registry: watch::Receiver<u64>,
}
