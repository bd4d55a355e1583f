//! The contract of the log as checks that every engine passes, one for each sentence.
//!
//! The tests of an engine implement [`Subject`] and call [`conformance_suite!`](crate::conformance_suite), which
//! creates one test for each check; those of an engine behind Kafka's listener implement [`KafkaSubject`], too, and call
//! [`kafka_conformance_suite!`](crate::kafka_conformance_suite). Each check creates its own topics, so all of them can run against one server.
//!
//! Not here: the state after a crash. It depends on the engine's disk; each engine has its own crash tests.

pub mod append;
pub mod atomic;
pub mod batches;
pub mod groups;
pub mod position;
pub mod producers;
pub mod read;
pub mod read_one;
pub mod topics;
pub mod transactions;
pub mod trim;
pub mod writer;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use millstream_log::{AckLevel, Appended, Done, Error, KafkaLog, KafkaPartition, Log, Partition, TopicConfig, UpTo};
use millstream_types::{BatchLimits, Offset, Record, RecordView, TenantId, TopicName, TopicPartition};

/// Longest wait for an answer; only an engine that never answers reaches it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes that [`read_all`] asks for at a time.
const READ_BYTES: usize = 1 << 20;

/// An engine under test; dropping it ends everything that it started.
pub trait Subject {
    /// Starts the engine without any data.
    fn start() -> Self;
    /// The log of the running engine.
    fn log(&self) -> &Arc<dyn Log>;
    /// Stops the engine cleanly and starts it again on the same data.
    fn restart(&mut self);
}

/// An engine that keeps what clients of Kafka's protocol need, too.
pub trait KafkaSubject: Subject {
    /// The log of the running engine, as these clients see it.
    fn kafka_log(&self) -> &Arc<dyn KafkaLog>;
}

/// Creates one `#[test]` for each check of the contract, for the given [`Subject`].
#[macro_export]
macro_rules! conformance_suite {
    ($subject:ty) => {
        $crate::conformance_suite!(@tests $subject; topics:
            a_created_topic_is_found_by_its_name,
            topics_are_listed_by_name,
            creating_a_topic_again_returns_it,
            creating_a_topic_with_another_configuration_names_the_difference,
            an_invalid_configuration_is_refused,
            altering_a_topic_changes_its_alterable_settings,
            altering_a_fixed_setting_is_refused,
            partitions_are_added_to_a_topic,
            an_invalid_number_of_partitions_is_refused,
            a_deleted_topic_is_unknown_to_readers_and_writers,
            a_topic_created_anew_has_another_id_and_no_records,
            topics_and_their_configurations_survive_a_restart,
            an_unknown_topic_or_partition_is_named,
            topics_in_memory_are_a_capability,
            a_bell_rings_when_topics_change,
        );
        $crate::conformance_suite!(@tests $subject; append:
            records_are_read_as_they_were_appended,
            offsets_ascend_from_one_append_to_the_next,
            the_records_of_one_append_stand_together,
            an_answer_at_memory_level_comes_before_append_returns,
            an_answer_at_the_topics_level_makes_the_records_stable,
            an_answer_covers_everything_before_it,
            an_unawaited_append_is_stored,
            a_record_over_the_limit_is_refused_and_nothing_is_taken,
            a_compressed_topic_returns_the_same_records,
        );
        $crate::conformance_suite!(@tests $subject; atomic:
            an_atomic_append_reaches_all_partitions_and_answers_in_their_order,
            a_partition_named_twice_keeps_the_order_of_its_records,
            positions_are_committed_with_the_records,
            positions_may_be_committed_alone,
            an_atomic_append_with_one_bad_part_takes_nothing,
            a_position_beyond_the_stable_offset_is_refused,
            groups_have_positions_of_their_own,
            committed_positions_survive_a_restart,
            a_position_keeps_its_metadata_and_commit_time,
            metadata_over_the_limit_are_refused_and_nothing_is_taken,
        );
        $crate::conformance_suite!(@tests $subject; writer:
            records_of_a_writer_are_seen_once_they_are_committed,
            a_reader_up_to_the_high_watermark_sees_open_transactions,
            a_commit_takes_records_and_positions_of_its_own,
            an_aborted_transaction_leaves_nothing,
            offsets_of_aborted_records_are_passed_and_not_given_again,
            a_later_writer_of_a_name_fences_the_earlier,
            writers_of_different_names_do_not_fence_each_other,
            what_a_writer_left_open_is_void_once_the_next_begins,
            what_a_writer_has_committed_is_decided_once_the_next_begins,
            a_restart_voids_what_a_writer_left_open,
            a_writer_that_is_dropped_leaves_nothing_open,
            a_transaction_may_have_any_size,
            a_refused_commit_leaves_the_transaction_open,
            a_deleted_topic_takes_its_part_of_a_transaction_with_it,
            a_topic_in_memory_takes_no_part_in_a_transaction,
        );
        $crate::conformance_suite!(@tests $subject; read:
            a_new_partition_is_empty,
            reading_at_the_tail_returns_nothing,
            reading_beyond_the_tail_names_the_tail,
            a_read_returns_one_batch_however_large_and_more_only_while_they_fit,
            a_read_begins_with_the_batch_that_holds_the_offset,
            reading_below_the_first_offset_names_the_oldest,
            first_stable_and_tail_are_always_in_order,
            records_and_offsets_survive_a_restart,
            the_first_record_at_or_after_a_time_is_found,
            a_bell_rings_when_records_arrive,
            every_watching_bell_rings,
        );
        $crate::conformance_suite!(@tests $subject; read_one:
            a_record_is_read_by_its_offset,
            no_record_is_found_below_the_first_offset_or_beyond_the_tail,
            a_record_of_a_topic_in_memory_is_read_by_its_offset,
        );
        $crate::conformance_suite!(@tests $subject; position:
            a_reader_goes_on_where_it_stopped,
            a_position_outlives_a_restart,
            a_position_in_a_deleted_topic_is_lost,
            a_position_whose_records_are_gone_names_the_oldest,
        );
        $crate::conformance_suite!(@tests $subject; trim:
            records_below_a_trim_are_gone_and_the_others_stay,
            a_trim_below_the_first_offset_changes_nothing,
            a_partition_can_be_trimmed_up_to_its_stable_offset,
            a_trim_survives_a_restart,
            a_trim_leaves_records_that_a_reader_holds,
            a_compacted_topic_refuses_to_be_trimmed,
            a_topic_in_memory_is_trimmed,
        );
    };
    (@tests $subject:ty; $chapter:ident: $($sentence:ident,)+) => {
        $(
            #[test]
            fn $sentence() -> Result<(), ::millstream_log::Error> {
                $crate::conformance::$chapter::$sentence::<$subject>()
            }
        )+
    };
}

