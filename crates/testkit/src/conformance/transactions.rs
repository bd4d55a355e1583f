//! Transactions: their records become visible in all partitions or in none, once the transaction has ended.

use std::ops::Range;
use std::sync::Arc;

use millstream_log::{
    AbortedTransaction, AckLevel, Appended, EndTransaction, Error, KafkaLog, KafkaPartition, OpenTransaction,
    PositionCommit, Storage, TopicConfig, UpTo,
};
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Position, Producer, RecordBatch, TopicPartition};

use super::{KafkaSubject, answer, append_and_wait, new_kafka_topic, numbers, read_all, records, texts};

/// A transactional batch of the given values.
fn batch(id: i64, epoch: i16, base_sequence: i32, values: Range<u32>) -> RecordBatch {
    let values = numbers(values);
    let mut builder = BatchBuilder::default();
    records(&values).iter().for_each(|record| builder.push(record));
    builder.set_producer(Producer { id, epoch, base_sequence });
    builder.set_transactional();
    builder.seal(Offset(0), Epoch(0), Compression::None)
}

fn send(partition: &dyn KafkaPartition, batch: RecordBatch) -> Result<Appended, Error> {
    let (done, answer) = answer();
    partition.append_batch(batch, AckLevel::Memory, done)?;
    answer()
}

fn plain(partition: &dyn KafkaPartition, values: Range<u32>) -> Result<Appended, Error> {
    append_and_wait(partition, &records(&numbers(values)), AckLevel::Synced)
}

fn end_all(log: &dyn KafkaLog, end: &EndTransaction<'_>) -> Result<Vec<Appended>, Error> {
    let (done, answer) = answer();
    log.end_transaction(end, AckLevel::Synced, done)?;
    answer()
}

fn end(
    log: &dyn KafkaLog,
    id: i64,
    epoch: i16,
    partitions: &[&Arc<dyn KafkaPartition>],
    commit: bool,
) -> Result<(), Error> {
    let partitions = partitions.iter().map(|partition| partition.id().clone()).collect();
    let end =
        EndTransaction { producer_id: id, producer_epoch: epoch, partitions, commit, ..EndTransaction::default() };
    end_all(log, &end).map(drop)
}

fn seen(partition: &dyn KafkaPartition, up_to: UpTo) -> Result<Vec<String>, Error> {
    Ok(texts(&read_all(partition, Offset::ZERO, up_to)?))
}

/// An engine and two partitions of a new topic.
type Started<S> = (S, Arc<dyn KafkaPartition>, Arc<dyn KafkaPartition>);

fn start<S: KafkaSubject>() -> Result<Started<S>, Error> {
    let subject = S::start();
    let (name, one) = new_kafka_topic(&**subject.kafka_log(), &TopicConfig::default())?;
    let two = subject.kafka_log().kafka_partition(&TopicPartition::new(name, 1))?;
    Ok((subject, one, two))
}

/// The same partition after a restart.
fn again<S: KafkaSubject>(subject: &S, partition: &dyn KafkaPartition) -> Result<Arc<dyn KafkaPartition>, Error> {
    subject.kafka_log().kafka_partition(partition.id())
}

/// An open transaction hides its records and everything after them, except from `UpTo::High` reads.
pub fn records_of_a_transaction_are_seen_once_it_is_committed<S: KafkaSubject>() -> Result<(), Error> {
    let (subject, one, _) = start::<S>()?;
    plain(&*one, 0..1)?;
    let begun = send(&*one, batch(7, 0, 0, 1..3))?;
    plain(&*one, 3..5)?;
    let ends = one.offsets();
    assert_eq!((ends.stable, ends.high, ends.tail), (begun.first, Offset(5), Offset(5)));
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(0..1));
    assert_eq!(seen(&*one, UpTo::Tail)?, numbers(0..1));
    assert_eq!(seen(&*one, UpTo::High)?, numbers(0..5));

    end(&**subject.kafka_log(), 7, 0, &[&one], true)?;
    let ends = one.offsets();
    assert_eq!((ends.stable, ends.high, ends.tail), (Offset(6), Offset(6), Offset(6)), "behind the marker");
    for up_to in [UpTo::Stable, UpTo::High, UpTo::Tail] {
        assert_eq!(seen(&*one, up_to)?, numbers(0..5), "{up_to:?}");
    }
    Ok(())
}

