//! Starts the runs of jobs, starts them again after errors, and stores how they end.
//!
//! Owner: the thread `flow-jobs`. Others send it requests and read what runs.

mod active_jobs;
mod ended_runs;
mod replacement;
mod rescaling;
mod started_events;
mod state_topics;
mod takeover;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_log::run_as_batch;
use millstream_view::Views;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use self::active_jobs::{ActiveJob, ActiveJobs};
use self::ended_runs::EndedRuns;
use self::replacement::Replacement;
use self::rescaling::Rescaling;
use self::started_events::StartedEvents;
use super::crash_loop::CrashLoop;
use super::figures::JobFigure;
use super::parallelism::ParallelismChange;
use super::places::JobPlaces;
use super::planner::JobPlanner;
use super::record::{JobKey, JobRecord, JobState, is_waiting};
use super::stop_mode::StopMode;
use super::store::{JobCommand, JobsView, PARTITION};
use crate::Error;
use crate::connector::Services;
use crate::document::ErrorAnswer;
use crate::runtime::{JobMetrics, JobSetting, Run, RunFailure, RunOutcome, Workers};

/// The time, at the start of the process, for a job to take over the state that its replacement needs.
const TAKEOVER_TIME: Duration = Duration::from_secs(120);
/// The sleep while no job has a deadline.
const SLEEP: Duration = Duration::from_secs(3600);
/// Pause before the end of a job is stored again that the log has not taken.
const STORE_AGAIN: Duration = Duration::from_millis(500);

pub(super) enum SupervisorRequest {
    Start(JobKey),
    Stop(JobKey, StopMode),
    Kill(JobKey),
    /// Removes the state of ended jobs that are no longer listed.
    Forget(Vec<JobKey>),
    /// This job takes the place of the one that it goes on from, which has so much time to stop; gets the outcome.
    Replace(JobKey, Duration, Option<oneshot::Sender<Result<(), String>>>),
    /// The job gets another parallelism, and has so much time to stop for it.
    Rescale(JobKey, ParallelismChange, Duration, oneshot::Sender<Result<(), Error>>),
    /// The state of an earlier job is that of this one, before the run with this number begins; the places of its nodes.
    TakenOver(JobKey, u64, Result<BTreeMap<String, u64>, Error>),
    /// The run with this number has ended.
    Ended(JobKey, u64, RunOutcome),
    /// Ends all runs, those with unfinished records after this time.
    ShutDown(Duration),
}

pub(super) struct Supervisor {
    requests: Sender<SupervisorRequest>,
    active: ActiveJobs,
    ended: EndedRuns,
    /// The jobs that stop for another to take their place.
    replacements: Mutex<HashMap<JobKey, Replacement>>,
    /// The jobs that stop for another parallelism.
    rescalings: Mutex<HashMap<JobKey, Rescaling>>,
    /// The ends that the log has not taken yet.
    unstored_ends: Mutex<Vec<(JobKey, JobState, Option<RunFailure>)>>,
    started_events: StartedEvents,
    changes: watch::Sender<u64>,
    thread: Mutex<Option<JoinHandle<()>>>,
    views: Arc<Views<JobsView>>,
    services: Services,
    workers: Arc<Workers>,
    planner: Arc<JobPlanner>,
}

