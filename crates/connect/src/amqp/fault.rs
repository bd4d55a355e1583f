//! The causes for which the server ends a connection, with the condition of each.

use std::io;
use std::time::Duration;

use millstream_amqp::condition;

/// The cause for which the server ends a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// Bytes that are no frame, or none that may stand here.
    #[error(transparent)]
    Malformed(millstream_amqp::Error),
    /// A frame over the limit.
    #[error("a frame of {size_bytes} bytes; connect.amqp.frame_max_bytes = {limit_bytes}")]
    TooLarge { size_bytes: usize, limit_bytes: usize },
    /// A frame that breaks a rule that has a condition of its own.
    #[error("{why}")]
    Refused { condition: &'static str, why: String },
    /// Nothing came for the time that the client was told.
    #[error("no frame for connect.amqp.idle_timeout_ms = {}", limit.as_millis())]
    Silent { limit: Duration },
    /// The rest of a frame did not come.
    #[error("the rest of a frame took longer than connect.amqp.frame_timeout_ms = {}", limit.as_millis())]
    SlowFrame { limit: Duration },
    #[error("the client has read nothing for connect.amqp.write_timeout_ms = {}", limit.as_millis())]
    SlowReader { limit: Duration },
    /// The memory budget has no room.
    #[error("no room in the memory budget for {size_bytes} bytes")]
    NoMemory { size_bytes: usize },
    /// The login was refused, and the client has been told so.
    #[error("the login is refused: {0}")]
    NoLogin(String),
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<millstream_amqp::Error> for Fault {
    fn from(error: millstream_amqp::Error) -> Self {
        match error {
            millstream_amqp::Error::TooLarge { size_bytes, limit_bytes } => Self::TooLarge { size_bytes, limit_bytes },
            other => Self::Malformed(other),
        }
    }
}

impl Fault {
    pub(super) fn refused(condition: &'static str, why: impl Into<String>) -> Self {
        Self::Refused { condition, why: why.into() }
    }

    /// The condition to close the connection with; `None` if nobody is left to be told.
    pub(super) fn condition(&self) -> Option<&'static str> {
        Some(match self {
            Self::Malformed(_) => condition::DECODE_ERROR,
            Self::TooLarge { .. } => condition::FRAMING_ERROR,
            Self::Refused { condition, .. } => condition,
            Self::Silent { .. } | Self::SlowFrame { .. } | Self::NoMemory { .. } => condition::RESOURCE_LIMIT_EXCEEDED,
            Self::ShuttingDown => condition::CONNECTION_FORCED,
            Self::SlowReader { .. } | Self::NoLogin(_) | Self::Io(_) => return None,
        })
    }
}