/// Records of other producers in between are visible, and stay so.
pub fn records_of_an_aborted_transaction_are_never_seen<S: KafkaSubject>() -> Result<(), Error> {
    let (mut subject, one, two) = start::<S>()?;
    send(&*one, batch(7, 0, 0, 90..95))?;
    plain(&*one, 0..2)?;
    send(&*one, batch(8, 0, 0, 2..4))?;
    send(&*one, batch(7, 0, 5, 95..97))?;
    send(&*two, batch(7, 0, 0, 97..99))?;
    end(&**subject.kafka_log(), 7, 0, &[&one, &two], false)?;
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(0..2), "behind them another transaction is open");
    end(&**subject.kafka_log(), 8, 0, &[&one], true)?;
    send(&*one, batch(7, 0, 7, 4..6))?;
    end(&**subject.kafka_log(), 7, 0, &[&one], true)?;
    for _ in 0..2 {
        let (one, two) = (again(&subject, &*one)?, again(&subject, &*two)?);
        for up_to in [UpTo::Stable, UpTo::High, UpTo::Tail] {
            assert_eq!(seen(&*one, up_to)?, numbers(0..6), "{up_to:?}");
            assert_eq!(seen(&*two, up_to)?, numbers(0..0), "{up_to:?}");
        }
        subject.restart();
    }
    Ok(())
}

/// The records, the committed positions and the coordinator's records take effect together.
pub fn a_transaction_ends_everywhere_at_once<S: KafkaSubject>() -> Result<(), Error> {
    let (subject, one, two) = start::<S>()?;
    let log = &**subject.kafka_log();
    let (_, notes) = new_kafka_topic(log, &TopicConfig::default())?;
    let read = plain(&*notes, 10..12)?;
    let position = Position { topic: notes.topic().id, epoch: read.epoch, offset: read.last.next() };
    for (round, commit) in [(0, false), (1, true)] {
        send(&*one, batch(7, 0, round, 20..21))?;
        send(&*two, batch(7, 0, round, 21..22))?;
        let noted = numbers(12..13);
        let end = EndTransaction {
            producer_id: 7,
            producer_epoch: 0,
            partitions: vec![one.id().clone(), two.id().clone()],
            commit,
            positions: vec![PositionCommit {
                group: "readers".to_owned(),
                partition: notes.id().clone(),
                position,
                metadata: String::new(),
            }],
            records: vec![(notes.id().clone(), records(&noted))],
        };
        let appended = end_all(log, &end)?;
        assert_eq!(appended.iter().map(|noted| noted.first.0).collect::<Vec<_>>(), [2 + round as u64]);
        assert_eq!(log.committed("readers", notes.id())?, commit.then_some(position));
        assert_eq!(seen(&*one, UpTo::Stable)?.len(), usize::from(commit));
        assert_eq!(seen(&*two, UpTo::Stable)?.len(), usize::from(commit));
    }
    Ok(())
}

/// Removes the times of first records: a restart replaces the time of acceptance by the time of the write.
fn dateless(transactions: Vec<OpenTransaction>) -> Vec<OpenTransaction> {
    transactions.into_iter().map(|open| OpenTransaction { since_ms: 0, ..open }).collect()
}

/// An open transaction is still open after a restart, under the same first offset.
pub fn an_open_transaction_stays_open_over_a_restart<S: KafkaSubject>() -> Result<(), Error> {
    let (mut subject, one, two) = start::<S>()?;
    send(&*one, batch(7, 3, 0, 0..2))?;
    send(&*two, batch(8, 0, 0, 0..1))?;
    let before = (dateless(one.transactions()), dateless(two.transactions()));
    assert_eq!(before.0.len(), 1);
    assert_eq!((before.0[0].producer_id, before.0[0].producer_epoch, before.0[0].first), (7, 3, Offset(0)));
    assert_eq!(one.producers()[0].transaction, Some(Offset(0)));
    subject.restart();
    let (one, two) = (again(&subject, &*one)?, again(&subject, &*two)?);
    assert_eq!((dateless(one.transactions()), dateless(two.transactions())), before);
    assert_eq!(one.offsets().stable, Offset(0));
    send(&*one, batch(7, 3, 2, 2..3))?;
    assert_eq!(dateless(one.transactions()), before.0);
    end(&**subject.kafka_log(), 7, 3, &[&one], true)?;
    end(&**subject.kafka_log(), 8, 0, &[&two], false)?;
    assert_eq!((one.transactions(), two.transactions()), (Vec::new(), Vec::new()));
    assert_eq!(one.producers()[0].transaction, None);
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(0..3));
    assert_eq!(seen(&*two, UpTo::Stable)?, numbers(0..0));
    Ok(())
}

