//! The writeback thread brings durable journal records to the segments and frees journal files.
//!
//! One turn runs these steps, if the disk has room. The order makes a crash between any two of them harmless:
//! 1. Create a journal file if none is free, so that the appender need not.
//! 2. Note the synced journal position, and take over unsynced rounds that nobody waits for.
//! 3. Write both to segments, and sync those.
//! 4. Apply retention, and install the results of compaction.
//! 5. Replace `meta`, which makes the rounds of step 2 durable.
//! 6. Remove the files that `meta` no longer names.
//! 7. Free journal files.
//! 8. Drop the oldest batches from memory beyond the cache budget.
//! 9. Choose the next compaction.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::catalog::{TopicCatalog, TopicEntry};
use crate::flush_queue::{FlushRequest, ImageParts};
use crate::group_commit::JournalRound;
use crate::journal::{FIRST_FRAME_AT, IMAGE_SLOT};
use crate::layout::FileKind;
use crate::meta::{JournalPlace, Meta, PartitionRecord};
use crate::partition::PartitionLog;
use crate::queues::Queues;
use crate::segment::Segment;
use crate::shared::EngineShared;
use crate::tail_cache::CachedBatch;
use crate::{Error, Topic, compaction, recovery, retention, syncer};

/// A full disk is checked again after this time.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Runs until it is stopped. Then all accepted records are synced; it brings them to the segments and marks
/// the directory as cleanly closed.
pub(crate) fn run(mut writeback: Writeback) -> Result<(), Error> {
    let interval = Duration::from_millis(writeback.shared.config.flush_interval_ms);
    loop {
        let is_short = writeback.shared.space.is_short();
        let request = writeback.queues.flush.wait(if is_short { interval.min(LOOK_AGAIN) } else { interval });
        if let Some(result) = writeback.serve(request) {
            return result;
        }
    }
}

/// The state of the writeback thread.
pub(crate) struct Writeback {
    shared: Arc<EngineShared>,
    queues: Arc<Queues>,
    catalog: Arc<TopicCatalog>,
    /// Batches in memory that have reached a segment, oldest first: partition, and the offset behind them.
    cached: VecDeque<(Arc<PartitionLog>, u64)>,
    /// Bytes of all of them.
    cached_bytes: usize,
    vouched: JournalPlace,
    /// Directories of deleted topics that compaction or an image still uses.
    postponed: Vec<PathBuf>,
    /// Files of retired segments, to be removed once no image holds them.
    retired: Vec<PathBuf>,
}

impl Writeback {
    pub(crate) fn new(shared: Arc<EngineShared>, queues: Arc<Queues>, catalog: Arc<TopicCatalog>) -> Self {
        let vouched = queues.sync.place();
        Self {
            shared,
            queues,
            catalog,
            cached: VecDeque::new(),
            cached_bytes: 0,
            vouched,
            postponed: Vec::new(),
            retired: Vec::new(),
        }
    }

    /// Runs the turn that is asked for and answers those who asked. The result of the last turn, if this was it.
    pub(crate) fn serve(&mut self, request: FlushRequest) -> Option<Result<(), Error>> {
        let clean = matches!(request, FlushRequest::Stop);
        let wants_image = matches!(&request, FlushRequest::Flush(asked) if !asked.images.is_empty());
        let result = match self.shared.ended() {
            Some(error) => Err(error),
            None => self.turn(clean, wants_image),
        };
        let result = result.map_err(|cause| match cause {
            // Nothing was written.
            Error::DiskFull { .. } => cause,
            _ => self.shared.end(&cause),
        });
        let FlushRequest::Flush(asked) = request else { return Some(result.map(drop)) };
        // A receiver that is gone needs no answer.
        for sender in asked.turns {
            drop(sender.try_send(result.as_ref().map(drop).map_err(Error::clone)));
        }
        if !asked.images.is_empty() {
            // Only this thread frees journal files and removes segments: what the turn's `meta` needs is still there.
            let parts = result.and_then(|meta| self.image_parts(meta));
            for sender in asked.images {
                drop(sender.try_send(parts.clone()));
            }
        }
        None
    }

