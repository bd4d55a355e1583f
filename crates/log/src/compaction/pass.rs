//! One compaction pass over the oldest segments of a partition.
//!
//! The pass maps the keys of the dirty part to their last offsets, as far as memory allows. Then it reads the
//! segments below that point and drops records with a later version, records of aborted transactions, and tombstones
//! and markers that are old enough and hide nothing. It rewrites the segments that lose something, together with
//! small neighbours, and keeps the others. It keeps records without a key. For a topic with `compaction_live_percent`
//! see `live.rs`.

mod live;

use std::sync::Arc;

use millstream_types::{BatchBuilder, Header, Record, RecordBatch, RecordView};

use self::live::{RecordVerdict, SourceVerdict};
use super::keys::KeyMap;
use super::output::SegmentOutput;
use super::plan::{self, SegmentRun, SourceSegment};
use super::{CompactionFailure, Throttle};
use crate::compaction_queue::{CompactedSegments, CompactionJob};
use crate::index::BlockEntry;
use crate::queues::Queues;
use crate::retention::is_older;
use crate::segment::Segment;
use crate::shared::EngineShared;
use crate::tail_cache::CachedBatch;
use crate::{Error, Partition as _};

/// The age of tombstones is kept at this fraction of `delete_retention`.
const AGE_PARTS: i64 = 8;
/// Smallest time window for the age of tombstones.
const WINDOW_MIN_MS: i64 = 1_000;

/// Writes segments that may replace the job's sources.
pub(super) fn run(
    shared: &EngineShared,
    queues: &Queues,
    job: &CompactionJob,
) -> Result<CompactedSegments, CompactionFailure> {
    let throttle = Throttle::new(shared, queues, job);
    let keys = KeyMap::new(shared.config.compaction_map_bytes);
    let mut pass =
        CompactionPass { shared, job, throttle, keys, horizon: 0, is_left_for_room: false, dated: Vec::new() };
    let mapped_to = pass.map_keys()?;
    let sources: Vec<_> = job.sources.iter().take_while(|source| source.base() < mapped_to).cloned().collect();
    let generation = 1 + sources.iter().map(|source| source.generation()).max().unwrap_or(0);
    let retention_ms = i64::try_from(job.config.delete_retention.as_millis()).unwrap_or(i64::MAX);
    let mut output = SegmentOutput::new(&job.partition, generation, (retention_ms / AGE_PARTS).max(WINDOW_MIN_MS));
    match pass.clean(&sources, mapped_to, &mut output) {
        Ok(cleaned) => Ok(CompactedSegments {
            partition: job.partition.clone(),
            sources,
            clean_to: job.config.compaction_live_percent.map_or(mapped_to, |_| clean_to(&cleaned, mapped_to)),
            mapped_to,
            cleaned,
            horizon: pass.horizon,
            is_left_for_room: pass.is_left_for_room,
            dated: pass.dated,
        }),
        Err(failure) => {
            output.discard(&*shared.files);
            Err(failure)
        }
    }
}

/// The offset below which each key has one record, if every superseded record that is left is noted with its segment.
fn clean_to(segments: &[Arc<Segment>], mapped_to: u64) -> u64 {
    let oldest = segments.iter().find(|segment| !segment.dead().is_empty());
    oldest.map_or(mapped_to, |oldest| oldest.base().min(mapped_to))
}

/// The room on the disk for the runs of a pass.
struct RunRoom<'a> {
    planned: &'a [SourceSegment],
    verdicts: &'a [SourceVerdict],
    spare_bytes: u64,
}

impl RunRoom<'_> {
    /// Leaves the runs unchanged for whose rewrite there is no room. `true` if another pass is worth it: those that are
    /// rewritten make room for the others.
    fn leave_others(mut self, runs: &mut [SegmentRun]) -> bool {
        let (mut is_any_left, mut is_any_rewritten) = (false, false);
        for run in runs.iter_mut().filter(|run| run.is_rewritten) {
            let verdicts = &self.verdicts[run.sources.clone()];
            let bytes: u64 = self.planned[run.sources.clone()].iter().map(|source| source.size_bytes).sum();
            let leaves_nothing = verdicts.iter().all(SourceVerdict::leaves_nothing);
            let must = leaves_nothing || verdicts.iter().any(SourceVerdict::must_be_rewritten);
            run.is_rewritten = must || bytes <= self.spare_bytes;
            if run.is_rewritten {
                self.spare_bytes = self.spare_bytes.saturating_sub(if leaves_nothing { 0 } else { bytes });
            }
            is_any_rewritten |= run.is_rewritten;
            is_any_left |= !run.is_rewritten;
        }
        is_any_left && is_any_rewritten
    }
}

struct CompactionPass<'a> {
    shared: &'a EngineShared,
    job: &'a CompactionJob,
    throttle: Throttle<'a>,
    keys: KeyMap,
    /// The offset after the last tombstone that was dropped.
    horizon: u64,
    is_left_for_room: bool,
    /// Sources that stay, with tombstones whose age begins anew.
    dated: Vec<Arc<Segment>>,
}

