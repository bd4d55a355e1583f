//! Why the plane does not start.

use std::sync::Arc;

use millstream_types::ErrorCode;

/// A failure to open.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The registry cannot be opened.
    #[error("the device registry cannot be opened")]
    Registry(#[source] millstream_view::Error),
    /// What is noted of tenants' usage cannot be opened.
    #[error("the notes of what tenants have used cannot be opened")]
    Usage(#[source] millstream_view::Error),
    /// The commands that wait for devices cannot be opened.
    #[error("the commands that wait for devices cannot be opened")]
    Commands(#[source] millstream_view::Error),
    /// Who listens for commands cannot be opened.
    #[error("the view of who listens for commands cannot be opened")]
    Presence(#[source] millstream_view::Error),
    /// A setting that cannot be.
    #[error("{setting} = {value}: {rule}")]
    InvalidSetting {
        /// The setting's key.
        setting: &'static str,
        /// What was given.
        value: String,
        /// The rule, and the remedy.
        rule: &'static str,
    },
    /// The system refuses the address of the devices' MQTT listener.
    #[error("listener 'devices-mqtt' cannot listen on {address}; free the port or choose another address")]
    Bind {
        /// Where it was to listen.
        address: std::net::SocketAddr,
        /// What the system said.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// The system refuses a thread.
    #[error("a thread cannot be started")]
    Thread(#[source] Arc<std::io::Error>),
}

impl Error {
    /// The kind of failure.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Registry(source) | Self::Usage(source) | Self::Commands(source) | Self::Presence(source) => {
                source.code()
            }
            Self::InvalidSetting { .. } => ErrorCode::Invalid,
            Self::Bind { .. } | Self::Thread(_) => ErrorCode::Internal,
        }
    }
}
