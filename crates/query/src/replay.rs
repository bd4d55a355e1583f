//! Replays the records that resumed queries have missed: each from its own position, all in one pass, up to the offset from
//! which they read with the others. A record that is appended meanwhile may lie in a batch that began before that offset.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_log::{Partition, UpTo};
use millstream_types::{Offset, PartitionId, RecordBatch};

use crate::live::LiveQuery;
use crate::outbox::PutOutcome;
use crate::progress::{EngineTotals, ReadProgress};
use crate::read_error::ReadError;
use crate::stream_batch::{FinishedQuery, match_batch};
use crate::{Matcher, Tally};

/// One partition, read for them.
pub(crate) struct Replay<'a> {
    partition: &'a Arc<dyn Partition>,
    /// The positions of the queries that are not reached yet, the last first.
    ahead: Vec<(Offset, Arc<LiveQuery>)>,
    /// The queries whose positions are reached.
    matcher: Matcher<Arc<LiveQuery>>,
    progress: Arc<ReadProgress>,
    next: Offset,
    /// The offset from which they read with the others.
    end: Offset,
    thread: usize,
    read_max_bytes: usize,
    totals: &'a EngineTotals,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(
        partition: &'a Arc<dyn Partition>,
        queries: &[Arc<LiveQuery>],
        end: Offset,
        thread: usize,
        read_max_bytes: usize,
        totals: &'a EngineTotals,
    ) -> Self {
        let id = partition.id().partition;
        let stands = |query: &Arc<LiveQuery>| Some((query.stands(id)?, query.clone()));
        let mut ahead: Vec<_> = queries.iter().filter_map(stands).collect();
        ahead.sort_by(|(a, _), (b, _)| b.cmp(a));
        let (next, epoch) = (ahead.last().map_or(end, |(at, _)| *at), partition.offsets().epoch);
        let progress = Arc::new(ReadProgress::start(id, next, epoch));
        Self { partition, ahead, matcher: Matcher::default(), progress, next, end, thread, read_max_bytes, totals }
    }

    /// The partition that is read.
    pub(crate) fn partition(&self) -> PartitionId {
        self.partition.id().partition
    }

    /// Reads up to the end.
    pub(crate) fn run(mut self, now_ms: i64, finished: &mut Vec<FinishedQuery>) -> Result<(), ReadError> {
        while self.step(now_ms, finished)? {}
        Ok(())
    }

    /// Reads a piece; whether there may be more.
    pub(crate) fn step(&mut self, now_ms: i64, finished: &mut Vec<FinishedQuery>) -> Result<bool, ReadError> {
        let (id, end) = (self.partition.id().partition, self.end);
        let mut batches = match self.next < end {
            true => self.partition.read(self.next, self.read_max_bytes, UpTo::Tail)?,
            false => Vec::new(),
        };
        // Nothing may be left between `next` and the end: the marker of a transaction, or records that were compacted away.
        batches.truncate(batches.partition_point(|batch| batch.base_offset() < end));
        let progress = self.progress.clone();
        let _piece = progress.piece();
        for batch in &batches {
            let next = self.next;
            self.meet(next.max(batch.base_offset()));
            let run = |batch: &RecordBatch| self.matcher.run_within(batch, id, next..end, now_ms);
            let tally = match_batch(&**self.partition, batch, run)?;
            self.next = batch.last_offset().next().min(end);
            self.count(&self.progress, tally, self.next, batch);
            let mut matcher = std::mem::take(&mut self.matcher);
            self.hand_over(&mut matcher, now_ms, finished);
            self.matcher = matcher;
            self.meet_within(batch, now_ms, finished)?;
        }
        if batches.is_empty() {
            self.matcher.tags().for_each(|query| query.note(id));
        }
        Ok(!batches.is_empty())
    }

    /// Adds the queries whose position is `next`, or in a gap before it.
    fn meet(&mut self, next: Offset) {
        while let Some((_, query)) = self.ahead.pop_if(|(at, _)| *at <= next) {
            self.take_in(query);
        }
    }

    fn take_in(&mut self, query: Arc<LiveQuery>) {
        query.see(&self.progress);
        self.matcher.insert(query.compiled.clone(), query);
    }

    /// Adds the queries whose position lies within the last batch: each reads the rest of it alone. In a compacted topic a
    /// batch may begin before a position that was once its end.
    fn meet_within(
        &mut self,
        batch: &RecordBatch,
        now_ms: i64,
        finished: &mut Vec<FinishedQuery>,
    ) -> Result<(), ReadError> {
        let next = batch.last_offset().next().min(self.end);
        while let Some((at, query)) = self.ahead.pop_if(|(at, _)| *at < next) {
            let alone = std::slice::from_ref(&query);
            let rest = Self::new(self.partition, alone, next, self.thread, self.read_max_bytes, self.totals);
            let Self { mut matcher, progress, .. } = rest;
            let _piece = progress.piece();
            query.see(&progress);
            matcher.insert(query.compiled.clone(), query.clone());
            let id = self.partition.id().partition;
            let run = |batch: &RecordBatch| matcher.run_within(batch, id, at..next, now_ms);
            let tally = match_batch(&**self.partition, batch, run)?;
            self.count(&progress, tally, next, batch);
            self.hand_over(&mut matcher, now_ms, finished);
            self.take_in(query);
        }
        Ok(())
    }

    /// Counts the records of a batch before their rows are emitted.
    fn count(&self, progress: &ReadProgress, tally: Tally, next: Offset, batch: &RecordBatch) {
        progress.add(tally, next, batch.epoch());
        self.totals.records_seen.fetch_add(tally.records, Ordering::Relaxed);
    }

    fn hand_over(&self, matcher: &mut Matcher<Arc<LiveQuery>>, now_ms: i64, finished: &mut Vec<FinishedQuery>) {
        let partition = self.partition.id().partition;
        matcher.drain(|_, query, yielded| {
            self.totals.matched.fetch_add(yielded.rows.row_count() as u64, Ordering::Relaxed);
            match query.take(self.thread, partition, yielded, now_ms) {
                PutOutcome::Taken => {}
                put => finished.push((query.clone(), put)),
            }
        });
    }
}
