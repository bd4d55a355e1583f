//! Batches that clients built: taken as they are, refused if nobody could read them, seen once their transaction is committed.

use millstream_log::{AckLevel, EndTransaction, Error, TopicConfig, UpTo};
use millstream_types::{
    BATCH_HEADER_BYTES, BatchBuilder, BatchLimits, Compression, Epoch, Offset, Producer, RecordBatch,
};

use super::read_one::check;
use super::{KafkaSubject, answer, append_and_wait, new_kafka_topic, numbers, read_all, records, texts};

/// A batch built elsewhere, compressed or not, gets offsets and the epoch of this partition, and keeps its records.
pub fn a_batch_built_by_a_client_keeps_its_records<S: KafkaSubject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_kafka_topic(&**subject.kafka_log(), &TopicConfig::default())?;
    let values = numbers(0..10);
    let mut builder = BatchBuilder::default();
    for compression in Compression::ALL {
        records(&values).iter().for_each(|record| builder.push(record));
        let batch = builder.seal(Offset(77), Epoch(99), compression);
        let tail = partition.offsets().tail;
        let (done, answer) = answer();
        partition.append_batch(batch, AckLevel::Synced, done)?;
        let appended = answer()?;
        assert!(appended.first >= tail && appended.last.0 - appended.first.0 == 9);
        let read = read_all(&*partition, appended.first, UpTo::Stable)?;
        assert_eq!(texts(&read), values);
        assert_eq!((read[0].offset, read[9].offset), (appended.first, appended.last));
    }
    Ok(())
}

/// A batch that readers could not decode is refused as a whole; later batches are accepted.
pub fn an_unreadable_batch_is_refused<S: KafkaSubject>() -> Result<(), Error> {
    /// The header's CRC, which covers all bytes after it.
    const CRC: std::ops::Range<usize> = 17..21;
    let subject = S::start();
    let config = TopicConfig { record_max_bytes: 2 << 20, ..TopicConfig::default() };
    let (_, partition) = new_kafka_topic(&**subject.kafka_log(), &config)?;
    let built = |values: &[String], compression| {
        let mut builder = BatchBuilder::default();
        records(values).iter().for_each(|record| builder.push(record));
        builder.seal(Offset(0), Epoch(0), compression)
    };
    let changed = |batch: RecordBatch, change: fn(&mut [u8])| {
        let mut bytes = batch.bytes().to_vec();
        change(&mut bytes[BATCH_HEADER_BYTES..]);
        let crc = crc32c::crc32c(&bytes[CRC.end..]);
        bytes[CRC].copy_from_slice(&crc.to_be_bytes());
        RecordBatch::parse(bytes.into(), &BatchLimits::default())
    };
    let values = numbers(0..100);
    let mut refused = Vec::new();
    for compression in Compression::ALL {
        refused.push(changed(built(&values, compression), |records| records.fill(0xff)));
        refused.push(Ok(built(&["x".repeat((2 << 20) + 1)], compression)));
    }
    refused.push(changed(built(&values, Compression::None), |records| records.rotate_left(1)));
    // The batch is small when compressed and exceeds the limit when inflated.
    let large = vec!["x".repeat(1 << 20); 17];
    refused.extend([Compression::Gzip, Compression::Lz4, Compression::Zstd].map(|codec| Ok(built(&large, codec))));
    for (number, batch) in refused.into_iter().enumerate() {
        let Ok(batch) = batch else { continue };
        let (done, _) = answer();
        match partition.append_batch(batch, AckLevel::Synced, done) {
            Err(Error::Batch { .. } | Error::RecordTooLarge { .. } | Error::AppendTooLarge { .. }) => {}
            other => panic!("batch {number}: {other:?}"),
        }
    }
    let (done, answer) = answer();
    partition.append_batch(built(&values, Compression::Zstd), AckLevel::Synced, done)?;
    assert_eq!(answer()?.first, Offset::ZERO);
    assert_eq!(texts(&read_all(&*partition, Offset::ZERO, UpTo::Stable)?), values);
    Ok(())
}

/// A record that a reader may not see yet is not found; markers and aborted records are never found.
pub fn a_single_read_sees_no_more_than_its_limit<S: KafkaSubject>() -> Result<(), Error> {
    let subject = S::start();
    let log = &**subject.kafka_log();
    let (_, partition) = new_kafka_topic(log, &TopicConfig::default())?;
    append_and_wait(&*partition, &records(&numbers(0..1)), AckLevel::Synced)?;
    for (base_sequence, commit) in [(0, false), (2, true)] {
        let values = numbers(1..3);
        let mut builder = BatchBuilder::default();
        records(&values).iter().for_each(|record| builder.push(record));
        builder.set_producer(Producer { id: 7, epoch: 0, base_sequence });
        builder.set_transactional();
        let (done, sent) = answer();
        partition.append_batch(builder.seal(Offset(0), Epoch(0), Compression::None), AckLevel::Synced, done)?;
        let first = sent()?.first;
        append_and_wait(&*partition, &records(&numbers(3..4)), AckLevel::Synced)?;
        for hidden in [first, Offset(first.0 + 2)] {
            assert_eq!(partition.read_one(hidden, UpTo::Stable)?, None, "a transaction is open");
        }
        check(&*partition)?;
        let partitions = vec![partition.id().clone()];
        let (done, ended) = answer();
        let end = EndTransaction { producer_id: 7, partitions, commit, ..EndTransaction::default() };
        log.end_transaction(&end, AckLevel::Synced, done)?;
        ended()?;
        assert_eq!(partition.read_one(first, UpTo::Stable)?.is_some(), commit);
        check(&*partition)?;
    }
    Ok(())
}
