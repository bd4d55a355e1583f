//! How queries of a former process see what has been appended since: each from where it stood, all in one reading, up to
//! where they see the rest with all others. What is appended meanwhile may lie in a batch that began before that.

use std::sync::Arc;

use millstream_log::{Partition, UpTo};
use millstream_types::{Offset, RecordBatch};

use crate::Matcher;
use crate::live::Live;
use crate::outbox::Put;
use crate::progress::Progress;
use crate::tailed::{Broken, Finished, match_batch};

/// One partition, read for them.
pub(crate) struct Replay<'a> {
    partition: &'a Arc<dyn Partition>,
    /// Where each of them stands that has not been reached yet, the last first.
    ahead: Vec<(Offset, Arc<Live>)>,
    /// Those that have been reached.
    matcher: Matcher<Arc<Live>>,
    progress: Arc<Progress>,
    next: Offset,
    /// What begins there they see with all others.
    end: Offset,
    thread: usize,
    read_max_bytes: usize,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(
        partition: &'a Arc<dyn Partition>,
        queries: &[Arc<Live>],
        end: Offset,
        thread: usize,
        read_max_bytes: usize,
    ) -> Self {
        let id = partition.id().partition;
        let stands = |query: &Arc<Live>| Some((query.stands(id)?, query.clone()));
        let mut ahead: Vec<_> = queries.iter().filter_map(stands).collect();
        ahead.sort_by(|(a, _), (b, _)| b.cmp(a));
        let (next, epoch) = (ahead.last().map_or(end, |(at, _)| *at), partition.offsets().epoch);
        let progress = Arc::new(Progress::start(id, next, epoch));
        Self { partition, ahead, matcher: Matcher::default(), progress, next, end, thread, read_max_bytes }
    }

    /// Reads up to the end.
    pub(crate) fn run(mut self, now_ms: i64, finished: &mut Vec<Finished>) -> Result<(), Broken> {
        while self.step(now_ms, finished)? {}
        Ok(())
    }

    /// Reads a piece; whether there may be more.
    pub(crate) fn step(&mut self, now_ms: i64, finished: &mut Vec<Finished>) -> Result<bool, Broken> {
        let (id, end) = (self.partition.id().partition, self.end);
        let batches = match self.next < end {
            true => self.partition.read(self.next, self.read_max_bytes, UpTo::Tail)?,
            false => Vec::new(),
        };
        for batch in batches.iter().filter(|batch| batch.base_offset() < end) {
            let next = self.next;
            self.meet(next.max(batch.base_offset()));
            let run = |batch: &RecordBatch| self.matcher.run_within(batch, id, next..end, now_ms);
            let tally = match_batch(&**self.partition, batch, run)?;
            self.next = batch.last_offset().next().min(end);
            self.progress.add(tally, self.next, batch.epoch());
            self.hand_over(now_ms, finished);
            self.meet_within(batch, now_ms, finished)?;
        }
        if batches.is_empty() {
            self.matcher.tags().for_each(|query| query.note(id));
        }
        Ok(!batches.is_empty())
    }

    /// Takes in those that stand at `next` or in a gap before it.
    fn meet(&mut self, next: Offset) {
        while let Some((_, query)) = self.ahead.pop_if(|(at, _)| *at <= next) {
            self.take_in(query);
        }
    }

    fn take_in(&mut self, query: Arc<Live>) {
        query.see(&self.progress);
        self.matcher.insert(query.compiled.clone(), query);
    }

    /// Takes in those that stand within a batch that the others have just seen: each sees the rest of it by itself. In a
    /// topic that is compacted a batch may begin before a place that was once its end.
    fn meet_within(&mut self, batch: &RecordBatch, now_ms: i64, finished: &mut Vec<Finished>) -> Result<(), Broken> {
        let next = batch.last_offset().next().min(self.end);
        while let Some((at, query)) = self.ahead.pop_if(|(at, _)| *at < next) {
            let alone = std::slice::from_ref(&query);
            let rest = Self::new(self.partition, alone, next, self.thread, self.read_max_bytes);
            let Self { mut matcher, progress, .. } = rest;
            query.see(&progress);
            matcher.insert(query.compiled.clone(), query.clone());
            let id = self.partition.id().partition;
            let run = |batch: &RecordBatch| matcher.run_within(batch, id, at..next, now_ms);
            let tally = match_batch(&**self.partition, batch, run)?;
            progress.add(tally, next, batch.epoch());
            hand_over(&mut matcher, self.thread, &**self.partition, now_ms, finished);
            self.take_in(query);
        }
        Ok(())
    }

    fn hand_over(&mut self, now_ms: i64, finished: &mut Vec<Finished>) {
        hand_over(&mut self.matcher, self.thread, &**self.partition, now_ms, finished);
    }
}

fn hand_over(
    matcher: &mut Matcher<Arc<Live>>,
    thread: usize,
    partition: &dyn Partition,
    now_ms: i64,
    finished: &mut Vec<Finished>,
) {
    matcher.drain(|_, query, yielded| match query.take(thread, partition.id().partition, yielded, now_ms) {
        Put::Taken => {}
        put => finished.push((query.clone(), put)),
    });
}
