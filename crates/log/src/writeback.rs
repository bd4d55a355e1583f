//! The writeback thread: brings what is durable in the journal to the segments, and gives journal files free.
//!
//! One turn, if the disk has room for it, in this order, so that a crash between any two steps loses nothing:
//! 1. make a journal file if none is free, so that the appender need not; 2. note how far the journal is synced, and
//!    take over what is not and nobody waits for; 3. write both to segments and sync these; 4. apply retention, and put in
//!    place what compaction has written; 5. put `meta`, which vouches for all that, durably in its place; with it what was
//!    taken over is durable; 6. remove files that `meta` no longer names; 7. free journal files; 8. drop the oldest
//!    batches from memory beyond the cache's budget; 9. look for what to compact next.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::catalog::{Catalog, TopicEntry};
use crate::compaction::Outcome;
use crate::meta::{JournalPlace, Meta, PartitionRecord};
use crate::partition::PartitionLog;
use crate::recent::Stored;
use crate::round::Round;
use crate::segment::Segment;
use crate::shared::Shared;
use crate::{Error, Topic, compaction, retention, syncer};

/// How much a sync of a segment is to carry: the segments catch up as soon as there is so much for each that the last turn
/// has synced. The smaller a turn, the shorter it stands in the way of the journal, and the less is in memory.
const SYNC_WORTH_BYTES: u64 = 512 << 10;
/// How soon a disk that was full is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Requests to the writeback thread.
#[derive(Default)]
pub(crate) struct FlushQueue {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    wake: bool,
    /// Bytes in the journal that the segments lack, about.
    behind_bytes: u64,
    /// A turn is worth while with so many.
    worth_bytes: u64,
    asked: Vec<SyncSender<Result<(), Error>>>,
    stop: bool,
}

enum Turn {
    Flush(Vec<SyncSender<Result<(), Error>>>),
    Stop,
}

impl FlushQueue {
    /// The journal fills up.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        if !state.wake {
            state.wake = true;
            self.arrived.notify_one();
        }
    }

    /// So much more is synced in the journal.
    pub(crate) fn behind(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.behind_bytes += bytes;
        if state.behind_bytes >= state.worth_bytes.max(SYNC_WORTH_BYTES) && !state.wake {
            state.wake = true;
            self.arrived.notify_one();
        }
    }

    /// Whether so many bytes that are written and not synced are worth a turn, which then begins and takes them over.
    pub(crate) fn is_worth(&self, bytes: u64) -> bool {
        let is_worth = bytes >= self.state.lock().worth_bytes.max(SYNC_WORTH_BYTES);
        if is_worth {
            self.wake();
        }
        is_worth
    }

    /// A turn has synced so many segments.
    fn turned(&self, segments: usize) {
        self.state.lock().worth_bytes = SYNC_WORTH_BYTES * segments as u64;
    }

    /// Asks for a turn now, and to be told how it went.
    pub(crate) fn ask(&self, sender: SyncSender<Result<(), Error>>) {
        self.state.lock().asked.push(sender);
        self.arrived.notify_one();
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.arrived.notify_one();
    }

    fn wait(&self, interval: Duration) -> Turn {
        let mut state = self.state.lock();
        if !state.wake && state.asked.is_empty() && !state.stop {
            self.arrived.wait_for(&mut state, interval);
        }
        state.wake = false;
        state.behind_bytes = 0;
        match std::mem::take(&mut state.asked) {
            asked if asked.is_empty() && state.stop => Turn::Stop,
            asked => Turn::Flush(asked),
        }
    }
}