impl Supervisor {
    /// Starts the thread, which starts all jobs that are stored as running, but those that `crash_loop` pauses.
    pub(super) fn start(
        views: Arc<Views<JobsView>>,
        services: Services,
        workers: Arc<Workers>,
        planner: Arc<JobPlanner>,
        crash_loop: &CrashLoop,
    ) -> Result<Arc<Self>, Error> {
        let (requests, received) = channel();
        let supervisor = Arc::new(Self {
            requests,
            active: ActiveJobs::default(),
            ended: EndedRuns::default(),
            replacements: Mutex::default(),
            rescalings: Mutex::default(),
            unstored_ends: Mutex::default(),
            started_events: StartedEvents::default(),
            changes: watch::Sender::new(0),
            thread: Mutex::default(),
            views,
            services,
            workers,
            planner,
        });
        let running = supervisor.views.snapshot(PARTITION);
        supervisor.remove_forgotten_state(&running.state);
        let is_waiting = |record: &&Arc<JobRecord>| is_waiting(&running.state, record);
        let replaced: HashSet<JobKey> =
            running.state.values().filter(is_waiting).filter_map(|record| record.earlier()).collect();
        for record in running.state.values().filter(|record| record.state == JobState::Running) {
            if replaced.contains(&record.key()) {
                continue;
            }
            if is_waiting(&record) {
                supervisor.request(SupervisorRequest::Replace(record.key(), TAKEOVER_TIME, None));
                continue;
            }
            match crash_loop.pauses(record) {
                Some(reason) if record.paused.is_none() && record.ending.is_none() => {
                    tracing::error!(job = record.id, tenant = record.tenant, reason, "job is paused");
                    let _ = supervisor.store(JobCommand::Pause(record.key(), reason));
                }
                _ => supervisor.request(SupervisorRequest::Start(record.key())),
            }
        }
        let working = Arc::clone(&supervisor);
        let thread = std::thread::Builder::new().name("flow-jobs".to_owned()).spawn(move || {
            run_as_batch();
            working.serve(&received);
        });
        *supervisor.thread.lock() = Some(thread.map_err(Error::Thread)?);
        Ok(supervisor)
    }

    pub(super) fn request(&self, request: SupervisorRequest) {
        if self.requests.send(request).is_err() {
            tracing::debug!("a request about a job came after the end of all jobs");
        }
    }

    /// Receives a value at every start of a run and every change of a job's stored state.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The run of a job, if it runs now.
    pub(super) fn run(&self, key: &JobKey) -> Option<Arc<Run>> {
        self.active.run(key)
    }

    /// The figures of a job that runs, waits for its next run, or has ended in this process not long ago.
    pub(super) fn metrics(&self, key: &JobKey) -> Option<Arc<JobMetrics>> {
        let active = self.active.part(key, |known| known.metrics().cloned());
        active.or_else(|| self.ended.part(key, |ended| ended.metrics.clone()))?
    }

    /// The figures of the nodes of all runs, at most `max`.
    pub(super) fn figures(&self, max: usize) -> Vec<JobFigure> {
        let mut runs = self.active.runs();
        runs.sort_by(|a, b| (&a.tenant, &a.job).cmp(&(&b.tenant, &b.job)));
        runs.iter().flat_map(|run| JobFigure::of_run(run)).take(max).collect()
    }

    pub(super) fn errors(&self, key: &JobKey) -> Vec<RunFailure> {
        match self.run(key) {
            Some(run) => run.errors(),
            None => self.ended.part(key, |ended| ended.errors.clone()).unwrap_or_default(),
        }
    }

    pub(super) fn collected(&self, key: &JobKey, node: &str) -> Option<Vec<String>> {
        if let Some(run) = self.run(key) {
            return Some(run.collected.records(node));
        }
        self.ended.part(key, |ended| ended.collected.as_ref().map(|collected| collected.records(node)))?
    }

    /// The lines that a hook of a job has written.
    pub(super) fn trace(&self, key: &JobKey, hook: &str) -> Option<Vec<String>> {
        if let Some(run) = self.run(key) {
            return Some(run.trace.lines(hook));
        }
        self.ended.part(key, |ended| ended.trace.lines(hook))
    }

    /// `true` if a job that is stored as running waits for something.
    pub(super) fn waits(&self, key: &JobKey) -> bool {
        let run = self.run(key);
        run.is_none_or(|run| run.waits_for().is_some())
    }

    /// Adds what is known of a running job: its lag, or the reason why it waits.
    pub(super) fn describe(&self, key: &JobKey, job: &mut Value) {
        self.active.describe(key, self.services.clock.now(), job);
    }

