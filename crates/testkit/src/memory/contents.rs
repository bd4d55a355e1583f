//! The contents of the log: topics, partitions, positions of groups, transactions of writers.
//!
//! A deleted topic stays until the next restart, without records, so that handles on its partitions find their offsets.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_log::{Appended, AtomicAppend, CommittedPosition, Error, LogConfig, Topic, TopicConfig, Watchers};
use millstream_types::{Epoch, Offset, Position, Record, TopicId, TopicName, TopicPartition};

use super::partition::{PartitionContents, TransactionId};
use super::transactions::Transactions;

/// The place of a partition. Good until a restart, also if the topic is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    topic: TopicId,
    /// The number of the partition in the topic.
    number: usize,
}

/// Everything that the engine keeps.
pub(super) struct Contents {
    epoch: Epoch,
    names: BTreeMap<TopicName, TopicId>,
    topics: HashMap<TopicId, TopicContents>,
    /// By group and partition.
    positions: BTreeMap<(String, TopicPartition), CommittedPosition>,
    pub(super) transactions: Transactions,
    pub(super) topic_watchers: Arc<Watchers>,
    /// The watchers of what has changed, to be rung outside the lock.
    pub(super) rung: Vec<Arc<Watchers>>,
    pub(super) is_closed: bool,
}

/// One topic with its partitions.
pub(super) struct TopicContents {
    pub(super) topic: Arc<Topic>,
    pub(super) is_deleted: bool,
    pub(super) partitions: Vec<PartitionContents>,
}

impl Default for Contents {
    fn default() -> Self {
        Self {
            epoch: Epoch(1),
            names: BTreeMap::new(),
            topics: HashMap::new(),
            positions: BTreeMap::new(),
            transactions: Transactions::default(),
            topic_watchers: Arc::default(),
            rung: Vec::new(),
            is_closed: false,
        }
    }
}

impl TopicContents {
    pub(super) fn check_exists(&self) -> Result<(), Error> {
        if self.is_deleted {
            return Err(Error::UnknownTopic { topic: self.topic.name.clone() });
        }
        Ok(())
    }
}

/// An id that no topic of this process has, also not in another log.
fn new_topic_id() -> TopicId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    TopicId(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)))
}

impl Contents {
    pub(super) fn check_open(&self) -> Result<(), Error> {
        if self.is_closed { Err(Error::Stopped) } else { Ok(()) }
    }

    /// The contents as a restart in good order finds them.
    pub(super) fn next_life(&self) -> Self {
        let epoch = Epoch(self.epoch.0 + 1);
        let kept = self.topics.iter().filter(|(_, topic)| !topic.is_deleted);
        let next_life = |topic: &TopicContents| TopicContents {
            topic: Arc::clone(&topic.topic),
            is_deleted: false,
            partitions: topic.partitions.iter().map(|partition| partition.next_life(&topic.topic, epoch)).collect(),
        };
        Self {
            epoch,
            names: self.names.clone(),
            topics: kept.map(|(id, topic)| (*id, next_life(topic))).collect(),
            positions: self.positions.clone(),
            ..Self::default()
        }
    }

    pub(super) fn create_topic(
        &mut self,
        name: &TopicName,
        config: &TopicConfig,
        now_ms: i64,
    ) -> Result<Arc<Topic>, Error> {
        config.validate(name)?;
        if let Ok(existing) = self.topic(name) {
            return match config.difference(&existing.config) {
                None => Ok(existing),
                Some(differs) => Err(Error::TopicExists { topic: name.clone(), differs }),
            };
        }
        let topic = Arc::new(Topic { id: new_topic_id(), name: name.clone(), config: config.clone() });
        let first = config.first_offset(now_ms);
        let partitions = (0..config.partitions).map(|_| PartitionContents::new(self.epoch, first)).collect();
        self.names.insert(name.clone(), topic.id);
        self.topics.insert(topic.id, TopicContents { topic: Arc::clone(&topic), is_deleted: false, partitions });
        self.rung.push(Arc::clone(&self.topic_watchers));
        Ok(topic)
    }

    pub(super) fn alter_topic(&mut self, name: &TopicName, config: &TopicConfig) -> Result<Arc<Topic>, Error> {
        config.validate(name)?;
        let altered = self.known_mut(name)?;
        config.check_change(name, &altered.topic.config)?;
        Ok(self.replace_config(name, config.clone()))
    }

    pub(super) fn add_partitions(&mut self, name: &TopicName, total: u32) -> Result<Arc<Topic>, Error> {
        let epoch = self.epoch;
        let grown = self.known_mut(name)?;
        let config = grown.topic.config.grown(name, total)?;
        if config == grown.topic.config {
            return Ok(Arc::clone(&grown.topic));
        }
        grown.partitions.resize_with(total as usize, || PartitionContents::new(epoch, Offset::ZERO));
        Ok(self.replace_config(name, config))
    }

    pub(super) fn delete_topic(&mut self, name: &TopicName) -> Result<(), Error> {
        let deleted = self.known_mut(name)?;
        deleted.is_deleted = true;
        deleted.partitions.iter_mut().for_each(PartitionContents::clear);
        let readers: Vec<_> = deleted.partitions.iter().map(|partition| Arc::clone(&partition.watchers)).collect();
        self.rung.extend(readers);
        self.rung.push(Arc::clone(&self.topic_watchers));
        self.names.remove(name);
        self.positions.retain(|(_, partition), _| partition.topic != *name);
        Ok(())
    }

