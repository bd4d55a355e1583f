//! The partitioned log keeps accepted records, in order: its contract and its embedded engine.
//!
//! The contract is [`Log`] and [`Partition`]; the engine on one machine is [`Embedded`]. Records enter by
//! [`Partition::append`], or by a [`Writer`] for all-or-nothing appends to several partitions and group positions. They leave by [`Partition::read`],
//! or one at a time by [`Partition::read_one`].
//!
//! An engine elsewhere keeps the contract with the same rules: [`TopicConfig::check_records`], [`PositionCommit::check_text`]
//! and its like, [`Watchers`], [`Holds`].
//!
//! Not here: the meaning of a record (the planes), state derived from records
//! (`view`), Kafka's wire protocol (`kafka`).

mod accept;
mod acceptor;
mod ack;
mod appender;
mod atomic;
mod backpressure;
mod bell;
mod block;
mod buffers;
mod catalog;
mod checksum_cache;
mod clear_journal;
mod clock_cache;
mod closed_log;
mod cluster_config;
mod compaction;
mod compaction_queue;
mod config;
mod contract;
mod dead_records;
mod derived;
mod done;
mod embedded;
mod end_transaction;
mod epochs;
mod error;
mod extent;
mod fenced_writers;
mod files;
mod flush_queue;
mod frame;
mod group_commit;
mod guarded;
mod holds;
mod host;
mod image;
mod image_holds;
mod index;
mod journal;
mod kafka_log;
mod last_stable;
mod layout;
mod meta;
mod partition;
mod producer_ids;
mod producers;
mod queues;
mod read;
mod record_limits;
mod recovery;
mod renewed_writer;
mod repair;
mod retention;
mod sched;
mod seeded;
mod segment;
mod segment_cache;
mod shared;
mod space;
mod stats;
mod sync_queue;
mod syncer;
mod tail_cache;
mod tasks;
mod topic;
mod topic_record;
mod transactions;
mod trim;
mod watchers;
mod wire;
mod work_queue;
mod writeback;
mod writer;

pub use ack::{AckLevel, Appended};
pub use bell::{Bell, Board};
pub use clear_journal::clear_journal;
pub use closed_log::{ClosedBatches, ClosedLog, ClosedPartition, LogState};
pub use cluster_config::{KafkaClusterConfig, LogEngine};
pub use config::{DerivedTopic, LogConfig};
pub use contract::{CachedRead, Capabilities, CommittedPosition, Hold, Log, Offsets, Partition, UpTo};
pub use done::{Done, Reply, reply};
pub use embedded::Embedded;
pub use error::Error;
pub use extent::{Extent, Located};
pub use files::{File, Files, Lock, SystemFiles};
pub use holds::Holds;
pub use image::{ImageFile, LogImage, StoredImage, StoredSegment};
pub use kafka_log::{EndTransaction, KafkaLog, KafkaPartition, KnownGroup, KnownProducer, StoredBatches};
pub use producer_ids::is_transactional_producer;
pub use renewed_writer::RenewedWriter;
pub use repair::{Damage, check, repair};
pub use sched::{run_as_batch, run_in_background};
pub use seeded::{SeededScheduler, TaskId};
pub use stats::{GroupLag, LogCounters, LogFigures, LogStats, PartitionStats, SYNC_BUCKETS_US};
pub use topic::{Cleanup, PARTITIONS_MAX, Storage, Topic, TopicConfig, Writers};
pub use transactions::{AbortedTransaction, OpenTransaction};
pub use watchers::Watchers;
pub use writer::{AtomicAppend, NO_EPOCH, POSITION_METADATA_MAX_BYTES, PositionCommit, Writer};
