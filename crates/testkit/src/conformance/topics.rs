//! Topics: create, find, alter, delete.

use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, Bell, Cleanup, Done, Error, Offsets, Storage, TopicConfig, UpTo, Writers};
use millstream_types::{PartitionId, TopicPartition};

use super::{Subject, append_and_wait, new_name, new_topic, numbers, read_all, records};

/// `topic` finds what `create_topic` has returned.
pub fn a_created_topic_is_found_by_its_name<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (log, name) = (subject.log(), new_name()?);
    assert_eq!(log.topic(&name), None);
    let config = TopicConfig { partitions: 3, retention: None, ..TopicConfig::default() };
    let created = log.create_topic(&name, &config)?;
    assert_eq!((&created.name, &created.config), (&name, &config));
    assert_eq!(log.topic(&name).as_deref(), Some(&*created));
    for partition in 0..3 {
        let partition = log.partition(&TopicPartition::new(name.clone(), partition))?;
        assert_eq!(partition.topic(), created);
    }
    Ok(())
}

/// `topics` returns all of them, by name.
pub fn topics_are_listed_by_name<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let mut names = (0..3).map(|_| new_name()).collect::<Result<Vec<_>, _>>()?;
    for name in names.iter().rev() {
        subject.log().create_topic(name, &TopicConfig::default())?;
    }
    names.sort();
    let listed = subject.log().topics();
    assert!(listed.is_sorted_by_key(|topic| &topic.name));
    let ours: Vec<_> = listed.iter().map(|topic| topic.name.clone()).filter(|name| names.contains(name)).collect();
    assert_eq!(ours, names);
    Ok(())
}

/// Creating a topic that exists with the same configuration returns it.
pub fn creating_a_topic_again_returns_it<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (log, name) = (subject.log(), new_name()?);
    let first = log.create_topic(&name, &TopicConfig::default())?;
    assert_eq!(log.create_topic(&name, &TopicConfig::default())?, first);
    Ok(())
}

/// Creating a topic that exists with another configuration is refused.
pub fn creating_a_topic_with_another_configuration_names_the_difference<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (log, name) = (subject.log(), new_name()?);
    log.create_topic(&name, &TopicConfig::default())?;
    let other = TopicConfig { partitions: 5, ..TopicConfig::default() };
    match log.create_topic(&name, &other) {
        Err(Error::TopicExists { topic, differs }) => assert_eq!((topic, differs), (name, "partitions")),
        other => panic!("not refused as another configuration: {other:?}"),
    }
    Ok(())
}

/// A number of partitions outside its limits is refused, and no topic appears.
pub fn an_invalid_configuration_is_refused<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (log, name) = (subject.log(), new_name()?);
    for partitions in [0, 10_001] {
        match log.create_topic(&name, &TopicConfig { partitions, ..TopicConfig::default() }) {
            Err(Error::InvalidConfig { setting, value, .. }) => {
                assert_eq!((setting, value), ("partitions", partitions.to_string()));
            }
            other => panic!("{partitions} partitions are not refused: {other:?}"),
        }
        assert_eq!(log.topic(&name), None);
    }
    Ok(())
}

/// `alter_topic` changes retention, segment sizes, level and limits, and handles show what is in force.
pub fn altering_a_topic_changes_its_alterable_settings<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let log = subject.log();
    let (name, partition) = new_topic(&**log, &TopicConfig::default())?;
    let config = TopicConfig {
        retention: Some(Duration::from_secs(3600)),
        retention_bytes: Some(1 << 30),
        segment_bytes: 32 << 20,
        record_max_bytes: 100,
        ..TopicConfig::default()
    };
    let altered = log.alter_topic(&name, &config)?;
    assert_eq!(altered.config, config);
    assert_eq!(log.topic(&name), Some(altered.clone()));
    assert_eq!(partition.topic(), altered);
    match partition.append(&records(&["x".repeat(101)]), AckLevel::Memory, Done::ignore()) {
        Err(Error::RecordTooLarge { limit_bytes: 100, .. }) => Ok(()),
        other => panic!("the new limit is not in force: {other:?}"),
    }
}

