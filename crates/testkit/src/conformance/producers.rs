//! Batches of idempotent producers: stored once, and without a gap.

use std::sync::Arc;

use millstream_log::{AckLevel, Appended, Done, Error, KafkaPartition, KnownProducer, Storage, TopicConfig, UpTo};
use millstream_types::{BatchBuilder, BatchLimits, Compression, Epoch, Offset, Producer, RecordBatch};

use super::{KafkaSubject, answer, new_kafka_topic, numbers, read_all, records, texts};

const ID: i64 = 7;

/// A batch of the given values by producer [`ID`].
fn batch(epoch: i16, base_sequence: i32, values: std::ops::Range<u32>) -> RecordBatch {
    let values = numbers(values);
    let mut builder = BatchBuilder::default();
    records(&values).iter().for_each(|record| builder.push(record));
    builder.set_producer(Producer { id: ID, epoch, base_sequence });
    builder.seal(Offset(0), Epoch(0), Compression::None)
}

fn send(partition: &dyn KafkaPartition, batch: RecordBatch) -> Result<Appended, Error> {
    let (done, answer) = answer();
    partition.append_batch(batch, AckLevel::Synced, done)?;
    answer()
}

/// An engine and a new partition.
type Started<S> = (S, Arc<dyn KafkaPartition>);

fn start<S: KafkaSubject>() -> Result<Started<S>, Error> {
    let subject = S::start();
    let (_, partition) = new_kafka_topic(&**subject.kafka_log(), &TopicConfig::default())?;
    Ok((subject, partition))
}

/// Each of the last five batches, sent again, is answered with its own offsets and not stored again.
pub fn a_batch_sent_again_is_answered_with_its_first_offsets<S: KafkaSubject>() -> Result<(), Error> {
    let (_subject, partition) = start::<S>()?;
    let batches: Vec<_> = (0..5).map(|number| batch(0, number * 3, number as u32 * 3..number as u32 * 3 + 3)).collect();
    let first: Vec<_> = batches.iter().map(|batch| send(&*partition, batch.clone())).collect::<Result<_, _>>()?;
    let again: Vec<_> = batches.iter().map(|batch| send(&*partition, batch.clone())).collect::<Result<_, _>>()?;
    assert_eq!(again, first);
    assert_eq!(texts(&read_all(&*partition, Offset::ZERO, UpTo::Stable)?), numbers(0..15));
    Ok(())
}

/// While the first is not durable yet, a batch sent again is answered no earlier than its records are.
pub fn a_batch_sent_again_is_answered_once_its_first_is_as_durable_as_asked<S: KafkaSubject>() -> Result<(), Error> {
    let (_subject, partition) = start::<S>()?;
    for number in 0..50 {
        partition.append_batch(batch(0, number, 0..1), AckLevel::Memory, Done::ignore())?;
        let again = send(&*partition, batch(0, number, 0..1))?;
        assert!(partition.offsets().stable > again.last, "answered as synced, and not stable");
    }
    assert_eq!(read_all(&*partition, Offset::ZERO, UpTo::Stable)?.len(), 50);
    Ok(())
}

/// A batch older than those whose offsets are kept is not stored again either, and its sender learns why.
pub fn a_batch_sent_long_ago_is_a_duplicate_without_offsets<S: KafkaSubject>() -> Result<(), Error> {
    let (_subject, partition) = start::<S>()?;
    for number in 0..20 {
        send(&*partition, batch(0, number, 0..1))?;
    }
    match send(&*partition, batch(0, 3, 0..1)) {
        Err(error @ Error::DuplicateSequence { producer: ID, given: 3, .. }) => assert!(error.may_have_applied()),
        other => panic!("not refused as a duplicate: {other:?}"),
    }
    assert_eq!(read_all(&*partition, Offset::ZERO, UpTo::Stable)?.len(), 20);
    Ok(())
}

/// A batch that leaves out sequence numbers is refused, with the number that is next, and nothing is taken.
pub fn a_gap_in_a_producers_sequence_is_refused<S: KafkaSubject>() -> Result<(), Error> {
    let (_subject, partition) = start::<S>()?;
    send(&*partition, batch(0, 0, 0..2))?;
    let tail = partition.offsets().tail;
    match partition.append_batch(batch(0, 3, 3..4), AckLevel::Synced, Done::ignore()) {
        Err(Error::OutOfOrderSequence { producer: ID, expected: 2, given: 3, .. }) => {}
        other => panic!("the gap is not refused: {other:?}"),
    }
    assert_eq!(partition.offsets().tail, tail);
    send(&*partition, batch(0, 2, 2..3))?;
    assert_eq!(texts(&read_all(&*partition, Offset::ZERO, UpTo::Stable)?), numbers(0..3));
    Ok(())
}

/// The sequence number after the largest one is 0.
pub fn sequence_numbers_begin_again_at_0<S: KafkaSubject>() -> Result<(), Error> {
    let (_subject, partition) = start::<S>()?;
    let first = send(&*partition, batch(0, i32::MAX - 1, 0..4))?;
    send(&*partition, batch(0, 2, 4..5))?;
    assert_eq!(send(&*partition, batch(0, i32::MAX - 1, 0..4))?, first);
    assert_eq!(texts(&read_all(&*partition, Offset::ZERO, UpTo::Stable)?), numbers(0..5));
    Ok(())
}

