//! Appending to one partition.

use std::sync::Arc;
use std::thread;

use millstream_log::{AckLevel, Done, Error, TopicConfig, UpTo, Writers};
use millstream_types::{Compression, Header, Offset, Record};
use parking_lot::Mutex;

use super::{ReadRecord, Subject, answer, append_and_wait, new_topic, numbers, read_all, records, texts};

/// Null and empty keys and values, negative times and headers are read back as appended.
pub fn records_are_read_as_they_were_appended<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    let headers = [Header { key: "a", value: Some(b"1") }, Header { key: "a", value: None }];
    let given = [
        Record { timestamp_ms: 1_700_000_000_000, key: Some(b"k"), value: Some(b"v"), headers: &headers },
        Record { timestamp_ms: 0, key: None, value: None, headers: &[] },
        Record { timestamp_ms: 7, key: Some(b""), value: Some(b""), headers: &[] },
        Record { timestamp_ms: 3, key: Some(b"k"), value: None, headers: &headers[..1] },
    ];
    let appended = append_and_wait(&*partition, &given, AckLevel::Synced)?;
    let expected: Vec<ReadRecord> =
        (appended.first.0..).zip(&given).map(|(offset, record)| ReadRecord::at(Offset(offset), record)).collect();
    assert_eq!(read_all(&*partition, appended.first, UpTo::Stable)?, expected);
    Ok(())
}

/// An append gets the offsets of its first and last record, and the next append continues after them.
pub fn offsets_ascend_from_one_append_to_the_next<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    let mut next = partition.offsets().tail;
    for count in 1..20 {
        let appended = append_and_wait(&*partition, &records(&numbers(0..count)), AckLevel::Synced)?;
        assert!(appended.first >= next);
        assert_eq!(appended.last.0 - appended.first.0 + 1, u64::from(count));
        assert_eq!(appended.epoch, partition.offsets().epoch);
        next = appended.last.next();
    }
    Ok(())
}

/// In an owners-only topic the records of one append are contiguous, even with concurrent appends.
pub fn the_records_of_one_append_stand_together<S: Subject>() -> Result<(), Error> {
    const WRITERS: u32 = 4;
    const APPENDS: u32 = 50;
    let subject = S::start();
    let config = TopicConfig { writers: Writers::OwnersOnly, ..TopicConfig::default() };
    let (_, partition) = new_topic(&**subject.log(), &config)?;
    thread::scope(|threads| {
        let appends = |writer: u32| {
            let partition = &*partition;
            move || {
                (0..APPENDS).try_for_each(|append| {
                    let values: Vec<String> = (0..5).map(|record| format!("{writer} {append} {record}")).collect();
                    append_and_wait(partition, &records(&values), AckLevel::Memory).map(drop)
                })
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|writer| threads.spawn(appends(writer))).collect();
        writers.into_iter().try_for_each(|writer| writer.join().expect("a writer does not panic"))
    })?;
    append_and_wait(&*partition, &records(&numbers(0..1)), AckLevel::Synced)?;

    let read = texts(&read_all(&*partition, Offset::ZERO, UpTo::Stable)?);
    assert_eq!(read.len() as u32, WRITERS * APPENDS * 5 + 1);
    let mut appends = vec![0; WRITERS as usize];
    for together in read.chunks_exact(5) {
        let (writer, _) = together[0].split_once(' ').expect("a value is three numbers");
        let next = &mut appends[writer.parse::<usize>().expect("a writer is a number")];
        let expected: Vec<String> = (0..5).map(|record| format!("{writer} {next} {record}")).collect();
        assert_eq!(together, expected);
        *next += 1;
    }
    Ok(())
}

/// At level memory the callback has been called when `append` returns.
pub fn an_answer_at_memory_level_comes_before_append_returns<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    if !subject.log().capabilities().level_per_append {
        return Ok(());
    }
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    let answered = Arc::new(Mutex::new(None));
    let heard = answered.clone();
    let done = Done::call(move |result| *heard.lock() = Some(result));
    partition.append(&records(&numbers(0..1)), AckLevel::Memory, done)?;
    let answered = answered.lock().take().expect("append returned without an answer")?;
    let live = read_all(&*partition, answered.first, UpTo::Tail)?;
    assert_eq!(live.len(), 1, "what was accepted is seen by a live reader");
    Ok(())
}

/// When an append is answered at its topic's level, the stable offset has passed it.
pub fn an_answer_at_the_topics_level_makes_the_records_stable<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    for level in [AckLevel::Written, AckLevel::Synced] {
        let (_, partition) = new_topic(&**subject.log(), &TopicConfig { level, ..TopicConfig::default() })?;
        for _ in 0..20 {
            let appended = append_and_wait(&*partition, &records(&numbers(0..3)), level)?;
            assert!(partition.offsets().stable > appended.last);
            assert_eq!(read_all(&*partition, appended.first, UpTo::Stable)?.len(), 3);
        }
    }
    Ok(())
}

/// An answer at a level covers the appends before it, whatever level they asked for.
pub fn an_answer_covers_everything_before_it<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    for _ in 0..100 {
        partition.append(&records(&numbers(0..2)), AckLevel::Memory, Done::ignore())?;
        partition.append(&records(&numbers(0..2)), AckLevel::Written, Done::ignore())?;
    }
    let last = append_and_wait(&*partition, &records(&numbers(0..1)), AckLevel::Synced)?;
    assert!(partition.offsets().stable > last.last);
    assert_eq!(read_all(&*partition, Offset::ZERO, UpTo::Stable)?.len(), 401);
    Ok(())
}

/// An append whose answer is ignored is stored like any other.
pub fn an_unawaited_append_is_stored<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    partition.append(&records(&numbers(0..3)), AckLevel::Synced, Done::ignore())?;
    append_and_wait(&*partition, &records(&numbers(3..4)), AckLevel::Synced)?;
    assert_eq!(texts(&read_all(&*partition, Offset::ZERO, UpTo::Stable)?), numbers(0..4));
    Ok(())
}

/// One record too large refuses the whole append, names its size and the limit, and calls nobody back.
pub fn a_record_over_the_limit_is_refused_and_nothing_is_taken<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let config = TopicConfig { record_max_bytes: 100, ..TopicConfig::default() };
    let (_, partition) = new_topic(&**subject.log(), &config)?;
    let before = partition.offsets();
    let (done, _) = answer();
    match partition.append(&records(&["small".into(), "x".repeat(101)]), AckLevel::Synced, done) {
        Err(Error::RecordTooLarge { partition: refused, size_bytes, limit_bytes: 100 }) => {
            assert_eq!(&refused, partition.id());
            assert!(size_bytes >= 101);
        }
        other => panic!("not refused as too large: {other:?}"),
    }
    assert_eq!(partition.offsets().tail, before.tail);
    append_and_wait(&*partition, &records(&["x".repeat(50)]), AckLevel::Synced)?;
    assert_eq!(read_all(&*partition, Offset::ZERO, UpTo::Stable)?.len(), 1);
    Ok(())
}

/// A topic that compresses returns what was appended.
pub fn a_compressed_topic_returns_the_same_records<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    for compression in Compression::ALL {
        let (_, partition) = new_topic(&**subject.log(), &TopicConfig { compression, ..TopicConfig::default() })?;
        let values = numbers(0..1000);
        append_and_wait(&*partition, &records(&values), AckLevel::Synced)?;
        assert_eq!(texts(&read_all(&*partition, Offset::ZERO, UpTo::Stable)?), values);
    }
    Ok(())
}
