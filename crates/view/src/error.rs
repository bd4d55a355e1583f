//! The errors of a view.

use std::path::PathBuf;
use std::sync::Arc;

use millstream_types::{ErrorCode, Offset, TopicName, TopicPartition};

/// A state record that the view cannot decode.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}")]
pub struct DecodeError {
    /// A description of the fault, with the value.
    pub what: String,
}

impl DecodeError {
    /// A fault with the description `what`.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}

/// The reason why a command was refused, or why a view could not be opened.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant explains its fields")]
pub enum Error {
    /// Too many commands wait for this partition.
    #[error("{waiting} commands wait for {partition}, which lets at most {limit} wait; slow down and try again")]
    Overloaded { partition: TopicPartition, waiting: usize, limit: usize },
    /// The commands that wait for this partition take too much memory.
    #[error(
        "commands of {waiting_bytes} bytes wait for {partition}, which lets at most {limit_bytes} bytes wait, its part of {setting}; slow down and try again, or raise that"
    )]
    InboxFull { partition: TopicPartition, waiting_bytes: usize, limit_bytes: usize, setting: &'static str },
    /// The memory that the commands of several views share is used up.
    #[error(
        "a command of {size_bytes} bytes for {partition} has to be refused: {used_bytes} bytes wait in all, and {setting} is {limit_bytes}; slow down and try again, or raise that"
    )]
    NoMemory { partition: TopicPartition, size_bytes: usize, used_bytes: u64, limit_bytes: u64, setting: &'static str },
    /// The partition's owner has ended after a failed append; the outcome of changes in flight is unknown.
    #[error("the owner of {partition} has ended: {source}")]
    OwnerEnded { partition: TopicPartition, source: Arc<millstream_log::Error> },
    /// The decision of the command panicked, a mistake in the program. Its changes were undone.
    #[error("a command for {partition} made its owner panic: {what}; nothing of it was kept, report it with this text")]
    Panicked { partition: TopicPartition, what: String },
    /// The log refused the append.
    #[error(transparent)]
    Log(Arc<millstream_log::Error>),
    /// The changes of one command do not fit into one append.
    #[error(
        "the changes of one command take {size_bytes} bytes in {partition}, one append of it takes at most {limit_bytes}; ask for less at once"
    )]
    ChangesTooLarge { partition: TopicPartition, size_bytes: usize, limit_bytes: usize },
    /// This version cannot read a record of the state topic.
    #[error("offset {offset} of {partition} is no state record of this version; use a newer millstream")]
    StateRecord { partition: TopicPartition, offset: Offset, source: DecodeError },
    /// The state topic has another number of partitions than the view.
    #[error(
        "state topic '{topic}' has {found} partitions and not {wanted}; their number is fixed when the data directory is made"
    )]
    Partitions { topic: TopicName, found: u32, wanted: u32 },
    /// The checkpoint store cannot be used.
    #[error("cannot use the checkpoint store {}; it may be deleted, it is rebuilt from the log", .path.display())]
    Checkpoint { path: PathBuf, source: Arc<fjall::Error> },
    /// The checkpoint lacks changes, since a write of it has failed.
    #[error("the checkpoint of {partition} lacks changes since a failed write; it is rebuilt by the next start")]
    CheckpointBehind { partition: TopicPartition },
    /// The state is on its way to this process.
    #[error("the state of {partition} is being loaded here; try again shortly")]
    Loading { partition: TopicPartition },
    /// Another process keeps the state.
    #[error("the state of {partition} is kept by {address}; ask there")]
    Elsewhere { partition: TopicPartition, address: Arc<str> },
    /// The view is shutting down.
    #[error("the view has stopped")]
    Stopped,
}

impl From<millstream_log::Error> for Error {
    fn from(source: millstream_log::Error) -> Self {
        Self::Log(Arc::new(source))
    }
}

impl Error {
    /// The kind of failure, which each protocol maps to its own code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Overloaded { .. } | Self::InboxFull { .. } | Self::NoMemory { .. } => ErrorCode::Overloaded,
            Self::Log(source) => source.code(),
            Self::Panicked { .. } | Self::Checkpoint { .. } | Self::CheckpointBehind { .. } => ErrorCode::Internal,
            Self::ChangesTooLarge { .. } => ErrorCode::TooLarge,
            Self::StateRecord { .. } => ErrorCode::Corrupt,
            Self::Partitions { .. } => ErrorCode::Invalid,
            Self::Stopped | Self::OwnerEnded { .. } | Self::Loading { .. } | Self::Elsewhere { .. } => {
                ErrorCode::Unavailable
            }
        }
    }

    /// `true` if the command was refused because of a limit that frees up by itself or through an operator, or since no broker
    /// answers: a caller that can wait may offer the command again.
    pub fn is_full(&self) -> bool {
        use millstream_log::Error::{DiskFull, Unreachable};
        match self {
            Self::Overloaded { .. } | Self::InboxFull { .. } | Self::NoMemory { .. } => true,
            Self::Log(source) => matches!(**source, DiskFull { .. } | Unreachable { .. }),
            _ => false,
        }
    }

    /// `true` if the partition is not in this process, or not yet: nothing was done.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Loading { .. } | Self::Elsewhere { .. })
    }

    /// `true` if the same command may succeed later, without a restart.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Log(source) => source.is_retryable(),
            Self::OwnerEnded { .. } => false,
            _ => self.code().is_retryable(),
        }
    }

    /// `true` if the command may have taken effect although it failed.
    pub fn may_have_applied(&self) -> bool {
        match self {
            Self::Log(source) | Self::OwnerEnded { source, .. } => source.may_have_applied(),
            Self::Stopped => true,
            _ => false,
        }
    }
}
