//! The errors of the log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_types::{BatchError, ErrorCode, NameError, Offset, Position, TopicName, TopicPartition};

/// The reason why a call to the log failed. Cheap to clone: one failed sync answers many callers.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant explains its fields")]
pub enum Error {
    /// The topic does not exist.
    #[error("topic '{topic}' does not exist; create it first")]
    UnknownTopic { topic: TopicName },
    /// The topic has no partition of that number.
    #[error("partition {partition} does not exist; its topic has {partitions} (0 to {})", .partitions - 1)]
    UnknownPartition { partition: TopicPartition, partitions: u32 },
    /// A topic of that name exists with another configuration.
    #[error("topic '{topic}' exists with another value of '{differs}'; alter that, or delete the topic first")]
    TopicExists { topic: TopicName, differs: &'static str },
    /// The memory topics have no room for another one.
    #[error(
        "memory topic '{topic}' would take {wanted_bytes} bytes, and other memory topics take {used_bytes}: log.memory_topics_max_bytes = {limit_bytes}; make it smaller, delete another, or raise the limit"
    )]
    MemoryTopicsFull { topic: TopicName, wanted_bytes: usize, used_bytes: usize, limit_bytes: usize },
    /// The tenant's topics have no room for further partitions.
    #[error(
        "topic '{topic}' would have {wanted} partitions, and the other topics of tenant '{}' have {of_others}: log.partitions_per_tenant_max = {limit}; take fewer, delete another topic, or raise the limit", .topic.tenant()
    )]
    TooManyPartitions { topic: TopicName, wanted: usize, of_others: usize, limit: usize },
    /// A setting of a topic breaks a rule.
    #[error("{setting} = {value} of topic '{topic}': {rule}")]
    InvalidConfig { topic: TopicName, setting: &'static str, value: String, rule: &'static str },
    /// A limit of the engine breaks a rule.
    #[error("{limit} = {value}: {rule}")]
    InvalidLimit { limit: &'static str, value: u64, rule: &'static str },
    /// A setting breaks a rule.
    #[error("{setting} = {value}: {rule}")]
    InvalidSetting { setting: &'static str, value: String, rule: &'static str },
    /// The topic name is not legal.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The batch is malformed, as `source` explains.
    #[error("the batch for {partition} is refused")]
    Batch { partition: TopicPartition, source: BatchError },
    /// The record exceeds the topic's limit.
    #[error(
        "record of {size_bytes} bytes for {partition} exceeds record_max_bytes = {limit_bytes}; split it or raise the limit"
    )]
    RecordTooLarge { partition: TopicPartition, size_bytes: usize, limit_bytes: usize },
    /// The append exceeds the engine's limit.
    #[error(
        "append of {size_bytes} bytes exceeds log.append_max_bytes = {limit_bytes}; send smaller batches or raise the limit"
    )]
    AppendTooLarge { size_bytes: usize, limit_bytes: usize },
    /// Too many bytes are waiting to be written.
    #[error("{waiting_bytes} bytes wait to be written, {limit} = {limit_bytes}; slow down and try again")]
    Overloaded { waiting_bytes: usize, limit: &'static str, limit_bytes: usize },
    /// The disk is too full for appends, or for the segments.
    #[error(
        "the disk of {} is full: {free_bytes} bytes are free and {limit_bytes} are needed (log.disk_free_min_bytes for appends); make room", .path.display()
    )]
    DiskFull { path: PathBuf, free_bytes: u64, limit_bytes: u64 },
    /// The disk became full after the append was accepted. The records are written once there is room.
    #[error(
        "the disk of {} is full: {free_bytes} bytes are free and {limit_bytes} are needed (log.disk_free_min_bytes for appends); make room, and expect that these records are then stored", .path.display()
    )]
    WaitsForDisk { path: PathBuf, free_bytes: u64, limit_bytes: u64 },
    /// Too many records of one partition are not synced yet.
    #[error(
        "{waiting_records} records of {partition} are not synced yet, the limit is {limit_records}; slow down, or split the append, and try again"
    )]
    TooManyUnsynced { partition: TopicPartition, waiting_records: u64, limit_records: u64 },
    /// The append has no records.
    #[error("the append to {partition} has no record; send at least one")]
    EmptyAppend { partition: TopicPartition },
    /// A compacted topic keeps the last record of each key, and this record has none.
    #[error(
        "record {index} of an append to {partition} has no key, and the topic is compacted by key; give every record a key"
    )]
    MissingKey { partition: TopicPartition, index: usize },
    /// The name of the consumer group is not legal.
    #[error("'{group}' is no name for a consumer group: use 1 to {limit_bytes} bytes")]
    InvalidGroup { group: String, limit_bytes: usize },
    /// The metadata of a position is too long.
    #[error("metadata of {size_bytes} bytes for a position of group '{group}' exceed {limit_bytes}; shorten them")]
    MetadataTooLarge { group: String, size_bytes: usize, limit_bytes: usize },
    /// The position to commit lies beyond the high watermark.
    #[error(
        "group '{group}' cannot commit offset {offset} of {partition}: its topic's level protects only records below {stable}; commit at most that"
    )]
    PositionUnstable { group: String, partition: TopicPartition, offset: Offset, stable: Offset },
    /// Another batch of this idempotent producer comes first.
    #[error(
        "producer {producer} (epoch {epoch}) sends sequence {given} to {partition}, where {expected} is next; send the missing records first, or begin a new epoch"
    )]
    OutOfOrderSequence { partition: TopicPartition, producer: i64, epoch: i16, expected: i32, given: i32 },
    /// The batch is stored already, at an offset that is forgotten.
    #[error(
        "sequence {given} of producer {producer} in {partition} was stored before, at an offset that is no longer known; go on with the next one"
    )]
    DuplicateSequence { partition: TopicPartition, producer: i64, given: i32 },
    /// Another instance continues under this producer id.
    #[error(
        "producer {producer} sends to {partition} under epoch {given}, and epoch {current} has begun; another instance has taken over, so end this one"
    )]
    FencedProducer { partition: TopicPartition, producer: i64, current: i16, given: i16 },
    /// A later writer has the name.
    #[error("another writer '{writer}' has begun, and this one is fenced; end it")]
    Fenced { writer: String },
    /// The engine has not learnt whether a commit of this writer was stored.
    #[error(
        "whether a commit of writer '{writer}' was stored is unknown, and it accepts nothing more; take a new writer of that name, and read up to the stable offset what is stored"
    )]
    OutcomeUnknown { writer: String },
    /// The writer has ended with a commit that failed, and the next one of its name has not begun.
    #[error("writer '{writer}' begins anew after a commit that failed, and nothing was stored; try again in a moment")]
    WriterBegins { writer: String },
    /// No broker of the cluster answers, or none has the partition.
    #[error(
        "Kafka ({brokers}) cannot be used ({why}), and nothing was stored; see that its brokers run, are reached and take the login"
    )]
    Unreachable { brokers: String, why: String },
    /// The cluster cannot keep this log.
    #[error("Kafka at {broker} has {setting} = {value}: {rule}")]
    Unfit { broker: String, setting: String, value: String, rule: String },
    /// The cluster has refused a request.
    #[error("Kafka refuses {request}: {why}")]
    Refused { request: &'static str, why: String },
    /// The cluster has not answered an append.
    #[error(
        "Kafka has not answered an append to {partition} ({why}), which may be stored; read what is there before it is sent again"
    )]
    Unanswered { partition: TopicPartition, why: String },
    /// The call does not fit the state of the producer's transaction.
    #[error("producer {producer} (epoch {epoch}), {place}: {rule}")]
    InvalidTransaction { producer: i64, epoch: i16, place: String, rule: &'static str },
    /// The partition has no room for another transaction.
    #[error(
        "{partition} keeps {count} transactions, {limit} = {limit_count}; end those that are open, wait until retention has removed aborted ones, or raise the limit"
    )]
    TooManyTransactions { partition: TopicPartition, count: usize, limit: &'static str, limit_count: usize },
    /// The engine does not accept this kind of batch.
    #[error("the batch for {partition} {what}; send a plain batch")]
    UnsupportedBatch { partition: TopicPartition, what: &'static str },
    /// The record at this offset was removed.
    #[error("offset {wanted} of {partition} was trimmed; the oldest readable offset is {oldest}")]
    Trimmed { partition: TopicPartition, wanted: Offset, oldest: Offset },
    /// The offset was never handed out.
    #[error("offset {wanted} of {partition} lies beyond its tail {tail}")]
    BeyondTail { partition: TopicPartition, wanted: Offset, tail: Offset },
    /// The records to remove are not stable yet.
    #[error("{partition} cannot be trimmed below {wanted}: only records below {stable} are stable; trim up to there")]
    BeyondStable { partition: TopicPartition, wanted: Offset, stable: Offset },
    /// A compacted topic cannot be trimmed.
    #[error(
        "{partition} is compacted by key and cannot be trimmed; append a record without a value for each key to be removed"
    )]
    NotTrimmable { partition: TopicPartition },
    /// The stored position contradicts the history of the partition.
    #[error("position {position:?} does not fit the history of {partition}: {why}; read again from {restart}")]
    PositionLost { partition: TopicPartition, position: Position, why: &'static str, restart: Offset },
    /// Stored bytes of a partition differ from the written ones.
    #[error("{} is damaged at byte {at}: {what} ({partition}, offset {offset}); restore the file from a copy, or stop the server and see what 'millstream log check' says; a server that runs can also delete the topic", .path.display())]
    Corrupt { partition: TopicPartition, offset: Offset, path: PathBuf, at: u64, what: &'static str },
    /// A file of the engine that belongs to no partition is damaged.
    #[error("{} is damaged at byte {at}: {what}; restore the file from a copy, or see what 'millstream log check' says", .path.display())]
    CorruptFile { path: PathBuf, at: u64, what: &'static str },
    /// The file has a newer format version than this program.
    #[error("{} has format version {version}, this program reads up to {known}; use a newer millstream", .path.display())]
    UnknownVersion { path: PathBuf, version: u16, known: u16 },
    /// Another process owns the directory.
    #[error("data directory {} is in use by another millstream process (pid {pid}); stop it or choose another --data-dir", .path.display())]
    InUse { path: PathBuf, pid: String },
    /// The last end of the log was a crash, so that records may stand in its journal alone.
    #[error("the log in {} was not closed in order, so its journal may have the only copy of records; start the server, stop it, and try again", .path.display())]
    NotClosed { path: PathBuf },
    /// An earlier write or sync failed; nothing is written before a restart.
    #[error("writing to {} has ended after a failed write or sync ({source}); restart to recover the durable records", .path.display())]
    WritingEnded { path: PathBuf, source: Arc<io::Error> },
    /// The operating system returned an error.
    #[error("cannot {action} {}", .path.display())]
    Io { action: &'static str, path: PathBuf, source: Arc<io::Error> },
    /// The files of an image were released.
    #[error("the disk has no room left, so the files that a backup held were released; make room and begin again")]
    ImageReleased,
    /// The log is closed or closing.
    #[error("the log has stopped")]
    Stopped,
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source: Arc::new(source) }
    }

    /// `true` if the operating system reported a full disk.
    pub(crate) fn is_disk_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }

    /// The kind of failure, which each protocol maps to its own code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::UnknownTopic { .. } | Self::UnknownPartition { .. } | Self::Trimmed { .. } => ErrorCode::NotFound,
            Self::TopicExists { .. }
            | Self::TooManyPartitions { .. }
            | Self::PositionLost { .. }
            | Self::OutOfOrderSequence { .. }
            | Self::DuplicateSequence { .. }
            | Self::FencedProducer { .. }
            | Self::NotClosed { .. }
            | Self::InvalidTransaction { .. } => ErrorCode::Conflict,
            Self::UnsupportedBatch { .. } | Self::NotTrimmable { .. } => ErrorCode::Unsupported,
            Self::InvalidConfig { .. }
            | Self::Unfit { .. }
            | Self::InvalidLimit { .. }
            | Self::InvalidSetting { .. }
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
            | Self::WaitsForDisk { .. }
            | Self::TooManyUnsynced { .. }
            | Self::TooManyTransactions { .. }
            | Self::MemoryTopicsFull { .. } => ErrorCode::Overloaded,
            Self::Corrupt { .. } | Self::CorruptFile { .. } | Self::UnknownVersion { .. } => ErrorCode::Corrupt,
            Self::InUse { .. }
            | Self::Fenced { .. }
            | Self::OutcomeUnknown { .. }
            | Self::WriterBegins { .. }
            | Self::Stopped
            | Self::WritingEnded { .. }
            | Self::Unreachable { .. }
            | Self::Unanswered { .. }
            | Self::ImageReleased => ErrorCode::Unavailable,
            Self::Io { .. } | Self::Refused { .. } => ErrorCode::Internal,
        }
    }

    /// `true` if the same call may succeed later, without a restart.
    pub fn is_retryable(&self) -> bool {
        self.code().is_retryable()
            && !matches!(self, Self::WritingEnded { .. } | Self::Fenced { .. } | Self::OutcomeUnknown { .. })
    }

    /// `true` if nothing was taken for want of room, or since a writer begins: the same call may be taken a little later.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::Overloaded { .. }
                | Self::TooManyUnsynced { .. }
                | Self::DiskFull { .. }
                | Self::TooManyTransactions { .. }
                | Self::WriterBegins { .. }
        )
    }

    /// `true` if a writer ends with this failure of a commit, and the log goes on with the next one of its name.
    pub fn needs_writer(&self) -> bool {
        matches!(
            self,
            Self::OutcomeUnknown { .. } | Self::Unreachable { .. } | Self::Unanswered { .. } | Self::Refused { .. }
        )
    }

    /// `true` if records may have been stored although the call failed.
    pub fn may_have_applied(&self) -> bool {
        matches!(
            self,
            Self::WritingEnded { .. }
                | Self::Io { .. }
                | Self::Stopped
                | Self::DuplicateSequence { .. }
                | Self::WaitsForDisk { .. }
                | Self::OutcomeUnknown { .. }
                | Self::Unanswered { .. }
        )
    }
}
