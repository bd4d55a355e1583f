//! The thread that reads the change topics into the current generation, up to their stable offsets.
//!
//! Positions are kept with the points that they cover: both reach the files in one append, so that after a crash each
//! change is read again exactly if it is in no file.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_log::{Bell, Board, Hold, Log, Partition, Topic, UpTo, stand_back};
use millstream_types::{BatchLimits, Kind, Offset, PartitionId, Position, RecordBatch, TopicId, TopicPartition};

use crate::catalog::Sources;
use crate::change::Change;
use crate::config::Rules;
use crate::generation::Recorded;
use crate::shared::{Shared, Source};

/// Bytes of records per read.
const READ_BYTES: usize = 256 << 10;
/// How long it waits for a bell, so that nothing is left for long whatever happens.
const QUIET: Duration = Duration::from_secs(2);
/// How long changes are left to gather: reading few at a time costs more than reading them.
const GATHER: Duration = Duration::from_millis(2);
const NAME: &str = "history";

/// Reads change topics.
pub(crate) struct Follower {
    shared: Arc<Shared>,
    log: Arc<dyn Log>,
    rules: Arc<Rules>,
    generation_max_bytes: usize,
    /// How far sources were in files at start.
    sources: Sources,
    cursors: HashMap<Source, Cursor>,
    board: Arc<Board<News>>,
    /// Sources in which there may be something to read.
    due: HashSet<Source>,
}

/// What bells ring for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum News {
    /// There are other topics than before.
    Topics,
    /// There is more to read.
    Source(Source),
}

/// How far one source has been read.
pub(crate) struct Cursor {
    topic: Arc<Topic>,
    partition: Arc<dyn Partition>,
    next: Offset,
    /// Keeps what is in no file from being trimmed, where the engine can.
    hold: Option<Box<dyn Hold>>,
    /// Rings for as long as it is kept.
    _bell: Arc<Bell>,
    /// Set once the source cannot be read any more; it is left alone then.
    has_failed: bool,
}

impl Follower {
    /// One that goes on behind `sources`, and has at most `generation_max_bytes` in memory: half of what may be there, the
    /// other half is being written.
    pub(crate) fn new(
        shared: Arc<Shared>,
        log: Arc<dyn Log>,
        rules: Arc<Rules>,
        generation_max_bytes: usize,
        sources: Sources,
    ) -> Self {
        let board = Board::new(shared.follower_bell.clone());
        let (cursors, due) = Default::default();
        Self { shared, log, rules, generation_max_bytes, sources, cursors, board, due }
    }

    /// Follows until the process stops.
    pub(crate) fn run(mut self) {
        stand_back();
        // A panic is a mistake in the program; it must not go unseen.
        if catch_unwind(AssertUnwindSafe(|| self.follow_until_stopped())).is_err() {
            self.shared.fail("following the changes", "the thread panicked; restart the server");
        }
    }

    fn follow_until_stopped(&mut self) {
        let of_topics = self.board.hang(News::Topics);
        self.log.watch_topics(&of_topics);
        self.discover();
        while !self.shared.is_stopping() {
            if self.is_full() {
                self.shared.keeper_bell.ring();
                self.shared.follower_bell.wait(QUIET);
                continue;
            }
            self.hear();
            let mut has_moved = false;
            for source in Vec::from_iter(self.due.iter().copied()) {
                if self.advance(source) {
                    has_moved = true;
                } else {
                    self.due.remove(&source);
                }
            }
            self.let_go();
            if has_moved {
                continue;
            }
            if self.shared.follower_bell.wait(QUIET) {
                std::thread::sleep(GATHER);
            } else {
                self.due.extend(self.cursors.keys());
            }
        }
    }

