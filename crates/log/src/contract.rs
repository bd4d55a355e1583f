//! The contract of the log: every engine keeps it, and the conformance suite checks it.
//!
//! It promises no more than an engine over Apache Kafka can keep. There a producer has one transaction at a time, so appends
//! of one owner take effect in order and a failed one takes all later ones with it; a call that timed out may have been
//! stored; commit markers leave gaps in the offsets; retention cannot be held back; and offsets come from the broker, so no
//! answer is immediate. Where engines differ, [`Capabilities`] says so.
//!
//! ```text
//!            append(records, level)                     read(from, up_to), read_one(offset, up_to)
//!   writers ───────────────────────►  partition 0 [ . . . . . . . | . . ]  ───────► readers
//!            Writer::commit(parts) ►  partition 1 [ . . . . | . ]             ▲
//!                                                   first   stable  tail      └ Bell rings when either end moves
//! ```
//!
//! Always true
//! - `first <= stable <= high <= tail`. Offsets ascend, may have gaps, and are never handed out twice,
//!   not even after a crash.
//! - When an append is answered at a level, everything before it in its partition has that level too.
//! - A failure that the topic's level survives loses nothing below `high`; a group's position stays at or below it.
//! - The outcome of every transaction below `stable` is known too; views and checkpoints stay at or below it.

use std::sync::Arc;

use millstream_types::{
    Epoch, Offset, Position, Record, RecordBatch, StoredRecord, TopicId, TopicName, TopicPartition,
};

use crate::{AckLevel, Appended, Bell, Done, Error, Reply, Topic, TopicConfig, Writer};

/// The limit of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpTo {
    /// Up to the stable offset: protected by the topic's level, and before every open transaction. For readers
    /// that act on the records.
    Stable,
    /// Up to the high watermark: protected by the topic's level, records of open
    /// transactions included. For Kafka's `read_uncommitted`.
    High,
    /// Up to the tail, but before every open transaction; some of the records may never become stable. For
    /// live readers that keep nothing.
    Tail,
}

/// The offsets of a partition at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offsets {
    /// Oldest readable offset; a gap may follow it.
    pub first: Offset,
    /// First offset that [`UpTo::Stable`] does not see: Kafka's last stable offset.
    pub stable: Offset,
    /// First offset that the topic's level does not protect, whatever transactions are open: Kafka's high watermark.
    pub high: Offset,
    /// First offset that has not been handed out. After a crash it is above the others until the next append, since
    /// the start skips offsets that the crash may have lost.
    pub tail: Offset,
    /// The epoch under which the next record will be appended.
    pub epoch: Epoch,
}

/// A position as a group has committed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedPosition {
    /// The partition that was read.
    pub partition: TopicPartition,
    /// The next offset that the group will read.
    pub position: Position,
    /// The group's text for it.
    pub metadata: String,
    /// When it was committed: milliseconds since 1970-01-01T00:00:00Z.
    pub committed_ms: i64,
}

/// The result of [`Partition::read_one_cached`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachedRead {
    /// The same as [`Partition::read_one`] returns.
    Read(Option<StoredRecord>),
    /// The disk must be read: call [`Partition::read_one`] from a plain thread.
    OnDisk,
}

impl CachedRead {
    /// The record; `None` if there is none, or if it was not read.
    pub fn into_record(self) -> Option<StoredRecord> {
        match self {
            Self::Read(record) => record,
            Self::OnDisk => None,
        }
    }
}

/// Optional abilities of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Topics that live in memory only ([`crate::Storage::Memory`]). Without it their records are kept as others are, for a
    /// short time.
    pub memory_topics: bool,
    /// Each append may choose its ack level; without it every append is as durable as its topic.
    pub level_per_append: bool,
    /// [`Partition::hold`] keeps records. Without it a slow reader may get [`Error::Trimmed`] and has to rebuild.
    pub holds: bool,
    /// Topics are kept on this machine, as the planes' own files are. Without it a process on another machine may go on with
    /// the log alone, and planes keep in the log what it would miss.
    pub local: bool,
}

impl Capabilities {
    /// All of them. An engine with fewer sets the fields of what it lacks to `false`.
    pub const ALL: Self = Self { memory_topics: true, level_per_append: true, holds: true, local: true };
}

