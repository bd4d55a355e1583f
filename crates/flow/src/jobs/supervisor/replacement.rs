//! Jobs that take the places of others: these stop first, and go on if they cannot.
//!
//! The intent stands in the record of the new job, so one of the two runs after a crash.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::super::record::{JobKey, JobState, is_waiting};
use super::super::store::{JobCommand, PARTITION};
use super::Supervisor;

/// A job that waits until another has stopped.
pub(super) struct Replacement {
    by: JobKey,
    pub(super) until: Duration,
    time: Duration,
    answer: Option<oneshot::Sender<Result<(), String>>>,
}

impl Replacement {
    pub(super) fn answer(&mut self, outcome: Result<(), String>) {
        if let Some(answer) = self.answer.take() {
            // The caller may have gone.
            let _ = answer.send(outcome);
        }
    }
}

impl Supervisor {
    /// Stops the job whose place another one takes, which starts after its end.
    pub(super) fn replace(
        self: &Arc<Self>,
        by: &JobKey,
        time: Duration,
        answer: Option<oneshot::Sender<Result<(), String>>>,
    ) {
        let snapshot = self.views.snapshot(PARTITION);
        let waiting = snapshot.state.get(by).filter(|record| is_waiting(&snapshot.state, record));
        let until = self.services.clock.now().saturating_add(time);
        let mut replacement = Replacement { by: by.clone(), until, time, answer };
        let Some(replaced) = waiting.and_then(|record| record.earlier()) else {
            replacement.answer(Ok(()));
            return self.start_run(by, 0);
        };
        self.replacements.lock().insert(replaced.clone(), replacement);
        match self.active.stop_retrying(&replaced).flatten() {
            Some(run) => run.stop(),
            // It waits for something, and has nothing to finish.
            None => {
                self.take_active(&replaced);
                let error = snapshot.state.get(&replaced).and_then(|record| record.error.clone());
                self.store_end(&replaced, self.ending(&replaced).unwrap_or(JobState::Stopped), error);
            }
        }
    }

    /// Lets jobs go on that have not stopped in time for others to take their places.
    pub(super) fn keep_due(&self) {
        let now = self.services.clock.now();
        let is_due = |(_, replacement): &(&JobKey, &Replacement)| replacement.until <= now;
        let due: Vec<JobKey> = self.replacements.lock().iter().filter(is_due).map(|(key, _)| key.clone()).collect();
        for key in due {
            let Some((mut replacement, waits)) = self.keep(&key) else { continue };
            let _ = self.store(JobCommand::Withdraw(replacement.by.clone()));
            let waits = waits.map(|reason| format!(" ({reason})")).unwrap_or_default();
            replacement.answer(Err(format!(
                "it has not finished what it has read within {:?}{waits}; stop it with mode immediate, or give it more time",
                replacement.time
            )));
        }
    }

    /// Lets a job go on that was about to stop for another: it starts again. The other one, and the reason why the job waits.
    fn keep(&self, key: &JobKey) -> Option<(Replacement, Option<String>)> {
        let replacement = self.replacements.lock().remove(key)?;
        Some((replacement, self.restart_now(key)))
    }

    /// Ends the run of a job, which starts again at once; the reason why the run waits.
    pub(super) fn restart_now(&self, key: &JobKey) -> Option<String> {
        let run = self.active.restart(key, self.services.clock.now());
        let waits = run.as_ref().and_then(|run| run.waits_for().or_else(|| run.pauses_for()));
        run.iter().for_each(|run| run.kill());
        waits
    }

    /// Ends a job that waits to take the place of another, which goes on.
    pub(super) fn end_waiting(&self, key: &JobKey) {
        let snapshot = self.views.snapshot(PARTITION);
        let Some(record) = snapshot.state.get(key).filter(|record| is_waiting(&snapshot.state, record)) else { return };
        let kept = record.earlier().and_then(|earlier| self.keep(&earlier));
        if let Some((mut replacement, _)) = kept {
            replacement.answer(Err(format!("job '{}' was ended before it began", key.id)));
        }
        self.store_end(key, record.ending.unwrap_or(JobState::Stopped), None);
    }
}