/// Runs until it is stopped; then, with everything accepted being synced, brings all of it to the segments and marks the
/// directory as cleanly closed.
///
/// # Errors
/// [`Error::WritingEnded`] if that was not possible.
pub(crate) fn run(mut writeback: Writeback) -> Result<(), Error> {
    let interval = Duration::from_millis(writeback.shared.config.flush_interval_ms);
    loop {
        let is_short = writeback.shared.space.is_short();
        let turn = writeback.shared.flush.wait(if is_short { interval.min(LOOK_AGAIN) } else { interval });
        let clean = matches!(turn, Turn::Stop);
        let result = match writeback.shared.ended() {
            Some(error) => Err(error),
            None => writeback.turn(clean),
        };
        let result = result.map_err(|cause| match cause {
            // Nothing was written.
            Error::DiskFull { .. } => cause,
            _ => writeback.shared.end(&cause),
        });
        let Turn::Flush(asked) = turn else { return result };
        for sender in asked {
            // Whoever no longer listens does not mind.
            drop(sender.try_send(result.clone()));
        }
    }
}

/// What the writeback thread knows from turn to turn.
pub(crate) struct Writeback {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    /// Flushed batches in memory, oldest first: partition, how many, their bytes.
    cached: VecDeque<(Arc<PartitionLog>, usize, usize)>,
    cached_bytes: usize,
    vouched: JournalPlace,
    /// Directories of deleted topics that compaction is still busy in.
    postponed: Vec<PathBuf>,
}

impl Writeback {
    pub(crate) fn new(shared: Arc<Shared>, catalog: Arc<Catalog>) -> Self {
        let vouched = shared.sync.place();
        Self { shared, catalog, cached: VecDeque::new(), cached_bytes: 0, vouched, postponed: Vec::new() }
    }

    /// One turn, as the thread does it.
    ///
    /// # Errors
    /// [`Error::DiskFull`]: nothing was done; [`Error::Io`], [`Error::Corrupt`].
    fn turn(&mut self, clean: bool) -> Result<(), Error> {
        self.check_space()?;
        if !clean {
            match self.shared.journal.ensure_free() {
                // Those that there are do; this turn may free some.
                Err(full) if full.is_disk_full() => tracing::warn!(error = %full, "no room for another journal file"),
                other => other?,
            }
        }
        let taken_over = self.shared.sync.take_over();
        let place = taken_over.iter().rev().find_map(|round| round.place);
        let place = place.unwrap_or_else(|| self.shared.sync.place());
        // Before the topics: what is deleted from now on is still named by the `meta` of this turn.
        let mut garbage = self.catalog.take_garbage();
        garbage.append(&mut self.postponed);
        let topics = self.catalog.topics();
        let flushed = self.flush(&topics, &taken_over)?;
        let mut expired = self.retain(&topics)?;
        expired.extend(self.shared.compaction.take_outcome().into_iter().flat_map(Outcome::put_in_place));
        if flushed || clean || place != self.vouched || !expired.is_empty() || !garbage.is_empty() {
            self.vouch(&topics, place, clean)?;
        }
        syncer::settle(&self.shared, &self.catalog, taken_over);
        self.shared.sync.vouched();
        self.remove(&expired, &garbage)?;
        self.shared.journal.free_up_to(place.sequence);
        self.evict(&topics);
        if !clean {
            self.compact(&topics);
        }
        Ok(())
    }

    /// Gives the compaction thread something to do, if there is anything.
    fn compact(&self, topics: &[Arc<TopicEntry>]) {
        if self.shared.compaction.is_idle() {
            let partitions = topics.iter().flat_map(|topic| &topic.partitions);
            let due = compaction::due(&self.shared, partitions, self.shared.wall.now_ms());
            if let Some(job) = due.filter(|job| self.shared.space.has_spare(job.bytes())) {
                self.shared.compaction.submit(job);
            }
        }
    }