impl CompactionPass<'_> {
    /// Maps every key that no earlier pass has mapped to its last offset. Returns the offset up to which all keys fit.
    fn map_keys(&mut self) -> Result<u64, CompactionFailure> {
        let mapped_to = self.job.mapped_to;
        for source in self.job.sources.iter().filter(|source| source.end() > mapped_to) {
            for block in
                source.blocks().map_err(CompactionFailure::Damaged)?.iter().filter(|block| block.end > mapped_to)
            {
                let aborted = self.job.aborted.within(block.first, block.end);
                let counts = |batch: &&RecordBatch| !batch.is_control() && !aborted.holds(batch);
                for batch in self.read(source, block)?.1.iter().filter(counts) {
                    if let Some(full_at) = self.map_batch(batch).map_err(CompactionFailure::Damaged)? {
                        return Ok(full_at);
                    }
                }
            }
        }
        Ok(self.job.sources.last().map_or(mapped_to, |last| last.end()))
    }

    /// Returns the offset of the first record whose key does not fit, if there is one.
    fn map_batch(&mut self, batch: &RecordBatch) -> Result<Option<u64>, Error> {
        let inflated = batch.inflated(&self.shared.limits).map_err(|e| self.undecodable(e))?;
        for record in inflated.records() {
            let record = record.map_err(|e| self.undecodable(e))?;
            let offset = record.offset.0;
            if let Some(key) = record.key.filter(|_| offset >= self.job.mapped_to)
                && !self.keys.note(key, offset)
            {
                return Ok(Some(offset));
            }
        }
        Ok(None)
    }

    /// Rewrites the sources that change and keeps the others. Returns the new list of segments.
    fn clean(
        &mut self,
        sources: &[Arc<Segment>],
        mapped_to: u64,
        output: &mut SegmentOutput<'_>,
    ) -> Result<Vec<Arc<Segment>>, CompactionFailure> {
        let (mut planned, mut verdicts) = (Vec::with_capacity(sources.len()), Vec::new());
        if let Some(live_percent) = self.job.config.compaction_live_percent {
            verdicts = self.judge(sources, live_percent, mapped_to)?;
            planned.extend(verdicts.iter().zip(sources).map(|(verdict, source)| verdict.planned(source, live_percent)));
        } else {
            for source in sources {
                planned.push(SourceSegment { size_bytes: source.size_bytes(), changes: self.changes(source)? });
            }
        }
        let segment_bytes = self.job.config.segment_bytes;
        let runs = if self.job.config.compaction_live_percent.is_some() {
            let spare_bytes = self.shared.space.spare_bytes();
            let mut runs = plan::runs(&planned, segment_bytes.min(spare_bytes));
            let room = RunRoom { planned: &planned, verdicts: &verdicts, spare_bytes };
            self.is_left_for_room = room.leave_others(&mut runs);
            runs
        } else {
            plan::runs(&planned, segment_bytes)
        };
        let mut cleaned = Vec::new();
        for run in runs {
            let is_last = run.sources.end == sources.len();
            let (run_sources, run_verdicts) =
                (&sources[run.sources.clone()], verdicts.get_mut(run.sources).unwrap_or_default());
            let written = if run.is_rewritten { self.rewrite(run_sources, run_verdicts, output)? } else { None };
            match written {
                Some(segment) => cleaned.push(segment),
                // A run that becomes empty needs no segment, except the last: it tells how far the segments reach.
                None if run.is_rewritten && !is_last => {}
                None => {
                    let left = run_sources
                        .iter()
                        .zip(run_verdicts)
                        .filter_map(|(source, verdict)| verdict.leave(source).then_some(source));
                    self.dated.extend(left.cloned());
                    cleaned.extend_from_slice(run_sources);
                }
            }
        }
        Ok(cleaned)
    }

    /// `true` if the segment loses records, or if its tombstones are to be dated.
    fn changes(&mut self, source: &Segment) -> Result<bool, CompactionFailure> {
        for block in source.blocks().map_err(CompactionFailure::Damaged)? {
            let is_clean = block.end <= self.job.mapped_to;
            let (appended_ms, batches) = self.read(source, &block)?;
            let aborted = self.job.aborted.within(block.first, block.end);
            for batch in &batches {
                let is_aborted = !batch.is_control() && aborted.holds(batch);
                if is_aborted || self.batch_changes(batch, appended_ms, is_clean).map_err(CompactionFailure::Damaged)? {
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

    /// Merges the sources into one segment; `None` if nothing is left.
    /// `verdicts` is empty unless the topic is compacted by live bytes.
    fn rewrite(
        &mut self,
        sources: &[Arc<Segment>],
        verdicts: &[SourceVerdict],
        output: &mut SegmentOutput<'_>,
    ) -> Result<Option<Arc<Segment>>, CompactionFailure> {
        let (Some(first), Some(last)) = (sources.first(), sources.last()) else { return Ok(None) };
        let mut builder = BatchBuilder::default();
        for (index, source) in sources.iter().enumerate() {
            let verdict = verdicts.get(index);
            if let Some(verdict) = verdict.filter(|verdict| verdict.leaves_nothing()) {
                self.horizon = self.horizon.max(verdict.spent_to());
                continue;
            }
            let mut number = 0;
            for block in source.blocks().map_err(CompactionFailure::Damaged)? {
                let (appended_ms, batches) = self.read(source, &block)?;
                let is_dated = verdict.map_or(block.end > self.job.mapped_to, SourceVerdict::renews);
                let dated_ms = if is_dated { appended_ms.max(self.job.now_ms) } else { appended_ms };
                let aborted = self.job.aborted.within(block.first, block.end);
                for batch in batches {
                    let from = number;
                    number += if batch.is_control() { 0 } else { u64::from(batch.record_count()) };
                    if !batch.is_control() && aborted.holds(&batch) {
                        continue;
                    }
                    let judged = verdict.map(|verdict| (verdict, from));
                    let kept = self.filter(&batch, appended_ms, judged, &mut builder);
                    let Some(kept) = kept.map_err(CompactionFailure::Damaged)? else { continue };
                    let written = output
                        .push(first.base(), CachedBatch::new(kept, dated_ms))
                        .map_err(CompactionFailure::Writing)?;
                    self.throttle.spend(written)?;
                }
            }
        }
        output.finish(last.end()).map_err(CompactionFailure::Writing)
    }

    /// Returns the part of a batch that stays, if any.
    fn filter(
        &mut self,
        batch: &RecordBatch,
        appended_ms: i64,
        judged: Option<(&SourceVerdict, u64)>,
        builder: &mut BatchBuilder,
    ) -> Result<Option<RecordBatch>, Error> {
        if batch.is_control() {
            return Ok(self.keeps_marker(batch, appended_ms).then(|| batch.clone()));
        }
        builder.clear();
        let inflated = batch.inflated(&self.shared.limits).map_err(|e| self.undecodable(e))?;
        for (number, record) in (0..).zip(inflated.records()) {
            let record = record.map_err(|e| self.undecodable(e))?;
            let keeps = match judged {
                Some((verdict, from)) => self.keeps_as_judged(&record, verdict.of(from + number)),
                None => self.keeps(&record, appended_ms),
            };
            if keeps {
                push(builder, batch, &record);
            }
        }
        if builder.is_empty() || builder.record_count() == batch.record_count() {
            return Ok((!builder.is_empty()).then(|| batch.clone()));
        }
        // Keep the width of the batch: a reader must not ask again for offsets that were removed from its end.
        builder.extend_to(u32::try_from(batch.last_offset().0 - batch.base_offset().0).expect("the width of a batch"));
        if let Some(producer) = batch.producer() {
            builder.set_producer(producer);
        }
        if batch.is_transactional() {
            builder.set_transactional();
        }
        if batch.has_append_time() {
            builder.set_append_time();
        }
        Ok(Some(builder.seal(batch.base_offset(), batch.epoch(), batch.compression())))
    }

    fn keeps(&mut self, record: &RecordView<'_>, appended_ms: i64) -> bool {
        let (Some(key), offset) = (record.key, record.offset.0) else { return true };
        if self.keys.is_superseded(&self.keys.hash(key), offset) {
            return false;
        }
        let hides_nothing = record.value.is_none() && offset < self.job.mapped_to;
        let goes = hides_nothing && is_older(appended_ms, self.job.config.delete_retention, self.job.now_ms);
        if goes {
            self.horizon = self.horizon.max(offset + 1);
        }
        !goes
    }

    fn keeps_as_judged(&mut self, record: &RecordView<'_>, verdict: RecordVerdict) -> bool {
        if matches!(verdict, RecordVerdict::Spent) {
            self.horizon = self.horizon.max(record.offset.0 + 1);
        }
        matches!(verdict, RecordVerdict::Kept)
    }

    /// A client that is told of an aborted transaction looks for its marker.
    fn keeps_marker(&self, marker: &RecordBatch, appended_ms: i64) -> bool {
        let at = marker.base_offset().0;
        let is_clean = at < self.job.mapped_to && !self.job.aborted.ends_at(at);
        !(is_clean && is_older(appended_ms, self.job.config.delete_retention, self.job.now_ms))
    }

    fn read(&mut self, source: &Segment, block: &BlockEntry) -> Result<(i64, Vec<RecordBatch>), CompactionFailure> {
        self.throttle.spend(u64::from(block.payload_bytes))?;
        source.dated_block(block, &self.shared.limits).map_err(CompactionFailure::Damaged)
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