/// Creates one `#[test]` for each check of what clients of Kafka's protocol need, for the given [`KafkaSubject`].
#[macro_export]
macro_rules! kafka_conformance_suite {
    ($subject:ty) => {
        $crate::conformance_suite!(@tests $subject; batches:
            a_batch_built_by_a_client_keeps_its_records,
            an_unreadable_batch_is_refused,
            a_single_read_sees_no_more_than_its_limit,
        );
        $crate::conformance_suite!(@tests $subject; producers:
            a_batch_sent_again_is_answered_with_its_first_offsets,
            a_batch_sent_again_is_answered_once_its_first_is_as_durable_as_asked,
            a_batch_sent_long_ago_is_a_duplicate_without_offsets,
            a_gap_in_a_producers_sequence_is_refused,
            sequence_numbers_begin_again_at_0,
            a_later_epoch_fences_the_earlier_one,
            partitions_count_a_producers_batches_apart,
            producers_are_remembered_over_a_restart,
            a_topic_in_memory_knows_its_producers,
            producers_are_listed_with_where_they_stand,
            a_topic_created_anew_knows_no_producer,
            a_batch_with_an_invalid_idempotent_producer_is_refused,
        );
        $crate::conformance_suite!(@tests $subject; transactions:
            records_of_a_transaction_are_seen_once_it_is_committed,
            records_of_an_aborted_transaction_are_never_seen,
            a_transaction_ends_everywhere_at_once,
            an_open_transaction_stays_open_over_a_restart,
            a_batch_after_the_end_of_its_transaction_under_a_later_epoch_is_refused,
            a_batch_of_a_transaction_is_stored_once,
            a_batch_that_cannot_be_part_of_a_transaction_is_refused,
            ending_a_transaction_again_or_where_a_topic_is_gone_does_no_harm,
            a_reader_passes_records_of_aborted_transactions,
            stored_batches_come_with_the_aborted_transactions_that_reach_into_them,
            a_position_may_be_committed_behind_an_open_transaction,
        );
        $crate::conformance_suite!(@tests $subject; position:
            the_end_of_an_epoch_is_told_until_it_is_trimmed,
        );
        $crate::conformance_suite!(@tests $subject; groups:
            groups_with_positions_are_listed_with_all_of_them,
            a_forgotten_position_is_gone_for_good_and_others_stay,
            a_position_committed_after_it_was_forgotten_stays,
        );
    };
}