/// Storage and partitions stay as they were created; an unknown topic cannot be altered.
pub fn altering_a_fixed_setting_is_refused<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (log, name) = (subject.log(), new_name()?);
    let config = TopicConfig::default();
    assert!(matches!(log.alter_topic(&name, &config), Err(Error::UnknownTopic { .. })));
    let created = log.create_topic(&name, &config)?;
    for (setting, change) in [
        ("partitions", TopicConfig { partitions: 8, ..config.clone() }),
        ("storage", TopicConfig { storage: Storage::Memory { max_bytes: 1 << 20 }, ..config.clone() }),
    ] {
        match log.alter_topic(&name, &change) {
            Err(Error::InvalidConfig { setting: refused, .. }) => assert_eq!(refused, setting),
            other => panic!("a change of {setting} is not refused: {other:?}"),
        }
    }
    assert_eq!(log.topic(&name), Some(created));
    Ok(())
}

/// Once a topic is deleted, handles that were resolved before say so.
pub fn a_deleted_topic_is_unknown_to_readers_and_writers<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let log = subject.log();
    let (name, partition) = new_topic(&**log, &TopicConfig::default())?;
    let values = numbers(0..3);
    let appended = append_and_wait(&*partition, &records(&values), AckLevel::Synced)?;
    log.delete_topic(&name)?;

    assert_eq!(log.topic(&name), None);
    assert!(matches!(log.delete_topic(&name), Err(Error::UnknownTopic { .. })));
    assert!(matches!(log.partition(partition.id()), Err(Error::UnknownTopic { .. })));
    assert!(matches!(partition.read(appended.first, 1, UpTo::Stable), Err(Error::UnknownTopic { .. })));
    let refused = partition.append(&records(&values), AckLevel::Memory, Done::ignore());
    assert!(matches!(refused, Err(Error::UnknownTopic { .. })), "{refused:?}");
    Ok(())
}

/// A topic that is deleted and created again is another one.
pub fn a_topic_created_anew_has_another_id_and_no_records<S: Subject>() -> Result<(), Error> {
    let mut subject = S::start();
    let (name, old) = new_topic(&**subject.log(), &TopicConfig::default())?;
    append_and_wait(&*old, &records(&numbers(0..3)), AckLevel::Synced)?;
    subject.log().delete_topic(&name)?;
    let anew = subject.log().create_topic(&name, &TopicConfig::default())?;
    assert_ne!(anew.id, old.topic().id);
    for _ in 0..2 {
        assert_eq!(subject.log().topic(&name), Some(anew.clone()));
        let partition = subject.log().partition(&TopicPartition::new(name.clone(), 0))?;
        let first = partition.offsets().first;
        assert_eq!(read_all(&*partition, first, UpTo::Tail)?, []);
        subject.restart();
    }
    Ok(())
}

/// Creating, altering and deleting are durable when they return.
pub fn topics_and_their_configurations_survive_a_restart<S: Subject>() -> Result<(), Error> {
    let mut subject = S::start();
    let (kept, altered, deleted) = (new_name()?, new_name()?, new_name()?);
    let log = subject.log();
    let config = TopicConfig { partitions: 6, segment_bytes: 1 << 20, ..TopicConfig::default() };
    let kept = log.create_topic(&kept, &config)?;
    log.create_topic(&altered, &config)?;
    let altered = log.alter_topic(&altered, &TopicConfig { retention: None, ..config.clone() })?;
    log.create_topic(&deleted, &config)?;
    log.delete_topic(&deleted)?;

    subject.restart();
    let log = subject.log();
    assert_eq!(log.topic(&kept.name), Some(kept));
    assert_eq!(log.topic(&altered.name), Some(altered));
    assert_eq!(log.topic(&deleted), None);
    Ok(())
}

/// A topic gets partitions; those it had keep their records and handles, the new ones are empty, also after a restart.
pub fn partitions_are_added_to_a_topic<S: Subject>() -> Result<(), Error> {
    let mut subject = S::start();
    let log = subject.log();
    let config = TopicConfig { partitions: 2, ..TopicConfig::default() };
    let (name, first) = new_topic(&**log, &config)?;
    append_and_wait(&*first, &records(&numbers(0..3)), AckLevel::Synced)?;
    let grown = log.add_partitions(&name, 5)?;
    assert_eq!(grown.config, TopicConfig { partitions: 5, ..config });
    assert_eq!((log.topic(&name), first.topic()), (Some(grown.clone()), grown.clone()));
    assert_eq!(log.add_partitions(&name, 5)?, grown, "as many as it has");
    let last = TopicPartition::new(name.clone(), 4);
    append_and_wait(&*log.partition(&last)?, &records(&numbers(3..5)), AckLevel::Synced)?;
    append_and_wait(&*first, &records(&numbers(5..6)), AckLevel::Synced)?;
    drop(first);

    subject.restart();
    let log = subject.log();
    assert_eq!(log.topic(&name), Some(grown));
    for (partition, expected) in [(0, 4), (1, 0), (2, 0), (4, 2)] {
        let partition = log.partition(&TopicPartition::new(name.clone(), partition))?;
        assert_eq!(read_all(&*partition, partition.offsets().first, UpTo::Stable)?.len(), expected);
    }
    Ok(())
}

