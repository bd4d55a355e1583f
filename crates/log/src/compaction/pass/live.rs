//! Judges the records of a topic with `compaction_live_percent`, and the segments that are worth a rewrite.
//!
//! One scan over all sources, from the oldest on, finds the superseded records: those that an earlier pass has noted
//! with their segment, and those with a key that this pass has mapped. A tombstone is spent, so that a rewrite drops
//! it, only if
//! - an earlier pass has mapped it, so that every older record of its key is known to be superseded;
//! - the scan has met no older record of its key, dead or not: `hidden` has the keys of all superseded records so far;
//! - it is old enough. A pass that removes the last record which a tombstone hides lets the age of that segment's
//!   tombstones begin anew, because a reader may have seen that record: `removed` has the keys of those records.
//!
//! Both sets may claim a key that they do not have: then a tombstone stays for longer.

use std::sync::Arc;

use millstream_types::{RecordBatch, RecordView};

use super::{CompactionFailure, CompactionPass};
use crate::compaction::keys::{KeyFilter, KeyHash};
use crate::compaction::plan::{self, SourceSegment};
use crate::dead_records::DeadRecords;
use crate::retention::is_older;
use crate::segment::Segment;

/// Each filter has this part of the memory for keys.
const FILTER_PARTS: usize = 8;
/// Bytes of a record beside its key, value and headers.
const RECORD_OVERHEAD_BYTES: u64 = 16;

/// The fate of the records of one source.
#[derive(Default)]
pub(super) struct SourceVerdict {
    dead: DeadRecords,
    /// Tombstones that nothing needs any more.
    spent: DeadRecords,
    total_bytes: u64,
    /// Bytes of the dead and spent records.
    removable_bytes: u64,
    /// The offset after the last spent tombstone.
    spent_to: u64,
    /// A rewrite keeps a record, or may keep a marker.
    keeps_some: bool,
    has_aborted: bool,
    /// A tombstone hides a record, or is mapped for the first time: if the segment is rewritten, its tombstones get
    /// the time of this pass.
    renews: bool,
    /// This pass may remove the last record that a tombstone hides: if the segment stays, it is dated anew.
    uncovers: bool,
}

/// The part of a verdict that a record gets.
pub(super) enum RecordVerdict {
    Kept,
    Dead,
    Spent,
}

impl SourceVerdict {
    pub(super) fn of(&self, number: u64) -> RecordVerdict {
        if self.spent.contains(number) {
            RecordVerdict::Spent
        } else if self.dead.contains(number) {
            RecordVerdict::Dead
        } else {
            RecordVerdict::Kept
        }
    }

    pub(super) fn renews(&self) -> bool {
        self.renews
    }

    /// `true` if a rewrite leaves nothing of the source, which then need not be read again.
    pub(super) fn leaves_nothing(&self) -> bool {
        !self.keeps_some
    }

    pub(super) fn spent_to(&self) -> u64 {
        self.spent_to
    }

    /// Nothing hides records of aborted transactions once they are forgotten.
    pub(super) fn must_be_rewritten(&self) -> bool {
        self.has_aborted
    }

    /// `true` if the source must be rewritten, or is worth it.
    fn changes(&self, live_percent: u8) -> bool {
        let live_bytes = self.total_bytes - self.removable_bytes;
        self.has_aborted || (self.removable_bytes > 0 && live_bytes * 100 < self.total_bytes * u64::from(live_percent))
    }

    pub(super) fn planned(&self, source: &Segment, live_percent: u8) -> SourceSegment {
        let (size_bytes, changes) = (source.size_bytes(), self.changes(live_percent));
        if !changes {
            return SourceSegment { size_bytes, changes };
        }
        let live = 1.0 - self.removable_bytes as f64 / self.total_bytes.max(1) as f64;
        // Not 0: nothing may join a full run.
        SourceSegment { size_bytes: ((size_bytes as f64 * live) as u64).max(1), changes }
    }

    /// Leaves `source` as it is, with a note of its superseded records. `true` if it must be dated anew.
    pub(super) fn leave(&mut self, source: &Segment) -> bool {
        source.set_dead(std::mem::take(&mut self.dead));
        self.uncovers
    }
}

/// The sets of one scan, and the offset up to which this pass has mapped the keys.
struct LiveScan {
    mapped_to: u64,
    hidden: KeyFilter,
    removed: KeyFilter,
    dead_keys: DeadKeys,
}

/// Keys of the superseded records of one source, as far as memory allows.
struct DeadKeys {
    hashes: Vec<KeyHash>,
    max: usize,
    all_fit: bool,
}

impl DeadKeys {
    fn new(max_bytes: usize) -> Self {
        Self { hashes: Vec::new(), max: max_bytes / size_of::<KeyHash>(), all_fit: true }
    }

    fn clear(&mut self) {
        self.hashes.clear();
        self.all_fit = true;
    }

