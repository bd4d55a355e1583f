//! The jobs that are stored as running: the run of each, and the wait for the next one after an error.
//!
//! Always true
//! - Each run of a job has another number than the one before, so the end of a former run is known as such.
//! - A job has a run, or a time of its next start, or waits for something else, never two of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use super::super::record::JobKey;
use crate::document::{ErrorAnswer, RestartPolicy};
use crate::runtime::{JobMetrics, Run, RunFailure};

/// A run of this length forgives earlier errors, unless it has finished no record.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct ActiveJobs(Mutex<HashMap<JobKey, ActiveJob>>);

/// A job that is stored as running.
pub(super) struct ActiveJob {
    /// The number of the run.
    number: u64,
    run: Option<Arc<Run>>,
    /// `None` before the first run.
    metrics: Option<Arc<JobMetrics>>,
    restart: RestartPolicy,
    /// Attempts since the last healthy run.
    attempts: u32,
    started: Duration,
    /// When the job is started again.
    retry_at: Option<Duration>,
    last_error: Option<RunFailure>,
}

impl ActiveJob {
    pub(super) fn run(&self) -> Option<&Arc<Run>> {
        self.run.as_ref()
    }

    /// The figures of all runs so far; `None` before the first one.
    pub(super) fn metrics(&self) -> Option<&Arc<JobMetrics>> {
        self.metrics.as_ref()
    }

    /// Adds the lag of the job, or the reason why it waits.
    fn describe(&self, now: Duration, job: &mut Value) {
        match (&self.run, self.retry_at) {
            (Some(run), _) => {
                if let Some(reason) = run.waits_for() {
                    job["state"] = "starting".into();
                    job["reason"] = reason.into();
                } else if let Some(reason) = run.pauses_for() {
                    job["reason"] = reason.into();
                } else if !run.progress.is_stuck() {
                    // The error of an earlier run is no reason for anything now.
                    if let Some(job) = job.as_object_mut() {
                        job.remove("reason");
                    }
                }
                run.describe(job);
            }
            (None, Some(at)) => {
                let wait_s = at.saturating_sub(now).as_millis().div_ceil(1000);
                let (attempt, max) = (self.attempts, self.restart.max_attempts);
                let error = self.last_error.as_ref().map(|error| error.message.as_str()).unwrap_or_default();
                job["state"] = "starting".into();
                job["reason"] = format!("waits {wait_s} s before restart {attempt} of {max}, after: {error}").into();
            }
            (None, None) => {
                job["state"] = "starting".into();
                if let Some(fault) = &self.last_error {
                    job["reason"] =
                        format!("waits for a start of the server with other settings: {}", fault.message).into();
                }
            }
        }
    }

    /// Ends the run with an error, and waits for the next one; `false` if there is to be none.
    fn retry(&mut self, failure: &RunFailure, answer: ErrorAnswer, is_ending: bool, now: Duration) -> bool {
        let is_stuck = self.run.as_ref().is_some_and(|run| run.progress.is_stuck());
        if now.saturating_sub(self.started) >= HEALTHY_AFTER && !is_stuck {
            self.attempts = 0;
        }
        self.attempts += 1;
        let may_restart = answer == ErrorAnswer::Restart || self.attempts <= self.restart.max_attempts;
        if !may_restart || is_ending {
            return false;
        }
        let doublings = (self.attempts - 1).min(20);
        let wait_ms = self.restart.backoff_min_ms.saturating_mul(1 << doublings);
        let wait_ms = wait_ms.min(self.restart.backoff_max_ms.max(self.restart.backoff_min_ms));
        self.retry_at = Some(now + Duration::from_millis(wait_ms));
        self.last_error = Some(failure.clone());
        self.run = None;
        true
    }
}

impl ActiveJobs {
    /// A part of what is known of a job; `None` for a job that is not active.
    pub(super) fn part<T>(&self, key: &JobKey, part: impl FnOnce(&ActiveJob) -> T) -> Option<T> {
        self.0.lock().get(key).map(part)
    }

    /// The run of a job, if it runs now.
    pub(super) fn run(&self, key: &JobKey) -> Option<Arc<Run>> {
        self.0.lock().get(key)?.run.clone()
    }