/// A marker under a later epoch ends the earlier one also where nothing of the transaction has arrived.
pub fn a_batch_after_the_end_of_its_transaction_under_a_later_epoch_is_refused<S: KafkaSubject>() -> Result<(), Error> {
    let (mut subject, one, two) = start::<S>()?;
    send(&*one, batch(7, 0, 0, 0..1))?;
    end(&**subject.kafka_log(), 7, 1, &[&one, &two], false)?;
    for restarted in [false, true] {
        for partition in [&one, &two] {
            let partition = again(&subject, &**partition)?;
            let late = send(&*partition, batch(7, 0, 1, 1..2));
            assert!(matches!(late, Err(Error::FencedProducer { current: 1, given: 0, .. })), "{late:?} {restarted}");
        }
        subject.restart();
    }
    let refused = end(&**subject.kafka_log(), 7, 0, &[&one], true);
    assert!(matches!(refused, Err(Error::FencedProducer { current: 1, given: 0, .. })), "{refused:?}");
    let one = again(&subject, &*one)?;
    let gap = send(&*one, batch(7, 1, 1, 1..2));
    assert!(matches!(gap, Err(Error::OutOfOrderSequence { expected: 0, .. })), "{gap:?}");
    send(&*one, batch(7, 1, 0, 1..2))?;
    end(&**subject.kafka_log(), 7, 1, &[&one], true)?;
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(1..2));
    Ok(())
}

/// A batch that is sent again gets its first offsets, also after the transaction has ended.
pub fn a_batch_of_a_transaction_is_stored_once<S: KafkaSubject>() -> Result<(), Error> {
    let (subject, one, _) = start::<S>()?;
    let first = send(&*one, batch(7, 0, 0, 0..2))?;
    assert_eq!(send(&*one, batch(7, 0, 0, 0..2))?, first);
    end(&**subject.kafka_log(), 7, 0, &[&one], true)?;
    assert_eq!(send(&*one, batch(7, 0, 0, 0..2))?, first);
    assert_eq!(one.transactions(), Vec::new());
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(0..2));
    Ok(())
}

/// A refused batch changes nothing.
pub fn a_batch_that_cannot_be_part_of_a_transaction_is_refused<S: KafkaSubject>() -> Result<(), Error> {
    let (subject, one, _) = start::<S>()?;
    let log = &**subject.kafka_log();
    send(&*one, batch(7, 1, 0, 0..1))?;
    let mut builder = BatchBuilder::default();
    let mut sealed = |producer: Option<Producer>, transactional: bool| {
        records(&numbers(0..1)).iter().for_each(|record| builder.push(record));
        producer.into_iter().for_each(|producer| builder.set_producer(producer));
        if transactional {
            builder.set_transactional();
        }
        builder.seal(Offset(0), Epoch(0), Compression::None)
    };
    let outside = send(&*one, sealed(Some(Producer { id: 7, epoch: 1, base_sequence: 1 }), false));
    assert!(matches!(outside, Err(Error::InvalidTransaction { producer: 7, .. })), "{outside:?}");
    let later = send(&*one, sealed(Some(Producer { id: 7, epoch: 2, base_sequence: 0 }), true));
    assert!(matches!(later, Err(Error::InvalidTransaction { producer: 7, epoch: 2, .. })), "{later:?}");
    let nobodys = send(&*one, sealed(None, true));
    assert!(matches!(nobodys, Err(Error::Batch { .. })), "{nobodys:?}");
    let marker = one.read_stored(Offset(0), 1, UpTo::High)?.batches.remove(0).without_records();
    assert!(matches!(send(&*one, marker), Err(Error::UnsupportedBatch { .. })));
    for (id, epoch) in [(-1, 0), (7, -1)] {
        assert!(matches!(end(log, id, epoch, &[&one], true), Err(Error::InvalidTransaction { .. })));
    }
    if log.capabilities().memory_topics {
        let config = TopicConfig { storage: Storage::Memory { max_bytes: 1 << 16 }, ..TopicConfig::default() };
        let (_, live) = new_kafka_topic(log, &config)?;
        assert!(matches!(send(&*live, batch(7, 1, 0, 0..1)), Err(Error::UnsupportedBatch { .. })));
        end(log, 7, 1, &[&one, &live], true)?;
        assert_eq!((live.offsets().tail, seen(&*one, UpTo::Stable)?), (Offset(0), numbers(0..1)));
    }
    Ok(())
}

/// A second end finds nothing open; partitions and positions of topics that are gone are passed over.
pub fn ending_a_transaction_again_or_where_a_topic_is_gone_does_no_harm<S: KafkaSubject>() -> Result<(), Error> {
    let (subject, one, two) = start::<S>()?;
    let log = &**subject.kafka_log();
    let (name, gone) = new_kafka_topic(log, &TopicConfig::default())?;
    send(&*one, batch(7, 0, 0, 0..1))?;
    send(&*gone, batch(7, 0, 0, 0..1))?;
    send(&*two, batch(8, 0, 0, 0..1))?;
    let position = Position { topic: gone.topic().id, epoch: gone.offsets().epoch, offset: Offset(0) };
    let (partition, metadata) = (gone.id().clone(), String::new());
    log.delete_topic(&name)?;
    let end = EndTransaction {
        producer_id: 7,
        producer_epoch: 0,
        partitions: vec![one.id().clone(), gone.id().clone(), one.id().clone()],
        commit: true,
        positions: vec![PositionCommit { group: "readers".to_owned(), partition, position, metadata }],
        records: Vec::new(),
    };
    end_all(log, &end)?;
    assert_eq!(one.offsets().tail, Offset(2), "one marker, though it was named twice");
    end_all(log, &EndTransaction { commit: false, ..end })?;
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(0..1), "what is committed stays so");
    assert_eq!(two.transactions().len(), 1, "another producer's transaction is not touched");
    Ok(())
}

