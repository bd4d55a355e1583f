//! Reads by offset and by time, and bells.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use millstream_log::{AckLevel, Bell, Done, Error, Offsets, Partition, Storage, TopicConfig, UpTo};
use millstream_types::{Offset, Record, TopicPartition};

use super::{ANSWER_TIMEOUT, Subject, append_and_wait, new_topic, numbers, read_all, records, texts};

/// A partition that holds 20 batches of 5 numbered records each.
fn twenty_batches(partition: &dyn Partition) -> Result<(), Error> {
    for batch in 0..20 {
        append_and_wait(partition, &records(&numbers(batch * 5..batch * 5 + 5)), AckLevel::Synced)?;
    }
    Ok(())
}

/// Before the first record all ends of a partition are the same.
pub fn a_new_partition_is_empty<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    let Offsets { first, stable, tail, .. } = partition.offsets();
    assert_eq!((first, stable, tail), (Offset::ZERO, Offset::ZERO, Offset::ZERO));
    assert_eq!(partition.read(first, 1 << 20, UpTo::Tail)?, []);
    assert_eq!(partition.offset_at(i64::MIN)?, None);
    Ok(())
}

/// A reader that has seen everything gets nothing, and no error.
pub fn reading_at_the_tail_returns_nothing<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    twenty_batches(&*partition)?;
    let Offsets { stable, tail, .. } = partition.offsets();
    assert_eq!((stable, tail), (Offset(100), Offset(100)));
    assert_eq!(partition.read(tail, 1 << 20, UpTo::Stable)?, []);
    assert_eq!(partition.read(tail, 1 << 20, UpTo::Tail)?, []);
    Ok(())
}

/// An offset that was never handed out is refused, and the tail named.
pub fn reading_beyond_the_tail_names_the_tail<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    twenty_batches(&*partition)?;
    match partition.read(Offset(101), 1 << 20, UpTo::Tail) {
        Err(Error::BeyondTail { partition: refused, wanted: Offset(101), tail: Offset(100) }) => {
            assert_eq!(&refused, partition.id());
            Ok(())
        }
        other => panic!("not refused as beyond the tail: {other:?}"),
    }
}

/// `max_bytes` bounds a read after its first batch, so that every read gets on.
pub fn a_read_returns_one_batch_however_large_and_more_only_while_they_fit<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    twenty_batches(&*partition)?;
    for max_bytes in [0, 1, 100, 500, 5000] {
        let (mut next, mut seen) = (Offset::ZERO, 0);
        while next < Offset(100) {
            let batches = partition.read(next, max_bytes, UpTo::Stable)?;
            let bytes: usize = batches.iter().map(|batch| batch.bytes().len()).sum();
            assert!(batches.len() == 1 || (!batches.is_empty() && bytes <= max_bytes), "{max_bytes}: {bytes}");
            for batch in &batches {
                assert_eq!(batch.base_offset(), next);
                next = batch.last_offset().next();
                seen += batch.record_count();
            }
        }
        assert_eq!((seen, next), (100, Offset(100)));
    }
    Ok(())
}

/// A reader may start at any record; it gets the whole batch.
pub fn a_read_begins_with_the_batch_that_holds_the_offset<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    twenty_batches(&*partition)?;
    for from in 0..100 {
        let batches = partition.read(Offset(from), 0, UpTo::Stable)?;
        assert!(batches[0].base_offset() <= Offset(from) && Offset(from) <= batches[0].last_offset());
        assert_eq!(texts(&read_all(&*partition, Offset(from), UpTo::Stable)?), numbers(from as u32..100));
    }
    Ok(())
}

/// Reads below the first offset name the oldest one. (Uses a memory topic, whose ring fills up soon.)
pub fn reading_below_the_first_offset_names_the_oldest<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    if !subject.log().capabilities().memory_topics {
        return Ok(());
    }
    let config = TopicConfig { storage: Storage::Memory { max_bytes: 10_000 }, ..TopicConfig::default() };
    let (_, partition) = new_topic(&**subject.log(), &config)?;
    for value in numbers(0..100) {
        append_and_wait(&*partition, &records(&[value.repeat(200)]), AckLevel::Synced)?;
    }
    let Offsets { first, tail, .. } = partition.offsets();
    assert!(first > Offset::ZERO && tail == Offset(100));
    match partition.read(Offset(0), 1, UpTo::Tail) {
        Err(Error::Trimmed { wanted: Offset(0), oldest, .. }) => assert!(oldest >= first),
        other => panic!("not refused as trimmed: {other:?}"),
    }
    let kept = read_all(&*partition, partition.offsets().first, UpTo::Tail)?;
    assert_eq!(kept.last().map(|record| record.offset), Some(Offset(99)));
    let bytes: usize = kept.iter().map(|record| record.value.as_ref().map_or(0, Vec::len)).sum();
    assert!((1..=10_000).contains(&bytes), "{bytes}");
    Ok(())
}