    /// The runs of all jobs.
    pub(super) fn runs(&self) -> Vec<Arc<Run>> {
        self.0.lock().values().filter_map(|known| known.run.clone()).collect()
    }

    /// Adds the lag of a running job, or the reason why it waits.
    pub(super) fn describe(&self, key: &JobKey, now: Duration, job: &mut Value) {
        match self.0.lock().get(key) {
            Some(known) => known.describe(now, job),
            None => job["state"] = "starting".into(),
        }
    }

    /// When the next job is started again.
    pub(super) fn next_retry(&self) -> Option<Duration> {
        self.0.lock().values().filter_map(|known| known.retry_at).min()
    }

    /// The jobs that are to be started again by now, with their attempts.
    pub(super) fn due(&self, now: Duration) -> Vec<(JobKey, u32)> {
        let active = self.0.lock();
        let due = active.iter().filter(|(_, known)| known.retry_at.is_some_and(|at| at <= now));
        due.map(|(key, known)| (key.clone(), known.attempts)).collect()
    }

    /// A job is about to run: the number of the run, and the figures of the earlier ones.
    pub(super) fn begin(
        &self,
        key: &JobKey,
        restart: RestartPolicy,
        attempts: u32,
        now: Duration,
    ) -> (u64, Option<Arc<JobMetrics>>) {
        let mut active = self.0.lock();
        let (number, metrics) = active.get(key).map_or((0, None), |known| (known.number + 1, known.metrics.clone()));
        let known = ActiveJob {
            number,
            run: None,
            metrics: metrics.clone(),
            restart,
            attempts,
            started: now,
            retry_at: None,
            last_error: None,
        };
        active.insert(key.clone(), known);
        (number, metrics)
    }

    /// A job runs.
    pub(super) fn set_run(&self, key: &JobKey, run: Arc<Run>) {
        if let Some(known) = self.0.lock().get_mut(key) {
            known.metrics = Some(Arc::clone(&run.metrics));
            known.run = Some(run);
        }
    }

    /// A job waits for a start of the server with other settings, for this fault.
    pub(super) fn wait_for_settings(&self, key: &JobKey, fault: RunFailure, now: Duration) {
        let waiting = ActiveJob {
            number: 0,
            run: None,
            metrics: None,
            restart: RestartPolicy { max_attempts: 0, backoff_min_ms: 0, backoff_max_ms: 0 },
            attempts: 0,
            started: now,
            retry_at: None,
            last_error: Some(fault),
        };
        self.0.lock().insert(key.clone(), waiting);
    }

    /// The attempts of a job whose present run has this number; `None` if it has another.
    pub(super) fn attempts(&self, key: &JobKey, number: u64) -> Option<u32> {
        self.0.lock().get(key).filter(|known| known.number == number).map(|known| known.attempts)
    }

    /// Starts a job no more after an error; its run, which is `None` between two. `None` for a job that is not active.
    pub(super) fn stop_retrying(&self, key: &JobKey) -> Option<Option<Arc<Run>>> {
        let mut active = self.0.lock();
        let known = active.get_mut(key)?;
        known.retry_at = None;
        Some(known.run.clone())
    }

    /// Has a job start again at once; the run that it has until then, whose end is not that of the job.
    pub(super) fn restart(&self, key: &JobKey, now: Duration) -> Option<Arc<Run>> {
        let mut active = self.0.lock();
        let known = active.get_mut(key)?;
        known.number += 1;
        known.retry_at = Some(now);
        known.run.take()
    }

    /// Has a job wait for its next run after an error; `Some(false)` if it has to end.
    pub(super) fn retry(
        &self,
        key: &JobKey,
        failure: &RunFailure,
        answer: ErrorAnswer,
        is_ending: bool,
        now: Duration,
    ) -> Option<bool> {
        self.0.lock().get_mut(key).map(|known| known.retry(failure, answer, is_ending, now))
    }

    pub(super) fn remove(&self, key: &JobKey) -> Option<ActiveJob> {
        self.0.lock().remove(key)
    }

    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}
