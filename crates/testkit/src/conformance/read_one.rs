//! Reads of single records by their offsets.

use millstream_log::{AckLevel, CachedRead, Error, Partition, Storage, TopicConfig, UpTo};
use millstream_types::{Compression, Header, Offset, Record, TopicPartition};

use super::{ReadRecord, Subject, append_and_wait, new_topic, numbers, read_all, records};

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
pub(super) fn check(partition: &dyn Partition) -> Result<(), Error> {
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
