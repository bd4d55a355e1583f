//! A stream with live queries, as one thread reads it: its partitions there, and the queries that match them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_log::{Bell, Error as LogError, Offsets, Partition, UpTo};
use millstream_types::{BatchError, BatchLimits, Compression, Offset, RecordBatch, TopicName, TopicPartition};

use crate::finder::{Finder, Tally};
use crate::live::Live;
use crate::outbox::Put;
use crate::progress::{Progress, Totals};
use crate::replay::Replay;
use crate::stream::Stream;
use crate::{Error, QueryId};

/// Why a stream cannot be read on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("a batch of stream '{stream}' cannot be read")]
    Batch { stream: TopicName, source: BatchError },
}

impl Broken {
    /// What is told to who asked about `stream`.
    pub(crate) fn of(self, stream: &TopicName) -> Error {
        match self {
            Self::Log(source) => Error::Log { stream: stream.clone(), source: Box::new(source) },
            Self::Batch { stream, source } => Error::Batch { stream, source },
        }
    }

    /// Whether the log stops rather than fails.
    pub(crate) fn is_stop(&self) -> bool {
        matches!(self, Self::Log(LogError::Stopped))
    }
}

/// A query that has got enough, or more than its client takes.
pub(crate) type Finished = (Arc<Live>, Put);

pub(crate) struct Tailed {
    pub(crate) stream: Arc<Stream>,
    parts: Vec<Part>,
    /// Watches them as long as there are queries of the stream: those are consumers.
    _consumer: Arc<Bell>,
    finder: Finder,
    /// How many of the stream's queries see what this thread reads.
    query_count: usize,
    /// Those that outlive the process.
    kept: HashMap<QueryId, Arc<Live>>,
    /// The number of the thread.
    thread: usize,
    read_max_bytes: usize,
    totals: Arc<Totals>,
}

struct Part {
    partition: Arc<dyn Partition>,
    next: Offset,
    /// Whether `next` stands behind something that was read, rather than at the tail where this began.
    has_read: bool,
    progress: Arc<Progress>,
}

impl Tailed {
    /// Begins at the tail of those partitions of `stream` for which `mine` holds.
    pub(crate) fn begin(
        stream: Arc<Stream>,
        mine: impl Fn(&dyn Partition) -> bool,
        bell: &Arc<Bell>,
        thread: usize,
        read_max_bytes: usize,
        totals: Arc<Totals>,
    ) -> Self {
        let consumer = Arc::new(Bell::of_consumer());
        let begin = |partition: &Arc<dyn Partition>| {
            partition.watch(&consumer);
            // Watched before its tail is read, so that nothing is appended unnoticed in between.
            partition.watch(bell);
            let Offsets { tail: next, epoch, .. } = partition.offsets();
            let progress = Arc::new(Progress::start(partition.id().partition, next, epoch));
            Part { partition: partition.clone(), next, has_read: false, progress }
        };
        let parts = stream.partitions.iter().filter(|partition| mine(&***partition)).map(begin).collect();
        let (finder, query_count, kept) = (Finder::default(), 0, HashMap::new());
        Self { stream, parts, _consumer: consumer, finder, query_count, kept, thread, read_max_bytes, totals }
    }

    pub(crate) fn watch(&self, bell: &Arc<Bell>) {
        self.parts.iter().for_each(|part| part.partition.watch(bell));
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.query_count == 0
    }

    /// Adds a query that sees what comes after the records read so far.
    pub(crate) fn insert(&mut self, query: Arc<Live>) {
        self.parts.iter().for_each(|part| query.see(&part.progress));
        if query.keeping.is_some() {
            self.kept.insert(query.id, query.clone());
        }
        self.query_count += 1;
        self.stream.insert(&query);
    }

    /// Notes for the queries that are kept up to where everything is matched.
    pub(crate) fn note(&self) {
        for part in self.parts.iter().filter(|part| part.has_read) {
            self.kept.values().for_each(|query| query.note(part.partition.id().partition));
        }
    }

