//! What is accepted stays, in order: the partitioned log, its contract and its embedded engine.
//!
//! The contract is [`Log`] and [`Partition`]; the engine on one machine is [`Embedded`]. Records enter by
//! [`Partition::append`] or, all or nothing over several partitions and group positions, by [`Log::append_atomic`];
//! they leave by [`Partition::read`].
//!
//! Not here: what a record means (the planes), state that follows from records (`view`), Kafka's wire protocol (`kafka`).

mod accept;
mod appender;
mod atomic;
mod bell;
mod block;
mod buffers;
mod catalog;
mod checked;
mod compaction;
mod config;
pub mod conformance;
mod contract;
mod done;
mod embedded;
mod end_transaction;
mod epochs;
mod error;
mod extent;
mod files;
mod frame;
mod give_way;
mod holds;
mod index;
mod journal;
mod layout;
mod meta;
mod partition;
mod producers;
mod read;
mod recent;
mod recovery;
mod retention;
mod room;
mod round;
mod segment;
mod shared;
pub mod sim;
mod space;
mod stats;
mod syncer;
mod topic;
mod topic_record;
mod transactions;
mod trim;
mod undecided;
mod watchers;
mod wire;
mod writeback;

pub use bell::{Bell, Board};
pub use config::LogConfig;
pub use contract::{
    AbortedTransaction, AckLevel, Appended, AtomicAppend, Capabilities, CommittedPosition, EndTransaction, Hold,
    KnownProducer, Log, Offsets, OpenTransaction, Owner, POSITION_METADATA_MAX_BYTES, Partition, PositionCommit,
    Stored, UpTo,
};
pub use done::{Done, Reply, reply};
pub use embedded::Embedded;
pub use error::Error;
pub use extent::{Extent, Located};
pub use files::{File, Files, Lock, SystemFiles};
pub use give_way::{give_way, stand_back};
pub use stats::{GroupLag, LogStats, PartitionStats, SYNC_BUCKETS_US};
pub use topic::{Cleanup, PARTITIONS_MAX, Storage, Topic, TopicConfig, Writers};