/// A later epoch begins with sequence 0; from then on the earlier one is fenced.
pub fn a_later_epoch_fences_the_earlier_one<S: KafkaSubject>() -> Result<(), Error> {
    let (_subject, partition) = start::<S>()?;
    send(&*partition, batch(4, 9, 0..1))?;
    match send(&*partition, batch(5, 10, 1..2)) {
        Err(Error::OutOfOrderSequence { epoch: 5, expected: 0, given: 10, .. }) => {}
        other => panic!("an epoch begins in the middle: {other:?}"),
    }
    send(&*partition, batch(5, 0, 1..2))?;
    match send(&*partition, batch(4, 10, 2..3)) {
        Err(Error::FencedProducer { producer: ID, current: 5, given: 4, .. }) => {}
        other => panic!("not fenced: {other:?}"),
    }
    assert_eq!(texts(&read_all(&*partition, Offset::ZERO, UpTo::Stable)?), numbers(0..2));
    Ok(())
}

/// A partition lists its producers with their epochs, last sequence numbers and open transactions.
pub fn producers_are_listed_with_where_they_stand<S: KafkaSubject>() -> Result<(), Error> {
    let (_subject, partition) = start::<S>()?;
    assert_eq!(partition.producers(), []);
    send(&*partition, batch(4, i32::MAX, 0..1))?;
    let listed = partition.producers();
    let KnownProducer { last_ms, .. } = listed[0];
    let expected = KnownProducer { id: ID, epoch: 4, last_sequence: Some(i32::MAX), last_ms, transaction: None };
    assert_eq!(listed, [expected]);
    assert!(last_ms > 0, "{last_ms}");
    send(&*partition, batch(5, 0, 1..4))?;
    let listed = partition.producers();
    assert_eq!((listed[0].epoch, listed[0].last_sequence, listed.len()), (5, Some(2), 1));
    Ok(())
}

/// Each partition counts sequence numbers separately.
pub fn partitions_count_a_producers_batches_apart<S: KafkaSubject>() -> Result<(), Error> {
    let (subject, first) = start::<S>()?;
    let (_, second) = new_kafka_topic(&**subject.kafka_log(), &TopicConfig::default())?;
    for partition in [&first, &second] {
        send(&**partition, batch(0, 0, 0..1))?;
        send(&**partition, batch(0, 1, 1..2))?;
        assert_eq!(texts(&read_all(&**partition, Offset::ZERO, UpTo::Stable)?), numbers(0..2));
    }
    Ok(())
}

/// After a restart a batch sent again is still answered with its offsets, and a gap still refused.
pub fn producers_are_remembered_over_a_restart<S: KafkaSubject>() -> Result<(), Error> {
    let (mut subject, partition) = start::<S>()?;
    send(&*partition, batch(0, 0, 0..2))?;
    let first = send(&*partition, batch(0, 2, 2..4))?;
    let id = partition.id().clone();
    drop(partition);
    subject.restart();
    let partition = subject.kafka_log().kafka_partition(&id)?;
    assert_eq!(send(&*partition, batch(0, 2, 2..4))?, first);
    assert!(matches!(send(&*partition, batch(0, 5, 5..6)), Err(Error::OutOfOrderSequence { expected: 4, .. })));
    send(&*partition, batch(0, 4, 4..5))?;
    assert_eq!(texts(&read_all(&*partition, Offset::ZERO, UpTo::Stable)?), numbers(0..5));
    Ok(())
}

/// A memory topic recognises duplicates too.
pub fn a_topic_in_memory_knows_its_producers<S: KafkaSubject>() -> Result<(), Error> {
    let (subject, _) = start::<S>()?;
    if !subject.kafka_log().capabilities().memory_topics {
        return Ok(());
    }
    let config = TopicConfig { storage: Storage::Memory { max_bytes: 1 << 20 }, ..TopicConfig::default() };
    let (_, partition) = new_kafka_topic(&**subject.kafka_log(), &config)?;
    let first = send(&*partition, batch(0, 0, 0..2))?;
    assert_eq!(send(&*partition, batch(0, 0, 0..2))?, first);
    send(&*partition, batch(0, 2, 2..3))?;
    assert_eq!(texts(&read_all(&*partition, first.first, UpTo::Tail)?), numbers(0..3));
    Ok(())
}

/// A recreated topic knows no producers.
pub fn a_topic_created_anew_knows_no_producer<S: KafkaSubject>() -> Result<(), Error> {
    let (subject, partition) = start::<S>()?;
    send(&*partition, batch(3, 0, 0..2))?;
    let id = partition.id().clone();
    subject.kafka_log().delete_topic(&id.topic)?;
    subject.kafka_log().create_topic(&id.topic, &TopicConfig::default())?;
    let partition = subject.kafka_log().kafka_partition(&id)?;
    send(&*partition, batch(1, 9, 0..1))?;
    assert_eq!(texts(&read_all(&*partition, Offset::ZERO, UpTo::Stable)?), numbers(0..1));
    Ok(())
}

/// Numbers below 0 beside a producer's id are refused, and so are markers.
pub fn a_batch_with_an_invalid_idempotent_producer_is_refused<S: KafkaSubject>() -> Result<(), Error> {
    let (_subject, partition) = start::<S>()?;
    for (epoch, sequence) in [(-1, 0), (0, -1)] {
        assert!(matches!(send(&*partition, batch(epoch, sequence, 0..1)), Err(Error::Batch { .. })));
    }
    let refused = send(&*partition, as_control_batch(&batch(0, 0, 0..1)));
    assert!(matches!(refused, Err(Error::UnsupportedBatch { .. })), "{refused:?}");
    assert_eq!(read_all(&*partition, Offset::ZERO, UpTo::Stable)?.len(), 0);
    Ok(())
}

/// The batch with the control bit set.
fn as_control_batch(batch: &RecordBatch) -> RecordBatch {
    let mut bytes = batch.bytes().to_vec();
    bytes[22] |= 1 << 5;
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    RecordBatch::parse(bytes.into(), &BatchLimits::default()).expect("only a bit was changed")
}
