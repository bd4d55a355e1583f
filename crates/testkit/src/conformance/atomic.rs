//! Atomic appends to several partitions, with positions.

use millstream_log::{
    AckLevel, Appended, AtomicAppend, Error, Log, POSITION_METADATA_MAX_BYTES, PositionCommit, TopicConfig, UpTo,
};
use millstream_types::{Offset, Position, TopicName, TopicPartition};

use super::{Subject, answer, append_and_wait, new_name, new_topic, numbers, read_all, records, texts};

fn append_atomic(log: &dyn Log, append: &AtomicAppend<'_>) -> Result<Vec<Appended>, Error> {
    let (done, answer) = answer();
    log.writer(&new_name()?.to_string())?.commit(append, AckLevel::Synced, done)?;
    answer()
}

fn read_partition(log: &dyn Log, topic: &TopicName, partition: u32) -> Result<Vec<String>, Error> {
    let partition = log.partition(&TopicPartition::new(topic.clone(), partition))?;
    Ok(texts(&read_all(&*partition, Offset::ZERO, UpTo::Stable)?))
}

/// A topic with three synced records in partition 0, and the position of `group` after the first `read` of them.
pub(super) fn source(log: &dyn Log, group: &str, read: u64) -> Result<PositionCommit, Error> {
    let (name, partition) = new_topic(log, &TopicConfig::default())?;
    let appended = append_and_wait(&*partition, &records(&numbers(0..3)), AckLevel::Synced)?;
    let position =
        Position { topic: partition.topic().id, epoch: appended.epoch, offset: appended.first.advance(read) };
    Ok(PositionCommit {
        group: group.to_owned(),
        partition: TopicPartition::new(name, 0),
        position,
        metadata: String::new(),
    })
}

pub(super) fn commit_positions(log: &dyn Log, commits: &[&PositionCommit]) -> Result<(), Error> {
    let positions = commits.iter().map(|commit| (*commit).clone()).collect();
    append_atomic(log, &AtomicAppend { records: Vec::new(), positions }).map(drop)
}

/// Records for partitions of several topics are all there, and answered in the order in which they were given.
pub fn an_atomic_append_reaches_all_partitions_and_answers_in_their_order<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let log = &**subject.log();
    let (one, _) = new_topic(log, &TopicConfig::default())?;
    let (two, _) = new_topic(log, &TopicConfig::default())?;
    let values = numbers(0..6);
    let records = records(&values);
    let parts = [(&one, 3, 0..1), (&two, 0, 1..3), (&one, 1, 3..6)];
    let append = AtomicAppend {
        records: parts
            .iter()
            .map(|(topic, partition, of)| {
                (TopicPartition::new((*topic).clone(), *partition), records[of.clone()].to_vec())
            })
            .collect(),
        positions: Vec::new(),
    };
    for round in 0_usize..3 {
        let appended = append_atomic(log, &append)?;
        assert_eq!(appended.len(), parts.len());
        for (appended, (topic, partition, of)) in appended.iter().zip(&parts) {
            assert_eq!(appended.last.0 + 1 - appended.first.0, of.len() as u64);
            let partition = log.partition(&TopicPartition::new((*topic).clone(), *partition))?;
            let read = read_all(&*partition, Offset::ZERO, UpTo::Stable)?;
            let place = read.iter().position(|record| record.offset == appended.first);
            assert_eq!(place, Some(round * of.len()), "what was appended before is there");
            assert_eq!(texts(&read[round * of.len()..]), values[of.clone()]);
        }
    }
    Ok(())
}

/// Entries for the same partition keep their order, and each gets its own answer.
pub fn a_partition_named_twice_keeps_the_order_of_its_records<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let log = &**subject.log();
    let (name, _) = new_topic(log, &TopicConfig::default())?;
    let values = numbers(0..5);
    let records = records(&values);
    let target = TopicPartition::new(name.clone(), 0);
    let append = AtomicAppend {
        records: vec![(target.clone(), records[..2].to_vec()), (target, records[2..].to_vec())],
        positions: Vec::new(),
    };
    let appended = append_atomic(log, &append)?;
    assert_eq!(appended[0].last.0 - appended[0].first.0, 1);
    assert_eq!(appended[1].last.0 - appended[1].first.0, 2);
    assert!(appended[1].first > appended[0].last);
    assert_eq!(read_partition(log, &name, 0)?, values);
    Ok(())
}

/// Records and the positions that caused them are stored together.
pub fn positions_are_committed_with_the_records<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let log = &**subject.log();
    let commit = source(log, "group", 2)?;
    assert_eq!(log.committed("group", &commit.partition)?, None);
    let (target, _) = new_topic(log, &TopicConfig::default())?;
    let values = numbers(0..2);
    let append = AtomicAppend {
        records: vec![(TopicPartition::new(target.clone(), 1), records(&values))],
        positions: vec![commit.clone()],
    };
    append_atomic(log, &append)?;
    assert_eq!(read_partition(log, &target, 1)?, values);
    assert_eq!(log.committed("group", &commit.partition)?, Some(commit.position));
    Ok(())
}

/// An atomic append without records commits its positions.
pub fn positions_may_be_committed_alone<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let log = &**subject.log();
    let commit = source(log, "group", 3)?;
    let append = AtomicAppend { records: Vec::new(), positions: vec![commit.clone()] };
    assert_eq!(append_atomic(log, &append)?, []);
    assert_eq!(log.committed("group", &commit.partition)?, Some(commit.position));
    Ok(())
}