    /// The first turn of a start: what was recovered becomes durable under the new epoch.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`], [`Error::Corrupt`].
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        self.check_space()?;
        let topics = self.catalog.topics();
        self.flush(&topics, &[])?;
        self.vouch(&topics, self.shared.sync.place(), false)?;
        self.evict(&topics);
        Ok(())
    }

    /// Whether the disk takes what the segments lack.
    fn check_space(&self) -> Result<(), Error> {
        self.shared.space.admit_turn(unflushed_bytes(&self.catalog.topics()) as u64)
    }

    /// Writes to segments what is durable in the journal, and what was taken over; whether there was anything.
    fn flush(&mut self, topics: &[Arc<TopicEntry>], taken_over: &[Round]) -> Result<bool, Error> {
        // Of a partition the last round goes farthest.
        let ends = taken_over.iter().flat_map(|round| &round.ends);
        let ends: HashMap<_, u64> = ends.map(|(partition, end)| (Arc::as_ptr(partition), *end)).collect();
        let mut written = Vec::new();
        let mut touched = Vec::new();
        for partition in topics.iter().flat_map(|topic| &topic.partitions) {
            if partition.topic.is_memory {
                continue;
            }
            let end = ends.get(&Arc::as_ptr(partition)).copied().unwrap_or(0);
            let batches = partition.lock().recent.unflushed(partition.synced().max(end));
            if !batches.is_empty() {
                self.write(partition, &batches, &mut touched)?;
                written.push((partition.clone(), batches));
            }
        }
        for segment in &touched {
            segment.sync()?;
        }
        let any = !written.is_empty();
        if any {
            self.shared.flush.turned(touched.len());
        }
        for (partition, batches) in written {
            partition.flushed(&batches);
            let bytes = batches.iter().map(|stored| stored.batch.size_bytes()).sum();
            self.cached_bytes += bytes;
            self.cached.push_back((partition, batches.len(), bytes));
        }
        Ok(any)
    }

    fn write(
        &self,
        partition: &Arc<PartitionLog>,
        batches: &[Stored],
        touched: &mut Vec<Arc<Segment>>,
    ) -> Result<(), Error> {
        let segment_bytes = partition.topic.current().config.segment_bytes;
        let mut rest = batches;
        while let Some(first) = rest.first() {
            let segment = self.active_segment(partition, first.first)?;
            let mut size = segment.size_bytes();
            let fitting = rest.iter().take_while(|stored| {
                let fits = size < segment_bytes;
                size += stored.batch.size_bytes() as u64;
                fits
            });
            let (now, later) = rest.split_at(fitting.count().max(1));
            segment.append(now)?;
            if segment.size_bytes() >= segment_bytes {
                segment.sync()?;
                segment.close()?;
            } else {
                touched.push(segment);
            }
            rest = later;
        }
        Ok(())
    }

    /// The segment that is written to, or a new one from `base` on.
    fn active_segment(&self, partition: &Arc<PartitionLog>, base: u64) -> Result<Arc<Segment>, Error> {
        let last = partition.lock().segments.last().cloned();
        if let Some(active) = last.filter(|last| !last.is_closed()) {
            return Ok(active);
        }
        let (files, layout) = (&self.shared.files, &self.shared.layout);
        let (topic, number) = (partition.topic.id, partition.id.partition.0);
        let dir = layout.partition_dir(topic, number);
        let is_first = partition.lock().segments.is_empty();
        files.create_dir_all(&dir).map_err(|e| Error::io("create", &dir, e))?;
        let segment = Arc::new(Segment::create(&partition.place(), base, 0)?);
        files.sync_dir(&dir).map_err(|e| Error::io("sync", &dir, e))?;
        if is_first {
            for parent in [layout.topic_dir(topic), layout.topics_dir()] {
                files.sync_dir(&parent).map_err(|e| Error::io("sync", &parent, e))?;
            }
        }
        partition.lock().segments.push(segment.clone());
        Ok(segment)
    }

    /// Closes segments that are old enough and takes those that have expired out of their partitions.
    fn retain(&self, topics: &[Arc<TopicEntry>]) -> Result<Vec<Arc<Segment>>, Error> {
        let now_ms = self.shared.wall.now_ms();
        let mut expired = Vec::new();
        topics.iter().flat_map(|topic| &topic.partitions).for_each(|partition| partition.expire_producers(now_ms));
        for topic in topics.iter().filter(|topic| !topic.state.is_memory) {
            let config = topic.state.current();
            for partition in &topic.partitions {
                retention::close_aged(partition, &config.config, now_ms)?;
                expired.extend(retention::expire(partition, &config.config, now_ms));
                partition.trim_aborted();
            }
        }
        Ok(expired)
    }

    fn vouch(&mut self, topics: &[Arc<TopicEntry>], place: JournalPlace, clean: bool) -> Result<(), Error> {
        let record = |topic: &Arc<TopicEntry>| {
            let partitions = topic.partitions.iter().map(|partition| partition_record(partition, clean));
            (Topic::clone(&topic.state.current()), partitions.collect())
        };
        let meta = Meta {
            salt: self.shared.salt,
            epoch: self.shared.epoch,
            clean,
            journal: place,
            topics: topics.iter().map(record).collect(),
            positions: self.catalog.synced_positions(),
        };
        meta.write(&*self.shared.files, &self.shared.layout)?;
        self.vouched = place;
        Ok(())
    }

    fn remove(&mut self, expired: &[Arc<Segment>], garbage: &[PathBuf]) -> Result<(), Error> {
        let files = &self.shared.files;
        let gone = |e: std::io::Error, path| match e.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(Error::io("remove", path, e)),
        };
        for segment in expired {
            segment.retire();
            for path in [segment.path(), segment.index_path()] {
                files.remove(path).or_else(|e| gone(e, path))?;
            }
        }
        for dir in garbage {
            let dir: &Path = dir;
            if self.shared.compaction.is_busy_in(&self.shared.layout, dir) {
                self.postponed.push(dir.to_owned());
                continue;
            }
            files.remove_dir_all(dir).or_else(|e| gone(e, dir))?;
        }
        Ok(())
    }

    /// Drops the oldest batches that have reached a segment while there are more in memory than the cache may hold; those
    /// that have not count, too, for readers near the tail are served from them.
    fn evict(&mut self, topics: &[Arc<TopicEntry>]) {
        let unflushed = unflushed_bytes(topics);
        while self.cached_bytes + unflushed > self.shared.config.cache_bytes {
            let Some((partition, count, bytes)) = self.cached.pop_front() else { return };
            partition.lock().recent.evict(count);
            self.cached_bytes -= bytes;
        }
    }
}

