//! What can go wrong with history outside a request.

use std::path::PathBuf;
use std::sync::Arc;

use millstream_types::ErrorCode;

/// Why history cannot be opened, written or read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The log refused.
    #[error(transparent)]
    Log(#[from] millstream_log::Error),
    /// The disk refused.
    #[error("history cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// Of which file.
        path: PathBuf,
        /// What the system says.
        source: Arc<std::io::Error>,
    },
    /// A file cannot be written or read as Parquet.
    #[error("history file {}: {reason}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A record of `_history` is not as this version writes it.
    #[error("a record of the topic '_history' cannot be read: {reason}; was it written by a later version?")]
    Record {
        /// What is wrong with it.
        reason: String,
    },
    /// The system refuses a thread.
    #[error("a thread for history cannot be started")]
    Thread(#[source] Arc<std::io::Error>),
    /// A setting that cannot be.
    #[error("{setting} = {value}: {rule}")]
    InvalidSetting {
        /// The setting.
        setting: &'static str,
        /// What was given.
        value: String,
        /// The rule, and the remedy.
        rule: &'static str,
    },
    /// History has stopped.
    #[error("history is stopping; ask again when the server is back")]
    Stopped,
}

impl Error {
    /// The kind of failure, from which every door takes its own code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Log(error) => error.code(),
            Self::InvalidSetting { .. } => ErrorCode::Invalid,
            Self::File { .. } | Self::Record { .. } => ErrorCode::Corrupt,
            Self::Io { .. } | Self::Thread(_) => ErrorCode::Internal,
            Self::Stopped => ErrorCode::Unavailable,
        }
    }

    pub(crate) fn io(what: &'static str, path: &std::path::Path, source: std::io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), source: Arc::new(source) }
    }

    pub(crate) fn file(path: &std::path::Path, reason: &impl std::fmt::Display) -> Self {
        Self::File { path: path.to_owned(), reason: reason.to_string() }
    }
}