/// A record that was read, with its own bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRecord {
    /// Offset at which the record stands.
    pub offset: Offset,
    /// Its event time, milliseconds since 1970-01-01T00:00:00Z.
    pub timestamp_ms: i64,
    /// Key of the record; `None` if it has none.
    pub key: Option<Vec<u8>>,
    /// Payload of the record; `None` for a tombstone.
    pub value: Option<Vec<u8>>,
    /// Headers of the record, in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl From<RecordView<'_>> for ReadRecord {
    fn from(record: RecordView<'_>) -> Self {
        Self {
            offset: record.offset,
            timestamp_ms: record.timestamp_ms,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers().map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect(),
        }
    }
}

impl ReadRecord {
    /// The expected result of reading `record` at `offset`.
    pub fn at(offset: Offset, record: &Record<'_>) -> Self {
        Self {
            offset,
            timestamp_ms: record.timestamp_ms,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers.iter().map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect(),
        }
    }
}

/// Appends records and waits until they have `level`.
///
/// # Errors
/// The error that ended the append.
pub fn append_and_wait(partition: &dyn Partition, records: &[Record<'_>], level: AckLevel) -> Result<Appended, Error> {
    let (done, answer) = answer();
    partition.append(records, level, done)?;
    answer()
}

/// Reads all records from `from` to the limit, batch by batch.
///
/// # Errors
/// The errors of [`Partition::read`]; [`Error::Batch`] if a batch cannot be decoded.
pub fn read_all(partition: &dyn Partition, from: Offset, up_to: UpTo) -> Result<Vec<ReadRecord>, Error> {
    let undecodable = |source| Error::Batch { partition: partition.id().clone(), source };
    let mut found = Vec::new();
    let mut next = from;
    loop {
        let known = partition.read_from_memory(next, READ_BYTES, up_to)?;
        let batches = partition.read(next, READ_BYTES, up_to)?;
        // A read that comes later may find more behind it.
        let is_same = known.is_none_or(|known| batches.iter().zip(&known).all(|(read, known)| read == known));
        assert!(is_same, "memory has other batches at {next} of {}", partition.id());
        let Some(last) = batches.last() else { return Ok(found) };
        next = last.last_offset().next();
        for batch in batches {
            let batch = batch.inflated(&BatchLimits::default()).map_err(undecodable)?;
            for record in batch.records() {
                let record = record.map_err(undecodable)?;
                if record.offset >= from {
                    found.push(ReadRecord::from(record));
                }
            }
        }
    }
}

/// A [`Done`], and a function that waits for it.
fn answer<T: Send + 'static>() -> (Done<T>, impl FnOnce() -> Result<T, Error>) {
    let (sender, receiver) = mpsc::channel();
    let done = Done::call(move |result| drop(sender.send(result)));
    (done, move || receiver.recv_timeout(ANSWER_TIMEOUT).expect("an append was never answered"))
}

/// A topic name that no other check uses.
fn new_name() -> Result<TopicName, Error> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("conformance-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    Ok(TopicName::user(&name, &TenantId::default())?)
}

/// A new topic with its partition 0.
fn new_topic(log: &dyn Log, config: &TopicConfig) -> Result<(TopicName, Arc<dyn Partition>), Error> {
    let name = new_name()?;
    log.create_topic(&name, config)?;
    let partition = log.partition(&TopicPartition::new(name.clone(), 0))?;
    Ok((name, partition))
}

/// The same, for a log with what clients of Kafka's protocol need.
fn new_kafka_topic(log: &dyn KafkaLog, config: &TopicConfig) -> Result<(TopicName, Arc<dyn KafkaPartition>), Error> {
    let (name, _) = new_topic(log, config)?;
    let partition = log.kafka_partition(&TopicPartition::new(name.clone(), 0))?;
    Ok((name, partition))
}

/// The values `0`, `1`, … as text.
fn numbers(range: Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// One record for each value, numbered by event time.
fn records(values: &[String]) -> Vec<Record<'_>> {
    (0..)
        .zip(values)
        .map(|(timestamp_ms, value)| Record { timestamp_ms, value: Some(value.as_bytes()), ..Record::default() })
        .collect()
}

fn texts(stored: &[ReadRecord]) -> Vec<String> {
    stored.iter().map(|record| String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into()).collect()
}
