//! The task that coordinates the epochs of a run.

use std::sync::Arc;

use super::Run;
use crate::document::ErrorAnswer;
use crate::runtime::epochs::EpochOutcome;
use crate::runtime::run_failure::RunFailure;
use crate::runtime::workers::{Turn, TurnOutcome};

pub(super) struct EpochTask(Arc<Run>);

impl EpochTask {
    pub(super) fn new(run: &Arc<Run>) -> Self {
        Self(Arc::clone(run))
    }
}

impl Turn for EpochTask {
    fn turn(&mut self) -> TurnOutcome {
        let Self(run) = self;
        let Some(epochs) = run.epochs.as_ref().filter(|_| !run.is_over()) else {
            run.task_is_done();
            return TurnOutcome::Ended;
        };
        match epochs.turn(run.wall.now_ms()) {
            EpochOutcome::Turn(outcome) => return outcome,
            EpochOutcome::Ended => run.finish(),
            EpochOutcome::Failed(message) => {
                let (stage, code) = ("checkpoint".to_owned(), "checkpoint".to_owned());
                let (node, instance, record, at) = (String::new(), 0, None, run.now());
                run.fail(RunFailure { node, instance, stage, code, message, record, at }, ErrorAnswer::Defer);
            }
        }
        TurnOutcome::Again
    }
}