    /// Takes the frames behind the `meta` that the last turn has written.
    fn image_parts(&self, meta: Option<Meta>) -> Result<ImageParts, Error> {
        let meta = meta.ok_or(Error::Stopped)?;
        // `meta` may have effects of frames up to here, and needs them then.
        let durable = self.queues.sync.place().sequence;
        let (frames, last) = recovery::copy_frames(&self.shared.journal.in_use(), &meta)?;
        if last < durable {
            let (path, what) = (self.shared.layout.journal_dir(), "a synced frame cannot be read");
            return Err(Error::CorruptFile { path, at: 0, what });
        }
        let mut journal = FileKind::Journal.header(&IMAGE_SLOT.to_le_bytes()).to_vec();
        journal.resize(FIRST_FRAME_AT as usize, 0);
        journal.extend_from_slice(&frames);
        Ok(ImageParts { meta: Arc::new(meta), journal: journal.into() })
    }

    /// Runs one turn. Returns the `meta` that it wrote, which it always does if `wants_meta`. [`Error::DiskFull`] means
    /// that it did nothing.
    fn turn(&mut self, clean: bool, wants_meta: bool) -> Result<Option<Meta>, Error> {
        self.check_space()?;
        if !clean {
            match self.shared.journal.ensure_free() {
                // Go on with the existing files; this turn may free some.
                Err(full) if full.is_disk_full() => tracing::warn!(error = %full, "no room for another journal file"),
                other => other?,
            }
        }
        let taken_over = self.queues.sync.take_over();
        let place = taken_over.iter().rev().find_map(|round| round.place);
        let place = place.unwrap_or_else(|| self.queues.sync.place());
        debug_assert!(self.vouched.sequence <= place.sequence, "`meta` never goes back in the journal");
        // Take the garbage before the topics: this turn's `meta` still names topics that are deleted from now on.
        let mut garbage = self.catalog.take_garbage();
        garbage.append(&mut self.postponed);
        let topics = self.catalog.topics();
        let flushed = self.flush(&topics, &taken_over)?;
        let mut expired = self.retain(&topics)?;
        let now_ms = self.shared.wall.now_ms();
        let outcome = self.queues.compaction.take_outcome();
        let replaced = outcome.map(|outcome| compaction::put_in_place(outcome, now_ms)).unwrap_or_default();
        self.cached_bytes -= replaced.cached_bytes;
        expired.extend(replaced.segments);
        let has_changed = flushed || place != self.vouched || !expired.is_empty() || !garbage.is_empty();
        let vouches = has_changed || clean || wants_meta;
        let meta = vouches.then(|| self.vouch(&topics, place, clean)).transpose()?;
        syncer::settle(&self.shared, &self.queues, &self.catalog, taken_over);
        self.queues.sync.vouched();
        self.remove(&expired, garbage)?;
        self.shared.journal.free_up_to(place.sequence);
        self.evict(&topics);
        if !clean {
            self.compact(&topics);
        }
        Ok(meta)
    }

    /// Submits the next compaction job, if one is due.
    fn compact(&self, topics: &[Arc<TopicEntry>]) {
        if self.queues.compaction.is_idle() {
            let partitions = topics.iter().flat_map(|topic| &topic.partitions);
            if let Some(job) = compaction::due(&self.shared, partitions, self.shared.wall.now_ms()) {
                self.queues.compaction.submit(job);
            }
        }
    }

