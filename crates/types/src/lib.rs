//! The basic types of Millstream: tenants, topics, offsets, records, batches, principals.
//!
//! No I/O, no async, no thread. Time appears only as two traits ([`MonotonicClock`], [`WallClock`]) with their system
//! implementations, so that every other crate can take a clock. The only property of the process here is its limit on
//! open files, which all listeners share.
//!
//! Not here: storage of records (`log`), their meaning (`connect`, `context`, `query`), their transport (`http`).

mod access_scope;
mod audit;
mod batch;
mod calendar;
mod clock;
mod compression;
mod error;
mod key_group;
mod kind_form;
mod latency;
mod login_mechanism;
mod memory;
mod name;
mod offset;
mod partition_offsets;
mod partitioner;
mod place;
mod principal;
mod quota;
mod record;
mod service_path;
mod short_lives;
mod state_topic;
mod target;
mod topic_form;
mod units;

pub use access_scope::AccessScope;
pub use audit::{AuditEvent, AuditTrail};
pub use batch::{
    BATCH_HEADER_BYTES, BatchBuilder, BatchError, BatchIter, BatchLimits, HeaderIter, Marker, Producer, RecordBatch,
    RecordCursor, RecordFault, RecordIter, StoredRecord,
};
pub use calendar::{date_time, iso_time, ms_of};
pub use clock::{ManualClock, MonotonicClock, SteadyClock, SystemClock, WallClock};
pub use compression::Compression;
pub use error::ErrorCode;
pub use key_group::{KEY_GROUPS, KeyGroup};
pub use latency::{LatencyCounts, LatencyHistogram};
pub use login_mechanism::LoginMechanism;
pub use memory::{Grant, MemoryBudget};
pub use name::{NameError, TENANT_MAX_CHARS, TOPIC_NAME_MAX_CHARS, TenantId, TopicKind, TopicName};
pub use offset::{Epoch, Offset, PartitionId, Position, TopicId, TopicPartition};
pub use partition_offsets::{InvalidPartitionOffsets, PartitionOffsets};
pub use partitioner::{murmur2, partition_of_key};
pub use place::{Place, TAIL_PARTITIONS_MAX};
pub use principal::{Principal, Role, Roles};
pub use quota::{Excess, QuotaConfig, QuotaType, Quotas};
pub use record::{Header, Record, RecordView, header};
pub use service_path::{ServicePathError, ServicePaths, service_path};
pub use short_lives::ShortLives;
pub use state_topic::StateTopic;
pub use target::{AllowedTargets, InvalidTarget, RemoteCallers, url_without_secrets};
pub use topic_form::{ACTIVE, JOB_STATE, MIGRATION, Mutability, POSITIONS, TOPICS, TopicForm};
pub use units::{DURATION_RULE, SIZE_RULE, format_duration, parse_duration, parse_size};
