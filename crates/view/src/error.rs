//! What can go wrong between a command and its answer.

use std::path::PathBuf;
use std::sync::Arc;

use millstream_types::{ErrorCode, Offset, TopicName, TopicPartition};

/// A state record that the view does not understand.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}")]
pub struct DecodeError {
    /// What does not fit, with the value.
    pub what: String,
}

impl DecodeError {
    /// A record that does not fit because of `what`.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}

/// Why a command was not answered, or a view could not be opened.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Too many commands wait for this partition.
    #[error("{waiting} commands wait for {partition}, which lets at most {limit} wait; slow down and try again")]
    Overloaded {
        /// The partition of the state topic.
        partition: TopicPartition,
        /// How many wait.
        waiting: usize,
        /// The limit.
        limit: usize,
    },
    /// The commands that wait for this partition take too much memory.
    #[error(
        "commands of {waiting_bytes} bytes wait for {partition}, which lets at most {limit_bytes} bytes wait, its part of {setting}; slow down and try again, or raise that"
    )]
    InboxFull {
        /// The partition of the state topic.
        partition: TopicPartition,
        /// What those that wait take.
        waiting_bytes: usize,
        /// The limit.
        limit_bytes: usize,
        /// The setting behind it.
        setting: &'static str,
    },
    /// The partition's owner has ended: an append failed, and what was in flight is of unknown fate.
    #[error("the owner of {partition} has ended: {source}")]
    OwnerEnded {
        /// The partition of the state topic.
        partition: TopicPartition,
        /// The append's failure.
        source: Arc<millstream_log::Error>,
    },
    /// Deciding the command panicked: a mistake in the program. Nothing of the command was kept.
    #[error("a command for {partition} made its owner panic: {what}; nothing of it was kept, report it with this text")]
    Panicked {
        /// The partition of the state topic.
        partition: TopicPartition,
        /// What the panic says.
        what: String,
    },
    /// The log refused.
    #[error(transparent)]
    Log(Arc<millstream_log::Error>),
    /// A command whose changes do not fit into one append.
    #[error(
        "the changes of one command take {size_bytes} bytes in {partition}, one append of it takes at most {limit_bytes}; ask for less at once"
    )]
    ChangesTooLarge {
        /// The partition of the state topic.
        partition: TopicPartition,
        /// What they take.
        size_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// A record of the state topic that this version cannot read.
    #[error("offset {offset} of {partition} is no state record of this version; use a newer millstream")]
    StateRecord {
        /// The partition of the state topic.
        partition: TopicPartition,
        /// The record.
        offset: Offset,
        /// What does not fit.
        source: DecodeError,
    },
    /// The state topic has another shape than the view was opened with.
    #[error(
        "state topic '{topic}' has {found} partitions and not {wanted}; their number is fixed when the data directory is made"
    )]
    Partitions {
        /// The state topic.
        topic: TopicName,
        /// What it has.
        found: u32,
        /// What was asked for.
        wanted: u32,
    },
    /// The checkpoint store cannot be used.
    #[error("cannot use the checkpoint store {}; it may be deleted, it is rebuilt from the log", .path.display())]
    Checkpoint {
        /// The directory.
        path: PathBuf,
        /// What the store says.
        source: Arc<fjall::Error>,
    },
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
    /// The kind of failure, from which every door takes its own code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Overloaded { .. } | Self::InboxFull { .. } => ErrorCode::Overloaded,
            Self::Log(source) => source.code(),
            Self::Panicked { .. } | Self::Checkpoint { .. } => ErrorCode::Internal,
            Self::ChangesTooLarge { .. } => ErrorCode::TooLarge,
            Self::StateRecord { .. } => ErrorCode::Corrupt,
            Self::Partitions { .. } => ErrorCode::Invalid,
            Self::Stopped | Self::OwnerEnded { .. } => ErrorCode::Unavailable,
        }
    }

    /// Whether nothing was taken because something is full that becomes free by itself, or by an operator: whoever can wait
    /// offers the command again.
    pub fn is_full(&self) -> bool {
        let is_disk = |source: &millstream_log::Error| matches!(source, millstream_log::Error::DiskFull { .. });
        match self {
            Self::Overloaded { .. } | Self::InboxFull { .. } => true,
            Self::Log(source) => is_disk(source),
            _ => false,
        }
    }

    /// Whether the same command may succeed later, without a restart.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Log(source) => source.is_retryable(),
            Self::OwnerEnded { .. } => false,
            _ => self.code().is_retryable(),
        }
    }

    /// Whether the command may have taken effect although it failed.
    pub fn may_have_applied(&self) -> bool {
        match self {
            Self::Log(source) | Self::OwnerEnded { source, .. } => source.may_have_applied(),
            Self::Stopped => true,
            _ => false,
        }
    }
}
