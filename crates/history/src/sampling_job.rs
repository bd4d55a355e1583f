//! A sampling job rewrites old files of a directory into one with fewer points. It runs in pieces, so that
//! flushes can run in between.

use std::sync::Arc;

use crate::Error;
use crate::catalog::{CatalogEdit, FileCatalog};
use crate::columns::PointRow;
use crate::downsampler::Downsampler;
use crate::file_table::{DataFile, FileTable};
use crate::merge::{FAN_IN, MergeIterator, MergeWriter};
use crate::sampling_plan::{SamplingPlan, SamplingRules, is_covered};

/// Number of rows in one piece.
pub(crate) const PIECE_ROWS: usize = 64 << 10;

/// The input files and the plan of a job.
#[derive(Debug)]
pub(crate) struct SamplingTask {
    pub(crate) files: Vec<Arc<DataFile>>,
    pub(crate) plan: SamplingPlan,
}

/// Chooses the files of a directory that are due for sampling.
///
/// A file is old if its newest point is. Old files are combined, smallest first, because a period may have points in
/// several files. While the directory also has younger files, the job waits until the unsampled bytes reach the sampled
/// bytes, so that a few late points do not cause repeated rewrites.
pub(crate) fn choose(siblings: &[Arc<DataFile>], rules: &SamplingRules, now_ms: i64) -> Option<SamplingTask> {
    let plan_of = |file: &DataFile| rules.plan(now_ms.saturating_sub(file.record.kept_ms));
    let mut old: Vec<_> = siblings.iter().filter(|file| !file.is_damaged()).map(|file| (file, plan_of(file))).collect();
    old.retain(|(_, plan)| !plan.is_empty());
    let is_due = |(file, plan): &&(&Arc<DataFile>, SamplingPlan)| !is_covered(plan, &file.record.sampled);
    let due = old.iter().filter(is_due).count();
    let bytes: u64 = old.iter().map(|(file, _)| file.record.bytes).sum();
    let due_bytes: u64 = old.iter().filter(is_due).map(|(file, _)| file.record.bytes).sum();
    let are_all_old = old.len() == siblings.len();
    if (due == 0 && (old.len() <= 1 || !are_all_old)) || (!are_all_old && due_bytes < bytes - due_bytes) {
        return None;
    }
    old.sort_by_key(|(file, _)| file.record.bytes);
    old.truncate(FAN_IN);
    // The youngest file's plan is valid for all; a later job does more.
    let youngest = old.iter().max_by_key(|(file, _)| file.record.kept_ms);
    let plan = youngest.map(|(_, plan)| plan.clone()).unwrap_or_default();
    Some(SamplingTask { files: old.into_iter().map(|(file, _)| file.clone()).collect(), plan })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remaining {
    Some,
    None,
}

/// A job in progress. Its output does not count before `finish`, and is removed if the job is dropped.
pub(crate) struct SamplingJob {
    files: Vec<Arc<DataFile>>,
    rows: MergeIterator,
    downsampler: Downsampler,
    merged: MergeWriter,
    rows_read: u64,
    /// Output of the last downsampler step.
    settled: Vec<PointRow>,
}

impl SamplingJob {
    pub(crate) fn begin(catalog: &mut FileCatalog, SamplingTask { files, plan }: SamplingTask) -> Result<Self, Error> {
        let rows = MergeIterator::open(catalog, &files)?;
        let period = files.first().map(|file| file.record.period()).unwrap_or_default();
        let merged = MergeWriter::begin(catalog, &files, period, plan.clone());
        Ok(Self { files, rows, downsampler: Downsampler::new(plan), merged, rows_read: 0, settled: Vec::new() })
    }

    /// Tells if the input files are still in the table; a deletion or merge may have replaced them.
    pub(crate) fn is_current(&self, table: &FileTable) -> bool {
        let is_there = |file: &Arc<DataFile>| {
            table
                .siblings(&file.record.directory())
                .is_some_and(|siblings| siblings.iter().any(|sibling| Arc::ptr_eq(sibling, file)))
        };
        self.files.iter().all(is_there)
    }

    /// Processes up to `PIECE_ROWS` rows.
    pub(crate) fn work(&mut self) -> Result<Remaining, Error> {
        for _ in 0..PIECE_ROWS {
            let Some(row) = self.rows.next_row()? else {
                self.downsampler.finish().map_or(Ok(()), |last| self.merged.push(last))?;
                return Ok(Remaining::None);
            };
            self.rows_read += 1;
            self.downsampler.push(row, &mut self.settled);
            self.settled.drain(..).try_for_each(|row| self.merged.push(row))?;
        }
        Ok(Remaining::Some)
    }

    /// Makes the new file durable; returns the edit that replaces the inputs, and the number of dropped points.
    pub(crate) fn finish(self) -> Result<(CatalogEdit, u64), Error> {
        let added = self.merged.finish()?;
        let left_out = self.rows_read - added.as_ref().map_or(0, |record| record.rows);
        Ok((
            CatalogEdit { added: added.into_iter().collect(), removed: self.files, ..CatalogEdit::default() },
            left_out,
        ))
    }
}