    /// Notes which sources have something new; of thousands, the others are not looked at.
    fn hear(&mut self) {
        for news in self.board.take() {
            match news {
                News::Topics => self.discover(),
                News::Source(source) => {
                    self.due.insert(source);
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        let current = self.shared.current.lock().clone();
        current.read(|content| content.bytes) >= self.generation_max_bytes
    }

    /// Takes up sources that are new, lets go those that are gone.
    fn discover(&mut self) {
        let topics = self.log.topics();
        let known: HashSet<TopicId> = topics.iter().map(|topic| topic.id).collect();
        let shared = &self.shared;
        self.cursors.retain(|source, cursor| {
            let is_there = known.contains(&source.0);
            if !is_there {
                shared.recover(&cursor.partition.id().to_string());
            }
            is_there
        });
        for topic in topics.iter().filter(|topic| topic.name.kind() == Kind::Context) {
            for number in 0..topic.config.partitions {
                let source = (topic.id, PartitionId(number));
                if !self.cursors.contains_key(&source) {
                    self.take_up(source, topic);
                }
            }
        }
    }

    fn take_up(&mut self, source: Source, topic: &Arc<Topic>) {
        let Ok(partition) = self.log.partition(&TopicPartition::new(topic.name.clone(), source.1.0)) else { return };
        let bell = self.board.hang(News::Source(source));
        self.due.insert(source);
        partition.watch(&bell);
        let first = partition.offsets().first;
        let resumed = match self.sources.get(&source) {
            None => Ok(first),
            Some(record) => match partition.resume(record.position(source.0)) {
                Err(millstream_log::Error::Trimmed { oldest, .. }) => {
                    self.shared.pass_over(oldest.0.saturating_sub(record.offset));
                    tracing::warn!(partition = %partition.id(), "changes were trimmed before history had kept them");
                    Ok(oldest)
                }
                resumed => resumed,
            },
        };
        let next = match &resumed {
            Ok(next) => *next,
            Err(error) => {
                self.shared.fail(&partition.id().to_string(), &error.to_string());
                first
            }
        };
        let hold = self.log.capabilities().holds.then(|| partition.hold(NAME, next));
        self.shared.applied(source, next);
        let (topic, has_failed) = (topic.clone(), resumed.is_err());
        self.cursors.insert(source, Cursor { topic, partition, next, hold, _bell: bell, has_failed });
    }

    /// Lets retention have what is in files.
    fn let_go(&self) {
        let in_files = std::mem::take(&mut *self.shared.in_files.lock());
        for (source, next) in in_files {
            if let Some(hold) = self.cursors.get(&source).and_then(|cursor| cursor.hold.as_ref()) {
                hold.advance(next);
            }
        }
    }

    /// Reads on in one source. Whether there was anything.
    fn advance(&mut self, source: Source) -> bool {
        let Some(cursor) = self.cursors.get_mut(&source).filter(|cursor| !cursor.has_failed) else { return false };
        let batches = match cursor.partition.read(cursor.next, READ_BYTES, UpTo::Stable) {
            Ok(batches) => batches,
            Err(millstream_log::Error::Trimmed { oldest, .. }) => {
                self.shared.pass_over(oldest.0.saturating_sub(cursor.next.0));
                tracing::warn!(partition = %cursor.partition.id(), "changes were trimmed before history had read them");
                cursor.next = oldest;
                return true;
            }
            Err(millstream_log::Error::UnknownTopic { .. }) => {
                self.cursors.remove(&source);
                return false;
            }
            Err(damage) => return self.fail(source, &damage.to_string()),
        };
        for batch in &batches {
            if let Err(damage) = self.take(source, batch) {
                return self.fail(source, &damage);
            }
        }
        !batches.is_empty()
    }

    /// Leaves a source alone that cannot be read any further, and lets that be seen.
    fn fail(&mut self, source: Source, reason: &str) -> bool {
        if let Some(cursor) = self.cursors.get_mut(&source) {
            cursor.has_failed = true;
            self.shared.fail(&cursor.partition.id().to_string(), reason);
        }
        false
    }

    /// Adds the points of a batch.
    fn take(&mut self, source: Source, batch: &RecordBatch) -> Result<(), String> {
        let Some(cursor) = self.cursors.get_mut(&source) else { return Ok(()) };
        let tenant = cursor.topic.name.tenant().clone();
        let keeps_all = self.rules.keep_all(&tenant);
        let inflated = batch.inflated(&BatchLimits::default()).map_err(|error| error.to_string())?;
        let mut changes = Vec::new();
        for record in inflated.records() {
            let record = record.map_err(|error| error.to_string())?;
            if record.offset < cursor.next {
                continue;
            }
            let recorded = Recorded { timestamp_ms: record.timestamp_ms, offset: record.offset.0 };
            match Change::read(&record) {
                Ok(None) => {}
                Ok(Some(mut change)) => {
                    if !keeps_all {
                        let rules = &self.rules;
                        change.attributes.retain(|changed| rules.keeps(&tenant, &change.kind, &changed.name));
                    }
                    changes.push((change, recorded));
                }
                Err(error) => {
                    self.shared.pass_over(1);
                    tracing::warn!(partition = %cursor.partition.id(), offset = %record.offset, error, "no change of an entity");
                }
            }
        }
        cursor.next = batch.next_offset();
        let position = Position { topic: source.0, epoch: batch.epoch(), offset: cursor.next };
        let current = self.shared.current.lock();
        let points = current.write(|content| {
            content.positions.insert(source, (cursor.topic.name.clone(), position));
            changes.iter().map(|(change, recorded)| content.add(&tenant, change, *recorded)).sum::<usize>()
        });
        drop(current);
        self.shared.counters.points.fetch_add(points as u64, Ordering::Relaxed);
        self.shared.applied(source, cursor.next);
        Ok(())
    }
}