/// A partitioned log. Cheap to share; every method may be called from any thread.
pub trait Log: Send + Sync + 'static {
    /// The optional abilities of this engine.
    fn capabilities(&self) -> Capabilities;

    /// Creates a topic, or returns it if it exists with the same configuration. Durable on return.
    ///
    /// # Errors
    /// [`Error::TopicExists`] with another configuration; [`Error::InvalidConfig`]; [`Error::MemoryTopicsFull`],
    /// [`Error::TooManyPartitions`].
    fn create_topic(&self, name: &TopicName, config: &TopicConfig) -> Result<Arc<Topic>, Error>;

    /// Changes a topic's configuration: cleanup, retention, segment sizes, level, compression, limits.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`]; [`Error::InvalidConfig`] if storage or partitions differ.
    fn alter_topic(&self, name: &TopicName, config: &TopicConfig) -> Result<Arc<Topic>, Error>;

    /// Grows a topic to `total` partitions. Existing partitions keep their records; a key may map to another
    /// partition afterwards. Does nothing if the topic has `total` partitions. Durable on return.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`]; [`Error::MemoryTopicsFull`], [`Error::TooManyPartitions`]; [`Error::InvalidConfig`] if
    /// `total` is too small, or if the topic is compacted or [`crate::Writers::OwnersOnly`]: there a key's partition is part of the state.
    fn add_partitions(&self, name: &TopicName, total: u32) -> Result<Arc<Topic>, Error>;

    /// Deletes a topic and its records. Durable on return; readers get [`Error::UnknownTopic`].
    ///
    fn delete_topic(&self, name: &TopicName) -> Result<(), Error>;

    /// The topic with that name, if it exists.
    fn topic(&self, name: &TopicName) -> Option<Arc<Topic>>;

    /// The topic with that id, if it exists.
    fn topic_by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.topics().into_iter().find(|topic| topic.id == id)
    }

    /// All topics, ordered by name.
    fn topics(&self) -> Vec<Arc<Topic>>;

    /// Rings `bell` whenever a topic is created, altered or deleted, for as long as the bell lives.
    fn watch_topics(&self, bell: &Arc<Bell>);

    /// The handle to append to a partition and to read it. Resolve it once and keep it.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`] or [`Error::UnknownPartition`] if it does not exist.
    fn partition(&self, partition: &TopicPartition) -> Result<Arc<dyn Partition>, Error>;

    /// Begins the next writer of a name. The one before, if there is any, is fenced: what it has committed is stable on
    /// return, and everything else of it is void for good. Blocks on the disk: call it from a plain thread.
    ///
    /// # Errors
    /// [`Error::WritingEnded`], [`Error::Stopped`]; [`Error::WaitsForDisk`] if what the writer before left open cannot be
    /// aborted now.
    fn writer(&self, name: &str) -> Result<Arc<dyn Writer>, Error>;

    /// Checks that the log accepts appends.
    ///
    /// # Errors
    /// [`Error::WritingEnded`] after a failed write or sync, [`Error::Stopped`] after a close, [`Error::DiskFull`],
    /// [`Error::Unreachable`].
    fn check_writing(&self) -> Result<(), Error> {
        Ok(())
    }

    /// As [`Log::check_writing`], for an owner before it accepts a command that makes room on the disk: its tombstones are
    /// taken while other appends are refused, as long as a reserve lasts.
    ///
    /// # Errors
    /// Those of [`Log::check_writing`].
    fn check_making_room(&self) -> Result<(), Error> {
        self.check_writing()
    }

    /// Bytes that files beside the log may take on the local disk, down to a reserve.
    fn spare_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Checks now that the local disk has room. For planes that keep files which grow with the log, wherever the log is.
    ///
    /// # Errors
    /// [`Error::DiskFull`] if it has none.
    fn check_disk(&self) -> Result<(), Error> {
        Ok(())
    }

    /// A reply to await before the next append at [`AckLevel::Memory`]: such appends will soon be refused, as too
    /// many bytes are waiting to be written. `None` while there is room.
    fn backpressure(&self) -> Option<Reply<()>>;

    /// The position that `group` last committed for `partition`.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`], [`Error::UnknownPartition`], or a failed request to the engine's servers.
    fn committed(&self, group: &str, partition: &TopicPartition) -> Result<Option<Position>, Error>;

    /// All positions of `group`, by topic and partition; none if it has never committed any.
    ///
    /// # Errors
    /// A failed request to the engine's servers.
    fn positions(&self, group: &str) -> Result<Vec<CommittedPosition>, Error>;
}

