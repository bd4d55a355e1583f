//! The handle on one partition.

use std::sync::Arc;

use millstream_log::{AckLevel, Appended, Bell, CachedRead, Done, Error, Hold, Holds, Offsets, Partition, Topic, UpTo};
use millstream_types::{BatchError, BatchLimits, Offset, Position, Record, RecordBatch, StoredRecord, TopicPartition};

use crate::core::Core;
use crate::fetching::{self, Fetched, Isolation};
use crate::local_copies::Copy;
use crate::partition_state::PartitionState;
use crate::removing;

/// Least bytes that a read asks for: a round trip is worth that many.
const READ_MIN_BYTES: usize = 64 << 10;

/// Bytes of a read that looks for a time.
const SCAN_BYTES: usize = 1 << 20;
/// Time by which the clock of a record's sender may be ahead, for a search by time to find it.
const AHEAD_MS: i64 = 60_000;

/// A handle on a partition of the cluster.
#[derive(Debug)]
pub(crate) struct KafkaPartition {
    pub(crate) core: Arc<Core>,
    pub(crate) state: Arc<PartitionState>,
}

impl KafkaPartition {
    fn limit(&self, up_to: UpTo) -> Offset {
        let Offsets { stable, high, .. } = self.state.offsets();
        match up_to {
            UpTo::Stable | UpTo::Tail => stable,
            UpTo::High => high,
        }
    }

    fn undecodable(&self, source: BatchError) -> Error {
        Error::Batch { partition: self.state.id.clone(), source }
    }

    fn trimmed(&self, wanted: Offset, oldest: Offset) -> Error {
        Error::Trimmed { partition: self.state.id.clone(), wanted, oldest }
    }

    fn is_readable(&self, offset: Offset, up_to: UpTo) -> Result<bool, Error> {
        self.state.topic.check_exists()?;
        Ok(offset >= self.state.offsets().first && offset < self.limit(up_to))
    }

    /// Looks for the batch of a record on this machine; without `may_wait` where no disk is waited for.
    fn find_here(&self, offset: Offset, may_wait: bool) -> Copy {
        if let Some(cached) = self.state.read_cached(offset, 0) {
            return Copy::Read(cached.into_iter().next());
        }
        self.state.copies().map_or(Copy::Unknown, |place| self.core.copies.read(place, offset, may_wait))
    }

    fn record_of(&self, batch: Option<RecordBatch>, offset: Offset) -> Result<Option<StoredRecord>, Error> {
        let Some(batch) = batch else { return Ok(None) };
        let batch = batch.inflated(&BatchLimits::default()).map_err(|source| self.undecodable(source))?;
        batch.record_at(offset).map_err(|source| self.undecodable(source))
    }

    /// Reads from Kafka.
    fn fetch(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<Vec<RecordBatch>, Error> {
        // Below the stable offset it is decided which records are void.
        let is_open = up_to == UpTo::High && from >= self.state.offsets().stable;
        let isolation = if is_open { Isolation::Uncommitted } else { Isolation::Committed };
        let (core, state) = (Arc::clone(&self.core), Arc::clone(&self.state));
        let max_bytes = i32::try_from(max_bytes).unwrap_or(i32::MAX);
        let fetched = self.core.wait(async move {
            match fetching::fetch(&core, &state, from, max_bytes, isolation).await? {
                Some(fetched) => Ok(Ok(fetched)),
                None => fetching::ends(&core, &state).await.map(Err),
            }
        })?;
        match fetched {
            Ok(Fetched { ends, visible }) => {
                self.state.learn(ends);
                if let Some(place) = self.state.copies().filter(|_| isolation == Isolation::Committed)
                    && let (Some(to), [first, ..]) = (visible.next, &visible.batches[..])
                {
                    self.core.copies.keep(place, first.base_offset().min(from), to, &visible.batches);
                }
                let mut batches = visible.batches;
                batches.retain(|batch| batch.next_offset() > from);
                Ok(batches)
            }
            Err(ends) if from < ends.first => Err(self.trimmed(from, ends.first)),
            Err(ends) => Err(Error::BeyondTail { partition: self.state.id.clone(), wanted: from, tail: ends.high }),
        }
    }
}

impl Partition for KafkaPartition {
    fn id(&self) -> &TopicPartition {
        &self.state.id
    }

    fn topic(&self) -> Arc<Topic> {
        self.state.topic.topic()
    }

