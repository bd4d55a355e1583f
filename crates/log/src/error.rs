//! Everything that can go wrong with the log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_types::{BatchError, ErrorCode, NameError, Offset, Position, TopicName, TopicPartition};

/// Why a call to the log failed. Cheap to clone: one failed sync answers many.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such topic.
    #[error("topic '{topic}' does not exist; create it first")]
    UnknownTopic {
        /// The name asked for.
        topic: TopicName,
    },
    /// No such partition.
    #[error("partition {partition} does not exist; its topic has {partitions} (0 to {})", .partitions - 1)]
    UnknownPartition {
        /// The partition asked for.
        partition: TopicPartition,
        /// How many there are.
        partitions: u32,
    },
    /// The name is taken by a topic with another configuration.
    #[error("topic '{topic}' exists with another value of '{differs}'; alter that, or delete the topic first")]
    TopicExists {
        /// The topic.
        topic: TopicName,
        /// Which setting differs.
        differs: &'static str,
    },
    /// A topic in memory for which there is no room.
    #[error(
        "topic '{topic}' in memory would take {wanted_bytes} bytes, {used_bytes} are taken by others: log.memory_topics_max_bytes = {limit_bytes}; make it smaller, delete another, or raise the limit"
    )]
    MemoryTopicsFull {
        /// The topic.
        topic: TopicName,
        /// What all of its partitions would take.
        wanted_bytes: usize,
        /// What others take.
        used_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// A setting that cannot be.
    #[error("{setting} = {value} of topic '{topic}': {rule}")]
    InvalidConfig {
        /// The topic.
        topic: TopicName,
        /// The setting.
        setting: &'static str,
        /// What was given.
        value: String,
        /// The rule, and the remedy.
        rule: &'static str,
    },
    /// A limit of the engine that cannot be.
    #[error("{limit} = {value}: {rule}")]
    InvalidLimit {
        /// The limit's key.
        limit: &'static str,
        /// What was given.
        value: u64,
        /// The rule, and the remedy.
        rule: &'static str,
    },
    /// Not a legal name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Not a legal batch.
    #[error("the batch for {partition} is refused")]
    Batch {
        /// Where it was to go.
        partition: TopicPartition,
        /// What is wrong with it.
        source: BatchError,
    },
    /// A record over the topic's limit.
    #[error(
        "record of {size_bytes} bytes for {partition} exceeds record_max_bytes = {limit_bytes}; split it or raise the limit"
    )]
    RecordTooLarge {
        /// Where it was to go.
        partition: TopicPartition,
        /// Its size.
        size_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// An append over the engine's limit.
    #[error(
        "append of {size_bytes} bytes exceeds log.append_max_bytes = {limit_bytes}; send smaller batches or raise the limit"
    )]
    AppendTooLarge {
        /// Its size.
        size_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// Too much is waiting to be written.
    #[error("{waiting_bytes} bytes wait to be written, {limit} = {limit_bytes}; slow down and try again")]
    Overloaded {
        /// What waits.
        waiting_bytes: usize,
        /// The limit's name; appends that nobody waits for have a lower one.
        limit: &'static str,
        /// The limit.
        limit_bytes: usize,
    },
    /// The disk has so little room left that nothing is taken, or brought to the segments.
    #[error(
        "the disk of {} is full: {free_bytes} bytes are free and {limit_bytes} are needed (log.disk_free_min_bytes for appends); make room", .path.display()
    )]
    DiskFull {
        /// The directory.
        path: PathBuf,
        /// What the disk still takes.
        free_bytes: u64,
        /// What it must.
        limit_bytes: u64,
    },
    /// Too many records of one partition are not durable yet.
    #[error(
        "{waiting_records} records of {partition} are not synced yet, the limit is {limit_records}; slow down, or split the append, and try again"
    )]
    TooManyUnsynced {
        /// The partition.
        partition: TopicPartition,
        /// Records beyond the synced offset, those of this append among them.
        waiting_records: u64,
        /// The limit.
        limit_records: u64,
    },
    /// An append without records.
    #[error("the append to {partition} has no record; send at least one")]
    EmptyAppend {
        /// Where it was to go.
        partition: TopicPartition,
    },
    /// A record without a key for a compacted topic, which keeps the last record of each key.
    #[error(
        "record {index} of an append to {partition} has no key, and the topic is compacted by key; give every record a key"
    )]
    MissingKey {
        /// Where it was to go.
        partition: TopicPartition,
        /// Which record of the append, counted from 0.
        index: usize,
    },
    /// Not a name for a consumer group.
    #[error("'{group}' is no name for a consumer group: use 1 to {limit_bytes} bytes")]
    InvalidGroup {
        /// What was given.
        group: String,
        /// The limit.
        limit_bytes: usize,
    },
    /// A text to be kept with a position that is too long.
    #[error(
        "metadata of {size_bytes} bytes for a position of group '{group}' exceed {limit_bytes}; store less with it"
    )]
    MetadataTooLarge {
        /// The consumer group.
        group: String,
        /// Its length.
        size_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// A position to be committed that lies beyond what the topic's level protects.
    #[error(
        "group '{group}' cannot commit offset {offset} of {partition}: only what lies below {stable} is as durable as its topic's level asks"
    )]
    PositionUnstable {
        /// The consumer group.
        group: String,
        /// The partition.
        partition: TopicPartition,
        /// The offset to be committed.
        offset: Offset,
        /// How far the topic's level protects the partition.
        stable: Offset,
    },
    /// Another batch of this idempotent producer comes first.
    #[error(
        "producer {producer} (epoch {epoch}) sends sequence {given} to {partition}, where {expected} is next; send what is missing first, or begin a new epoch"
    )]
    OutOfOrderSequence {
        /// Where it was to go.
        partition: TopicPartition,
        /// The producer's id.
        producer: i64,
        /// The epoch that it sends under.
        epoch: i16,
        /// The sequence number that is next.
        expected: i32,
        /// The one that was sent.
        given: i32,
    },
    /// A batch that is stored already, so long ago that nobody knows where.
    #[error(
        "sequence {given} of producer {producer} in {partition} was stored before, at an offset that is no longer known; go on with the next one"
    )]
    DuplicateSequence {
        /// Where it was to go, and is.
        partition: TopicPartition,
        /// The producer's id.
        producer: i64,
        /// The sequence number that was sent.
        given: i32,
    },
    /// Somebody else goes on under this producer's id.
    #[error(
        "producer {producer} sends to {partition} under epoch {given}, and epoch {current} has begun; another instance has taken over, so end this one"
    )]
    FencedProducer {
        /// Where it was to go.
        partition: TopicPartition,
        /// The producer's id.
        producer: i64,
        /// The epoch in force.
        current: i16,
        /// The epoch that it sends under.
        given: i16,
    },
    /// What does not fit the state of a producer's transaction.
    #[error("producer {producer} (epoch {epoch}), {place}: {rule}")]
    InvalidTransaction {
        /// The producer's id.
        producer: i64,
        /// The epoch that it gave.
        epoch: i16,
        /// Where.
        place: String,
        /// The rule, and the remedy.
        rule: &'static str,
    },
    /// No room for another transaction in a partition.
    #[error(
        "{partition} keeps {count} transactions, {limit} = {limit_count}; end those that are open, wait until retention has removed aborted ones, or raise the limit"
    )]
    TooManyTransactions {
        /// The partition.
        partition: TopicPartition,
        /// How many there are.
        count: usize,
        /// The limit's name: one for those that are open, one for aborted ones, too.
        limit: &'static str,
        /// The limit.
        limit_count: usize,
    },
    /// A kind of batch that the engine does not take.
    #[error("the batch for {partition} {what}; send it without")]
    UnsupportedBatch {
        /// Where it was to go.
        partition: TopicPartition,
        /// What is not supported.
        what: &'static str,
    },
    /// The record asked for is gone.
    #[error("offset {wanted} of {partition} was trimmed; the oldest readable offset is {oldest}")]
    Trimmed {
        /// The partition.
        partition: TopicPartition,
        /// The offset asked for.
        wanted: Offset,
        /// The oldest that is there.
        oldest: Offset,
    },
    /// The record asked for was never written.
    #[error("offset {wanted} of {partition} lies beyond its tail {tail}")]
    BeyondTail {
        /// The partition.
        partition: TopicPartition,
        /// The offset asked for.
        wanted: Offset,
        /// The first offset not handed out.
        tail: Offset,
    },
    /// Records to be removed that are not stable yet.
    #[error("{partition} cannot be trimmed below {wanted}: only records below {stable} are stable; trim up to there")]
    BeyondStable {
        /// The partition.
        partition: TopicPartition,
        /// The offset below which records were to go.
        wanted: Offset,
        /// The partition's stable offset.
        stable: Offset,
    },
    /// Records to be removed from a compacted topic.
    #[error(
        "{partition} is compacted by key and cannot be trimmed; append a record without a value for each key to be removed"
    )]
    NotTrimmable {
        /// The partition.
        partition: TopicPartition,
    },
    /// A stored position that this partition's history contradicts.
    #[error("position {position:?} is not on the history of {partition}: {why}; read again from {restart}")]
    PositionLost {
        /// The partition.
        partition: TopicPartition,
        /// The stored position.
        position: Position,
        /// What contradicts it.
        why: &'static str,
        /// The last offset that the history and the position have in common.
        restart: Offset,
    },
    /// Stored bytes are not what was written.
    #[error("{} is damaged at byte {at}: {what} ({partition}, offset {offset}); restore the file from a copy; a server that runs can also delete the topic", .path.display())]
    Corrupt {
        /// The partition.
        partition: TopicPartition,
        /// The first offset that cannot be read.
        offset: Offset,
        /// The file.
        path: PathBuf,
        /// Where in it.
        at: u64,
        /// What does not fit.
        what: &'static str,
    },
    /// A file of the engine itself, of no one partition, is damaged.
    #[error("{} is damaged at byte {at}: {what}; restore the file from a copy", .path.display())]
    CorruptFile {
        /// The file.
        path: PathBuf,
        /// Where in it.
        at: u64,
        /// What does not fit.
        what: &'static str,
    },
    /// A file written by a version that this one does not know.
    #[error("{} has format version {version}, this program reads up to {known}; use a newer millstream", .path.display())]
    UnknownVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u16,
        /// The newest known.
        known: u16,
    },
    /// Another process owns the directory.
    #[error("data directory {} is in use by another millstream process (pid {pid}); stop it or choose another --data-dir", .path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The owner, as far as it is known.
        pid: String,
    },
    /// An earlier write or sync failed; nothing more is written until a restart.
    #[error("writing to {} has ended after a failed write or sync ({source}); restart to recover what is durable", .path.display())]
    WritingEnded {
        /// The directory.
        path: PathBuf,
        /// What failed.
        source: Arc<io::Error>,
    },
    /// The operating system refused.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The log is shutting down or gone.
    #[error("the log has stopped")]
    Stopped,
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source: Arc::new(source) }
    }

    /// The system has said that the disk takes no more.
    pub(crate) fn is_disk_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }

    /// The kind of failure, from which every door takes its own code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::UnknownTopic { .. } | Self::UnknownPartition { .. } | Self::Trimmed { .. } => ErrorCode::NotFound,
            Self::TopicExists { .. }
            | Self::PositionLost { .. }
            | Self::OutOfOrderSequence { .. }
            | Self::DuplicateSequence { .. }
            | Self::FencedProducer { .. }
            | Self::InvalidTransaction { .. } => ErrorCode::Conflict,
            Self::UnsupportedBatch { .. } | Self::NotTrimmable { .. } => ErrorCode::Unsupported,
            Self::InvalidConfig { .. }
            | Self::InvalidLimit { .. }
            | Self::Name(_)
            | Self::Batch { .. }
            | Self::EmptyAppend { .. }
            | Self::MissingKey { .. }
            | Self::InvalidGroup { .. }
            | Self::PositionUnstable { .. }
            | Self::BeyondStable { .. }
            | Self::BeyondTail { .. } => ErrorCode::Invalid,
            Self::RecordTooLarge { .. } | Self::AppendTooLarge { .. } | Self::MetadataTooLarge { .. } => {
                ErrorCode::TooLarge
            }
            Self::Overloaded { .. }
            | Self::DiskFull { .. }
            | Self::TooManyUnsynced { .. }
            | Self::TooManyTransactions { .. }
            | Self::MemoryTopicsFull { .. } => ErrorCode::Overloaded,
            Self::Corrupt { .. } | Self::CorruptFile { .. } | Self::UnknownVersion { .. } => ErrorCode::Corrupt,
            Self::InUse { .. } | Self::Stopped | Self::WritingEnded { .. } => ErrorCode::Unavailable,
            Self::Io { .. } => ErrorCode::Internal,
        }
    }

    /// Whether the same call may succeed later, without a restart.
    pub fn is_retryable(&self) -> bool {
        self.code().is_retryable() && !matches!(self, Self::WritingEnded { .. })
    }

    /// Whether records may have been stored although the call failed.
    pub fn may_have_applied(&self) -> bool {
        matches!(self, Self::WritingEnded { .. } | Self::Io { .. } | Self::Stopped | Self::DuplicateSequence { .. })
    }
}
