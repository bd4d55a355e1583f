//! The errors of history.

use std::path::PathBuf;
use std::sync::Arc;

use millstream_http::{Problem, Reason};
use millstream_types::ErrorCode;

/// A failure to open, write or read history.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The log refused an operation or failed.
    #[error(transparent)]
    Log(#[from] millstream_log::Error),
    /// An operation on a file failed.
    #[error("history cannot {what} {}: {source}", path.display())]
    Io {
        /// The file operation that failed.
        what: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: Arc<std::io::Error>,
    },
    /// A file is not valid Parquet, or cannot be written as such.
    #[error("history file {}: {reason}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// A description of the damage.
        reason: String,
    },
    /// A record of `_history` has an unknown form.
    #[error("a record of the topic '_history' cannot be read: {reason}; was it written by a later version?")]
    Record {
        /// A description of the problem.
        reason: String,
    },
    /// The system refused to start a thread.
    #[error("a thread for history cannot be started")]
    Thread(#[source] Arc<std::io::Error>),
    /// A setting has an invalid value.
    #[error("{setting} = {value}: {rule}")]
    InvalidSetting {
        /// The name of the setting.
        setting: &'static str,
        /// The value that was given.
        value: String,
        /// The rule and the remedy.
        rule: &'static str,
    },
    /// History no longer answers because it stops.
    #[error("history is stopping; try again when the server is back")]
    Stopped,
}

impl Error {
    /// Maps the error to the code that the listeners translate.
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

/// Converts an error for the client.
pub(crate) fn failed(error: Error) -> Problem {
    Problem::from_error(error.code(), &error)
}

/// Builds the refusal of a read that exceeds a limit.
pub(crate) fn too_large(detail: String) -> Problem {
    Problem::new(Reason::Code(ErrorCode::TooLarge), detail)
}
