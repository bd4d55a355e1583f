//! Fenced writers: one for each name at a time, and transactions of any size.

use std::ops::Range;
use std::sync::Arc;

use millstream_log::{
    AckLevel, Appended, AtomicAppend, Error, Partition, PositionCommit, Storage, TopicConfig, UpTo, Writer,
};
use millstream_types::{Offset, Record, RecordBatch, TopicPartition};

use super::atomic::source;
use super::{Subject, answer, append_and_wait, new_name, new_topic, numbers, read_all, records, texts};
use crate::eventually;

/// An engine and two partitions of a new topic.
type Started<S> = (S, Arc<dyn Partition>, Arc<dyn Partition>);

fn start<S: Subject>() -> Result<Started<S>, Error> {
    let subject = S::start();
    let (name, one) = new_topic(&**subject.log(), &TopicConfig::default())?;
    let two = subject.log().partition(&TopicPartition::new(name, 1))?;
    Ok((subject, one, two))
}

/// A name that no other check uses.
fn fresh() -> Result<String, Error> {
    Ok(new_name()?.to_string())
}

fn commit(writer: &dyn Writer, append: &AtomicAppend<'_>) -> Result<Vec<Appended>, Error> {
    let (done, answer) = answer();
    writer.commit(append, AckLevel::Synced, done)?;
    answer()
}

fn end(writer: &dyn Writer) -> Result<(), Error> {
    commit(writer, &AtomicAppend::default()).map(drop)
}

fn append(writer: &dyn Writer, partition: &dyn Partition, values: Range<u32>) -> Result<(), Error> {
    writer.append(partition.id(), &records(&numbers(values)))
}

/// As [`append`], and waits until the records have their place: an engine may send them later.
fn place(writer: &dyn Writer, partition: &dyn Partition, values: Range<u32>) -> Result<(), Error> {
    let before = partition.offsets().high;
    append(writer, partition, values)?;
    eventually("the records of a transaction", || partition.offsets().high > before);
    Ok(())
}

fn plain(partition: &dyn Partition, values: Range<u32>) -> Result<Appended, Error> {
    append_and_wait(partition, &records(&numbers(values)), AckLevel::Synced)
}

fn parts<'a>(partition: &dyn Partition, values: &'a [String]) -> AtomicAppend<'a> {
    AtomicAppend { records: vec![(partition.id().clone(), records(values))], positions: Vec::new() }
}

fn seen(partition: &dyn Partition, up_to: UpTo) -> Result<Vec<String>, Error> {
    Ok(texts(&read_all(partition, Offset::ZERO, up_to)?))
}

fn assert_fenced(outcome: Result<(), Error>, name: &str) {
    match outcome {
        Err(Error::Fenced { writer }) => assert_eq!(writer, name),
        other => panic!("a fenced writer is not told so: {other:?}"),
    }
}

/// Nothing of a writer is seen before it commits, not even by live readers; then all of it, in all partitions.
pub fn records_of_a_writer_are_seen_once_they_are_committed<S: Subject>() -> Result<(), Error> {
    let (subject, one, two) = start::<S>()?;
    let name = fresh()?;
    let writer = subject.log().writer(&name)?;
    assert_eq!(writer.name(), name);
    plain(&*one, 0..1)?;
    append(&*writer, &*one, 1..3)?;
    append(&*writer, &*two, 3..5)?;
    append(&*writer, &*one, 5..6)?;
    for up_to in [UpTo::Stable, UpTo::Tail] {
        assert_eq!(seen(&*one, up_to)?, numbers(0..1));
        assert_eq!(seen(&*two, up_to)?, numbers(0..0));
    }
    end(&*writer)?;
    assert_eq!(seen(&*one, UpTo::Stable)?, ["0", "1", "2", "5"]);
    assert_eq!(seen(&*two, UpTo::Stable)?, numbers(3..5));
    end(&*writer)?;
    assert_eq!(seen(&*two, UpTo::Stable)?, numbers(3..5), "a commit of nothing changes nothing");
    Ok(())
}

/// Up to the high watermark a reader sees the records of an open transaction; up to the other limits it stops in front of them.
pub fn a_reader_up_to_the_high_watermark_sees_open_transactions<S: Subject>() -> Result<(), Error> {
    let (subject, one, _) = start::<S>()?;
    let writer = subject.log().writer(&fresh()?)?;
    plain(&*one, 0..1)?;
    place(&*writer, &*one, 1..3)?;
    assert_eq!(seen(&*one, UpTo::High)?, numbers(0..3));
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(0..1));
    Ok(())
}

