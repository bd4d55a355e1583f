//! A fenced writer: appends to several partitions, all or nothing, under a name that one writer has at a time.
//!
//! ```text
//!   log.writer("view/_entities/3") ──► append(partition, records)*   records of the open transaction, which nobody sees
//!            │                         commit(records, positions)    ends it: all that was appended, and these
//!            │                         abort()                       ends it: nothing
//!            └── a later writer of the name: the earlier is fenced, and what it left open is void
//! ```
//!
//! On Apache Kafka it is a transactional producer, its name the transactional id.

use millstream_types::{Epoch, Offset, Position, Record, TopicId, TopicPartition};

use crate::{AckLevel, Appended, Done, Error};

/// Longest name of a consumer group.
const GROUP_MAX_BYTES: usize = 1 << 10;

/// Longest text that a group may keep with a position.
pub const POSITION_METADATA_MAX_BYTES: usize = 4 << 10;

/// The epoch of a position that no reader has reached: a client's own number, or an offset beyond the last record.
/// Such a position need not be stable.
pub const NO_EPOCH: Epoch = Epoch(u32::MAX);

/// A group's position to be stored together with records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionCommit {
    /// Name of the consumer group.
    pub group: String,
    /// The partition that was read.
    pub partition: TopicPartition,
    /// The next offset that the group will read.
    pub position: Position,
    /// Free text of the group, at most [`POSITION_METADATA_MAX_BYTES`]; often empty.
    pub metadata: String,
}

impl PositionCommit {
    /// Checks the lengths of the group's name and of the metadata.
    ///
    /// # Errors
    /// [`Error::InvalidGroup`], [`Error::MetadataTooLarge`].
    pub fn check_text(&self) -> Result<(), Error> {
        if self.group.is_empty() || self.group.len() > GROUP_MAX_BYTES {
            return Err(Error::InvalidGroup { group: self.group.clone(), limit_bytes: GROUP_MAX_BYTES });
        }
        let (size_bytes, limit_bytes) = (self.metadata.len(), POSITION_METADATA_MAX_BYTES);
        if size_bytes > limit_bytes {
            return Err(Error::MetadataTooLarge { group: self.group.clone(), size_bytes, limit_bytes });
        }
        Ok(())
    }

    /// Checks the position against its partition: the id of the topic, its first offset and its high watermark.
    ///
    /// # Errors
    /// [`Error::PositionLost`] for a position of another topic, [`Error::PositionUnstable`] above the high watermark.
    pub fn check_position(&self, topic: TopicId, first: Offset, high: Offset) -> Result<(), Error> {
        let (partition, position) = (&self.partition, self.position);
        if position.topic != topic {
            let why = "it belongs to another topic of this name";
            return Err(Error::PositionLost { partition: partition.clone(), position, why, restart: first });
        }
        if position.epoch != NO_EPOCH && position.offset > high {
            let (group, partition, offset) = (self.group.clone(), partition.clone(), position.offset);
            return Err(Error::PositionUnstable { group, partition, offset, stable: high });
        }
        Ok(())
    }
}

/// Records for several partitions and positions of groups, appended all or nothing.
#[derive(Debug, Default)]
pub struct AtomicAppend<'a> {
    /// Records by partition; a partition may appear more than once, its records keep their order.
    pub records: Vec<(TopicPartition, Vec<Record<'a>>)>,
    /// The group positions to commit.
    pub positions: Vec<PositionCommit>,
}

/// The only writer of its name. Any thread may call it; calls of several threads take effect one after the other.
///
/// Always true
/// - Once [`Log::writer`](crate::Log::writer) has returned a later writer of the name, every call of this one ends in
///   [`Error::Fenced`], and nothing of it takes effect any more.
/// - Records of an open transaction are void unless it is committed: also when the writer is dropped, or when its process
///   dies and the next of its name begins.
/// - Commits take effect in the order of the calls. If an accepted one fails, every later one in flight fails too; one that
///   ends in [`Error::WaitsForDisk`] has not failed and takes effect later.
/// - After an error of [`Error::may_have_applied`] the outcome is unknown. To go on, take the name again, which decides it,
///   and read the partitions up to [`UpTo::Stable`](crate::UpTo::Stable): what was committed is there.
/// - After a commit that was accepted has failed, this writer does not go on: later calls of it end in [`Error::OutcomeUnknown`]
///   and have no effect. If [`Error::needs_writer`] says so of the failure, the log goes on, and the name can be taken again.
pub trait Writer: Send + Sync + 'static {
    /// The name.
    fn name(&self) -> &str;

    /// Appends records to the open transaction, which begins with the first. Until it ends, readers see neither them nor
    /// anything behind them in the partition, except at [`UpTo::High`](crate::UpTo::High): keep it short. An append is all or nothing; their sum
    /// may have any size. Never blocks on a disk.
    ///
    /// # Errors
    /// Nothing is appended, and the transaction stays as it was: those of [`Partition::append`](crate::Partition::append),
    /// [`Error::Fenced`], [`Error::TooManyTransactions`], [`Error::UnsupportedBatch`] for a topic in memory.
    fn append(&self, partition: &TopicPartition, records: &[Record<'_>]) -> Result<(), Error>;

    /// Commits the open transaction, and these records and positions with it, all or nothing, also across a crash; without
    /// an open transaction it is an append to several partitions at once. `done` gets one [`Appended`] for each entry of
    /// `append.records`, once all of them have `level`. An open transaction is always committed at
    /// [`AckLevel::Synced`]. A position may be committed up to its partition's [`Offsets::high`](crate::Offsets::high).
    /// `done` gets [`Error::OutcomeUnknown`] if the engine has not learnt whether the commit was stored. The embedded engine always
    /// learns it, or ends.
    ///
    /// # Errors
    /// Nothing is committed, `done` is not called, and the transaction stays as it was: those of
    /// [`Partition::append`](crate::Partition::append) for a record, [`Error::UnknownTopic`],
    /// [`Error::PositionUnstable`], [`Error::PositionLost`] for a position, [`Error::Fenced`].
    fn commit(&self, append: &AtomicAppend<'_>, level: AckLevel, done: Done<Vec<Appended>>) -> Result<(), Error>;

    /// Voids the open transaction; does nothing without one. Takes effect before every later call.
    ///
    /// # Errors
    /// [`Error::Fenced`]; [`Error::WritingEnded`], [`Error::Stopped`].
    fn abort(&self) -> Result<(), Error>;
}
