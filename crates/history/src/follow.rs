//! The thread that reads the change topics into the current memtable, up to their stable offsets.
//!
//! A memtable keeps positions with the points that they cover, and both become durable in one append. So after a crash
//! each change is read again exactly if it is not in a file.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_log::{Bell, Board, Hold, Log, Partition, Topic, UpTo, run_in_background};
use millstream_types::{BatchLimits, Offset, PartitionId, Position, RecordBatch, TopicId, TopicKind, TopicPartition};

use crate::catalog::SourcePositions;
use crate::change::EntityChange;
use crate::memtable::RecordStamp;
use crate::rules::RuleSet;
use crate::state::{HistoryState, SourcePartition};

const READ_BYTES: usize = 256 << 10;
/// The longest wait for a bell; a lost ring delays changes by this much at most.
const QUIET: Duration = Duration::from_secs(2);
/// The wait for more changes before a read, because small reads are inefficient.
const LINGER: Duration = Duration::from_millis(2);
const NAME: &str = "history";

pub(crate) struct ChangeFollower {
    state: Arc<HistoryState>,
    log: Arc<dyn Log>,
    rules: Arc<RuleSet>,
    memtable_max_bytes: usize,
    /// The positions in files at start.
    sources: SourcePositions,
    cursors: HashMap<SourcePartition, PartitionCursor>,
    board: Arc<Board<FollowerEvent>>,
    /// Sources that may have new records.
    due: HashSet<SourcePartition>,
}

/// The reason that a bell rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FollowerEvent {
    /// The list of topics changed.
    Topics,
    /// The source has new records.
    Source(SourcePartition),
}

/// The read position of one source.
pub(crate) struct PartitionCursor {
    topic: Arc<Topic>,
    partition: Arc<dyn Partition>,
    next: Offset,
    /// Protects records that are not in files yet from retention, if the engine supports it.
    hold: Option<Box<dyn Hold>>,
    /// Keeps the registration of the bell alive.
    _bell: Arc<Bell>,
    /// Set when the source is unreadable; the follower skips it from then on.
    has_failed: bool,
}

impl ChangeFollower {
    /// Creates a follower that continues at `sources`. A memtable takes `memtable_max_bytes`, half of the memory limit;
    /// the other half is for the memtable that is being flushed.
    pub(crate) fn new(
        state: Arc<HistoryState>,
        log: Arc<dyn Log>,
        rules: Arc<RuleSet>,
        memtable_max_bytes: usize,
        sources: SourcePositions,
    ) -> Self {
        let board = Board::new(state.follower_bell.clone());
        let (cursors, due) = Default::default();
        Self { state, log, rules, memtable_max_bytes, sources, cursors, board, due }
    }

    pub(crate) fn run(mut self) {
        run_in_background();
        // A panic is a mistake in the program; it must not go unseen.
        if catch_unwind(AssertUnwindSafe(|| self.follow_until_stopped())).is_err() {
            self.state.fail("following the changes", "the thread panicked; restart the server");
        }
    }