    /// Runs the first turn of a start: the recovered records become durable under the new epoch.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        self.check_space()?;
        let topics = self.catalog.topics();
        self.flush(&topics, &[])?;
        self.vouch(&topics, self.queues.sync.place(), false).map(drop)?;
        self.evict(&topics);
        Ok(())
    }

    /// Checks that the disk has room for the records that are not in segments. If not, it wakes the appender, which
    /// then answers callers that do not wait for room.
    fn check_space(&self) -> Result<(), Error> {
        let admitted = self.shared.space.admit_turn(unflushed_bytes(&self.catalog.topics()) as u64);
        admitted.inspect_err(|_| self.shared.journal.wake())
    }

    /// Writes durable journal records and the rounds taken over to segments. `true` if there were any.
    fn flush(&mut self, topics: &[Arc<TopicEntry>], taken_over: &[JournalRound]) -> Result<bool, Error> {
        // The last round of a partition has the highest end.
        let ends = taken_over.iter().flat_map(|round| &round.ends);
        let ends: HashMap<_, u64> = ends.map(|(partition, end)| (Arc::as_ptr(partition), *end)).collect();
        let mut written = Vec::new();
        let mut touched = Vec::new();
        for partition in topics.iter().flat_map(|topic| &topic.partitions) {
            if partition.topic.is_memory {
                continue;
            }
            let end = ends.get(&Arc::as_ptr(partition)).copied().unwrap_or(0);
            let batches = partition.lock().tail_cache.unflushed(partition.synced().max(end));
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
            self.queues.flush.turned(touched.len());
        }
        for (partition, batches) in written {
            partition.flushed(&batches);
            let bytes = batches.iter().map(|stored| stored.batch.size_bytes()).sum();
            self.shared.space.written(bytes);
            self.cached_bytes += bytes;
            if let Some(last) = batches.last() {
                self.cached.push_back((partition, last.end));
            }
        }
        Ok(any)
    }

    fn write(
        &self,
        partition: &Arc<PartitionLog>,
        batches: &[CachedBatch],
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

    /// The active segment, or a new one that begins at `base`.
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

    /// Closes old segments and takes expired ones out of their partitions.
    fn retain(&self, topics: &[Arc<TopicEntry>]) -> Result<Vec<Arc<Segment>>, Error> {
        let now_ms = self.shared.wall.now_ms();
        let mut expired = Vec::new();
        topics.iter().flat_map(|topic| &topic.partitions).for_each(|partition| partition.expire_producers(now_ms));
        for topic in topics.iter().filter(|topic| !topic.state.is_memory) {
            let config = topic.state.current();
            for partition in &topic.partitions {
                if self.shared.space.is_scarce() {
                    compaction::ask_for_room(partition);
                }
                retention::close_aged(partition, &config.config, now_ms)?;
                expired.extend(retention::expire(partition, &config.config, now_ms));
                partition.trim_aborted();
            }
        }
        Ok(expired)
    }

    fn vouch(&mut self, topics: &[Arc<TopicEntry>], place: JournalPlace, clean: bool) -> Result<Meta, Error> {
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
        Ok(meta)
    }

    /// Removes files that `meta` does not name any more, unless an image holds them. On a disk that is nearly full
    /// images lose their files.
    fn remove(&mut self, expired: &[Arc<Segment>], garbage: Vec<PathBuf>) -> Result<(), Error> {
        for segment in expired {
            segment.retire();
            self.retired.extend([segment.path().to_owned(), segment.index_path().to_owned()]);
        }
        let holds_room = !self.retired.is_empty() || !garbage.is_empty();
        if holds_room && self.shared.space.is_short() {
            self.shared.images.release_all();
        }
        if self.shared.images.are_held() {
            self.postponed.extend(garbage);
            return Ok(());
        }
        let files = &self.shared.files;
        let gone = |e: std::io::Error, path: &Path| match e.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(Error::io("remove", path, e)),
        };
        for path in self.retired.drain(..) {
            files.remove(&path).or_else(|e| gone(e, &path))?;
        }
        for dir in garbage {
            if self.queues.compaction.is_busy_in(&self.shared.layout, &dir) {
                self.postponed.push(dir);
                continue;
            }
            // Only once nothing holds a file open does the disk have its space again.
            self.shared.segment_cache.close_in(&dir);
            files.remove_dir_all(&dir).or_else(|e| gone(e, &dir))?;
        }
        Ok(())
    }

    /// Drops the oldest batches that have reached a segment while memory exceeds the cache budget. Batches that have
    /// not reached one count too: they also serve readers near the tail.
    fn evict(&mut self, topics: &[Arc<TopicEntry>]) {
        let unflushed = unflushed_bytes(topics);
        while self.cached_bytes + unflushed > self.shared.config.cache_bytes {
            let Some((partition, end)) = self.cached.pop_front() else { return };
            self.cached_bytes -= partition.lock().tail_cache.evict_to(end);
        }
    }
}

/// Bytes of the batches that have not reached a segment.
fn unflushed_bytes(topics: &[Arc<TopicEntry>]) -> usize {
    let on_disk = topics.iter().filter(|topic| !topic.state.is_memory);
    let partitions = on_disk.flat_map(|topic| &topic.partitions);
    partitions.map(|partition| partition.lock().tail_cache.unflushed_bytes()).sum()
}

fn partition_record(partition: &PartitionLog, clean: bool) -> PartitionRecord {
    let accept = partition.lock();
    let segments: Vec<_> =
        accept.segments.iter().map(|segment| segment.record()).filter(|record| record.end > record.base).collect();
    debug_assert!(
        segments.windows(2).all(|pair| pair[0].end <= pair[1].base && pair[0].closed),
        "{}: segments ascend, and only the last is open",
        partition.id
    );
    let flushed = segments.last().map_or(accept.tail_cache.flushed_end(), |last| last.end);
    debug_assert!(flushed <= accept.next, "{}: a segment ends beyond the partition", partition.id);
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
