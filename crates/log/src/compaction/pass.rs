//! One pass over the oldest segments of a partition.
//!
//! First the keys of what is not clean are mapped to their last offsets, as far as memory reaches; then the segments up to
//! there are read for what goes: records that the map knows a later one for, those of aborted transactions, and tombstones
//! and markers that are old enough and hide nothing any more. Those that lose something are written anew, together with
//! small ones beside them; the others stay. Records without a key stay as they are.

use std::sync::Arc;

use millstream_types::{BatchBuilder, Header, Record, RecordBatch, RecordView};

use super::keys::KeyMap;
use super::output::Output;
use super::plan::{self, Source};
use super::{Failure, Job, Outcome, Pace};
use crate::index::BlockEntry;
use crate::recent::Stored;
use crate::retention::is_older;
use crate::segment::Segment;
use crate::shared::Shared;
use crate::{Error, Partition as _};

/// The age of tombstones is kept to this part of how long they stay.
const AGE_PARTS: i64 = 8;
/// And no finer than this.
const WINDOW_MIN_MS: i64 = 1_000;

/// Makes the segments that may take the place of the job's sources.
pub(super) fn run(shared: &Shared, job: &Job) -> Result<Outcome, Failure> {
    let pace = Pace { shared, partition: &job.partition, spent_bytes: 0 };
    let mut pass = Pass { shared, job, pace, keys: KeyMap::new(shared.config.compaction_map_bytes), horizon: 0 };
    let clean_to = pass.map_keys()?;
    let sources: Vec<_> = job.sources.iter().take_while(|source| source.base() < clean_to).cloned().collect();
    let generation = 1 + sources.iter().map(|source| source.generation()).max().unwrap_or(0);
    let retention_ms = i64::try_from(job.config.delete_retention.as_millis()).unwrap_or(i64::MAX);
    let mut output = Output::new(&job.partition, generation, (retention_ms / AGE_PARTS).max(WINDOW_MIN_MS));
    match pass.clean(&sources, &mut output) {
        Ok(cleaned) => {
            Ok(Outcome { partition: job.partition.clone(), sources, cleaned, clean_to, horizon: pass.horizon })
        }
        Err(failure) => {
            output.discard(&*shared.files);
            Err(failure)
        }
    }
}

struct Pass<'a> {
    shared: &'a Shared,
    job: &'a Job,
    pace: Pace<'a>,
    keys: KeyMap,
    /// Behind the last tombstone that was left out.
    horizon: u64,
}

