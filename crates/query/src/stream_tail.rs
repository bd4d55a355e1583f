//! A stream with live queries, as one thread reads it: its partitions there, and the queries that match them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_log::{Bell, Error as LogError, Offsets, Partition, UpTo};
use millstream_types::{Offset, RecordBatch};

use crate::QueryId;
use crate::batch_matcher::BatchMatcher;
use crate::live::{LiveQuery, LiveStream};
use crate::outbox::PutOutcome;
use crate::progress::{EngineTotals, ReadProgress};
use crate::read_error::ReadError;
use crate::replay::Replay;
use crate::stream_batch::{FinishedQuery, match_batch};

/// Pause before a stream is read again that could not be read.
const READ_AGAIN: std::time::Duration = std::time::Duration::from_millis(100);

pub(crate) struct StreamTail {
    pub(crate) stream: Arc<LiveStream>,
    parts: Vec<PartitionTail>,
    /// Watches the partitions while the stream has queries, which count as consumers.
    _consumer: Arc<Bell>,
    batch_matcher: BatchMatcher,
    /// The number of queries that see this thread's records.
    query_count: usize,
    kept: HashMap<QueryId, Arc<LiveQuery>>,
    /// The number of the thread.
    thread: usize,
    read_max_bytes: usize,
    totals: Arc<EngineTotals>,
}

struct PartitionTail {
    partition: Arc<dyn Partition>,
    next: Offset,
    /// True if `next` is behind a record that was read, and not just the initial offset.
    has_read: bool,
    progress: Arc<ReadProgress>,
}

impl StreamTail {
    /// Begins at the stable offset of those partitions of `stream` for which `mine` holds: between it and the tail there may be
    /// records of open transactions, which queries that resume have not seen. The caller catches up to what can be read.
    pub(crate) fn begin(
        stream: Arc<LiveStream>,
        mine: impl Fn(&dyn Partition) -> bool,
        bell: &Arc<Bell>,
        thread: usize,
        read_max_bytes: usize,
        totals: Arc<EngineTotals>,
    ) -> Self {
        let consumer = Arc::new(Bell::of_consumer());
        let begin = |partition: &Arc<dyn Partition>| {
            partition.watch(&consumer);
            // Watched before its tail is read, so that nothing is appended unnoticed in between.
            partition.watch(bell);
            let Offsets { stable: next, epoch, .. } = partition.offsets();
            let progress = Arc::new(ReadProgress::start(partition.id().partition, next, epoch));
            PartitionTail { partition: partition.clone(), next, has_read: false, progress }
        };
        let parts = stream.partitions.iter().filter(|partition| mine(&***partition)).map(begin).collect();
        let (batch_matcher, query_count, kept) = (BatchMatcher::default(), 0, HashMap::new());
        Self { stream, parts, _consumer: consumer, batch_matcher, query_count, kept, thread, read_max_bytes, totals }
    }

    pub(crate) fn watch(&self, bell: &Arc<Bell>) {
        self.parts.iter().for_each(|part| part.partition.watch(bell));
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.query_count == 0
    }

    /// Adds a query that sees the records after those read so far.
    pub(crate) fn insert(&mut self, query: Arc<LiveQuery>) {
        for part in &self.parts {
            query.see(&part.progress);
            query.has_caught_up(part.progress.partition());
        }
        if query.durable.is_some() {
            self.kept.insert(query.id, query.clone());
        }
        self.query_count += 1;
        query.enter_stream();
    }

    /// Notes for kept queries the positions up to which records are matched.
    pub(crate) fn note(&self) {
        for part in self.parts.iter().filter(|part| part.has_read) {
            self.kept.values().for_each(|query| query.note(part.partition.id().partition));
        }
    }

    /// Replays for resumed queries the records that this thread has read already for the others.
    pub(crate) fn replay(
        &self,
        queries: &[Arc<LiveQuery>],
        now_ms: i64,
        finished: &mut Vec<FinishedQuery>,
    ) -> Result<(), ReadError> {
        self.parts.iter().try_for_each(|part| {
            let (partition, thread, max_bytes) = (&part.partition, self.thread, self.read_max_bytes);
            Replay::new(partition, queries, part.next, thread, max_bytes, &self.totals).run(now_ms, finished)
        })
    }

    /// Removes a query that the stream has removed.
    pub(crate) fn remove(&mut self, query: &LiveQuery) {
        self.kept.remove(&query.id);
        let was_here = self.parts.first().is_some_and(|part| query.sees(&part.progress));
        self.query_count -= usize::from(was_here);
    }

    /// Reads on until everything is matched that is there now.
    pub(crate) fn catch_up(&mut self, now_ms: i64, finished: &mut Vec<FinishedQuery>) -> Result<(), ReadError> {
        for part in 0..self.parts.len() {
            let tail = self.parts[part].partition.offsets().tail;
            while self.parts[part].next < tail && self.advance_part(part, now_ms, finished)? {}
        }
        Ok(())
    }

    /// Reads and matches one piece of each partition. Whether there was anything.
    pub(crate) fn advance(&mut self, now_ms: i64, finished: &mut Vec<FinishedQuery>) -> Result<bool, ReadError> {
        let mut any = false;
        for part in 0..self.parts.len() {
            any |= self.advance_part(part, now_ms, finished)?;
        }
        Ok(any)
    }

    fn advance_part(&mut self, part: usize, now_ms: i64, finished: &mut Vec<FinishedQuery>) -> Result<bool, ReadError> {
        let part = &mut self.parts[part];
        let batches = match part.partition.read(part.next, self.read_max_bytes, UpTo::Tail) {
            Ok(batches) => batches,
            Err(LogError::Trimmed { oldest, .. }) => {
                part.progress.skip(part.next, oldest);
                (part.next, part.has_read) = (oldest, true);
                return Ok(true);
            }
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, partition = %part.partition.id(), "live queries cannot read their stream now");
                std::thread::sleep(READ_AGAIN);
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        };
        if batches.is_empty() {
            return Ok(false);
        }
        let (partition, progress) = (part.partition.id().partition, part.progress.clone());
        let _piece = progress.piece();
        // The catalogue does not change until the rows are in their outboxes.
        let catalogue = self.stream.catalogue();
        for batch in &batches {
            let unread = part.next..Offset(u64::MAX);
            let run = |batch: &RecordBatch| self.batch_matcher.run(&catalogue, batch, partition, unread, now_ms);
            let tally = match_batch(&*part.partition, batch, run)?;
            (part.next, part.has_read) = (batch.last_offset().next(), true);
            // Counted before the rows are emitted, so that a query that ends with them reports their records.
            progress.add(tally, part.next, batch.epoch());
            self.totals.records_seen.fetch_add(tally.records, Ordering::Relaxed);
        }
        self.batch_matcher.drain(&catalogue, |_, query, yielded| {
            // Others may have taken it in before this thread does.
            if !query.sees(&progress) {
                return;
            }
            self.totals.matched.fetch_add(yielded.rows.row_count() as u64, Ordering::Relaxed);
            match query.take(self.thread, partition, yielded, now_ms) {
                PutOutcome::Taken => {}
                put => finished.push((query.clone(), put)),
            }
        });
        Ok(true)
    }
}
