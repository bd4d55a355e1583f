//! The writeback thread: brings what is durable in the journal to the segments, and gives journal files free.
//!
//! One turn, in this order, so that a crash between any two steps loses nothing:
//! 1. note how far the journal is synced; 2. write what lies below to segments and sync them; 3. apply retention, and put
//!    in place what compaction has written;
//! 4. put `meta`, which vouches for all that, durably in its place; 5. remove files that `meta` no longer names;
//! 6. free journal files; 7. drop the oldest batches from memory beyond the cache's budget; 8. look for what to
//!    compact next.

use std::collections::VecDeque;
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
use crate::segment::Segment;
use crate::shared::Shared;
use crate::{Error, Topic, compaction, retention};

/// Requests to the writeback thread.
#[derive(Default)]
pub(crate) struct FlushQueue {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    wake: bool,
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
        let turn = writeback.shared.flush.wait(interval);
        let clean = matches!(turn, Turn::Stop);
        let result = match writeback.shared.ended() {
            Some(error) => Err(error),
            None => writeback.turn(clean),
        };
        let result = result.map_err(|cause| writeback.shared.end(&cause));
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
    /// [`Error::Io`], [`Error::Corrupt`].
    fn turn(&mut self, clean: bool) -> Result<(), Error> {
        let place = self.shared.sync.place();
        // Before the topics: what is deleted from now on is still named by the `meta` of this turn.
        let mut garbage = self.catalog.take_garbage();
        garbage.append(&mut self.postponed);
        let topics = self.catalog.topics();
        let flushed = self.flush(&topics)?;
        let mut expired = self.retain(&topics)?;
        expired.extend(self.shared.compaction.take_outcome().into_iter().flat_map(Outcome::put_in_place));
        if flushed || clean || place != self.vouched || !expired.is_empty() || !garbage.is_empty() {
            self.vouch(&topics, place, clean)?;
        }
        self.remove(&expired, &garbage)?;
        self.shared.journal.free_up_to(place.sequence);
        if !clean {
            self.shared.journal.ensure_free()?;
        }
        self.evict();
        if !clean {
            self.compact(&topics);
        }
        Ok(())
    }

    /// Gives the compaction thread something to do, if there is anything.
    fn compact(&self, topics: &[Arc<TopicEntry>]) {
        if self.shared.compaction.is_idle() {
            let partitions = topics.iter().flat_map(|topic| &topic.partitions);
            if let Some(job) = compaction::due(&self.shared, partitions, self.shared.wall.now_ms()) {
                self.shared.compaction.submit(job);
            }
        }
    }

    /// The first turn of a start: what was recovered becomes durable under the new epoch.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`].
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        let topics = self.catalog.topics();
        self.flush(&topics)?;
        self.vouch(&topics, self.shared.sync.place(), false)?;
        self.evict();
        Ok(())
    }

    /// Writes to segments what is durable in the journal; whether there was anything.
    fn flush(&mut self, topics: &[Arc<TopicEntry>]) -> Result<bool, Error> {
        let mut written = Vec::new();
        let mut touched = Vec::new();
        for partition in topics.iter().flat_map(|topic| &topic.partitions) {
            if partition.topic.is_memory {
                continue;
            }
            let batches = partition.lock().recent.unflushed(partition.synced());
            if !batches.is_empty() {
                self.write(partition, &batches, &mut touched)?;
                written.push((partition.clone(), batches));
            }
        }
        for segment in &touched {
            segment.sync()?;
        }
        let any = !written.is_empty();
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

    fn evict(&mut self) {
        while self.cached_bytes > self.shared.config.cache_bytes {
            let Some((partition, count, bytes)) = self.cached.pop_front() else { return };
            partition.lock().recent.evict(count);
            self.cached_bytes -= bytes;
        }
    }
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