/// Even the smallest read ends in a batch that lets the reader continue.
pub fn a_reader_passes_records_of_aborted_transactions<S: KafkaSubject>() -> Result<(), Error> {
    let (subject, one, _) = start::<S>()?;
    for round in 0..20 {
        send(&*one, batch(7, 0, round * 3, 90..93))?;
        end(&**subject.kafka_log(), 7, 0, &[&one], false)?;
    }
    plain(&*one, 0..1)?;
    send(&*one, batch(7, 0, 60, 90..93))?;
    end(&**subject.kafka_log(), 7, 0, &[&one], false)?;
    for max_bytes in [1, 200, 1 << 20] {
        let (mut next, mut found) = (Offset(0), 0);
        while next < one.offsets().stable {
            let batches = one.read(next, max_bytes, UpTo::Stable)?;
            let end = batches.last().expect("there is something to get past").next_offset();
            assert!(end > next, "the reader goes on");
            next = end;
            found += batches.iter().map(RecordBatch::record_count).sum::<u32>();
        }
        assert_eq!((next, found), (one.offsets().tail, 1), "{max_bytes}");
        assert!(one.read(next, max_bytes, UpTo::Stable)?.is_empty());
    }
    Ok(())
}

/// The list has the transactions that overlap the batches, by first offset; the batches include markers.
pub fn stored_batches_come_with_the_aborted_transactions_that_reach_into_them<S: KafkaSubject>() -> Result<(), Error> {
    let (subject, one, _) = start::<S>()?;
    let log = &**subject.kafka_log();
    send(&*one, batch(7, 0, 0, 0..1))?; // 0
    send(&*one, batch(8, 0, 0, 0..1))?; // 1
    end(log, 8, 0, &[&one], false)?; // 2
    send(&*one, batch(9, 0, 0, 0..1))?; // 3
    end(log, 7, 0, &[&one], false)?; // 4
    end(log, 9, 0, &[&one], true)?; // 5
    plain(&*one, 0..1)?; // 6
    send(&*one, batch(8, 0, 1, 0..1))?; // 7
    let aborted = |ids: &[(i64, u64)]| -> Vec<_> {
        ids.iter().map(|(id, first)| AbortedTransaction { producer_id: *id, first: Offset(*first) }).collect()
    };
    for (from, expected) in [(0, &[(7, 0), (8, 1)][..]), (2, &[(7, 0), (8, 1)]), (3, &[(7, 0)]), (5, &[]), (7, &[])] {
        let stored = one.read_stored(Offset(from), 1 << 20, UpTo::High)?;
        assert_eq!(stored.aborted, aborted(expected), "from {from}");
        let bases: Vec<_> = stored.batches.iter().map(|batch| batch.base_offset().0).collect();
        assert_eq!(bases, (from..8).collect::<Vec<_>>());
    }
    assert_eq!(one.read_stored(Offset(0), 1 << 20, UpTo::Stable)?.batches.len(), 7, "up to the open transaction");
    let first = one.read_stored(Offset(0), 1, UpTo::High)?;
    assert_eq!((first.batches.len(), first.aborted), (1, aborted(&[(7, 0)])));
    end(log, 8, 0, &[&one], false)?; // 8
    assert_eq!(one.read_stored(Offset(5), 1 << 20, UpTo::Stable)?.aborted, aborted(&[(8, 7)]));
    Ok(())
}

/// A group that reads records of open transactions may commit positions after them.
pub fn a_position_may_be_committed_behind_an_open_transaction<S: KafkaSubject>() -> Result<(), Error> {
    let (subject, one, _) = start::<S>()?;
    let log = &**subject.kafka_log();
    send(&*one, batch(7, 0, 0, 0..2))?;
    let ends = one.offsets();
    for (offset, is_taken) in [(ends.high, true), (ends.high.next(), false)] {
        let position = Position { topic: one.topic().id, epoch: ends.epoch, offset };
        let commit = PositionCommit {
            group: "readers".to_owned(),
            partition: one.id().clone(),
            position,
            metadata: String::new(),
        };
        let (done, answer) = answer();
        match log.commit_positions(vec![commit], done) {
            Ok(()) => assert!(is_taken && answer().is_ok()),
            Err(error) => assert!(!is_taken && matches!(error, Error::PositionUnstable { .. }), "{error}"),
        }
    }
    Ok(())
}
