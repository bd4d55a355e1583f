//! The handle on one partition.

use std::sync::Arc;

use millstream_log::{AckLevel, Appended, Bell, CachedRead, Done, Error, Hold, Offsets, Partition, Topic, UpTo};
use millstream_types::{Offset, Position, Record, RecordBatch, StoredRecord, TopicPartition};

use super::Shared;
use super::contents::Place;
use super::partition::PartitionContents;

pub(super) struct MemoryPartition {
    shared: Arc<Shared>,
    id: TopicPartition,
    place: Place,
}

impl MemoryPartition {
    pub(super) fn new(shared: Arc<Shared>, id: TopicPartition, place: Place) -> Self {
        Self { shared, id, place }
    }

    /// Looks at the partition, unless its topic is deleted.
    fn look<T>(&self, look: impl FnOnce(&PartitionContents, &Topic) -> Result<T, Error>) -> Result<T, Error> {
        let contents = self.shared.contents.lock();
        let topic = contents.topic_at(self.place);
        topic.check_exists()?;
        look(contents.at(self.place), &topic.topic)
    }
}

impl Partition for MemoryPartition {
    fn id(&self) -> &TopicPartition {
        &self.id
    }

    fn topic(&self) -> Arc<Topic> {
        Arc::clone(&self.shared.contents.lock().topic_at(self.place).topic)
    }

    fn append(&self, records: &[Record<'_>], _level: AckLevel, done: Done<Appended>) -> Result<(), Error> {
        let now_ms = self.shared.wall.now_ms();
        let appended = self.shared.change(|contents| {
            contents.check_records(&self.id, self.place, records)?;
            Ok(contents.append(self.place, records, None, now_ms))
        })?;
        self.shared.answer(done, Ok(appended));
        Ok(())
    }

    fn read(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<Vec<RecordBatch>, Error> {
        self.look(|partition, _| partition.read(&self.id, from, max_bytes, up_to))
    }

    fn read_from_memory(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<Option<Vec<RecordBatch>>, Error> {
        self.read(from, max_bytes, up_to).map(Some)
    }

    fn read_one(&self, offset: Offset, up_to: UpTo) -> Result<Option<StoredRecord>, Error> {
        self.look(|partition, _| partition.read_one(&self.id, offset, up_to))
    }

    fn read_one_cached(&self, offset: Offset, up_to: UpTo) -> Result<CachedRead, Error> {
        self.read_one(offset, up_to).map(CachedRead::Read)
    }

    fn size_bytes(&self) -> u64 {
        self.shared.contents.lock().at(self.place).size_bytes() as u64
    }

    fn offsets(&self) -> Offsets {
        let contents = self.shared.contents.lock();
        contents.at(self.place).offsets(contents.epoch())
    }

    fn offset_at(&self, timestamp_ms: i64) -> Result<Option<Offset>, Error> {
        self.look(|partition, _| partition.offset_at(&self.id, timestamp_ms))
    }

    fn resume(&self, position: Position) -> Result<Offset, Error> {
        self.look(|partition, topic| partition.resume(&self.id, topic, position))
    }

    fn trim(&self, before: Offset) -> Result<Offset, Error> {
        self.shared.change(|contents| {
            let topic = contents.topic_at(self.place);
            topic.check_exists()?;
            let topic = Arc::clone(&topic.topic);
            contents.at_mut(self.place).trim(&self.id, &topic, before)
        })
    }

    fn watch(&self, bell: &Arc<Bell>) {
        self.shared.contents.lock().at(self.place).watchers.add(bell);
    }

    fn has_consumer(&self) -> bool {
        self.shared.contents.lock().at(self.place).watchers.have_consumer()
    }

    fn hold(&self, reader: &str, from: Offset) -> Box<dyn Hold> {
        self.shared.contents.lock().at(self.place).holds.add(reader, from)
    }
}
