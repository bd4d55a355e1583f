//! The contract that every engine keeps, and that one conformance suite checks.
//!
//! ```text
//!            append(records, level)                     read(from, up_to)
//!   writers ───────────────────────►  partition 0 [ . . . . . . . | . . ]  ───────► readers
//!            append_atomic(parts) ─►  partition 1 [ . . . . | . ]             ▲
//!                                                   first   stable  tail      └ Bell rings when either end moves
//! ```
//!
//! Always true
//! - `first <= stable <= high <= tail`; offsets ascend, may have gaps, and are never handed out twice, not even after a crash.
//! - When an append is answered at a level, everything before it in its partition has that level too.
//! - Up to `high` nothing is lost by what the topic's own level survives; a group's position stays below it.
//! - Up to `stable` it is known of each transaction how it ended, too; views and checkpoints stay below it.

use std::sync::Arc;

use millstream_types::{Epoch, Offset, Position, Record, RecordBatch, TopicName, TopicPartition};

use crate::{Bell, Done, Error, Located, Reply, Topic, TopicConfig};

/// What an answered append survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AckLevel {
    /// Accepted in memory; a crash of the process may lose it.
    Memory,
    /// Handed to the operating system: survives `kill -9`.
    Written,
    /// On the medium: survives power loss.
    Synced,
}

/// How far a read may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpTo {
    /// Only what the topic's level protects and no open transaction precedes. For everything that acts on what it reads.
    Stable,
    /// Whatever the topic's level protects, records of open transactions among it. For Kafka's `read_uncommitted`.
    High,
    /// Whatever has been accepted and no open transaction precedes, some of which may never become stable. For live
    /// readers that keep nothing.
    Tail,
}

/// Where an append ended up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record.
    pub first: Offset,
    /// Offset of the last record.
    pub last: Offset,
    /// The epoch under which both were handed out.
    pub epoch: Epoch,
}

/// The ends of a partition at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offsets {
    /// Oldest offset that may be read (there may be a gap behind it).
    pub first: Offset,
    /// First offset that [`UpTo::Stable`] does not see: Kafka's last stable offset.
    pub stable: Offset,
    /// First offset that the topic's level does not protect, whatever transactions are open: Kafka's high watermark.
    pub high: Offset,
    /// First offset that has not been handed out. Above the others, with nothing in between, after a start that skipped
    /// what a crash may have lost, until something is appended.
    pub tail: Offset,
    /// The epoch under which the next record will be appended.
    pub epoch: Epoch,
}

/// Longest text that a group may keep with a position.
pub const POSITION_METADATA_MAX_BYTES: usize = 4 << 10;

/// A group's position to be stored together with records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionCommit {
    /// The consumer group.
    pub group: String,
    /// The partition that was read.
    pub partition: TopicPartition,
    /// The next offset that the group will read.
    pub position: Position,
    /// Whatever the group wants to find with it, at most [`POSITION_METADATA_MAX_BYTES`]; often empty.
    pub metadata: String,
}

/// A position as a group has committed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedPosition {
    /// The partition that was read.
    pub partition: TopicPartition,
    /// The next offset that the group will read.
    pub position: Position,
    /// What the group has stored with it.
    pub metadata: String,
    /// When it was committed: milliseconds since 1970-01-01T00:00:00Z.
    pub committed_ms: i64,
}

/// Records for several partitions and positions of groups: all of them or none.
#[derive(Debug, Default)]
pub struct AtomicAppend<'a> {
    /// Records by partition; a partition may appear more than once, its records keep their order.
    pub records: Vec<(TopicPartition, Vec<Record<'a>>)>,
    /// Positions to commit.
    pub positions: Vec<PositionCommit>,
}