/// `first <= stable <= tail`, and none of them moves back, while others append.
pub fn first_stable_and_tail_are_always_in_order<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    let ended = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| {
            let mut last = partition.offsets();
            while !ended.load(Ordering::Acquire) {
                let now = partition.offsets();
                assert!(now.first <= now.stable && now.stable <= now.tail, "{now:?}");
                assert!(now.first >= last.first && now.stable >= last.stable && now.tail >= last.tail, "{now:?}");
                last = now;
            }
        });
        let appended = (0..200).try_for_each(|round| {
            let level = if round % 20 == 19 { AckLevel::Synced } else { AckLevel::Memory };
            append_and_wait(&*partition, &records(&numbers(0..3)), level).map(drop)
        });
        ended.store(true, Ordering::Release);
        appended
    })
}

/// After a clean stop all accepted records are there, and appends continue at the tail.
pub fn records_and_offsets_survive_a_restart<S: Subject>() -> Result<(), Error> {
    let mut subject = S::start();
    let (name, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    drop(partition);
    for round in 0..4 {
        let partition = subject.log().partition(&TopicPartition::new(name.clone(), 0))?;
        let offsets = partition.offsets();
        assert_eq!((offsets.first, offsets.stable, offsets.tail), (Offset(0), Offset(round * 10), Offset(round * 10)));
        assert_eq!(texts(&read_all(&*partition, Offset::ZERO, UpTo::Stable)?), numbers(0..round as u32 * 10));

        let values = numbers(round as u32 * 10..round as u32 * 10 + 10);
        let appended = append_and_wait(&*partition, &records(&values), AckLevel::Memory)?;
        assert_eq!((appended.first, appended.epoch), (offsets.tail, offsets.epoch));
        drop(partition);
        subject.restart();
        let next = subject.log().partition(&TopicPartition::new(name.clone(), 0))?.offsets();
        assert!(next.epoch >= offsets.epoch, "epochs never descend");
    }
    Ok(())
}

/// `offset_at` finds the first record whose event time is not before the one asked for, also if times are not in order.
pub fn the_first_record_at_or_after_a_time_is_found<S: Subject>() -> Result<(), Error> {
    let mut subject = S::start();
    let (name, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    let times = [100, 200, 150, 300, 300, 250, 900, 800];
    for (index, timestamp_ms) in times.into_iter().enumerate() {
        let value = index.to_string();
        let record = Record { timestamp_ms, value: Some(value.as_bytes()), ..Record::default() };
        append_and_wait(&*partition, &[record], AckLevel::Synced)?;
    }
    drop(partition);
    for _ in 0..2 {
        let partition = subject.log().partition(&TopicPartition::new(name.clone(), 0))?;
        for asked in [0, 100, 101, 151, 200, 201, 300, 301, 900, 901] {
            let expected = times.iter().position(|time| *time >= asked).map(|index| Offset(index as u64));
            assert_eq!(partition.offset_at(asked)?, expected, "at {asked}");
        }
        subject.restart();
    }
    Ok(())
}

/// Reads until `count` records are stable, waiting for the bell each time there are none.
fn hear(partition: &dyn Partition, bell: &Bell, count: u64) -> Result<(), Error> {
    let mut next = Offset::ZERO;
    while next < Offset(count) {
        match partition.read(next, 1 << 20, UpTo::Stable)?.last() {
            Some(batch) => next = batch.last_offset().next(),
            None => assert!(bell.wait(ANSWER_TIMEOUT), "records came and the bell did not ring"),
        }
    }
    Ok(())
}

/// A reader that looks again whenever its bell rings misses nothing.
pub fn a_bell_rings_when_records_arrive<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    let bell = Arc::new(Bell::default());
    partition.watch(&bell);
    thread::scope(|threads| {
        let reader = threads.spawn(|| hear(&*partition, &bell, 100));
        for _ in 0..50 {
            partition.append(&records(&numbers(0..2)), AckLevel::Memory, Done::ignore())?;
        }
        append_and_wait(&*partition, &records(&numbers(0..1)), AckLevel::Synced)?;
        reader.join().expect("the reader does not panic")
    })
}

/// Each bell that watches is rung, and a bell that has gone is missed by nobody.
pub fn every_watching_bell_rings<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    let bells: Vec<_> = (0..3).map(|_| Arc::new(Bell::default())).collect();
    bells.iter().for_each(|bell| partition.watch(bell));
    partition.watch(&Arc::new(Bell::default()));
    append_and_wait(&*partition, &records(&numbers(0..1)), AckLevel::Synced)?;
    for bell in &bells {
        assert!(bell.wait(ANSWER_TIMEOUT));
    }
    Ok(())
}