/// The records and positions of a commit take effect with what was appended before.
pub fn a_commit_takes_records_and_positions_of_its_own<S: Subject>() -> Result<(), Error> {
    let (subject, one, two) = start::<S>()?;
    let log = &**subject.log();
    let position = source(log, "group", 2)?;
    let writer = log.writer(&fresh()?)?;
    append(&*writer, &*one, 0..2)?;
    assert_eq!(log.committed("group", &position.partition)?, None);
    let values = numbers(2..4);
    let last = AtomicAppend { positions: vec![position.clone()], ..parts(&*two, &values) };
    let appended = commit(&*writer, &last)?;
    assert_eq!(appended.len(), 1);
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(0..2));
    let read = read_all(&*two, appended[0].first, UpTo::Stable)?;
    assert_eq!(texts(&read), values);
    assert_eq!(read.last().map(|record| record.offset), Some(appended[0].last));
    assert_eq!(log.committed("group", &position.partition)?, Some(position.position));
    Ok(())
}

/// Aborted records are never seen; records that the writer appends afterwards are.
pub fn an_aborted_transaction_leaves_nothing<S: Subject>() -> Result<(), Error> {
    let (subject, one, two) = start::<S>()?;
    let writer = subject.log().writer(&fresh()?)?;
    append(&*writer, &*one, 0..2)?;
    append(&*writer, &*two, 2..4)?;
    writer.abort()?;
    append(&*writer, &*one, 4..6)?;
    end(&*writer)?;
    writer.abort()?;
    for up_to in [UpTo::Stable, UpTo::Tail] {
        assert_eq!(seen(&*one, up_to)?, numbers(4..6));
    }
    end(&*writer)?;
    plain(&*two, 6..7)?;
    assert_eq!(seen(&*two, UpTo::Stable)?, numbers(6..7));
    Ok(())
}

/// Once the next writer of a name has begun, the one before is refused in everything it does.
pub fn a_later_writer_of_a_name_fences_the_earlier<S: Subject>() -> Result<(), Error> {
    let (subject, one, two) = start::<S>()?;
    let (name, values) = (fresh()?, numbers(7..9));
    let earlier = subject.log().writer(&name)?;
    commit(&*earlier, &parts(&*one, &numbers(0..1)))?;
    let later = subject.log().writer(&name)?;
    for _ in 0..2 {
        assert_fenced(append(&*earlier, &*one, 7..9), &name);
        assert_fenced(commit(&*earlier, &parts(&*two, &values)).map(drop), &name);
        assert_fenced(earlier.abort(), &name);
        append(&*later, &*one, 1..2)?;
    }
    drop(earlier);
    end(&*later)?;
    assert_eq!(seen(&*one, UpTo::Stable)?, ["0", "1", "1"]);
    assert_eq!(seen(&*two, UpTo::Stable)?, numbers(0..0));
    Ok(())
}

/// A writer leaves those of other names alone, also in the same partition.
pub fn writers_of_different_names_do_not_fence_each_other<S: Subject>() -> Result<(), Error> {
    let (subject, one, _) = start::<S>()?;
    let (first, second) = (subject.log().writer(&fresh()?)?, subject.log().writer(&fresh()?)?);
    place(&*first, &*one, 0..1)?;
    append(&*second, &*one, 1..2)?;
    append(&*first, &*one, 2..3)?;
    end(&*second)?;
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(0..0), "the other transaction began before it");
    first.abort()?;
    commit(&*first, &parts(&*one, &numbers(3..4)))?;
    assert_eq!(seen(&*one, UpTo::Stable)?, ["1", "3"]);
    Ok(())
}

/// An open transaction is void once the next writer of the name has begun, and holds no reader back.
pub fn what_a_writer_left_open_is_void_once_the_next_begins<S: Subject>() -> Result<(), Error> {
    let (subject, one, two) = start::<S>()?;
    let name = fresh()?;
    let earlier = subject.log().writer(&name)?;
    append(&*earlier, &*one, 0..2)?;
    append(&*earlier, &*two, 2..4)?;
    plain(&*two, 4..5)?;
    let later = subject.log().writer(&name)?;
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(0..0));
    assert_eq!(seen(&*two, UpTo::Stable)?, numbers(4..5));
    assert_fenced(end(&*earlier), &name);
    end(&*later)?;
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(0..0));
    Ok(())
}