/// How a producer's transaction ends, and what takes effect with it: all or nothing.
#[derive(Debug, Default)]
pub struct EndTransaction<'a> {
    /// The producer's id.
    pub producer_id: i64,
    /// Its epoch: what it sends to `partitions` under an earlier one is refused from then on.
    pub producer_epoch: i16,
    /// The partitions that belong to the transaction; those that are gone or in memory are passed over.
    pub partitions: Vec<TopicPartition>,
    /// Whether its records count.
    pub commit: bool,
    /// Positions that are committed with it if it is; those in topics that are gone are passed over.
    pub positions: Vec<PositionCommit>,
    /// What the coordinator notes of it.
    pub records: Vec<(TopicPartition, Vec<Record<'a>>)>,
}

/// A transaction that has begun in a partition and not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Its producer's id.
    pub producer_id: i64,
    /// The epoch under which that has begun it.
    pub producer_epoch: i16,
    /// Its first record.
    pub first: Offset,
    /// When that was appended: milliseconds since 1970-01-01T00:00:00Z.
    pub since_ms: i64,
}

/// An idempotent producer, as a partition remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownProducer {
    /// Its id.
    pub id: i64,
    /// The latest epoch that has reached the partition.
    pub epoch: i16,
    /// The sequence number of its last record; `None` if that epoch has none yet.
    pub last_sequence: Option<i32>,
    /// When its last batch was appended: milliseconds since 1970-01-01T00:00:00Z.
    pub last_ms: i64,
    /// The first record of its open transaction, if it has one.
    pub transaction: Option<Offset>,
}

/// A transaction whose records do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Its producer's id.
    pub producer_id: i64,
    /// Its first record.
    pub first: Offset,
}

/// Batches as they lie, and what must be known to read them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stored {
    /// The batches, those of aborted transactions and markers among them.
    pub batches: Vec<RecordBatch>,
    /// The aborted transactions that reach into them, by their first records: from there to its marker, a batch of
    /// that producer's transaction does not count.
    pub aborted: Vec<AbortedTransaction>,
}

/// What only some engines can do; asked for by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Topics that live in memory only ([`crate::Storage::Memory`]).
    pub memory_topics: bool,
    /// An ack level for each append; without it every append is as durable as its topic.
    pub level_per_append: bool,
    /// Reading a value by (offset, position hint) without scanning.
    pub read_by_position: bool,
    /// [`Partition::hold`] keeps records. Without it a slow reader can find [`Error::Trimmed`], and rebuilds.
    pub holds: bool,
    /// [`Partition::append_batch`] stores a batch of an idempotent producer once, however often it is sent.
    pub idempotent_producers: bool,
    /// [`Partition::append_batch`] takes batches of transactions, and [`Log::end_transaction`] ends them.
    pub transactions: bool,
}

