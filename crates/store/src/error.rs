//! The errors of the store.

use millstream_types::{ErrorCode, NameError, TenantId};

use crate::WriteRefusal;

/// The reason why a request to the store failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant explains its fields")]
pub enum Error {
    /// A limit of the bucket refuses the write.
    #[error(transparent)]
    Refused(#[from] WriteRefusal),
    /// The owner of the partition refused the write, or failed.
    #[error(transparent)]
    View(#[from] millstream_view::Error),
    /// The log refused a read or a change of the topic.
    #[error(transparent)]
    Log(std::sync::Arc<millstream_log::Error>),
    /// The name of a bucket is not legal.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The tenant has no bucket of this name.
    #[error("bucket '{bucket}' does not exist; 'PUT /buckets/{bucket}' makes it")]
    UnknownBucket { bucket: String },
    /// The bucket is a cache, and the request needs the log.
    #[error("bucket '{bucket}' is a cache; this needs a durable bucket")]
    IsCache { bucket: String },
    /// A setting that never changes would.
    #[error("bucket '{bucket}' has {setting} {found}, which never changes; delete the bucket first")]
    Fixed { bucket: String, setting: &'static str, found: String },
    /// The settings of a bucket are not legal.
    #[error("the settings of bucket '{bucket}' cannot be taken: {rule}")]
    Settings { bucket: String, rule: String },
    /// There are as many buckets as there may be.
    #[error("there are {limit} buckets, as many as store.buckets_max allows; delete one or raise the limit")]
    TooManyBuckets { limit: usize },
    /// The tenant has as many buckets as it may have.
    #[error(
        "tenant '{tenant}' has {limit} buckets, as many as store.buckets_per_tenant_max allows; delete one or raise the limit"
    )]
    TooManyBucketsOfTenant { tenant: TenantId, limit: usize },
    /// The tenant has as many open uploads as it may have.
    #[error(
        "tenant '{tenant}' has {open} open uploads, and store.uploads_per_tenant_max = {limit}; commit or give up some, or raise the limit"
    )]
    TooManyUploads { tenant: TenantId, open: u64, limit: usize },
    /// The memory budget has too little left for the values of a bucket.
    #[error(
        "{setting} = {size_bytes} of bucket '{bucket}' needs {more_bytes} bytes more of memory, of which {left_bytes} are left to buckets ({budget} = {budget_bytes})"
    )]
    NoMemory {
        bucket: String,
        setting: &'static str,
        size_bytes: u64,
        more_bytes: u64,
        left_bytes: u64,
        budget: &'static str,
        budget_bytes: u64,
    },
    /// The record of a key is not there although the index knows it.
    #[error("the record of a key is missing in partition {partition} at offset {offset}: {what}")]
    Damaged { partition: millstream_types::TopicPartition, offset: u64, what: String },
    /// Too many reads wait for the disk.
    #[error("{waiting} reads wait for the disk, as many as store.reads_waiting_max allows; try again a little later")]
    ReadsWaiting { waiting: usize },
    /// The store is shutting down.
    #[error("the store has stopped")]
    Stopped,
}

impl From<millstream_log::Error> for Error {
    fn from(source: millstream_log::Error) -> Self {
        Self::Log(std::sync::Arc::new(source))
    }
}

impl Error {
    /// The kind of failure, which each protocol maps to its own code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Refused(
                WriteRefusal::ValueTooLarge { .. }
                | WriteRefusal::TransactionTooLarge { .. }
                | WriteRefusal::RepliesTooLarge { .. }
                | WriteRefusal::InParts { .. }
                | WriteRefusal::TooManyPieces { .. },
            ) => ErrorCode::TooLarge,
            Self::Refused(WriteRefusal::NoUpload { .. }) => ErrorCode::NotFound,
            Self::Refused(WriteRefusal::Manifest { .. }) => ErrorCode::Corrupt,
            Self::Refused(WriteRefusal::Key { .. }) | Self::Name(_) | Self::Settings { .. } => ErrorCode::Invalid,
            Self::Refused(WriteRefusal::TooManyWrites { .. }) => ErrorCode::RateLimited,
            Self::Refused(_)
            | Self::IsCache { .. }
            | Self::TooManyBuckets { .. }
            | Self::TooManyBucketsOfTenant { .. }
            | Self::TooManyUploads { .. }
            | Self::NoMemory { .. }
            | Self::Fixed { .. } => ErrorCode::Conflict,
            Self::View(source) => source.code(),
            Self::Log(source) => source.code(),
            Self::UnknownBucket { .. } => ErrorCode::NotFound,
            Self::Damaged { .. } => ErrorCode::Corrupt,
            Self::ReadsWaiting { .. } => ErrorCode::Overloaded,
            Self::Stopped => ErrorCode::Unavailable,
        }
    }
}