/// Partitions are not taken away; a topic that keeps a state keeps its partitions.
pub fn an_invalid_number_of_partitions_is_refused<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (log, name) = (subject.log(), new_name()?);
    assert!(matches!(log.add_partitions(&name, 3), Err(Error::UnknownTopic { .. })));
    let plain = TopicConfig { partitions: 4, ..TopicConfig::default() };
    let compacted = TopicConfig { cleanup: Cleanup::Compact, retention: None, ..plain.clone() };
    let owned = TopicConfig { writers: Writers::OwnersOnly, ..plain.clone() };
    for (config, total) in [(&plain, 3), (&plain, 10_001), (&compacted, 5), (&owned, 5)] {
        let (name, _) = new_topic(&**log, config)?;
        match log.add_partitions(&name, total) {
            Err(Error::InvalidConfig { setting: "partitions", value, .. }) => assert_eq!(value, total.to_string()),
            other => panic!("{total} partitions are not refused: {other:?}"),
        }
        assert_eq!(log.topic(&name).map(|topic| topic.config.clone()).as_ref(), Some(config));
    }
    Ok(())
}

/// Unknown topics and partitions are refused by name.
pub fn an_unknown_topic_or_partition_is_named<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (log, name) = (subject.log(), new_name()?);
    match log.partition(&TopicPartition::new(name.clone(), 0)) {
        Err(Error::UnknownTopic { topic }) => assert_eq!(topic, name),
        other => panic!("an unknown topic is not refused: {:?}", other.map(|found| found.id().clone())),
    }
    log.create_topic(&name, &TopicConfig { partitions: 4, ..TopicConfig::default() })?;
    match log.partition(&TopicPartition::new(name.clone(), 4)) {
        Err(Error::UnknownPartition { partition, partitions: 4 }) => {
            assert_eq!((partition.topic, partition.partition), (name, PartitionId(4)));
        }
        other => panic!("an unknown partition is not refused: {:?}", other.map(|found| found.id().clone())),
    }
    Ok(())
}

/// A memory topic works with every engine. One that has the capability keeps its records in memory only.
pub fn topics_in_memory_are_a_capability<S: Subject>() -> Result<(), Error> {
    let mut subject = S::start();
    let name = new_name()?;
    let config = TopicConfig { storage: Storage::Memory { max_bytes: 1 << 20 }, ..TopicConfig::default() };
    let created = subject.log().create_topic(&name, &config)?;
    assert_eq!(created.config, config);
    let partition = subject.log().partition(&TopicPartition::new(name.clone(), 0))?;
    let appended = append_and_wait(&*partition, &records(&numbers(0..5)), AckLevel::Synced)?;
    assert_eq!(read_all(&*partition, appended.first, UpTo::Stable)?.len(), 5);

    subject.restart();
    assert_eq!(subject.log().topic(&name), Some(created), "the topic outlives the process");
    let partition = subject.log().partition(&TopicPartition::new(name, 0))?;
    let Offsets { first, tail, .. } = partition.offsets();
    assert!(tail > appended.last, "an offset of the last life may be handed out again");
    if subject.log().capabilities().memory_topics {
        assert_eq!(first, tail, "its records do not");
    }
    Ok(())
}

/// A bell that watches topics rings when one is created, altered or deleted.
pub fn a_bell_rings_when_topics_change<S: Subject>() -> Result<(), Error> {
    let subject = S::start();
    let (log, name) = (subject.log(), new_name()?);
    let bell = Arc::new(Bell::default());
    log.watch_topics(&bell);
    let rings = |change: &str| {
        assert!(bell.wait(super::ANSWER_TIMEOUT), "a topic was {change} and the bell did not ring");
    };
    log.create_topic(&name, &TopicConfig::default())?;
    rings("created");
    log.alter_topic(&name, &TopicConfig { retention: None, ..TopicConfig::default() })?;
    rings("altered");
    log.delete_topic(&name)?;
    rings("deleted");
    Ok(())
}