/// A partitioned log. Cheap to share; every method may be called from any thread.
pub trait Log: Send + Sync + 'static {
    /// What this engine can do beyond the contract.
    fn capabilities(&self) -> Capabilities;

    /// Creates a topic, or returns it if it exists with the same configuration. Durable when it returns.
    ///
    /// # Errors
    /// [`Error::TopicExists`] with another configuration; [`Error::InvalidConfig`]; [`Error::MemoryTopicsFull`].
    fn create_topic(&self, name: &TopicName, config: &TopicConfig) -> Result<Arc<Topic>, Error>;

    /// Changes what may change in a topic's configuration: retention, segment sizes, level, compression, limits.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`]; [`Error::InvalidConfig`] for a change of storage, partitions or cleanup.
    fn alter_topic(&self, name: &TopicName, config: &TopicConfig) -> Result<Arc<Topic>, Error>;

    /// Gives a topic `total` partitions. Those that it has keep their records; keys may belong to others from now on.
    /// Nothing is done if it has as many. Durable when it returns.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`]; [`Error::InvalidConfig`] for fewer than it has, and for a topic that is compacted or of
    /// [`crate::Writers::OwnersOnly`]: in these the place of a key is part of the state; [`Error::MemoryTopicsFull`].
    fn add_partitions(&self, name: &TopicName, total: u32) -> Result<Arc<Topic>, Error>;

    /// Deletes a topic and its records. Durable when it returns; readers get [`Error::UnknownTopic`].
    ///
    /// # Errors
    /// [`Error::UnknownTopic`].
    fn delete_topic(&self, name: &TopicName) -> Result<(), Error>;

    /// The topic of that name, if there is one.
    fn topic(&self, name: &TopicName) -> Option<Arc<Topic>>;

    /// All topics, by name.
    fn topics(&self) -> Vec<Arc<Topic>>;

    /// Rings `bell` whenever a topic is created, altered or deleted, for as long as the bell lives.
    fn watch_topics(&self, bell: &Arc<Bell>);

    /// The handle through which one partition is appended to and read. Resolve it once, keep it.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`], [`Error::UnknownPartition`].
    fn partition(&self, partition: &TopicPartition) -> Result<Arc<dyn Partition>, Error>;

    /// Appends to several partitions and commits positions, all or nothing, also across a crash.
    /// `done` gets one [`Appended`] for each entry of `append.records`, once all of them have `level`.
    ///
    /// The atomic appends of one owner take effect in the order of the calls. If one fails after it was taken, every
    /// later one in flight fails, too. A position may be committed up to its partition's [`Offsets::high`].
    ///
    /// # Errors
    /// As [`Partition::append`]; then nothing was taken and `done` is not called.
    fn append_atomic(&self, append: &AtomicAppend<'_>, level: AckLevel, done: Done<Vec<Appended>>)
    -> Result<(), Error>;

    /// Ends a producer's transaction in all its partitions, commits its positions and appends the coordinator's
    /// records: all or nothing, also across a crash. `done` gets one [`Appended`] for each entry of `records`.
    ///
    /// Each partition gets a marker, also one in which the transaction has no record: it may be on its way, and is
    /// refused then if `producer_epoch` is a later one than its own. Again does no harm. It takes effect in the order
    /// of the atomic appends.
    ///
    /// # Errors
    /// As [`Log::append_atomic`]; [`Error::FencedProducer`] if a partition knows a later epoch;
    /// [`Error::InvalidTransaction`] for a number below 0, or where the engine has no [`Capabilities::transactions`].
    fn end_transaction(
        &self,
        end: &EndTransaction<'_>,
        level: AckLevel,
        done: Done<Vec<Appended>>,
    ) -> Result<(), Error>;

    /// Whether the disk beside this process has room, by a look at it; for those who keep other things there that grow with
    /// the log. An engine that keeps nothing beside this process says that it has.
    ///
    /// # Errors
    /// [`Error::DiskFull`].
    fn check_disk(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Something to wait for before more is appended at [`AckLevel::Memory`], which nobody waits for: room, where so much
    /// is waiting to be written that such appends will soon be refused. `None` while there is enough of it.
    fn room(&self) -> Option<Reply<()>>;

    /// The position that `group` last committed for `partition`.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`], [`Error::UnknownPartition`]; those of a request to the engine's servers, if it has any.
    fn committed(&self, group: &str, partition: &TopicPartition) -> Result<Option<Position>, Error>;

    /// The groups that have positions, by name.
    ///
    /// # Errors
    /// Those of a request to the engine's servers, if it has any.
    fn groups(&self) -> Result<Vec<String>, Error>;

    /// All positions of `group`, by topic and partition; none if it has never committed any.
    ///
    /// # Errors
    /// As [`Log::groups`].
    fn positions(&self, group: &str) -> Result<Vec<CommittedPosition>, Error>;

    /// Deletes what `group` has committed for `partitions`; where it has nothing, nothing is done. Durable when it
    /// returns, all or nothing. Blocks on the disk: call from a plain thread.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`], [`Error::UnknownPartition`]: then nothing is deleted. Those that end an append.
    fn forget_positions(&self, group: &str, partitions: &[TopicPartition]) -> Result<(), Error>;

    /// Starts to hand partitions of `topic` to `owner`: each is announced by `assigned` with the epoch that fences
    /// earlier owners, and taken back by `revoked`. The embedded engine assigns all of them at once and for good.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`].
    fn assign(&self, topic: &TopicName, owner: Arc<dyn Owner>) -> Result<(), Error>;
}

/// Whoever keeps the state of partitions; told which are his.
pub trait Owner: Send + Sync + 'static {
    /// `partition` is yours under `epoch`.
    fn assigned(&self, partition: &TopicPartition, epoch: Epoch);
    /// `partition` is yours no longer: append nothing more to it.
    fn revoked(&self, partition: &TopicPartition);
}