/// If one part cannot be taken, no part is.
pub fn an_atomic_append_with_one_bad_part_takes_nothing<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let log = &**subject.log();
    let commit = source(log, "group", 1)?;
    let (target, _) = new_topic(log, &TopicConfig { record_max_bytes: 100, ..TopicConfig::default() })?;
    let values = [vec!["x".repeat(101)], numbers(0..1)];
    let good = || (TopicPartition::new(target.clone(), 0), records(&values[1]));
    for (bad, records) in [
        (TopicPartition::new(target.clone(), 1), records(&values[0])),
        (TopicPartition::new(target.clone(), 4), records(&values[1])),
        (TopicPartition::new(new_name()?, 0), records(&values[1])),
    ] {
        let append =
            AtomicAppend { records: vec![good(), (bad.clone(), records), good()], positions: vec![commit.clone()] };
        assert!(append_atomic(log, &append).is_err(), "{bad} is not refused");
    }
    for partition in 0..4 {
        assert_eq!(read_partition(log, &target, partition)?, numbers(0..0));
    }
    assert_eq!(log.committed("group", &commit.partition)?, None);
    Ok(())
}

/// A position may be committed at most up to its partition's stable offset.
pub fn a_position_beyond_the_stable_offset_is_refused<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let log = &**subject.log();
    let commit = source(log, "group", 3)?;
    let beyond = Position { offset: commit.position.offset.next(), ..commit.position };
    let append =
        AtomicAppend { records: Vec::new(), positions: vec![PositionCommit { position: beyond, ..commit.clone() }] };
    match append_atomic(log, &append) {
        Err(Error::PositionUnstable { group, partition, offset, stable }) => {
            assert_eq!((group.as_str(), partition), ("group", commit.partition.clone()));
            assert_eq!((offset, stable), (beyond.offset, commit.position.offset));
        }
        other => panic!("not refused as beyond what is stable: {other:?}"),
    }
    assert_eq!(log.committed("group", &commit.partition)?, None);
    Ok(())
}

/// A position belongs to one group and one partition.
pub fn groups_have_positions_of_their_own<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let log = &**subject.log();
    let one = source(log, "one", 1)?;
    let two = PositionCommit { group: "two".into(), ..source(log, "two", 2)? };
    let append = AtomicAppend { records: Vec::new(), positions: vec![one.clone(), two.clone()] };
    append_atomic(log, &append)?;
    assert_eq!(log.committed("one", &one.partition)?, Some(one.position));
    assert_eq!(log.committed("two", &two.partition)?, Some(two.position));
    assert_eq!(log.committed("one", &two.partition)?, None);
    assert_eq!(log.committed("three", &one.partition)?, None);
    Ok(())
}

/// The last position that was committed is there after a restart.
pub fn committed_positions_survive_a_restart<S: Subject>() -> Result<(), Error> {
    let mut subject = S::start();
    let first = source(&**subject.log(), "group", 1)?;
    let last = PositionCommit { position: Position { offset: Offset(2), ..first.position }, ..first.clone() };
    for commit in [&first, &last] {
        let append = AtomicAppend { records: Vec::new(), positions: vec![commit.clone()] };
        append_atomic(&**subject.log(), &append)?;
    }
    for _ in 0..3 {
        subject.restart();
        assert_eq!(subject.log().committed("group", &first.partition)?, Some(last.position));
    }
    Ok(())
}

/// A group finds the text that it has stored with a position, and the time of the commit, also after a restart.
pub fn a_position_keeps_its_metadata_and_commit_time<S: Subject>() -> Result<(), Error> {
    let mut subject = S::start();
    let log = &**subject.log();
    let group = new_name()?.to_string();
    let commit = PositionCommit { metadata: "page 7, \u{e9}".into(), ..source(log, &group, 2)? };
    commit_positions(log, &[&commit])?;
    let before = log.positions(&group)?;
    assert_eq!(before.len(), 1);
    assert_eq!((&before[0].partition, before[0].position), (&commit.partition, commit.position));
    assert_eq!(before[0].metadata, commit.metadata);
    for _ in 0..2 {
        subject.restart();
        assert_eq!(subject.log().positions(&group)?, before);
    }
    Ok(())
}

/// The text with a position has a limit; a commit beyond it changes nothing.
pub fn metadata_over_the_limit_are_refused_and_nothing_is_taken<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let log = &**subject.log();
    let name = new_name()?.to_string();
    let longest = PositionCommit { metadata: "x".repeat(POSITION_METADATA_MAX_BYTES), ..source(log, &name, 1)? };
    let longer = PositionCommit { metadata: "x".repeat(POSITION_METADATA_MAX_BYTES + 1), ..longest.clone() };
    match commit_positions(log, &[&longer]) {
        Err(Error::MetadataTooLarge { group, size_bytes, limit_bytes }) => {
            assert_eq!(
                (group.as_str(), size_bytes, limit_bytes),
                (name.as_str(), longer.metadata.len(), longest.metadata.len())
            );
        }
        other => panic!("not refused as too large: {other:?}"),
    }
    assert_eq!(log.positions(&name)?, []);
    commit_positions(log, &[&longest])
}
