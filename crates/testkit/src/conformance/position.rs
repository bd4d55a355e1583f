//! Stored positions: the offset at which a reader continues, and the refusals.

use millstream_log::{AckLevel, Error, Storage, TopicConfig};
use millstream_types::{Offset, Position, TopicPartition};

use super::{KafkaSubject, Subject, append_and_wait, new_topic, numbers, records};

/// A reader continues at its stored position, in the middle or at the tail.
pub fn a_reader_goes_on_where_it_stopped<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (_, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    let topic = partition.topic().id;
    let epoch = partition.offsets().epoch;
    assert_eq!(partition.resume(Position { topic, epoch, offset: Offset::ZERO })?, Offset::ZERO);
    let appended = append_and_wait(&*partition, &records(&numbers(0..10)), AckLevel::Synced)?;
    for offset in [appended.first, appended.first.advance(4), appended.last.next()] {
        assert_eq!(partition.resume(Position { topic, epoch: appended.epoch, offset })?, offset);
    }
    Ok(())
}

/// A position under an earlier epoch is good as long as its records are there.
pub fn a_position_outlives_a_restart<S: Subject>() -> Result<(), Error> {
    let mut subject = S::start();
    let (name, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    let id = TopicPartition::new(name, 0);
    let topic = partition.topic().id;
    drop(partition);
    let mut positions = Vec::new();
    for _ in 0..3 {
        let partition = subject.log().partition(&id)?;
        let appended = append_and_wait(&*partition, &records(&numbers(0..10)), AckLevel::Synced)?;
        positions.push(Position { topic, epoch: appended.epoch, offset: appended.last.next() });
        drop(partition);
        subject.restart();
        let partition = subject.log().partition(&id)?;
        for position in &positions {
            assert_eq!(partition.resume(*position)?, position.offset);
        }
    }
    Ok(())
}

/// A recreated topic does not accept positions of its predecessor; readers start at its first record.
pub fn a_position_in_a_deleted_topic_is_lost<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let log = subject.log();
    let (name, old) = new_topic(&**log, &TopicConfig::default())?;
    let appended = append_and_wait(&*old, &records(&numbers(0..3)), AckLevel::Synced)?;
    let position = Position { topic: old.topic().id, epoch: appended.epoch, offset: Offset(2) };
    log.delete_topic(&name)?;
    log.create_topic(&name, &TopicConfig::default())?;
    let anew = log.partition(&TopicPartition::new(name, 0))?;
    append_and_wait(&*anew, &records(&numbers(0..5)), AckLevel::Synced)?;
    match anew.resume(position) {
        Err(Error::PositionLost { position: refused, restart, .. }) => {
            assert_eq!((refused, restart), (position, anew.offsets().first));
            Ok(())
        }
        other => panic!("not refused as lost: {other:?}"),
    }
}

/// A reader that comes too late is told the oldest offset. (Uses a memory topic, whose ring fills up soon.)
pub fn a_position_whose_records_are_gone_names_the_oldest<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    if !subject.log().capabilities().memory_topics {
        return Ok(());
    }
    let config = TopicConfig { storage: Storage::Memory { max_bytes: 10_000 }, ..TopicConfig::default() };
    let (_, partition) = new_topic(&**subject.log(), &config)?;
    let epoch = partition.offsets().epoch;
    for value in numbers(0..100) {
        append_and_wait(&*partition, &records(&[value.repeat(200)]), AckLevel::Synced)?;
    }
    match partition.resume(Position { topic: partition.topic().id, epoch, offset: Offset(1) }) {
        Err(Error::Trimmed { wanted: Offset(1), oldest, .. }) => assert!(oldest > Offset(1)),
        other => panic!("not refused as trimmed: {other:?}"),
    }
    Ok(())
}

/// The end of an epoch is where the next one begins, after clean ends; the present one ends at the tail, and a later one is unknown.
pub fn the_end_of_an_epoch_is_told_until_it_is_trimmed<S: KafkaSubject>() -> Result<(), Error> {
    let mut subject = S::start();
    let (name, partition) = new_topic(&**subject.log(), &TopicConfig::default())?;
    let id = TopicPartition::new(name, 0);
    drop(partition);
    let mut ends = Vec::new();
    for _ in 0..3 {
        let partition = subject.kafka_log().kafka_partition(&id)?;
        let appended = append_and_wait(&*subject.log().partition(&id)?, &records(&numbers(0..10)), AckLevel::Synced)?;
        ends.push((appended.epoch, appended.last.next()));
        for (epoch, end) in &ends {
            assert_eq!(partition.end_of_epoch(*epoch), Some((*epoch, *end)));
        }
        let later = millstream_types::Epoch(partition.offsets().epoch.0 + 1);
        assert_eq!(partition.end_of_epoch(later), None);
        drop(partition);
        subject.restart();
    }
    Ok(())
}