    /// Has queries of a former process see what they have not seen yet of what has been read for the others.
    pub(crate) fn replay(
        &self,
        queries: &[Arc<Live>],
        now_ms: i64,
        finished: &mut Vec<Finished>,
    ) -> Result<(), Broken> {
        self.parts.iter().try_for_each(|part| {
            let (partition, thread, max_bytes) = (&part.partition, self.thread, self.read_max_bytes);
            Replay::new(partition, queries, part.next, thread, max_bytes).run(now_ms, finished)
        })
    }

    /// Lets go of a query that the stream has let go of.
    pub(crate) fn remove(&mut self, query: &Live) {
        self.kept.remove(&query.id);
        let was_here = self.parts.first().is_some_and(|part| query.sees(&part.progress));
        self.query_count -= usize::from(was_here);
    }

    /// Reads on until everything is matched that is there now.
    pub(crate) fn catch_up(&mut self, now_ms: i64, finished: &mut Vec<Finished>) -> Result<(), Broken> {
        for part in 0..self.parts.len() {
            let tail = self.parts[part].partition.offsets().tail;
            while self.parts[part].next < tail && self.advance_part(part, now_ms, finished)? {}
        }
        Ok(())
    }

    /// Reads and matches one piece of each partition. Whether there was anything.
    pub(crate) fn advance(&mut self, now_ms: i64, finished: &mut Vec<Finished>) -> Result<bool, Broken> {
        let mut any = false;
        for part in 0..self.parts.len() {
            any |= self.advance_part(part, now_ms, finished)?;
        }
        Ok(any)
    }

    fn advance_part(&mut self, part: usize, now_ms: i64, finished: &mut Vec<Finished>) -> Result<bool, Broken> {
        let part = &mut self.parts[part];
        let batches = match part.partition.read(part.next, self.read_max_bytes, UpTo::Tail) {
            Ok(batches) => batches,
            Err(LogError::Trimmed { oldest, .. }) => {
                part.progress.skip(part.next, oldest);
                (part.next, part.has_read) = (oldest, true);
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        };
        if batches.is_empty() {
            return Ok(false);
        }
        let partition = part.partition.id().partition;
        // Nobody comes or goes until the rows are where they belong.
        let catalogue = self.stream.catalogue();
        for batch in &batches {
            let unread = part.next..Offset(u64::MAX);
            let run = |batch: &RecordBatch| self.finder.run(&catalogue, batch, partition, unread, now_ms);
            let tally = match_batch(&*part.partition, batch, run)?;
            (part.next, part.has_read) = (batch.last_offset().next(), true);
            // Before the rows go out, so that whoever ends by them is told of the records that gave them.
            part.progress.add(tally, part.next, batch.epoch());
            self.totals.records_seen.fetch_add(tally.records, Ordering::Relaxed);
        }
        self.finder.drain(&catalogue, |_, query, yielded| {
            // Others may have taken it in before this thread does.
            if !query.sees(&part.progress) {
                return;
            }
            self.totals.matched.fetch_add(yielded.rows.row_count() as u64, Ordering::Relaxed);
            match query.take(self.thread, partition, yielded, now_ms) {
                Put::Taken => {}
                put => finished.push((query.clone(), put)),
            }
        });
        Ok(true)
    }
}

/// Has `run` match the records of a batch of the partition, once they are laid open.
pub(crate) fn match_batch(
    partition: &dyn Partition,
    batch: &RecordBatch,
    run: impl FnOnce(&RecordBatch) -> Result<Tally, BatchError>,
) -> Result<Tally, Broken> {
    let TopicPartition { topic, .. } = partition.id();
    let broken = |source| Broken::Batch { stream: topic.clone(), source };
    match readable(batch).map_err(broken)? {
        Some(batch) => run(&batch).map_err(broken),
        None => Ok(Tally::default()),
    }
}

/// The batch with its records laid open; `None` if they are markers of a transaction.
pub(crate) fn readable(batch: &RecordBatch) -> Result<Option<RecordBatch>, BatchError> {
    if batch.is_control() {
        return Ok(None);
    }
    if batch.compression() == Compression::None {
        return Ok(Some(batch.clone()));
    }
    batch.inflated(&BatchLimits::default()).map(Some)
}