    fn serve(self: &Arc<Self>, requests: &Receiver<SupervisorRequest>) {
        loop {
            match requests.recv_timeout(self.time_to_retry()) {
                Ok(SupervisorRequest::Start(key)) => self.start_run(&key, 0),
                Ok(SupervisorRequest::Stop(key, mode)) => self.end_run(&key, mode),
                Ok(SupervisorRequest::Kill(key)) => self.end_run(&key, StopMode::Immediate),
                Ok(SupervisorRequest::Replace(key, time, answer)) => self.replace(&key, time, answer),
                Ok(SupervisorRequest::Rescale(key, change, time, answer)) => self.rescale(&key, &change, time, answer),
                Ok(SupervisorRequest::Forget(keys)) => keys.iter().for_each(|key| self.remove_state(key)),
                Ok(SupervisorRequest::TakenOver(key, number, places)) => self.taken_over(&key, number, places),
                Ok(SupervisorRequest::Ended(key, number, outcome)) => self.run_ended(&key, number, outcome),
                Ok(SupervisorRequest::ShutDown(time)) => return self.drain(requests, time),
                Err(RecvTimeoutError::Disconnected) => return self.drain(requests, Duration::ZERO),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.keep_due();
            self.keep_unscaled();
            self.store_ends();
            self.retry_due();
        }
    }

    fn time_to_retry(&self) -> Duration {
        let now = self.services.clock.now();
        let retry = self.active.next_retry();
        let replacements = self.replacements.lock();
        let rescalings = self.rescalings.lock();
        let due = replacements.values().map(|replacement| replacement.until);
        let due = due.chain(rescalings.values().map(|rescaling| rescaling.until));
        let next = retry.into_iter().chain(due).min();
        let longest = if self.unstored_ends.lock().is_empty() { SLEEP } else { STORE_AGAIN };
        next.map_or(longest, |at| at.saturating_sub(now).min(longest))
    }

    fn retry_due(self: &Arc<Self>) {
        let due = self.active.due(self.services.clock.now());
        due.iter().for_each(|(key, attempts)| self.start_run(key, *attempts));
    }

    fn start_run(self: &Arc<Self>, key: &JobKey, attempts: u32) {
        let snapshot = self.views.snapshot(PARTITION);
        let record = snapshot.state.get(key).cloned();
        let Some(record) = record.filter(|record| record.state == JobState::Running) else { return };
        if let Some(ending) = record.ending {
            self.active.remove(key);
            return self.store_end(key, ending, record.error.clone());
        }
        let earlier = record.earlier().map(|earlier| snapshot.state.get(&earlier).cloned());
        let earlier = match earlier {
            // It takes the place of a job that still runs.
            Some(Some(earlier)) if earlier.state == JobState::Running => return,
            Some(None) => {
                let id = record.resumes.as_ref().map(|resumes| resumes.job.clone()).unwrap_or_default();
                return self.store_end(key, JobState::Failed, Some(self.failure_of(&Error::UnknownJob { id })));
            }
            Some(earlier) => earlier,
            None => None,
        };
        if record.paused.is_some() {
            return;
        }
        let (document, tenant) = match self.planner.read(&record) {
            Ok(read) => read,
            Err(error) => return self.keep_waiting(key, self.failure_of(&error)),
        };
        let now = self.services.clock.now();
        let (number, metrics) = self.active.begin(key, document.restart, attempts, now);
        if let Some(earlier) = earlier {
            return self.take_over(key, number, &earlier, tenant, document);
        }
        let (requests, ended_key) = (self.requests.clone(), key.clone());
        let setting = JobSetting {
            tenant,
            wall: Arc::clone(&self.services.wall),
            clock: Arc::clone(&self.services.clock),
            services: Some(self.services.clone()),
            observer: None,
            id: key.id.clone(),
            places: Some(Arc::new(JobPlaces::new(Arc::clone(&self.views), key.clone()))),
            workers: Arc::clone(&self.workers),
            metrics,
            functions: self.planner.functions().clone(),
            hooks: self.planner.hooks().clone(),
            fixed_params: self.planner.context().params.clone(),
            over: Box::new(move |outcome| {
                // Without a receiver the process stops, and the job stays stored as running.
                let _ = requests.send(SupervisorRequest::Ended(ended_key, number, outcome));
            }),
        };
        match Run::start(&document, setting) {
            Ok(run) => {
                self.active.set_run(key, run);
                self.changes.send_modify(|count| *count += 1);
                self.started_events.tell(&self.views, key);
                tracing::info!(job = key.id, name = record.name, tenant = key.tenant, "job runs");
            }
            Err(error) => {
                self.take_active(key);
                self.store_end(key, JobState::Failed, Some(self.failure_of(&error)));
            }
        }
    }

    /// Keeps a job whose document this server does not take, as rules or settings have changed since its submission: it
    /// waits for a start with others, or for its end.
    fn keep_waiting(&self, key: &JobKey, fault: RunFailure) {
        tracing::warn!(job = key.id, tenant = key.tenant, reason = fault.message, "job waits");
        self.active.wait_for_settings(key, fault, self.services.clock.now());
    }

    fn failure_of(&self, error: &Error) -> RunFailure {
        let node = match error {
            Error::Plan { node, .. } | Error::Connector { node, .. } => node.clone(),
            _ => String::new(),
        };
        RunFailure {
            node,
            instance: 0,
            stage: "start".to_owned(),
            code: "invalid".to_owned(),
            message: error.to_string(),
            record: None,
            at: millstream_types::iso_time(self.services.wall.now_ms()),
        }
    }

    /// The end that a stop or kill has asked for.
    fn ending(&self, key: &JobKey) -> Option<JobState> {
        self.views.snapshot(PARTITION).state.get(key)?.ending
    }

    /// Ends a job whose end is stored as asked for.
    fn end_run(&self, key: &JobKey, mode: StopMode) {
        let is_paused = || self.views.snapshot(PARTITION).state.get(key).is_some_and(|record| record.paused.is_some());
        let run = match self.active.stop_retrying(key) {
            Some(run) => run,
            None if is_paused() => None,
            None => return self.end_waiting(key),
        };
        match (run, mode) {
            (Some(run), StopMode::Checkpoint | StopMode::Graceful) => run.stop(),
            (Some(run), StopMode::Immediate) => run.kill(),
            (None, _) => {
                self.take_active(key);
                self.store_end(key, self.ending(key).unwrap_or(JobState::Stopped), None);
            }
        }
    }

    fn run_ended(self: &Arc<Self>, key: &JobKey, number: u64, outcome: RunOutcome) {
        if self.active.attempts(key, number).is_none() {
            return;
        }
        match outcome {
            RunOutcome::Completed => self.finish(key, Some(JobState::Completed), None),
            RunOutcome::Stopped if self.start_rescaled(key) => {}
            RunOutcome::Stopped => self.finish(key, None, None),
            RunOutcome::Failed(failure, answer) => self.run_failed(key, failure, answer),
        }
    }

    /// Removes an active job and ends its taps.
    fn take_active(&self, key: &JobKey) -> Option<ActiveJob> {
        let known = self.active.remove(key)?;
        if let Some(metrics) = known.metrics() {
            metrics.close_taps();
        }
        Some(known)
    }

    /// Removes an active job and stores its end; without a state it is the one that was asked for.
    fn finish(&self, key: &JobKey, state: Option<JobState>, error: Option<RunFailure>) {
        let Some(known) = self.take_active(key) else { return };
        if let Some(run) = known.run() {
            self.ended.keep(key, run, known.metrics().cloned());
        }
        let ending = || self.ending(key).unwrap_or(JobState::Stopped);
        self.store_end(key, state.unwrap_or_else(ending), error);
    }

    fn run_failed(&self, key: &JobKey, failure: RunFailure, answer: ErrorAnswer) {
        let now = self.services.clock.now();
        tracing::warn!(job = key.id, node = failure.node, error = failure.message, "job failed");
        if answer == ErrorAnswer::Kill {
            return self.finish(key, Some(JobState::Killed), Some(failure));
        }
        let is_ending = self.ending(key).is_some() || self.replacements.lock().contains_key(key);
        let Some(is_retried) = self.active.retry(key, &failure, answer, is_ending, now) else { return };
        if is_retried {
            // The job starts again, whether others are told of the failure or not.
            let _ = self.store(JobCommand::Restart(key.clone(), failure));
            self.answer_rescaled(key);
        } else {
            let is_kill = self.ending(key) == Some(JobState::Killed);
            let state = if is_kill { JobState::Killed } else { JobState::Failed };
            self.finish(key, Some(state), Some(failure));
        }
    }

    /// Stores the ends that the log has not taken yet.
    fn store_ends(&self) {
        let unstored = std::mem::take(&mut *self.unstored_ends.lock());
        unstored.into_iter().for_each(|(key, state, error)| self.store_end(&key, state, error));
    }

    fn store_end(&self, key: &JobKey, state: JobState, error: Option<RunFailure>) {
        let stored = self.store(JobCommand::End(key.clone(), state, error.clone()));
        if stored.is_err_and(|refusal| refusal.is_retryable()) {
            // Until then the job counts as running, and would run again after a restart.
            return self.unstored_ends.lock().push((key.clone(), state, error));
        }
        tracing::info!(job = key.id, state = state.as_str(), "job has ended");
        let snapshot = self.views.snapshot(PARTITION);
        let next = snapshot.state.values().find(|record| record.earlier().as_ref() == Some(key));
        if let Some(mut replacement) = self.replacements.lock().remove(key) {
            replacement.answer(Ok(()));
        }
        self.refuse_rescaling(key, state);
        match next {
            Some(next) => self.request(SupervisorRequest::Start(next.key())),
            None if state == JobState::Completed => self.remove_state(key),
            None => {}
        }
    }

    /// Stores a change and tells those who wait for one.
    ///
    /// # Errors
    /// The log does not take it.
    fn store(&self, command: JobCommand) -> Result<(), millstream_view::Error> {
        let stored = match self.views.submit(PARTITION, command) {
            Ok(answer) => answer.blocking_recv().unwrap_or(Err(millstream_view::Error::Stopped)),
            Err(error) => Err(error),
        };
        if let Err(error) = &stored {
            tracing::error!(error = error as &dyn std::error::Error, "the state of a job is not stored");
        }
        self.changes.send_modify(|count| *count += 1);
        stored.map(drop)
    }

    /// Lets all runs finish what they have read, for at most `time`; then ends them.
    fn drain(&self, requests: &Receiver<SupervisorRequest>, time: Duration) {
        // Replacements and another parallelism are stored, and happen at the next start.
        self.replacements.lock().clear();
        self.rescalings.lock().clear();
        self.active.runs().iter().for_each(|run| run.stop());
        let deadline = self.services.clock.now() + time;
        while !self.active.runs().is_empty() {
            let left = deadline.saturating_sub(self.services.clock.now());
            match requests.recv_timeout(left) {
                Ok(SupervisorRequest::Ended(key, _, RunOutcome::Completed)) => {
                    self.finish(&key, Some(JobState::Completed), None)
                }
                Ok(SupervisorRequest::Ended(key, ..)) => match self.ending(&key) {
                    Some(ending) => self.finish(&key, Some(ending), None),
                    None => drop(self.active.remove(&key)),
                },
                // What they ask for is stored, and holds when the process starts again.
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let unfinished = self.active.runs();
        if !unfinished.is_empty() {
            let jobs = unfinished.len();
            tracing::info!(jobs, "jobs end with unfinished records, which they read again at the next start");
        }
        unfinished.iter().for_each(|run| run.kill());
        self.active.clear();
    }

    /// Ends the thread and all runs, which have `drain` to finish what they have read. Jobs stay stored as running.
    pub(super) fn stop(&self, drain: Duration) {
        self.request(SupervisorRequest::ShutDown(drain));
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that starts jobs panicked");
        }
    }
}