    fn append(&self, records: &[Record<'_>], _level: AckLevel, done: Done<Appended>) -> Result<(), Error> {
        self.state.topic.check_exists()?;
        self.core.check_writing()?;
        // Writers need no such check: those of a process that has taken over fence them.
        self.core.check_claim()?;
        let accepted_bytes = self.topic().config.check_records(&self.state.id, records)?;
        self.core.pending.accept(accepted_bytes)?;
        let is_ready = {
            let mut queue = self.state.queue.lock();
            let was_ready = queue.is_ready();
            self.core.counters.appended(records.len() as u64);
            queue.push(records, self.core.config.batch_max_bytes, accepted_bytes, done);
            !was_ready && queue.is_ready()
        };
        if is_ready {
            self.core.outbox.ready(Arc::clone(&self.state));
        }
        Ok(())
    }

    fn read(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<Vec<RecordBatch>, Error> {
        if let Some(known) = self.read_from_memory(from, max_bytes, up_to)? {
            return Ok(known);
        }
        let mut found = self.fetch(from, max_bytes.max(READ_MIN_BYTES), up_to)?;
        if found.is_empty() {
            // Gaps at the end of a partition that was moved to Kafka have nothing there.
            found.extend(self.state.origin.map.gap_at(from, self.state.epoch()));
        }
        if up_to != UpTo::High {
            self.state.found(from, &found);
        }
        // The leader counts bytes in its own way, and gives at least what was asked for.
        let mut budget = max_bytes;
        let fitting = found.iter().enumerate().take_while(|(index, batch)| {
            let fits = *index == 0 || batch.size_bytes() <= budget;
            budget = budget.saturating_sub(batch.size_bytes());
            fits
        });
        let count = fitting.count();
        found.truncate(count);
        Ok(found)
    }

    fn read_from_memory(&self, from: Offset, max_bytes: usize, up_to: UpTo) -> Result<Option<Vec<RecordBatch>>, Error> {
        self.state.topic.check_exists()?;
        let Offsets { first, tail, .. } = self.state.offsets();
        if from < first {
            return Err(self.trimmed(from, first));
        }
        if from == tail || (from < tail && from >= self.limit(up_to)) {
            return Ok(Some(Vec::new()));
        }
        // What lies beyond the tail may have come since: the leader says so.
        Ok(self.state.read_cached(from, max_bytes))
    }

    fn read_one(&self, offset: Offset, up_to: UpTo) -> Result<Option<StoredRecord>, Error> {
        if !self.is_readable(offset, up_to)? {
            return Ok(None);
        }
        let batch = match self.find_here(offset, true) {
            Copy::Read(batch) => batch,
            Copy::Unknown | Copy::OnDisk => match self.fetch(offset, READ_MIN_BYTES, up_to) {
                Err(Error::Trimmed { .. }) => None,
                fetched => fetched?.into_iter().next(),
            },
        };
        self.record_of(batch, offset)
    }

    fn read_one_cached(&self, offset: Offset, up_to: UpTo) -> Result<CachedRead, Error> {
        if !self.is_readable(offset, up_to)? {
            return Ok(CachedRead::Read(None));
        }
        match self.find_here(offset, false) {
            Copy::Read(batch) => self.record_of(batch, offset).map(CachedRead::Read),
            Copy::Unknown | Copy::OnDisk => Ok(CachedRead::OnDisk),
        }
    }

    fn size_bytes(&self) -> u64 {
        self.state.figures().size_bytes
    }

    fn offsets(&self) -> Offsets {
        self.state.offsets()
    }

    fn lag(&self, position: Offset) -> u64 {
        self.state.lag(position)
    }

    fn offset_at(&self, timestamp_ms: i64) -> Result<Option<Offset>, Error> {
        // Kafka finds records by the time of their append in most topics. Their own time is earlier, but for clocks that are ahead.
        let (core, state) = (Arc::clone(&self.core), Arc::clone(&self.state));
        let from_ms = timestamp_ms.saturating_sub(AHEAD_MS);
        let found = self.core.wait(async move { fetching::offset_of_time(&core, &state, from_ms).await })?;
        let Some(mut next) = found else { return Ok(None) };
        loop {
            let batches = self.read(next, SCAN_BYTES, UpTo::Stable)?;
            let Some(last) = batches.last() else { return Ok(None) };
            let after = last.next_offset();
            for batch in batches {
                let batch = batch.inflated(&BatchLimits::default()).map_err(|source| self.undecodable(source))?;
                for record in batch.records() {
                    let record = record.map_err(|source| self.undecodable(source))?;
                    if record.offset >= next && record.timestamp_ms >= timestamp_ms {
                        return Ok(Some(record.offset));
                    }
                }
            }
            next = after;
        }
    }

    fn resume(&self, position: Position) -> Result<Offset, Error> {
        let Offsets { first, high, .. } = self.state.offsets();
        let partition = self.state.id.clone();
        if position.topic != self.topic().id {
            let why = "it belongs to another topic of this name";
            return Err(Error::PositionLost { partition, position, why, restart: first });
        }
        if position.offset < first {
            return Err(self.trimmed(position.offset, first));
        }
        if position.offset > high {
            let why = "it lies beyond the newest record";
            return Err(Error::PositionLost { partition, position, why, restart: first });
        }
        if position.offset > first && position.offset < self.state.origin.horizon {
            let why = "deletions above it have been compacted away";
            return Err(Error::PositionLost { partition, position, why, restart: first });
        }
        if self.state.origin.end_of(position.epoch).is_some_and(|end| position.offset > end) {
            let why = "its epoch ended below it, before the log was moved to Kafka";
            return Err(Error::PositionLost { partition, position, why, restart: first });
        }
        Ok(position.offset)
    }

    fn trim(&self, before: Offset) -> Result<Offset, Error> {
        let partition = self.state.id.clone();
        if self.topic().config.cleanup == millstream_log::Cleanup::Compact {
            return Err(Error::NotTrimmable { partition });
        }
        let Offsets { first, stable, .. } = self.state.offsets();
        if before > stable {
            return Err(Error::BeyondStable { partition, wanted: before, stable });
        }
        if before <= first {
            return Ok(first);
        }
        let (core, state) = (Arc::clone(&self.core), Arc::clone(&self.state));
        self.core.wait(async move { removing::trim(&core, &state, before).await })
    }

    fn watch(&self, bell: &Arc<Bell>) {
        self.state.watchers.add(bell);
    }

    fn has_consumer(&self) -> bool {
        true
    }

    /// Has no effect: retention is Kafka's, and cannot be held back.
    fn hold(&self, reader: &str, from: Offset) -> Box<dyn Hold> {
        Holds::default().add(reader, from)
    }
}
