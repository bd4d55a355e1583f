//! Errors at the start of the plane.

use std::sync::Arc;

use millstream_types::ErrorCode;

/// An error that prevents the plane from starting.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The registry cannot be opened.
    #[error("the device registry cannot be opened")]
    Registry(#[source] millstream_view::Error),
    /// The stored usage of tenants cannot be opened.
    #[error("the notes of what tenants have used cannot be opened")]
    Usage(#[source] millstream_view::Error),
    /// The commands that wait for devices cannot be opened.
    #[error("the commands that wait for devices cannot be opened")]
    Commands(#[source] millstream_view::Error),
    /// The stored presence of listening devices cannot be opened.
    #[error("the view of who listens for commands cannot be opened")]
    Presence(#[source] millstream_view::Error),
    /// The positions of event queues cannot be opened.
    #[error("the positions of event queues cannot be opened")]
    EventQueues(#[source] millstream_view::Error),
    /// A setting has an invalid value.
    #[error("{setting} = {value}: {rule}")]
    InvalidSetting {
        /// The key of the invalid setting.
        setting: &'static str,
        /// The value that the operator configured.
        value: String,
        /// The rule that the value breaks, and the remedy.
        rule: &'static str,
    },
    /// The system refuses the address of a listener.
    #[error("listener '{listener}' cannot listen on {address}; free the port or choose another address")]
    Bind {
        /// The listener.
        listener: &'static str,
        /// The address that the listener was configured for.
        address: std::net::SocketAddr,
        /// The error of the operating system.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// Applications that need not log in could be reached from other machines.
    #[error(
        "listener 'amqp' refuses to start on {address}: an address other than loopback needs authentication; make an API token on loopback (millstream token create) or configure one (applications.tokens), or listen on 127.0.0.1"
    )]
    OpenToTheNetwork {
        /// The address that the listener was configured for.
        address: std::net::SocketAddr,
    },
    /// The operating system refuses to start a thread.
    #[error("a thread cannot be started")]
    Thread(#[source] Arc<std::io::Error>),
}

impl Error {
    /// Returns the code of the error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Registry(source)
            | Self::Usage(source)
            | Self::Commands(source)
            | Self::Presence(source)
            | Self::EventQueues(source) => source.code(),
            Self::InvalidSetting { .. } | Self::OpenToTheNetwork { .. } => ErrorCode::Invalid,
            Self::Bind { .. } | Self::Thread(_) => ErrorCode::Internal,
        }
    }
}
