//! The last jobs that have ended in this process: their figures, errors, traces and collected records stay readable.

use std::sync::Arc;

use parking_lot::Mutex;

use super::super::record::JobKey;
use crate::connector::Collected;
use crate::hook::Trace;
use crate::runtime::{JobMetrics, Run, RunFailure};

/// Jobs that are kept.
const ENDED_MAX: usize = 100;
/// Those of them whose collected records are kept, too.
const ENDED_COLLECTED_MAX: usize = 5;

#[derive(Default)]
pub(super) struct EndedRuns(Mutex<Vec<EndedRun>>);

pub(super) struct EndedRun {
    key: JobKey,
    pub(super) metrics: Option<Arc<JobMetrics>>,
    pub(super) errors: Vec<RunFailure>,
    /// `None` once other jobs have ended after it.
    pub(super) collected: Option<Arc<Collected>>,
    pub(super) trace: Arc<Trace>,
}

impl EndedRuns {
    /// Keeps the last run of a job.
    pub(super) fn keep(&self, key: &JobKey, run: &Run, metrics: Option<Arc<JobMetrics>>) {
        let mut ended = self.0.lock();
        if ended.len() >= ENDED_MAX {
            ended.remove(0);
        }
        ended.push(EndedRun {
            key: key.clone(),
            metrics,
            errors: run.errors(),
            collected: Some(Arc::clone(&run.collected)),
            trace: Arc::clone(&run.trace),
        });
        let older = ended.len().saturating_sub(ENDED_COLLECTED_MAX);
        ended[..older].iter_mut().for_each(|ended| ended.collected = None);
    }

    /// A part of the last run of a job; `None` if it is not kept.
    pub(super) fn part<T>(&self, key: &JobKey, part: impl FnOnce(&EndedRun) -> T) -> Option<T> {
        self.0.lock().iter().rfind(|ended| ended.key == *key).map(part)
    }
}
