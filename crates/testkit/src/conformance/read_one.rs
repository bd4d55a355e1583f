//! Reads of single records by their offsets.

use millstream_log::{AckLevel, CachedRead, EndTransaction, Error, Partition, Storage, TopicConfig, UpTo};
use millstream_types::{BatchBuilder, Compression, Epoch, Header, Offset, Producer, Record, TopicPartition};

use super::{ReadRecord, Subject, answer, append_and_wait, new_topic, numbers, read_all, records};

/// The records that [`Partition::read_one`] finds at the offsets from 0 to the one after the tail.
///
/// # Errors
/// Those of [`Partition::read_one`], from the first read that fails.
pub fn read_each(partition: &dyn Partition, up_to: UpTo) -> Result<Vec<ReadRecord>, Error> {
    let mut found = Vec::new();
    for offset in 0..=partition.offsets().tail.0 + 1 {
        let read = partition.read_one(Offset(offset), up_to)?;
        let cached = partition.read_one_cached(Offset(offset), up_to)?;
        assert!([CachedRead::OnDisk, CachedRead::Read(read.clone())].contains(&cached), "{cached:?} for {read:?}");
        if let Some(record) = read {
            assert_eq!(record.offset, Offset(offset), "another record than the one asked for");
            found.push(ReadRecord::from(record.view()));
        }
    }
    Ok(found)
}

/// Records read singly are those that a reader of all gets.
fn check(partition: &dyn Partition) -> Result<(), Error> {
    for up_to in [UpTo::Stable, UpTo::High, UpTo::Tail] {
        assert_eq!(read_each(partition, up_to)?, read_all(partition, partition.offsets().first, up_to)?, "{up_to:?}");
    }
    Ok(())
}

/// A record comes with key, value, headers and time, from memory and after a restart.
pub fn a_record_is_read_by_its_offset<S: Subject>() -> Result<(), Error> {
    let mut subject = S::start();
    for compression in [Compression::None, Compression::Zstd] {
        let (name, partition) = new_topic(&**subject.log(), &TopicConfig { compression, ..TopicConfig::default() })?;
        let headers = [Header { key: "unit", value: Some(b"kelvin") }, Header { key: "empty", value: None }];
        let full = Record { timestamp_ms: 77, key: Some(b"k"), value: Some(b"value"), headers: &headers };
        let tombstone = Record { value: None, ..full };
        let values = numbers(0..20);
        for batch in [&[full, tombstone][..], &records(&values), &[Record::default()]] {
            append_and_wait(&*partition, batch, AckLevel::Synced)?;
        }
        let found = partition.read_one(Offset(0), UpTo::Stable)?.expect("a record stands at 0");
        assert_eq!(ReadRecord::from(found.view()), ReadRecord::at(Offset(0), &full));
        let found = partition.read_one(Offset(1), UpTo::Stable)?.expect("a record stands at 1");
        assert_eq!(ReadRecord::from(found.view()), ReadRecord::at(Offset(1), &tombstone));
        check(&*partition)?;
        drop(partition);
        subject.restart();
        let partition = subject.log().partition(&TopicPartition::new(name, 0))?;
        assert_eq!(read_each(&*partition, UpTo::Stable)?.len(), 23);
        check(&*partition)?;
    }
    Ok(())
}

/// Below the first record and beyond the last there is none, and that is no error.
pub fn no_record_is_found_below_the_first_offset_or_beyond_the_tail<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    assert_eq!(partition.read_one(Offset(0), UpTo::Tail)?, None);
    append_and_wait(&*partition, &records(&numbers(0..10)), AckLevel::Synced)?;
    partition.trim(Offset(4))?;
    for offset in [0, 3, 10, 11, u64::MAX >> 1, u64::MAX] {
        assert_eq!(partition.read_one(Offset(offset), UpTo::Tail)?, None, "{offset}");
    }
    assert_eq!(read_each(&*partition, UpTo::Tail)?.len(), 6);
    check(&*partition)
}

/// A record that a reader may not see yet is not found; markers and aborted records are never found.
pub fn a_single_read_sees_no_more_than_its_limit<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let log = &**subject.log();
    if !log.capabilities().transactions {
        return Ok(());
    }
    let (_, partition) = new_topic(log, &TopicConfig::default())?;
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

/// A topic in memory gives the records of its ring.
pub fn a_record_of_a_topic_in_memory_is_read_by_its_offset<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    if !subject.log().capabilities().memory_topics {
        return Ok(());
    }
    let config = TopicConfig { storage: Storage::Memory { max_bytes: 10_000 }, ..TopicConfig::default() };
    let (_, partition) = new_topic(&**subject.log(), &config)?;
    for value in numbers(0..100) {
        append_and_wait(&*partition, &records(&[value.repeat(200)]), AckLevel::Memory)?;
    }
    assert!(partition.offsets().first > Offset::ZERO);
    check(&*partition)
}