/// The commits of a writer are decided once the next of its name has begun: each is there, or will never be.
pub fn what_a_writer_has_committed_is_decided_once_the_next_begins<S: Subject>() -> Result<(), Error> {
    let (subject, one, two) = start::<S>()?;
    let name = fresh()?;
    for round in 0..20 {
        let writer = subject.log().writer(&name)?;
        let before = seen(&*one, UpTo::Stable)?;
        assert_eq!(before, seen(&*two, UpTo::Stable)?);
        assert_eq!(before, numbers(0..round), "an accepted commit is not lost while nothing fails");
        let values = numbers(round..round + 1);
        let both = [&one, &two].map(|partition| (partition.id().clone(), records(&values)));
        let (done, _answer) = answer();
        writer.commit(&AtomicAppend { records: both.into(), positions: Vec::new() }, AckLevel::Written, done)?;
    }
    Ok(())
}

/// A transaction that was open when the engine stopped is void; committed records stay.
pub fn a_restart_voids_what_a_writer_left_open<S: Subject>() -> Result<(), Error> {
    let (mut subject, one, two) = start::<S>()?;
    let name = fresh()?;
    let writer = subject.log().writer(&name)?;
    append(&*writer, &*one, 0..2)?;
    end(&*writer)?;
    append(&*writer, &*one, 2..4)?;
    append(&*writer, &*two, 4..6)?;
    // The writer is not dropped, as that would abort.
    std::mem::forget(writer);
    let ids = [one.id().clone(), two.id().clone()];
    drop((one, two));
    subject.restart();
    let writer = subject.log().writer(&name)?;
    let [one, two] = [subject.log().partition(&ids[0])?, subject.log().partition(&ids[1])?];
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(0..2));
    append(&*writer, &*two, 6..7)?;
    end(&*writer)?;
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(0..2));
    assert_eq!(seen(&*two, UpTo::Stable)?, numbers(6..7));
    Ok(())
}

/// A writer that is dropped leaves nothing open.
pub fn a_writer_that_is_dropped_leaves_nothing_open<S: Subject>() -> Result<(), Error> {
    let (subject, one, _) = start::<S>()?;
    let writer = subject.log().writer(&fresh()?)?;
    append(&*writer, &*one, 0..2)?;
    drop(writer);
    let appended = plain(&*one, 2..3)?;
    eventually("the end of its transaction", || one.offsets().stable > appended.last);
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(2..3));
    Ok(())
}

/// A transaction may be larger than any append and any batch.
pub fn a_transaction_may_have_any_size<S: Subject>() -> Result<(), Error> {
    const APPENDS: usize = 40;
    let (subject, one, two) = start::<S>()?;
    let writer = subject.log().writer(&fresh()?)?;
    let value = vec![b'x'; 900_000];
    let record = Record { value: Some(&value), ..Record::default() };
    for _ in 0..APPENDS {
        // Such an append is taken at once, so memory for it may be scarce for a while.
        loop {
            let refused = match writer.append(one.id(), &[record, record]) {
                Ok(()) => break,
                Err(error) if error.is_retryable() => error,
                Err(error) => return Err(error),
            };
            subject.log().backpressure().unwrap_or_else(|| panic!("{refused}")).wait()?;
        }
    }
    append(&*writer, &*two, 0..1)?;
    assert_eq!(seen(&*one, UpTo::Stable)?.len(), 0);
    end(&*writer)?;
    let read = read_all(&*one, Offset::ZERO, UpTo::Stable)?;
    assert_eq!(read.len(), 2 * APPENDS);
    assert!(read.iter().all(|record| record.value.as_ref().is_some_and(|read| *read == value)));
    assert_eq!(seen(&*two, UpTo::Stable)?, numbers(0..1));
    Ok(())
}

