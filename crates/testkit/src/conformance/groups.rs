//! Groups of consumers: their positions are listed and forgotten.

use millstream_log::{Error, PositionCommit};
use millstream_types::{Offset, Position, TopicPartition};

use super::atomic::{commit_positions, source};
use super::{KafkaSubject, new_name};

/// Groups are listed by name, each once; their positions by topic and partition.
pub fn groups_with_positions_are_listed_with_all_of_them<S: KafkaSubject>() -> Result<(), Error> {
    let subject = S::start();
    let log = &**subject.kafka_log();
    let (one, two) = (source(log, "listed-a", 1)?, source(log, "listed-a", 2)?);
    let other = PositionCommit { group: "listed-b".into(), ..one.clone() };
    commit_positions(log, &[&two, &other, &one])?;
    let groups: Vec<_> = log.groups().into_iter().filter(|group| group.name.starts_with("listed-")).collect();
    assert_eq!(groups.iter().map(|group| &group.name).collect::<Vec<_>>(), ["listed-a", "listed-b"]);
    for group in groups {
        let last_ms = log.positions(&group.name)?.iter().map(|found| found.committed_ms).max();
        assert_eq!(Some(group.committed_ms), last_ms);
    }
    let mut expected = [(one.partition, one.position), (two.partition, two.position)];
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    let found: Vec<_> = log.positions("listed-a")?.into_iter().map(|found| (found.partition, found.position)).collect();
    assert_eq!(found, expected);
    assert_eq!(log.positions("listed-c")?, []);
    Ok(())
}

/// A forgotten position is gone at once and after a restart; those of other partitions and groups stay.
pub fn a_forgotten_position_is_gone_for_good_and_others_stay<S: KafkaSubject>() -> Result<(), Error> {
    let mut subject = S::start();
    let log = &**subject.kafka_log();
    let (gone, kept) = (source(log, "forgetful", 1)?, source(log, "forgetful", 2)?);
    let other = PositionCommit { group: "mindful".into(), ..gone.clone() };
    commit_positions(log, &[&gone, &kept, &other])?;
    let unknown = TopicPartition::new(new_name()?, 0);
    assert!(log.forget_positions("forgetful", &[gone.partition.clone(), unknown]).is_err());
    assert_eq!(log.committed("forgetful", &gone.partition)?, Some(gone.position), "all or nothing");
    log.forget_positions("forgetful", std::slice::from_ref(&gone.partition))?;
    for _ in 0..2 {
        let log = &**subject.kafka_log();
        assert_eq!(log.committed("forgetful", &gone.partition)?, None);
        assert_eq!(log.committed("forgetful", &kept.partition)?, Some(kept.position));
        assert_eq!(log.committed("mindful", &gone.partition)?, Some(other.position));
        subject.restart();
    }
    let log = &**subject.kafka_log();
    log.forget_positions("forgetful", &[gone.partition.clone(), kept.partition.clone()])?;
    assert!(log.groups().iter().all(|group| group.name != "forgetful"), "a group without positions is not listed");
    Ok(())
}

/// A commit after a deletion stays, also after a restart.
pub fn a_position_committed_after_it_was_forgotten_stays<S: KafkaSubject>() -> Result<(), Error> {
    let mut subject = S::start();
    let log = &**subject.kafka_log();
    let first = source(log, "returning", 1)?;
    let again = PositionCommit { position: Position { offset: Offset(3), ..first.position }, ..first.clone() };
    commit_positions(log, &[&first])?;
    log.forget_positions("returning", std::slice::from_ref(&first.partition))?;
    commit_positions(log, &[&again])?;
    assert_eq!(log.committed("returning", &first.partition)?, Some(again.position));
    subject.restart();
    assert_eq!(subject.log().committed("returning", &first.partition)?, Some(again.position));
    Ok(())
}
