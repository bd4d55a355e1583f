//! Jobs that get another parallelism: they finish what they have read, and start again.
//!
//! The new parallelism stands in the job's record before the job stops, so every later start has it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::super::parallelism::ParallelismChange;
use super::super::record::{JobKey, JobRecord, JobState, NodeParallelism};
use super::super::store::{JobCommand, PARTITION};
use super::Supervisor;
use crate::Error;
use crate::runtime::Run;

/// A job that stops for another parallelism.
pub(super) struct Rescaling {
    pub(super) until: Duration,
    time: Duration,
    /// The parallelism before.
    former: NodeParallelism,
    answer: oneshot::Sender<Result<(), Error>>,
}

impl Supervisor {
    /// Stores another parallelism of a job, and stops its run, which is followed by one with that parallelism.
    pub(super) fn rescale(
        &self,
        key: &JobKey,
        change: &ParallelismChange,
        time: Duration,
        answer: oneshot::Sender<Result<(), Error>>,
    ) {
        match self.begin_rescaling(key, change) {
            Ok(Some((run, former))) => {
                let until = self.services.clock.now().saturating_add(time);
                self.rescalings.lock().insert(key.clone(), Rescaling { until, time, former, answer });
                run.stop();
            }
            // The caller may have gone, here and below.
            Ok(None) => drop(answer.send(Ok(()))),
            Err(error) => drop(answer.send(Err(error))),
        }
    }

    /// The run that is to stop, with the parallelism before; `None` if the next start has the new parallelism.
    fn begin_rescaling(
        &self,
        key: &JobKey,
        change: &ParallelismChange,
    ) -> Result<Option<(Arc<Run>, NodeParallelism)>, Error> {
        let record = self.views.snapshot(PARTITION).state.get(key).cloned();
        let record = record.ok_or_else(|| Error::UnknownJob { id: key.id.clone() })?;
        let refused = |reason: String| Err(Error::NotRescaled { id: key.id.clone(), reason });
        if record.state != JobState::Running {
            return refused(format!("it is {}", record.state.as_str()));
        }
        if let Some(ending) = record.ending {
            return refused(format!("it is about to be {}", ending.as_str()));
        }
        if self.replacements.lock().contains_key(key) {
            return refused("another job is about to take its place".to_owned());
        }
        if self.rescalings.lock().contains_key(key) {
            return refused("an earlier change is not finished; try again later".to_owned());
        }
        let parallelism = change.apply(&record)?;
        if parallelism == record.parallelism {
            return Ok(None);
        }
        let changed = JobRecord { parallelism: parallelism.clone(), ..JobRecord::clone(&record) };
        let (document, _) = self.planner.read(&changed)?;
        self.planner.check(&document)?;
        if self.store(JobCommand::Parallelism(key.clone(), parallelism)).is_err() {
            return refused("the log does not take the job's record".to_owned());
        }
        Ok(self.run(key).map(|run| (run, record.parallelism.clone())))
    }

    /// Starts a job again that has stopped for another parallelism; `false` if it has stopped for something else.
    pub(super) fn start_rescaled(self: &Arc<Self>, key: &JobKey) -> bool {
        let has_other_reason = self.ending(key).is_some() || self.replacements.lock().contains_key(key);
        if has_other_reason || !self.rescalings.lock().contains_key(key) {
            return false;
        }
        self.start_run(key, 0);
        self.answer_rescaled(key);
        true
    }

    /// Tells the caller that a job runs with its new parallelism, or will from its next start.
    pub(super) fn answer_rescaled(&self, key: &JobKey) {
        if let Some(rescaling) = self.rescalings.lock().remove(key) {
            drop(rescaling.answer.send(Ok(())));
        }
    }

    /// Tells the caller that a job has ended before it could start with the new parallelism.
    pub(super) fn refuse_rescaling(&self, key: &JobKey, state: JobState) {
        if let Some(rescaling) = self.rescalings.lock().remove(key) {
            let reason = format!("it is {}", state.as_str());
            drop(rescaling.answer.send(Err(Error::NotRescaled { id: key.id.clone(), reason })));
        }
    }

    /// Lets jobs go on as before that have not stopped in time.
    pub(super) fn keep_unscaled(&self) {
        let now = self.services.clock.now();
        let due: Vec<(JobKey, Rescaling)> =
            self.rescalings.lock().extract_if(|_, rescaling| rescaling.until <= now).collect();
        for (key, rescaling) in due {
            let _ = self.store(JobCommand::Parallelism(key.clone(), rescaling.former));
            let waits = self.restart_now(&key).map(|reason| format!(" ({reason})")).unwrap_or_default();
            let reason =
                format!("it has not finished what it has read within {:?}{waits}; give it more time", rescaling.time);
            drop(rescaling.answer.send(Err(Error::NotRescaled { id: key.id, reason })));
        }
    }
}