/// A handle on one partition, to append to it and to read it.
pub trait Partition: Send + Sync + 'static {
    /// The topic and number of the partition.
    fn id(&self) -> &TopicPartition;

    /// The topic, with the configuration in force.
    fn topic(&self) -> Arc<Topic>;

    /// Appends records in order. `done` is called once: when the records have `level`, when they cannot get it any
    /// more, or, if it asks for that ([`Done::failing_on_full_disk`]), when they wait for room on the disk. At [`AckLevel::Memory`] that is before this returns, if the engine has
    /// [`Capabilities::level_per_append`]. Never blocks on a disk.
    ///
    /// In a topic of [`crate::Writers::OwnersOnly`] the records take all offsets from `first` to `last`; in other
    /// topics records of other writers may stand between them. The embedded engine never puts other records between
    /// them, and a crash keeps all of them or none.
    ///
    /// # Errors
    /// Nothing is appended and `done` is not called: [`Error::RecordTooLarge`],
    /// [`Error::Overloaded`], [`Error::WritingEnded`], [`Error::UnknownTopic`] (deleted meanwhile).
    fn append(&self, records: &[Record<'_>], level: AckLevel, done: Done<Appended>) -> Result<(), Error>;

    /// Reads stored batches in order. The first is the one that contains `from` (it may begin earlier) or, in a gap,
    /// the next one. Returns at least one batch if there is one below the limit, and further ones while they fit
    /// `max_bytes`; a read from disk may return fewer. An empty result means that `from` has reached the limit. Reads
    /// of old records block on the disk: call it from a plain thread.
    ///
    /// Omits markers and records of aborted transactions. If nothing else is left, the last batch has no records, so
    /// that the reader can move on: continue at its [`RecordBatch::next_offset`] as after any other batch.
    ///
    /// With [`UpTo::Stable`] the last batch may reach beyond the stable offset if the engine cannot cut it. The
    /// embedded engine never returns such a batch, as its batches become stable whole.
    ///
    /// # Errors
    /// [`Error::Trimmed`] below the first offset, [`Error::BeyondTail`] above the tail,
    /// [`Error::Corrupt`] instead of a damaged batch: a read that meets damage after other batches returns those, and only
    /// one that begins at the damage fails.
    fn read(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<Vec<RecordBatch>, Error>;

    /// As [`Partition::read`], but never waits for a disk or a server: it may be called from an event loop. `None` if the
    /// records at `from` are not in memory: call [`Partition::read`] from a plain thread.
    ///
    /// # Errors
    /// Those of [`Partition::read`].
    fn read_from_memory(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<Option<Vec<RecordBatch>>, Error>;

    /// The record at `offset`; `None` if none can be read there: it was compacted away or trimmed, lies at the limit
    /// or beyond, is a marker or belongs to an aborted transaction, or the offset was never given to a record.
    ///
    /// The embedded engine reads about the record's batch, and only the first read in a block reads all of it. A read
    /// of an old record blocks on the disk: call it from a plain thread.
    ///
    /// # Errors
    /// [`Error::Corrupt`] instead of a damaged batch; [`Error::Batch`] if the batch does not inflate.
    fn read_one(&self, offset: Offset, up_to: UpTo) -> Result<Option<StoredRecord>, Error>;

    /// As [`Partition::read_one`], but never waits for the disk: it may be called from an event loop.
    ///
    /// # Errors
    /// Those of [`Partition::read_one`].
    fn read_one_cached(&self, offset: Offset, up_to: UpTo) -> Result<CachedRead, Error>;

    /// Bytes that the partition's records take where they are stored.
    fn size_bytes(&self) -> u64;

    /// Asks for a compaction of all records that the partition has now, the newest ones included, before the engine's own
    /// rules call for one: for an owner that knows how few of the bytes live. Returns at once. Has no effect in a topic
    /// that is not compacted, or if another program compacts it.
    fn compact(&self) {}

    /// The offsets of the partition now.
    fn offsets(&self) -> Offsets;

    /// The first offset with an event time at or after `timestamp_ms`; `None` if there is none.
    /// Ignores records of aborted transactions.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Io`] if the disk fails.
    fn offset_at(&self, timestamp_ms: i64) -> Result<Option<Offset>, Error>;

    /// Returns the offset at which a reader with a stored position continues.
    ///
    /// # Errors
    /// [`Error::PositionLost`] if the records before `position` are not those that the reader saw: another topic of
    /// the same name, or an epoch that ended below `position.offset`. [`Error::Trimmed`] if they are gone.
    fn resume(&self, position: Position) -> Result<Offset, Error>;

    /// Offsets from `position`, the next one of a reader, to the stable offset, but for those that are known to have no records: an upper bound of
    /// the records still to be read, and 0 for a reader that has read up to the stable offset.
    fn lag(&self, position: Offset) -> u64 {
        self.offsets().stable.0.saturating_sub(position.0)
    }

    /// Skips offsets that a start left out: returns the first offset after the gap if records
    /// are stable there, otherwise `offset`.
    fn behind_gap(&self, offset: Offset) -> Offset {
        offset
    }

    /// Removes the records below `before`: readers get [`Error::Trimmed`] there, and the disk space becomes free
    /// soon. Returns the new first offset. It is lower than `before` while a [`Partition::hold`] within the topic's
    /// hold limit needs older records: call it again once the hold has advanced. Durable on return. Blocks on the
    /// disk: call it from a plain thread.
    ///
    /// Not for topics of [`crate::Cleanup::Compact`]: they hold a state, which would silently lose keys.
    ///
    /// # Errors
    /// [`Error::BeyondStable`], [`Error::NotTrimmable`], [`Error::UnknownTopic`]: nothing is removed. Also the
    /// errors that end an append.
    fn trim(&self, before: Offset) -> Result<Offset, Error>;

    /// Rings `bell` whenever `stable`, `high` or `tail` moves, for as long as the bell lives.
    fn watch(&self, bell: &Arc<Bell>);

    /// `true` if the bell of a consumer ([`Bell::of_consumer`]) watches the partition, or if the engine cannot know.
    fn has_consumer(&self) -> bool {
        true
    }

    /// Keeps records from `from` on from retention and compaction, up to the topic's hold limit, until the hold is
    /// dropped. Needs [`Capabilities::holds`]; has no effect in a memory topic.
    fn hold(&self, reader: &str, from: Offset) -> Box<dyn Hold>;
}

/// A reader's claim on records; dropping it releases them.
pub trait Hold: Send + Sync {
    /// Releases the records below `from`.
    fn advance(&self, from: Offset);
}