/// One partition of a topic.
pub trait Partition: Send + Sync + 'static {
    /// Which one it is.
    fn id(&self) -> &TopicPartition;

    /// The topic, with the configuration in force.
    fn topic(&self) -> Arc<Topic>;

    /// Appends records, in order. In a topic of [`crate::Writers::OwnersOnly`] they stand at `first` to `last` without
    /// gaps; elsewhere records of other writers may stand between them. `done` is called once, when they have `level`,
    /// or when that has become impossible. At [`AckLevel::Memory`] that is before this returns, if the engine has
    /// [`Capabilities::level_per_append`]. Never blocks on a disk.
    ///
    /// The embedded engine puts nothing between them, ever, and keeps all of them or none in a crash.
    ///
    /// # Errors
    /// Nothing was taken, and `done` is not called: [`Error::RecordTooLarge`], [`Error::Overloaded`],
    /// [`Error::WritingEnded`], [`Error::UnknownTopic`] (deleted meanwhile).
    fn append(&self, records: &[Record<'_>], level: AckLevel, done: Done<Appended>) -> Result<(), Error>;

    /// Appends a batch that somebody else has built; its records stay as they lie, offset and epoch are set anew.
    ///
    /// A batch with a [`millstream_types::Producer`] must be the next of its producer's sequence, where the engine has
    /// [`Capabilities::idempotent_producers`]. One of its last five batches, sent again, is not stored again: `done` gets
    /// the first offsets once the records there have `level`. A still older one ends in [`Error::DuplicateSequence`],
    /// through `done`, once that has `level`. A producer that is unknown, perhaps forgotten, may begin anywhere.
    ///
    /// A batch of a transaction belongs to its producer's open transaction in this partition, and begins one if there is
    /// none; that it may is the caller's to know. It is answered once it is synced, whatever was asked: what a
    /// transaction commits must not have been lost before.
    ///
    /// # Errors
    /// As [`Partition::append`]; [`Error::OutOfOrderSequence`], [`Error::FencedProducer`]; [`Error::Batch`] for a
    /// producer's number below 0; [`Error::UnsupportedBatch`] for a control batch, and for a transaction in a topic in
    /// memory; [`Error::InvalidTransaction`] for what cannot stand in the producer's open transaction;
    /// [`Error::TooManyTransactions`].
    fn append_batch(&self, batch: RecordBatch, level: AckLevel, done: Done<Appended>) -> Result<(), Error>;

    /// Stored batches in order, the first being the one that holds `from` (it may begin before it) or, in a gap, the
    /// next. At least one batch if there is any below the limit, further ones while they fit `max_bytes`, though fewer
    /// where those that lie on the disk end. Only empty means that `from` has reached the limit. Reads of old records
    /// block on the disk: call from a plain thread.
    ///
    /// Records of aborted transactions and markers are left out. So that a reader gets past them, the last batch has no
    /// records where nothing else is left: go on from its [`RecordBatch::next_offset`] as from any other's.
    ///
    /// With [`UpTo::Stable`] the last batch may reach beyond the stable offset only if the engine cannot cut it;
    /// the embedded engine never does so, as a batch becomes stable whole.
    ///
    /// # Errors
    /// [`Error::Trimmed`] below the first offset, [`Error::BeyondTail`] above the tail,
    /// [`Error::Corrupt`] instead of a damaged batch.
    fn read(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<Vec<RecordBatch>, Error>;

    /// As [`Partition::read`], but leaves out nothing, and says which batches do not count: for readers that look for
    /// themselves, as Kafka's clients do.
    ///
    /// # Errors
    /// As [`Partition::read`].
    fn read_stored(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<Stored, Error>;

    /// As [`Partition::read_stored`], but leaves the batches where they lie: for whoever sends them on as they are. They are
    /// checked all the same, unless they were written or checked within the last minute, so it reads from the disk: call from a
    /// plain thread. `None` where they must be read: what is in memory, or is checked together with records below `from` or beyond the limits, and where they are not in files of
    /// the engine's own.
    ///
    /// # Errors
    /// As [`Partition::read_stored`], but damage is that one's to tell.
    fn locate(&self, _from: Offset, _max_bytes: usize, _up_to: UpTo) -> Result<Option<Located>, Error> {
        Ok(None)
    }

    /// The open transactions, the oldest first.
    fn transactions(&self) -> Vec<OpenTransaction>;

    /// The idempotent producers that are remembered, by id; none where the engine has no
    /// [`Capabilities::idempotent_producers`].
    fn producers(&self) -> Vec<KnownProducer>;

    /// Bytes that its records take where they are kept.
    fn size_bytes(&self) -> u64;

    /// Whether a read from `from` on needs no disk now, so that it may be called on an async thread.
    fn reads_from_memory(&self, _from: Offset) -> bool {
        false
    }

    /// The ends of the partition now.
    fn offsets(&self) -> Offsets;

    /// The first offset whose record's event time is at or after `timestamp_ms`; `None` if there is none. Records of
    /// aborted transactions do not count.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn offset_at(&self, timestamp_ms: i64) -> Result<Option<Offset>, Error>;

    /// Where a reader with a stored position goes on.
    ///
    /// # Errors
    /// [`Error::PositionLost`] if the records before `position` are not those the reader saw (another topic of the
    /// same name, or an epoch that ended earlier than `position.offset`); [`Error::Trimmed`] if they are gone.
    fn resume(&self, position: Position) -> Result<Offset, Error>;

    /// Removes the records below `before`: readers there get [`Error::Trimmed`], and the disk space becomes free soon.
    /// Returns the first offset then. It is lower than `before` while a [`Partition::hold`] needs older records and is
    /// within the topic's hold limit: call again once it has advanced. Durable when it returns. Blocks on the disk: call
    /// from a plain thread.
    ///
    /// Not in topics of [`crate::Cleanup::Compact`]: they hold a state, of which some keys would silently be missing.
    ///
    /// # Errors
    /// [`Error::BeyondStable`], [`Error::NotTrimmable`], [`Error::UnknownTopic`]: nothing is removed. Those that end an
    /// append.
    fn trim(&self, before: Offset) -> Result<Offset, Error>;

    /// Rings `bell` whenever `stable`, `high` or `tail` moves, for as long as the bell lives.
    fn watch(&self, bell: &Arc<Bell>);

    /// Whether the bell of a consumer ([`Bell::of_consumer`]) watches it. An engine that cannot know says that there is one.
    fn has_consumer(&self) -> bool {
        true
    }

    /// Keeps records from `from` on from being trimmed or compacted away, up to the topic's hold limit, until dropped;
    /// only where the engine has [`Capabilities::holds`], and never in a topic in memory.
    fn hold(&self, reader: &str, from: Offset) -> Box<dyn Hold>;
}

/// A reader's claim on records; dropping it gives them free.
pub trait Hold: Send + Sync {
    /// Records below `from` are no longer needed.
    fn advance(&self, from: Offset);
}
