//! The errors of reading a stream.

use millstream_log::Error as LogError;
use millstream_types::{BatchError, TopicName};

use crate::Error;

/// The reason for which a stream cannot be read on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("a batch of stream '{stream}' cannot be read")]
    Batch { stream: TopicName, source: BatchError },
}

impl ReadError {
    /// The error for a client that asked about `stream`.
    pub(crate) fn of(self, stream: &TopicName) -> Error {
        match self {
            Self::Log(source) => Error::Log { stream: stream.clone(), source: Box::new(source) },
            Self::Batch { stream, source } => Error::Batch { stream, source },
        }
    }

    /// True if the log was stopped, and did not fail.
    pub(crate) fn is_stop(&self) -> bool {
        matches!(self, Self::Log(LogError::Stopped))
    }
}
