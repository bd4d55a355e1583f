//! The bytes behind a key: buckets over the log, and caches, spoken to by HTTP and the Redis protocol.
//!
//! A durable bucket is a compacted topic, `kv.<bucket>.<tenant>`. Its table knows the offset of each key's record; the
//! value stays in the log. Every write is a [`Transaction`] on the thread of the partition's owner.
//!
//! ```text
//!  transaction ─► owner: decide on the table and the writes on their way ─► one append ─► log
//!  read ─► table: offset ─► cache, or the record in the log
//!  listing ─► checkpoint, written up to the last answered write
//! ```

mod bucket;
mod buckets;
mod cache;
mod cache_bucket;
mod cached_keys;
mod config;
mod counters;
mod error;
mod http;
mod key_merge;
mod keys;
mod memory;
mod part_holds;
mod parts;
mod rate;
mod read_cache;
mod record;
mod redis_host;
pub mod resp;
mod rift;
mod stats;
mod store;
mod table;
mod transaction;

pub use bucket::{Bucket, Done, FoundValue, Look, Needed, Snapshot};
pub use cache::{
    Cache, CacheConfig, CacheTransaction, EvictionPolicy, InvalidCacheConfig, KeyLoss, Keyspace, LossListener,
    PageStats, ShardSet, ShardStats, UnknownPolicy,
};
pub use cache_bucket::CacheBucket;
pub use config::{
    Ack, BUCKET_PARTITIONS_MAX, BucketConfig, BucketKind, ExternalProvider, Quotas, RedisConfig, RiftUser, StatsConfig,
    StoreConfig,
};
pub use counters::{CommandCounts, CommandFigures, DoorCounters};
pub use error::Error;
pub use http::routes;
pub use keys::{Loaded, OwnerTransaction};
pub use memory::{BucketMemory, StoreMemory};
pub use parts::{
    CHUNK_BYTES, ChunkWriter, Committed, Manifest, OpenedValue, PART_NUMBER_MAX, PartRecord, Piece, RangeReader,
    Source, Splice, Spliced, Upload, UploadId, WrittenPart, add_part, begin, commit, splice,
};
pub use read_cache::CacheFigures;
pub use record::{Listed, StoredValue};
pub use redis_host::{Logins, RedisHost, UserLogin, database_of};
pub use rift::{RiftAccess, routes as rift_routes};
pub use stats::{
    Categories, FigureSink, Provider, RegisterError, Scope, Statistics, answer as answer_statistics,
    routes as stats_routes, show_metrics,
};
pub use store::{KeyLossListener, Opened, Store};
pub use table::Totals;
pub use transaction::{Attributes, Interrupted, KeyEntry, Transaction, Value, WriteRefusal};
