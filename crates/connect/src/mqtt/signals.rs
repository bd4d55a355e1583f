//! Signals from the listener to its connections.

use millstream_mqtt::reason;
use millstream_net::{PendingLogin, Shutdown};
use tokio::sync::watch;

use super::disconnect::DisconnectCause;

/// The events of the listener and the registry that a connection watches.
#[derive(Clone)]
pub(super) struct Signals {
    /// Begins when the listener stops.
    pub(super) shutdown: Shutdown,
    /// Changes whenever the registry has.
    pub(super) registry: watch::Receiver<u64>,
}

/// Waits until the listener stops, an operator ends the connection, or the listener wants its place for another tenant.
pub(super) async fn end(
    shutdown: Shutdown,
    ended: impl Future<Output = ()>,
    login: Option<PendingLogin>,
) -> DisconnectCause {
    let displaced = async {
        match login {
            Some(login) => login.displaced().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = shutdown.begun() => DisconnectCause::ShuttingDown,
        () = ended => DisconnectCause::refused(reason::ADMINISTRATIVE_ACTION, "an operator has ended the connection"),
        () = displaced => DisconnectCause::refused(reason::QUOTA, "the listener is full, and of its tenants this one has most connections"),
    }
}
