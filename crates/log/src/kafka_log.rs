//! The part of the built-in log that clients of Kafka's protocol need beside the contract: batches that they built, their
//! producers and transactions, and records as they are stored. Where Apache Kafka is the log, they speak to Kafka itself.

use std::sync::Arc;

use millstream_types::{Epoch, Offset, Record, RecordBatch, TopicPartition};

use crate::{
    AbortedTransaction, AckLevel, Appended, Done, Error, Located, Log, OpenTransaction, Partition, PositionCommit, UpTo,
};

/// The end of a producer's transaction, and everything that takes effect with it, all or nothing.
#[derive(Debug, Default)]
pub struct EndTransaction<'a> {
    /// Id of the idempotent producer.
    pub producer_id: i64,
    /// Epoch of the producer. Batches that it sends to `partitions` under an earlier epoch are refused afterwards.
    pub producer_epoch: i16,
    /// The partitions of the transaction. Deleted topics and topics in memory are skipped.
    pub partitions: Vec<TopicPartition>,
    /// `true` to commit the transaction, `false` to abort it.
    pub commit: bool,
    /// Positions to commit if the transaction commits. Deleted topics are skipped.
    pub positions: Vec<PositionCommit>,
    /// Records of the transaction coordinator.
    pub records: Vec<(TopicPartition, Vec<Record<'a>>)>,
}

/// An idempotent producer that a partition remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownProducer {
    /// Id of the idempotent producer.
    pub id: i64,
    /// The latest epoch that has reached the partition.
    pub epoch: i16,
    /// Sequence number of its last record; `None` if the epoch has none yet.
    pub last_sequence: Option<i32>,
    /// When its last batch was appended: milliseconds since 1970-01-01T00:00:00Z.
    pub last_ms: i64,
    /// First record of its open transaction, if there is one.
    pub transaction: Option<Offset>,
}

/// A group that has positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownGroup {
    /// Its name in the log.
    pub name: String,
    /// Its last commit that is kept: milliseconds since 1970-01-01T00:00:00Z.
    pub committed_ms: i64,
}

/// Stored batches as they are, with the aborted transactions that a reader must know.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredBatches {
    /// The batches, including markers and batches of aborted transactions.
    pub batches: Vec<RecordBatch>,
    /// The aborted transactions that overlap the batches, by first record. From that record to its marker, the
    /// transactional batches of the producer are void.
    pub aborted: Vec<AbortedTransaction>,
}

/// A log that takes what clients of Kafka's protocol send.
pub trait KafkaLog: Log {
    /// As [`Log::partition`], with what these clients need.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`] or [`Error::UnknownPartition`] if it does not exist.
    fn kafka_partition(&self, partition: &TopicPartition) -> Result<Arc<dyn KafkaPartition>, Error>;

    /// Ends a producer's transaction in all its partitions, commits its positions and appends the coordinator's
    /// records: all or nothing, also across a crash. `done` gets one [`Appended`] for each entry of `records`.
    ///
    /// Every partition gets a marker, also one without a record of the transaction: such a record may be on its way
    /// and is refused later, if `producer_epoch` is newer than its epoch. A repeated call does no harm. The end takes
    /// effect in the order of the atomic appends.
    ///
    /// # Errors
    /// Those of [`Writer::commit`](crate::Writer::commit); [`Error::FencedProducer`] if a partition knows a later epoch;
    /// [`Error::InvalidTransaction`] if a number is below 0.
    fn end_transaction(
        &self,
        end: &EndTransaction<'_>,
        level: AckLevel,
        done: Done<Vec<Appended>>,
    ) -> Result<(), Error>;

    /// Commits positions of groups, all or nothing, as [`Writer::commit`](crate::Writer::commit) does; synced when `done` is called.
    ///
    /// # Errors
    /// Those of [`Writer::commit`](crate::Writer::commit) for a position: nothing is committed and `done` is not called.
    fn commit_positions(&self, positions: Vec<PositionCommit>, done: Done<()>) -> Result<(), Error>;

    /// A producer id that is never handed out twice; `None` once those of this start are used up.
    fn next_producer_id(&self) -> Option<i64>;

    /// The same for a producer with a transactional id: [`crate::is_transactional_producer`] tells it apart for ever.
    fn next_transactional_producer_id(&self) -> Option<i64>;

    /// The groups that have positions, by name.
    fn groups(&self) -> Vec<KnownGroup>;

    /// Deletes the positions of `group` in `partitions`; partitions without one are skipped. All or nothing; durable
    /// on return. Blocks on the disk: call it from a plain thread.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`], [`Error::UnknownPartition`]: nothing is deleted. Also the errors that end an append.
    fn forget_positions(&self, group: &str, partitions: &[TopicPartition]) -> Result<(), Error>;
}

/// A partition of a [`KafkaLog`].
pub trait KafkaPartition: Partition {
    /// Appends a batch that another program built. Its records stay as they are; its offset and epoch are set anew.
    ///
    /// A batch with a [`millstream_types::Producer`] must be next in the producer's sequence. Each of the producer's last
    /// five batches may be sent again: it is not stored again, and `done` gets the first offsets once those
    /// records have `level`. A still older batch ends in [`Error::DuplicateSequence`], through `done`. An
    /// unknown or forgotten producer may begin with any sequence number.
    ///
    /// A transactional batch belongs to its producer's open transaction in this partition, or begins one; the
    /// caller checks that the producer may. It is answered once it is synced, at any `level`: a commit must
    /// not refer to lost records.
    ///
    /// # Errors
    /// Those of [`Partition::append`]; [`Error::OutOfOrderSequence`], [`Error::FencedProducer`];
    /// [`Error::Batch`] if a producer number is below 0; [`Error::UnsupportedBatch`] for a control batch,
    /// and for a transaction in a memory topic; [`Error::InvalidTransaction`] if the batch does not fit
    /// the producer's open transaction; [`Error::TooManyTransactions`].
    fn append_batch(&self, batch: RecordBatch, level: AckLevel, done: Done<Appended>) -> Result<(), Error>;

    /// Like [`Partition::read`], but omits nothing and lists the aborted transactions. For readers that filter by
    /// themselves, as Kafka's clients do.
    ///
    /// # Errors
    /// Those of [`Partition::read`], for the same reasons.
    fn read_stored(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<StoredBatches, Error>;

    /// `true` if a read from `from` needs no disk now.
    fn reads_from_memory(&self, from: Offset) -> bool;

    /// Like [`KafkaPartition::read_stored`], but returns the places of the batches in the log's files, to send them
    /// without a copy. Blocks that were not written or verified within the last minute are verified, which reads from
    /// the disk: call it from a plain thread. `None` if the caller must read instead: the batches are in memory,
    /// or share a block with records below `from` or beyond the limits.
    ///
    /// # Errors
    /// Those of [`KafkaPartition::read_stored`], except damage: it is reported by the read.
    fn locate(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<Option<Located>, Error>;

    /// The latest known epoch up to `epoch`, and the end of the records that a reader under `epoch` can have read, as
    /// [`Partition::resume`] judges it. `None` for an epoch that the log has not reached.
    fn end_of_epoch(&self, epoch: Epoch) -> Option<(Epoch, Offset)>;

    /// The open transactions, the oldest first.
    fn transactions(&self) -> Vec<OpenTransaction>;

    /// The idempotent producers that the partition remembers, by id.
    fn producers(&self) -> Vec<KnownProducer>;
}
