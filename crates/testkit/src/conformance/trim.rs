//! Trims: removing records below an offset on request.

use millstream_log::{AckLevel, Cleanup, Error, Partition, Storage, TopicConfig, UpTo};
use millstream_types::{Offset, Position, TopicPartition};

use super::{Subject, append_and_wait, new_topic, numbers, read_all, records, texts};

fn fill(partition: &dyn Partition, count: u32) -> Result<(), Error> {
    append_and_wait(partition, &records(&numbers(0..count)), AckLevel::Synced).map(drop)
}

/// `trim` returns the first offset; records from there on are readable, records below are refused.
pub fn records_below_a_trim_are_gone_and_the_others_stay<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    fill(&*partition, 10)?;
    assert_eq!(partition.trim(Offset(4))?, Offset(4));
    assert_eq!(partition.offsets().first, Offset(4));
    assert_eq!(texts(&read_all(&*partition, Offset(4), UpTo::Stable)?), numbers(4..10));
    match partition.read(Offset(3), 1, UpTo::Stable) {
        Err(Error::Trimmed { wanted: Offset(3), oldest: Offset(4), .. }) => {}
        other => panic!("not refused as trimmed: {other:?}"),
    }
    let (topic, epoch) = (partition.topic().id, partition.offsets().epoch);
    let resumed = partition.resume(Position { topic, epoch, offset: Offset(3) });
    assert!(matches!(resumed, Err(Error::Trimmed { oldest: Offset(4), .. })), "{resumed:?}");
    Ok(())
}

/// A trim below what is gone changes nothing; the first offset never moves back.
pub fn a_trim_below_the_first_offset_changes_nothing<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    fill(&*partition, 10)?;
    partition.trim(Offset(4))?;
    assert_eq!(partition.trim(Offset(2))?, Offset(4));
    assert_eq!(partition.offsets().first, Offset(4));
    Ok(())
}

/// All stable records may be trimmed; an empty partition continues at the same offset.
pub fn a_partition_can_be_trimmed_up_to_its_stable_offset<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    fill(&*partition, 10)?;
    let stable = partition.offsets().stable;
    assert_eq!(partition.trim(stable)?, stable);
    assert!(read_all(&*partition, stable, UpTo::Stable)?.is_empty());
    match partition.trim(stable.next()) {
        Err(Error::BeyondStable { wanted, stable: limit, .. }) => assert_eq!((wanted, limit), (stable.next(), stable)),
        other => panic!("not refused as beyond what is stable: {other:?}"),
    }
    let appended = append_and_wait(&*partition, &records(&numbers(0..1)), AckLevel::Synced)?;
    assert!(appended.first >= stable);
    assert_eq!(texts(&read_all(&*partition, stable, UpTo::Stable)?), ["0"]);
    Ok(())
}

/// A restart keeps the trim and the remaining records.
pub fn a_trim_survives_a_restart<S: Subject>() -> Result<(), Error> {
    let mut subject = S::start();
    let (name, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    fill(&*partition, 10)?;
    partition.trim(Offset(7))?;
    drop(partition);
    subject.restart();
    let partition = subject.log().partition(&TopicPartition::new(name, 0))?;
    assert_eq!(partition.offsets().first, Offset(7));
    assert_eq!(texts(&read_all(&*partition, Offset(7), UpTo::Stable)?), numbers(7..10));
    Ok(())
}

/// A trim keeps the records that a registered reader holds, if the engine supports holds.
pub fn a_trim_leaves_records_that_a_reader_holds<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    if !subject.log().capabilities().holds {
        return Ok(());
    }
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    fill(&*partition, 10)?;
    let hold = partition.hold("reader", Offset(3));
    assert_eq!(partition.trim(Offset(8))?, Offset(3));
    hold.advance(Offset(6));
    assert_eq!(partition.trim(Offset(8))?, Offset(6));
    drop(hold);
    assert_eq!(partition.trim(Offset(8))?, Offset(8));
    Ok(())
}

/// A compacted topic is a state: it is not trimmed.
pub fn a_compacted_topic_refuses_to_be_trimmed<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let config = TopicConfig { cleanup: Cleanup::Compact, retention: None, ..TopicConfig::default() };
    let (_, partition) = new_topic(&**subject.log(), &config)?;
    let values = numbers(0..3);
    let mut keyed = records(&values);
    keyed.iter_mut().for_each(|record| record.key = Some(b"key"));
    append_and_wait(&*partition, &keyed, AckLevel::Synced)?;
    let refused = partition.trim(Offset(1));
    assert!(matches!(refused, Err(Error::NotTrimmable { .. })), "{refused:?}");
    assert_eq!(partition.offsets().first, Offset::ZERO);
    Ok(())
}

/// A memory topic is trimmed like any other topic.
pub fn a_topic_in_memory_is_trimmed<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    if !subject.log().capabilities().memory_topics {
        return Ok(());
    }
    let config = TopicConfig { storage: Storage::Memory { max_bytes: 1 << 20 }, ..TopicConfig::default() };
    let (_, partition) = new_topic(&**subject.log(), &config)?;
    for value in numbers(0..10) {
        append_and_wait(&*partition, &records(&[value]), AckLevel::Memory)?;
    }
    let fifth = partition.offsets().first.advance(5);
    assert_eq!(partition.trim(fifth)?, fifth);
    assert_eq!(texts(&read_all(&*partition, fifth, UpTo::Tail)?), numbers(5..10));
    assert!(matches!(partition.read(Offset(fifth.0 - 1), 1, UpTo::Tail), Err(Error::Trimmed { .. })));
    Ok(())
}
