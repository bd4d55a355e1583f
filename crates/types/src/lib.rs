//! What everything in Millstream is made of: a tenant, a topic, an offset, a record, a batch, a principal.
//!
//! No I/O, no async, no thread. Time is here only as two traits ([`MonotonicClock`], [`WallClock`]) and their
//! system versions, so that every other crate can take a clock and no crate needs to read one. Of the process itself there is
//! only how many files it may open, which all who accept connections share.
//!
//! Not here: where records are kept (`log`), what they mean (`connect`, `context`, `query`), how they travel (`http`).

mod batch;
mod calendar;
mod clock;
mod compression;
mod error;
mod latency;
mod memory;
mod name;
mod offset;
mod open_files;
mod partitioner;
mod principal;
mod quota;
mod record;
mod service_path;

pub use batch::{
    BATCH_HEADER_BYTES, BatchBuilder, BatchError, BatchIter, BatchLimits, HeaderIter, Marker, Producer, RecordBatch,
    RecordFault, RecordIter,
};
pub use calendar::{date_time, iso_time, ms_of};
pub use clock::{ManualClock, MonotonicClock, SystemClock, WallClock};
pub use compression::Compression;
pub use error::ErrorCode;
pub use latency::{LatencyCounts, LatencyHistogram};
pub use memory::{Grant, MemoryBudget};
pub use name::{Kind, NameError, TENANT_MAX_CHARS, TOPIC_NAME_MAX_CHARS, TenantId, TopicName};
pub use offset::{Epoch, Offset, PartitionId, Position, TopicId, TopicPartition};
pub use open_files::{raise_open_files, with_room};
pub use partitioner::{murmur2, partition_of_key};
pub use principal::{Principal, Role, Roles};
pub use quota::{Excess, QuotaConfig, Quotas, Traffic};
pub use record::{Header, Record, RecordView, header};
pub use service_path::{ServicePathError, ServicePaths, service_path};
