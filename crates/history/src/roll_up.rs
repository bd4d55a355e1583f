//! Chooses files of past days to become one file of their month, and those of past months one of their year.
//!
//! A point moves twice at most: days wait until there are several of them or their month is over, months until their year
//! is over. Files that rules of sampling will rewrite wait for that, and new files of an old period for others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::catalog_record::FileRecord;
use crate::file_period::{FileDirectory, FilePeriod, Span};
use crate::file_table::{DataFile, Siblings};
use crate::point::{DAY_MS, day};
use crate::sampling_plan::{SamplingPlan, SamplingRules, is_covered};

/// Days from which on a file of one day moves to that of its month.
const RECENT_DAYS: i32 = 7;
/// Days after the end of a year until its months move to it.
const RECENT_MONTHS_DAYS: i32 = 62;
/// Files of days of a month that move before the month is over.
const DAYS_MIN: usize = 8;
/// Most files that become one in a step; each has a buffer.
const FILES_MAX: usize = 16;

/// Files of one type that become one file of a longer period.
#[derive(Debug)]
pub(crate) struct RollUp {
    pub(crate) files: Vec<Arc<DataFile>>,
    pub(crate) period: FilePeriod,
}

/// The limits of one type, by its rules and the number of files.
#[derive(Debug)]
pub(crate) struct RollUpRules {
    pub(crate) now_ms: i64,
    pub(crate) coarsest: Span,
    pub(crate) max_bytes: u64,
    /// `true` if there are so many files that none has time to wait.
    pub(crate) is_crowded: bool,
    pub(crate) sampling: SamplingRules,
}

impl RollUpRules {
    fn today(&self) -> i32 {
        day(self.now_ms)
    }

    fn is_recent(&self, period: FilePeriod) -> bool {
        let margin = if self.is_crowded { 1 } else { RECENT_DAYS };
        let days = period.days();
        days.end > self.today() - margin && days.start <= self.today() + 1
    }

    fn is_over(&self, period: FilePeriod) -> bool {
        let margin = if period.span == Span::Year { RECENT_MONTHS_DAYS } else { RECENT_DAYS };
        self.is_crowded || period.days().end <= self.today() - margin
    }

    /// Tells if files of a period that is over need not wait for others, which late points may bring.
    fn are_enough(&self, files: &[&Arc<DataFile>]) -> bool {
        let newest_ms = files.iter().map(|file| file.record.kept_ms).max().unwrap_or_default();
        self.is_crowded || files.len() >= FILES_MAX || self.now_ms.saturating_sub(newest_ms) >= DAY_MS
    }

    fn is_final(&self, file: &FileRecord) -> bool {
        is_covered(&self.sampling.plan(i64::MAX), &file.sampled)
    }
}

/// Chooses files of one type, whose directories are given.
pub(crate) fn choose(of_kind: &[(&FileDirectory, &Siblings)], rules: &RollUpRules) -> Option<RollUp> {
    [Span::Month, Span::Year].into_iter().filter(|span| *span <= rules.coarsest).find_map(|span| {
        let mut candidates: BTreeMap<FilePeriod, Vec<&Arc<DataFile>>> = BTreeMap::new();
        for ((_, _, period), siblings) in of_kind.iter().filter(|((_, _, period), _)| period.span < span) {
            if !rules.is_recent(*period) {
                let longer = FilePeriod::of(span, period.first_day);
                let is_movable = |file: &&Arc<DataFile>| {
                    !file.is_damaged() && file.record.bytes <= rules.max_bytes / 2 && rules.is_final(&file.record)
                };
                candidates.entry(longer).or_default().extend(siblings.iter().filter(is_movable));
            }
        }
        candidates.into_iter().find_map(|(period, files)| {
            let days: BTreeSet<i32> = files.iter().map(|file| file.record.day).collect();
            let is_due =
                (rules.is_over(period) && rules.are_enough(&files)) || (span == Span::Month && days.len() >= DAYS_MIN);
            if is_due {
                smallest_of_one_sampling(files, rules.max_bytes).map(|files| RollUp { files, period })
            } else {
                None
            }
        })
    })
}

/// Returns several small files with the same sampling; `None` if there is only one of each.
fn smallest_of_one_sampling(mut files: Vec<&Arc<DataFile>>, max_bytes: u64) -> Option<Vec<Arc<DataFile>>> {
    files.sort_by_key(|file| file.record.bytes);
    let mut by_sampling: Vec<(&SamplingPlan, Vec<Arc<DataFile>>, u64)> = Vec::new();
    for file in files {
        let at = by_sampling.iter().position(|(sampled, ..)| **sampled == file.record.sampled);
        let at = at.unwrap_or_else(|| {
            by_sampling.push((&file.record.sampled, Vec::new(), 0));
            by_sampling.len() - 1
        });
        let (_, chosen, bytes) = &mut by_sampling[at];
        if chosen.len() < FILES_MAX && *bytes + file.record.bytes <= max_bytes {
            *bytes += file.record.bytes;
            chosen.push(file.clone());
        }
    }
    by_sampling.into_iter().map(|(_, chosen, _)| chosen).find(|chosen| chosen.len() > 1)
}