    fn follow_until_stopped(&mut self) {
        let of_topics = self.board.hang(FollowerEvent::Topics);
        self.log.watch_topics(&of_topics);
        self.discover();
        while !self.state.is_stopping() {
            if self.is_full() {
                self.state.compactor_bell.ring();
                self.state.follower_bell.wait(QUIET);
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
            if self.state.follower_bell.wait(QUIET) {
                std::thread::sleep(LINGER);
            } else {
                self.due.extend(self.cursors.keys());
            }
        }
    }

    /// Collects the sources that have new records, without a look at the others.
    fn hear(&mut self) {
        for news in self.board.take() {
            match news {
                FollowerEvent::Topics => self.discover(),
                FollowerEvent::Source(source) => {
                    self.due.insert(source);
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        let current = self.state.current.lock().clone();
        current.read(|content| content.bytes) >= self.memtable_max_bytes
    }

    /// Adds new sources and drops deleted ones.
    fn discover(&mut self) {
        let topics = self.log.topics();
        let known: HashSet<TopicId> = topics.iter().map(|topic| topic.id).collect();
        let state = &self.state;
        self.cursors.retain(|source, cursor| {
            let is_there = known.contains(&source.0);
            if !is_there {
                state.recover(&cursor.partition.id().to_string());
            }
            is_there
        });
        for topic in topics.iter().filter(|topic| topic.name.kind() == TopicKind::Context) {
            for number in 0..topic.config.partitions {
                let source = (topic.id, PartitionId(number));
                if !self.cursors.contains_key(&source) {
                    self.take_up(source, topic);
                }
            }
        }
    }

    fn take_up(&mut self, source: SourcePartition, topic: &Arc<Topic>) {
        let Ok(partition) = self.log.partition(&TopicPartition::new(topic.name.clone(), source.1.0)) else { return };
        let bell = self.board.hang(FollowerEvent::Source(source));
        self.due.insert(source);
        partition.watch(&bell);
        let first = partition.offsets().first;
        let resumed = match self.sources.get(&source) {
            None => Ok(first),
            Some(record) => match partition.resume(record.position(source.0)) {
                Err(millstream_log::Error::Trimmed { oldest, .. }) => {
                    self.state.pass_over(oldest.0.saturating_sub(record.offset));
                    tracing::warn!(partition = %partition.id(), "changes were trimmed before history had kept them");
                    Ok(oldest)
                }
                resumed => resumed,
            },
        };
        let next = match &resumed {
            Ok(next) => *next,
            Err(error) => {
                self.state.fail(&partition.id().to_string(), &error.to_string());
                first
            }
        };
        let hold = self.log.capabilities().holds.then(|| partition.hold(NAME, next));
        self.state.applied(source, next);
        let (topic, has_failed) = (topic.clone(), resumed.is_err());
        self.cursors.insert(source, PartitionCursor { topic, partition, next, hold, _bell: bell, has_failed });
    }

    /// Releases records that are in files for retention.
    fn let_go(&self) {
        let in_files = std::mem::take(&mut *self.state.in_files.lock());
        for (source, next) in in_files {
            if let Some(hold) = self.cursors.get(&source).and_then(|cursor| cursor.hold.as_ref()) {
                hold.advance(next);
            }
        }
    }

    /// Reads on in one source; returns whether there were records.
    fn advance(&mut self, source: SourcePartition) -> bool {
        let Some(cursor) = self.cursors.get_mut(&source).filter(|cursor| !cursor.has_failed) else { return false };
        let batches = match cursor.partition.read(cursor.next, READ_BYTES, UpTo::Stable) {
            Ok(batches) => batches,
            Err(millstream_log::Error::Trimmed { oldest, .. }) => {
                self.state.pass_over(oldest.0.saturating_sub(cursor.next.0));
                tracing::warn!(partition = %cursor.partition.id(), "changes were trimmed before history had read them");
                cursor.next = oldest;
                return true;
            }
            Err(millstream_log::Error::UnknownTopic { .. }) => {
                self.cursors.remove(&source);
                return false;
            }
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, partition = %cursor.partition.id(), "changes cannot be read now");
                return false;
            }
            Err(damage) => return self.fail(source, &damage.to_string()),
        };
        for batch in &batches {
            if let Err(damage) = self.take(source, batch) {
                return self.fail(source, &damage);
            }
            // Inflated batches can be much larger than the read; the remaining ones are read again.
            if self.is_full() {
                break;
            }
        }
        !batches.is_empty()
    }

    /// Stops reading a source and reports the failure.
    fn fail(&mut self, source: SourcePartition, reason: &str) -> bool {
        if let Some(cursor) = self.cursors.get_mut(&source) {
            cursor.has_failed = true;
            self.state.fail(&cursor.partition.id().to_string(), reason);
        }
        false
    }

    fn take(&mut self, source: SourcePartition, batch: &RecordBatch) -> Result<(), String> {
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
            let recorded = RecordStamp { timestamp_ms: record.timestamp_ms, offset: record.offset.0 };
            match EntityChange::read(&record) {
                Ok(None) => {}
                Ok(Some(mut change)) => {
                    if !keeps_all {
                        let rules = &self.rules;
                        change.attributes.retain(|changed| rules.keeps(&tenant, &change.kind, &changed.name));
                    }
                    changes.push((change, recorded));
                }
                Err(error) => {
                    self.state.pass_over(1);
                    tracing::warn!(partition = %cursor.partition.id(), offset = %record.offset, error, "skipping a record that is not a change of an entity");
                }
            }
        }
        cursor.next = batch.next_offset();
        let position = Position { topic: source.0, epoch: batch.epoch(), offset: cursor.next };
        let current = self.state.current.lock();
        let points = current.write(|content| {
            content.positions.insert(source, (cursor.topic.name.clone(), position));
            changes.iter().map(|(change, recorded)| content.add(&tenant, change, *recorded)).sum::<usize>()
        });
        drop(current);
        self.state.counters.points.fetch_add(points as u64, Ordering::Relaxed);
        self.state.applied(source, cursor.next);
        Ok(())
    }
}