    fn replace_config(&mut self, name: &TopicName, config: TopicConfig) -> Arc<Topic> {
        let id = self.names[name];
        let topic = Arc::new(Topic { id, name: name.clone(), config });
        if let Some(replaced) = self.topics.get_mut(&id) {
            replaced.topic = Arc::clone(&topic);
        }
        self.rung.push(Arc::clone(&self.topic_watchers));
        topic
    }

    fn known(&self, name: &TopicName) -> Result<&TopicContents, Error> {
        let known = self.names.get(name).and_then(|id| self.topics.get(id));
        known.ok_or_else(|| Error::UnknownTopic { topic: name.clone() })
    }

    fn known_mut(&mut self, name: &TopicName) -> Result<&mut TopicContents, Error> {
        let known = self.names.get(name).and_then(|id| self.topics.get_mut(id));
        known.ok_or_else(|| Error::UnknownTopic { topic: name.clone() })
    }

    pub(super) fn topic(&self, name: &TopicName) -> Result<Arc<Topic>, Error> {
        self.known(name).map(|known| Arc::clone(&known.topic))
    }

    pub(super) fn topics(&self) -> Vec<Arc<Topic>> {
        self.names.values().map(|id| Arc::clone(&self.topics[id].topic)).collect()
    }

    /// The place of a partition that exists.
    pub(super) fn place(&self, partition: &TopicPartition) -> Result<Place, Error> {
        let known = self.known(&partition.topic)?;
        let number = partition.partition.0 as usize;
        if number >= known.partitions.len() {
            let partitions = known.partitions.len() as u32;
            return Err(Error::UnknownPartition { partition: partition.clone(), partitions });
        }
        Ok(Place { topic: known.topic.id, number })
    }

    /// The topic at a place that [`Self::place`] gave.
    pub(super) fn topic_at(&self, place: Place) -> &TopicContents {
        &self.topics[&place.topic]
    }

    /// The partition at a place that [`Self::place`] gave.
    pub(super) fn at(&self, place: Place) -> &PartitionContents {
        &self.topic_at(place).partitions[place.number]
    }

    pub(super) fn at_mut(&mut self, place: Place) -> &mut PartitionContents {
        let topic = self.topics.get_mut(&place.topic).expect("a topic that had a place stays until the restart");
        &mut topic.partitions[place.number]
    }

    /// Checks records against the limits of their topic, and their sum against that of an append.
    pub(super) fn check_records(
        &self,
        partition: &TopicPartition,
        place: Place,
        records: &[Record<'_>],
    ) -> Result<(), Error> {
        let topic = self.topic_at(place);
        topic.check_exists()?;
        let size_bytes = topic.topic.config.check_records(partition, records)?;
        check_size(size_bytes)
    }

    /// Appends records that have been checked.
    pub(super) fn append(
        &mut self,
        place: Place,
        records: &[Record<'_>],
        transaction: Option<TransactionId>,
        now_ms: i64,
    ) -> Appended {
        let (epoch, topic) = (self.epoch, Arc::clone(&self.topic_at(place).topic));
        let partition = self.at_mut(place);
        let appended = partition.append(records, &topic, epoch, now_ms, transaction);
        let watchers = Arc::clone(&partition.watchers);
        self.rung.push(watchers);
        appended
    }

    /// Checks everything that a writer commits with its transaction. Returns the places of its records.
    pub(super) fn check_atomic(&self, append: &AtomicAppend<'_>) -> Result<Vec<Place>, Error> {
        let mut size_bytes = 0;
        let mut places = Vec::with_capacity(append.records.len());
        for (partition, records) in &append.records {
            let place = self.place(partition)?;
            size_bytes += self.topic_at(place).topic.config.check_records(partition, records)?;
            places.push(place);
        }
        for commit in &append.positions {
            commit.check_text()?;
            let place = self.place(&commit.partition)?;
            let offsets = self.at(place).offsets(self.epoch);
            commit.check_position(place.topic, offsets.first, offsets.high)?;
            size_bytes += commit.group.len() + commit.metadata.len();
        }
        check_size(size_bytes)?;
        Ok(places)
    }

    /// Appends records and commits positions that have been checked.
    pub(super) fn take_atomic(&mut self, append: &AtomicAppend<'_>, places: &[Place], now_ms: i64) -> Vec<Appended> {
        for commit in &append.positions {
            let committed = CommittedPosition {
                partition: commit.partition.clone(),
                position: commit.position,
                metadata: commit.metadata.clone(),
                committed_ms: now_ms,
            };
            self.positions.insert((commit.group.clone(), commit.partition.clone()), committed);
        }
        let parts = append.records.iter().zip(places);
        parts.map(|((_, records), place)| self.append(*place, records, None, now_ms)).collect()
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(super) fn committed(&self, group: &str, partition: &TopicPartition) -> Result<Option<Position>, Error> {
        self.place(partition)?;
        let committed = self.positions.get(&(group.to_owned(), partition.clone()));
        Ok(committed.map(|committed| committed.position))
    }

    pub(super) fn positions(&self, group: &str) -> Vec<CommittedPosition> {
        let of_group = self.positions.iter().filter(|((name, _), _)| name == group);
        of_group.map(|(_, committed)| committed.clone()).collect()
    }
}

/// Checks the size of an append against the default of the embedded engine.
fn check_size(size_bytes: usize) -> Result<(), Error> {
    let limit_bytes = LogConfig::default().append_max_bytes;
    if size_bytes > limit_bytes {
        return Err(Error::AppendTooLarge { size_bytes, limit_bytes });
    }
    Ok(())
}
