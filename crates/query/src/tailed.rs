//! A stream with live queries, as one thread reads it: its partitions there, and the queries that match them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_log::{Bell, Error as LogError, Partition, UpTo};
use millstream_types::{BatchError, BatchLimits, Compression, Offset, RecordBatch, TopicName};

use crate::live::{Live, Stream};
use crate::outbox::Put;
use crate::progress::{Progress, Share, Totals};
use crate::{EntryId, Error, Matcher, QueryId};

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
}

/// A query that has got enough, or more than its client takes.
pub(crate) type Finished = (Arc<Live>, Put);

pub(crate) struct Tailed {
    pub(crate) stream: Stream,
    parts: Vec<Part>,
    matcher: Matcher<Arc<Live>>,
    entries: HashMap<QueryId, EntryId>,
    /// The number of the thread.
    thread: usize,
    read_max_bytes: usize,
    totals: Arc<Totals>,
}

struct Part {
    partition: Arc<dyn Partition>,
    next: Offset,
    progress: Arc<Progress>,
}

impl Tailed {
    /// Begins at the tail of those partitions of `stream` for which `mine` holds.
    pub(crate) fn begin(
        stream: Stream,
        mine: impl Fn(&dyn Partition) -> bool,
        bell: &Arc<Bell>,
        thread: usize,
        read_max_bytes: usize,
        totals: Arc<Totals>,
    ) -> Self {
        let begin = |partition: &Arc<dyn Partition>| {
            // Watched before its tail is read, so that nothing is appended unnoticed in between.
            partition.watch(bell);
            let next = partition.offsets().tail;
            Part { partition: partition.clone(), next, progress: Arc::new(Progress::start(next)) }
        };
        let parts = stream.partitions.iter().filter(|partition| mine(&***partition)).map(begin).collect();
        Self { stream, parts, matcher: Matcher::default(), entries: HashMap::new(), thread, read_max_bytes, totals }
    }

    pub(crate) fn watch(&self, bell: &Arc<Bell>) {
        self.parts.iter().for_each(|part| part.partition.watch(bell));
    }

    pub(crate) fn queries(&self) -> impl Iterator<Item = &Arc<Live>> {
        self.matcher.tags()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.matcher.is_empty()
    }

    /// Adds a query that sees what comes after the records read so far.
    pub(crate) fn insert(&mut self, query: Arc<Live>) {
        query
            .shares
            .lock()
            .extend(self.parts.iter().map(|part| Share::begin(part.partition.id().partition, &part.progress)));
        let id = query.id;
        let entry = self.matcher.insert(query.compiled.clone(), query);
        self.entries.insert(id, entry);
    }

    pub(crate) fn remove(&mut self, id: QueryId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.matcher.remove(entry);
        }
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
                part.next = oldest;
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        };
        let broken = |source| Broken::Batch { stream: self.stream.topic.name.clone(), source };
        for batch in &batches {
            let tally = match readable(batch).map_err(broken)? {
                Some(batch) => {
                    let partition = part.partition.id().partition;
                    self.matcher.run(&batch, partition, part.next, now_ms).map_err(broken)?
                }
                None => crate::Tally::default(),
            };
            part.next = batch.last_offset().next();
            // Before the rows go out, so that whoever ends by them is told of the records that gave them.
            part.progress.add(tally, part.next);
            self.totals.records_seen.fetch_add(tally.records, Ordering::Relaxed);
        }
        self.matcher.drain(|_, query, yielded| {
            self.totals.matched.fetch_add(yielded.rows.row_count() as u64, Ordering::Relaxed);
            match query.take(self.thread, yielded, now_ms) {
                Put::Taken => {}
                put => finished.push((query.clone(), put)),
            }
        });
        Ok(!batches.is_empty())
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