impl Pass<'_> {
    /// Notes the last offset of every key from `clean_to` on. Up to where there was room for all.
    fn map_keys(&mut self) -> Result<u64, Failure> {
        let clean_to = self.job.clean_to;
        for source in self.job.sources.iter().filter(|source| source.end() > clean_to) {
            for block in source.blocks().map_err(Failure::Damaged)?.iter().filter(|block| block.end > clean_to) {
                let aborted = self.job.aborted.within(block.first, block.end);
                let counts = |batch: &&RecordBatch| !batch.is_control() && !aborted.holds(batch);
                for batch in self.read(source, block)?.1.iter().filter(counts) {
                    if let Some(full_at) = self.map_batch(batch).map_err(Failure::Damaged)? {
                        return Ok(full_at);
                    }
                }
            }
        }
        Ok(self.job.sources.last().map_or(clean_to, |last| last.end()))
    }

    /// The offset of the first record that found no room, if there is one.
    fn map_batch(&mut self, batch: &RecordBatch) -> Result<Option<u64>, Error> {
        let inflated = batch.inflated(&self.shared.limits).map_err(|e| self.undecodable(e))?;
        for record in inflated.records() {
            let record = record.map_err(|e| self.undecodable(e))?;
            let offset = record.offset.0;
            if let Some(key) = record.key.filter(|_| offset >= self.job.clean_to)
                && !self.keys.note(key, offset)
            {
                return Ok(Some(offset));
            }
        }
        Ok(None)
    }

    /// What takes the place of the sources: those that change are written anew, the others stay.
    fn clean(&mut self, sources: &[Arc<Segment>], output: &mut Output<'_>) -> Result<Vec<Arc<Segment>>, Failure> {
        let mut planned = Vec::with_capacity(sources.len());
        for source in sources {
            planned.push(Source { size_bytes: source.size_bytes(), changes: self.changes(source)? });
        }
        let mut cleaned = Vec::new();
        for run in plan::runs(&planned, self.job.config.segment_bytes) {
            let is_last = run.sources.end == sources.len();
            let run_sources = &sources[run.sources];
            let written = if run.is_rewritten { self.rewrite(run_sources, output)? } else { None };
            match written {
                Some(segment) => cleaned.push(segment),
                // Where nothing is left, nothing need be; but the last one tells how far the segments go.
                None if run.is_rewritten && !is_last => {}
                None => cleaned.extend_from_slice(run_sources),
            }
        }
        Ok(cleaned)
    }

    /// Whether a source loses records, or has tombstones that are to be dated.
    fn changes(&mut self, source: &Segment) -> Result<bool, Failure> {
        for block in source.blocks().map_err(Failure::Damaged)? {
            let is_clean = block.end <= self.job.clean_to;
            let (appended_ms, batches) = self.read(source, &block)?;
            let aborted = self.job.aborted.within(block.first, block.end);
            for batch in &batches {
                let is_aborted = !batch.is_control() && aborted.holds(batch);
                if is_aborted || self.batch_changes(batch, appended_ms, is_clean).map_err(Failure::Damaged)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn batch_changes(&mut self, batch: &RecordBatch, appended_ms: i64, is_clean: bool) -> Result<bool, Error> {
        if batch.is_control() {
            return Ok(!self.keeps_marker(batch, appended_ms));
        }
        let inflated = batch.inflated(&self.shared.limits).map_err(|e| self.undecodable(e))?;
        for record in inflated.records() {
            let record = record.map_err(|e| self.undecodable(e))?;
            if (record.value.is_none() && !is_clean) || !self.keeps(&record, appended_ms) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes one segment of some sources; none if nothing is left.
    fn rewrite(&mut self, sources: &[Arc<Segment>], output: &mut Output<'_>) -> Result<Option<Arc<Segment>>, Failure> {
        let (Some(first), Some(last)) = (sources.first(), sources.last()) else { return Ok(None) };
        let mut builder = BatchBuilder::default();
        for source in sources {
            for block in source.blocks().map_err(Failure::Damaged)? {
                let (appended_ms, batches) = self.read(source, &block)?;
                let is_clean = block.end <= self.job.clean_to;
                let dated_ms = if is_clean { appended_ms } else { appended_ms.max(self.job.now_ms) };
                let aborted = self.job.aborted.within(block.first, block.end);
                for batch in batches.into_iter().filter(|batch| batch.is_control() || !aborted.holds(batch)) {
                    let Some(kept) = self.filter(&batch, appended_ms, &mut builder).map_err(Failure::Damaged)? else {
                        continue;
                    };
                    let written = output.push(first.base(), Stored::new(kept, dated_ms)).map_err(Failure::Writing)?;
                    self.pace.spend(written)?;
                }
            }
        }
        output.finish(last.end()).map_err(Failure::Writing)
    }

    /// What stays of a batch, if anything does.
    fn filter(
        &mut self,
        batch: &RecordBatch,
        appended_ms: i64,
        builder: &mut BatchBuilder,
    ) -> Result<Option<RecordBatch>, Error> {
        if batch.is_control() {
            return Ok(self.keeps_marker(batch, appended_ms).then(|| batch.clone()));
        }
        builder.clear();
        let inflated = batch.inflated(&self.shared.limits).map_err(|e| self.undecodable(e))?;
        for record in inflated.records() {
            let record = record.map_err(|e| self.undecodable(e))?;
            if self.keeps(&record, appended_ms) {
                push(builder, batch, &record);
            }
        }
        if builder.is_empty() || builder.record_count() == batch.record_count() {
            return Ok((!builder.is_empty()).then(|| batch.clone()));
        }
        // Readers go on behind the batch: what has gone from its end is not to be asked for again.
        builder.extend_to(u32::try_from(batch.last_offset().0 - batch.base_offset().0).expect("the width of a batch"));
        if let Some(producer) = batch.producer() {
            builder.set_producer(producer);
        }
        if batch.is_transactional() {
            builder.set_transactional();
        }
        Ok(Some(builder.seal(batch.base_offset(), batch.epoch(), batch.compression())))
    }

    fn keeps(&mut self, record: &RecordView<'_>, appended_ms: i64) -> bool {
        let (Some(key), offset) = (record.key, record.offset.0) else { return true };
        if self.keys.is_superseded(key, offset) {
            return false;
        }
        let hides_nothing = record.value.is_none() && offset < self.job.clean_to;
        let goes = hides_nothing && is_older(appended_ms, self.job.config.delete_retention, self.job.now_ms);
        if goes {
            self.horizon = self.horizon.max(offset + 1);
        }
        !goes
    }

    /// A client that is told of an aborted transaction looks for its marker.
    fn keeps_marker(&self, marker: &RecordBatch, appended_ms: i64) -> bool {
        let at = marker.base_offset().0;
        let is_clean = at < self.job.clean_to && !self.job.aborted.ends_at(at);
        !(is_clean && is_older(appended_ms, self.job.config.delete_retention, self.job.now_ms))
    }

    fn read(&mut self, source: &Segment, block: &BlockEntry) -> Result<(i64, Vec<RecordBatch>), Failure> {
        self.pace.spend(u64::from(block.payload_bytes))?;
        source.dated_block(block, &self.shared.limits).map_err(Failure::Damaged)
    }

    fn undecodable(&self, source: millstream_types::BatchError) -> Error {
        Error::Batch { partition: self.job.partition.id().clone(), source }
    }
}

fn push(builder: &mut BatchBuilder, batch: &RecordBatch, record: &RecordView<'_>) {
    let headers: Vec<Header<'_>> = record.headers().collect();
    let delta = u32::try_from(record.offset.0 - batch.base_offset().0).expect("a record is within its batch");
    let (timestamp_ms, key, value) = (record.timestamp_ms, record.key, record.value);
    builder.push_at(delta, &Record { timestamp_ms, key, value, headers: &headers });
}
