//! The task that fills the table of a lookup, and keeps it up to date.

use std::sync::Arc;

use super::Run;
use crate::Error;
use crate::lookup::{FeedStep, TableFeed};
use crate::runtime::run_failure::RunFailure;
use crate::runtime::workers::{Turn, TurnOutcome};

pub(super) struct TableTask {
    run: Arc<Run>,
    /// The lookup.
    node: String,
    feed: Box<dyn TableFeed>,
}

impl TableTask {
    /// The task that fills the table of a node.
    pub(super) fn new(run: &Arc<Run>, node: &str, feed: Box<dyn TableFeed>) -> Self {
        Self { run: Arc::clone(run), node: node.to_owned(), feed }
    }
}

impl Turn for TableTask {
    fn turn(&mut self) -> TurnOutcome {
        let Self { run, node, feed } = self;
        if run.is_over() {
            run.task_is_done();
            return TurnOutcome::Ended;
        }
        match feed.step() {
            Ok(FeedStep::Again) => {}
            Ok(FeedStep::Wait) => return TurnOutcome::Wait(None),
            Ok(FeedStep::Loaded) => run.wake_all(),
            Err(error) => {
                let message = match error {
                    Error::Connector { message, .. } => message,
                    other => other.to_string(),
                };
                let (stage, code) = ("read".to_owned(), "connector".to_owned());
                let (node, instance, record, at) = (node.clone(), 0, None, run.now());
                let failure = RunFailure { node, instance, stage, code, message, record, at };
                let answer = run.answer_to(&failure);
                run.fail(failure, answer);
            }
        }
        TurnOutcome::Again
    }
}