    fn note(&mut self, key: KeyHash) {
        self.all_fit &= self.hashes.len() < self.max;
        if self.all_fit {
            self.hashes.push(key);
        }
    }
}

impl CompactionPass<'_> {
    /// The fate of all records of `sources`, below which every key is mapped up to `mapped_to`.
    pub(super) fn judge(
        &mut self,
        sources: &[Arc<Segment>],
        live_percent: u8,
        mapped_to: u64,
    ) -> Result<Vec<SourceVerdict>, CompactionFailure> {
        let part_bytes = self.shared.config.compaction_map_bytes / FILTER_PARTS;
        let filter = || KeyFilter::new(part_bytes);
        let mut scan =
            LiveScan { mapped_to, hidden: filter(), removed: filter(), dead_keys: DeadKeys::new(part_bytes) };
        let mut verdicts = Vec::with_capacity(sources.len());
        for source in sources {
            let mut verdict = SourceVerdict { dead: DeadRecords::clone(&source.dead()), ..SourceVerdict::default() };
            scan.dead_keys.clear();
            let has_markers = self.each_record(source, |pass, record, number, appended_ms| match record {
                Some(record) => pass.judge_record(&mut scan, &mut verdict, record, number, appended_ms),
                None => verdict.has_aborted = true,
            })?;
            verdict.keeps_some |= has_markers;
            let may_be_rewritten = verdict.changes(live_percent)
                || plan::may_be_merged(source.size_bytes(), self.job.config.segment_bytes);
            if may_be_rewritten && scan.dead_keys.all_fit {
                scan.dead_keys.hashes.iter().for_each(|key| scan.removed.insert(key));
            } else if may_be_rewritten {
                self.each_record(source, |pass, record, number, _| {
                    let key = record.and_then(|record| record.key).filter(|_| verdict.dead.contains(number));
                    key.into_iter().for_each(|key| scan.removed.insert(&pass.keys.hash(key)));
                })?;
            }
            verdicts.push(verdict);
        }
        Ok(verdicts)
    }

    fn judge_record(
        &self,
        scan: &mut LiveScan,
        verdict: &mut SourceVerdict,
        record: &RecordView<'_>,
        number: u64,
        appended_ms: i64,
    ) {
        let bytes = weight(record);
        verdict.total_bytes += bytes;
        let Some(key) = record.key else {
            verdict.keeps_some = true;
            return;
        };
        let (key, offset): (KeyHash, u64) = (self.keys.hash(key), record.offset.0);
        if verdict.dead.contains(number) || self.keys.is_superseded(&key, offset) {
            verdict.dead.insert(number);
            verdict.removable_bytes += bytes;
            scan.hidden.insert(&key);
            scan.dead_keys.note(key);
        } else if record.value.is_none() {
            let hides = scan.hidden.may_contain(&key);
            let is_mapped = offset < self.job.mapped_to.min(scan.mapped_to);
            verdict.renews |= hides || !is_mapped;
            verdict.uncovers |= scan.removed.may_contain(&key);
            if is_mapped && !hides && is_older(appended_ms, self.job.config.delete_retention, self.job.now_ms) {
                verdict.spent.insert(number);
                verdict.spent_to = offset + 1;
                verdict.removable_bytes += bytes;
            } else {
                verdict.keeps_some = true;
            }
        } else {
            verdict.keeps_some = true;
        }
    }

    /// Passes each record of `source` that is not a marker to `look`, with its number in the segment and the time
    /// from which its age counts; `None` for each record of an aborted transaction. `true` if there are markers.
    fn each_record(
        &mut self,
        source: &Segment,
        mut look: impl FnMut(&Self, Option<&RecordView<'_>>, u64, i64),
    ) -> Result<bool, CompactionFailure> {
        let (mut number, mut has_markers) = (0, false);
        for block in source.blocks().map_err(CompactionFailure::Damaged)? {
            let (appended_ms, batches) = self.read(source, &block)?;
            let aborted = self.job.aborted.within(block.first, block.end);
            has_markers |= batches.iter().any(RecordBatch::is_control);
            for batch in batches.iter().filter(|batch| !batch.is_control()) {
                let is_aborted = aborted.holds(batch);
                let undecodable = |e| CompactionFailure::Damaged(self.undecodable(e));
                let inflated = batch.inflated(&self.shared.limits).map_err(undecodable)?;
                for record in inflated.records() {
                    let record = record.map_err(undecodable)?;
                    look(self, Some(&record).filter(|_| !is_aborted), number, appended_ms);
                    number += 1;
                }
            }
        }
        Ok(has_markers)
    }
}

fn weight(record: &RecordView<'_>) -> u64 {
    let length = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len) as u64;
    let headers = record.headers().map(|header| header.key.len() as u64 + length(header.value));
    RECORD_OVERHEAD_BYTES + length(record.key) + length(record.value) + headers.sum::<u64>()
}