/// A commit with one bad part takes nothing, and the transaction stays as it was.
pub fn a_refused_commit_leaves_the_transaction_open<S: Subject>() -> Result<(), Error> {
    let (subject, one, two) = start::<S>()?;
    let log = &**subject.log();
    let writer = log.writer(&fresh()?)?;
    append(&*writer, &*one, 0..2)?;
    let unstable = source(log, "group", 1_000)?;
    let (values, nowhere) = (numbers(7..8), TopicPartition::new(new_name()?, 0));
    let bad_position = AtomicAppend { positions: vec![unstable], ..parts(&*two, &values) };
    let gone = PositionCommit { partition: nowhere.clone(), ..source(log, "group", 1)? };
    let bad_topic = AtomicAppend { positions: vec![gone], ..parts(&*two, &values) };
    let bad_record = AtomicAppend {
        records: vec![(two.id().clone(), records(&values)), (nowhere.clone(), records(&values))],
        positions: Vec::new(),
    };
    for bad in [bad_position, bad_topic, bad_record] {
        assert!(commit(&*writer, &bad).is_err(), "{bad:?} is not refused");
    }
    assert!(writer.append(&nowhere, &records(&values)).is_err());
    assert!(writer.append(one.id(), &[]).is_err());
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(0..0));
    append(&*writer, &*one, 2..3)?;
    end(&*writer)?;
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(0..3));
    assert_eq!(seen(&*two, UpTo::Stable)?, numbers(0..0));
    Ok(())
}

/// A topic that is deleted takes its part of a transaction with it; the rest is committed.
pub fn a_deleted_topic_takes_its_part_of_a_transaction_with_it<S: Subject>() -> Result<(), Error> {
    let (subject, one, _) = start::<S>()?;
    let (name, gone) = new_topic(&**subject.log(), &TopicConfig::default())?;
    let writer = subject.log().writer(&fresh()?)?;
    append(&*writer, &*gone, 0..1)?;
    append(&*writer, &*one, 1..2)?;
    subject.log().delete_topic(&name)?;
    end(&*writer)?;
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(1..2));
    Ok(())
}

/// A topic in memory takes no part in a transaction; it takes records of a commit.
pub fn a_topic_in_memory_takes_no_part_in_a_transaction<S: Subject>() -> Result<(), Error> {
    let (subject, one, _) = start::<S>()?;
    if !subject.log().capabilities().memory_topics {
        return Ok(());
    }
    let config = TopicConfig { storage: Storage::Memory { max_bytes: 1 << 20 }, ..TopicConfig::default() };
    let (_, in_memory) = new_topic(&**subject.log(), &config)?;
    let writer = subject.log().writer(&fresh()?)?;
    append(&*writer, &*one, 0..1)?;
    assert!(matches!(append(&*writer, &*in_memory, 1..2), Err(Error::UnsupportedBatch { .. })));
    commit(&*writer, &parts(&*in_memory, &numbers(2..3)))?;
    assert_eq!(seen(&*one, UpTo::Stable)?, numbers(0..1));
    assert_eq!(seen(&*in_memory, UpTo::Tail)?, numbers(2..3));
    Ok(())
}

/// Offsets of aborted records are not given again, also after a restart, and a reader of any size gets past them.
pub fn offsets_of_aborted_records_are_passed_and_not_given_again<S: Subject>() -> Result<(), Error> {
    let (mut subject, one, _) = start::<S>()?;
    let id = one.id().clone();
    drop(one);
    let mut least = Offset::ZERO;
    for round in 0..2 {
        let one = subject.log().partition(&id)?;
        let writer = subject.log().writer(&fresh()?)?;
        let abort = |times: u64| {
            (0..times).try_fold(Offset::ZERO, |_, _| {
                place(&*writer, &*one, 90..93)?;
                let given = one.offsets().high;
                writer.abort().map(|()| given)
            })
        };
        assert!(one.offsets().tail >= least);
        let given = abort(5)?;
        let appended = plain(&*one, round..round + 1)?;
        assert!(appended.first >= given.max(least), "{appended:?}, {given} were given");
        least = abort(1)?;
        let appended = plain(&*one, 5..6)?;
        eventually("the end of its transaction", || one.offsets().stable > appended.last);
        for max_bytes in [0, 200, 1 << 20] {
            let (mut next, mut found) = (Offset::ZERO, 0);
            while next < one.offsets().stable {
                let batches = one.read(next, max_bytes, UpTo::Stable)?;
                let end = batches.last().expect("there is something to get past").next_offset();
                assert!(end > next, "the reader goes on");
                next = end;
                found += batches.iter().map(RecordBatch::record_count).sum::<u32>();
            }
            assert_eq!(found, 2 * (round + 1), "{max_bytes}");
        }
        drop((writer, one));
        subject.restart();
    }
    Ok(())
}