/// What has not reached a segment.
fn unflushed_bytes(topics: &[Arc<TopicEntry>]) -> usize {
    let on_disk = topics.iter().filter(|topic| !topic.state.is_memory);
    let partitions = on_disk.flat_map(|topic| &topic.partitions);
    partitions.map(|partition| partition.lock().recent.unflushed_bytes()).sum()
}

fn partition_record(partition: &PartitionLog, clean: bool) -> PartitionRecord {
    let accept = partition.lock();
    let segments: Vec<_> =
        accept.segments.iter().map(|segment| segment.record()).filter(|record| record.end > record.base).collect();
    let flushed = segments.last().map_or(accept.recent.flushed_end(), |last| last.end);
    PartitionRecord {
        first: partition.first(),
        tail: if clean { accept.next } else { flushed },
        epochs: accept.epochs.clone(),
        segments,
        producers: partition.flushed_producers(),
        clean_to: accept.clean_to,
        horizon: partition.horizon(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_due_once_there_is_enough_for_each_segment_of_the_last_one() {
        let queue = FlushQueue::default();
        queue.turned(3);
        queue.behind(3 * SYNC_WORTH_BYTES - 1);
        assert!(!queue.state.lock().wake);
        queue.behind(1);
        assert!(queue.state.lock().wake);
        assert!(matches!(queue.wait(Duration::MAX), Turn::Flush(asked) if asked.is_empty()));
        assert_eq!(queue.state.lock().behind_bytes, 0);
    }
}
