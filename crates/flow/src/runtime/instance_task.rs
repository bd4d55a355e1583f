//! The task of one instance: its turns, its failures, and its restart when an error hook asks for one.
//!
//! An instance restarts alone if no queue leads to or from its nodes: then nobody else has its records. Its sources read
//! again from their positions. In all other cases the whole job restarts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::instance::Instance;
use super::neighbours::{InstanceId, Neighbours};
use super::run::Run;
use super::run_failure::RunFailure;
use super::workers::{Turn, TurnOutcome};
use crate::Error;
use crate::connector::Waker;
use crate::document::{ErrorAnswer, NodeId, RestartPolicy};
use crate::plan::Plan;

/// An instance that has run for so long starts with the first pause again.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);

pub(super) struct InstanceTask {
    run: Arc<Run>,
    id: InstanceId,
    neighbours: Arc<Neighbours>,
    waker: Waker,
    /// `None` between a failure and the restart.
    instance: Option<Instance>,
    stands_alone: bool,
    started: Duration,
    /// Restarts without a healthy time between them.
    attempts: u32,
    restart_at: Duration,
}

impl InstanceTask {
    /// # Errors
    /// The sources or sinks of the instance cannot be made.
    pub(super) fn new(
        run: &Arc<Run>,
        id: InstanceId,
        neighbours: &Arc<Neighbours>,
        waker: Waker,
    ) -> Result<Self, Error> {
        let instance = Instance::new(run, id, neighbours, Arc::clone(&waker))?;
        Ok(Self {
            run: Arc::clone(run),
            id,
            neighbours: Arc::clone(neighbours),
            waker,
            instance: Some(instance),
            stands_alone: stands_alone(&run.plan, id.chain),
            started: run.clock.now(),
            attempts: 0,
            restart_at: Duration::ZERO,
        })
    }

    /// The instance; `Err` with the time until it is started again.
    fn instance(&mut self) -> Result<&mut Instance, InstanceWait> {
        if self.instance.is_none() {
            let now = self.run.clock.now();
            if now < self.restart_at && !self.run.is_stopping() {
                return Err(InstanceWait::Until(self.restart_at - now));
            }
            let made = Instance::new(&self.run, self.id, &self.neighbours, Arc::clone(&self.waker));
            self.instance = Some(made.map_err(InstanceWait::Failed)?);
            self.started = now;
            self.run.pauses.set(&self.name(), None);
        }
        self.instance.as_mut().ok_or(InstanceWait::Until(Duration::ZERO))
    }

    fn fail(&mut self, failure: RunFailure) -> TurnOutcome {
        let answer = self.run.answer_to(&failure);
        let is_whole = self.instance.as_ref().is_some_and(|instance| !instance.has_finished_a_source());
        let may_restart = answer == ErrorAnswer::Restart
            && self.stands_alone
            && self.run.epochs.is_none()
            && self.run.services.is_some();
        let restarted = if is_whole && may_restart { self.instance.take() } else { None };
        let Some(mut instance) = restarted else {
            self.run.fail(failure, answer);
            // The next turn calls the `stop` hooks and ends.
            return TurnOutcome::Again;
        };
        tracing::warn!(job = self.run.job, instance = self.id.number, error = failure.message, "an instance restarts");
        instance.end();
        let error = failure.message.clone();
        self.run.instance_restarts(failure);
        let now = self.run.clock.now();
        if now.saturating_sub(self.started) >= HEALTHY_AFTER {
            self.attempts = 0;
        }
        let pause = pause(self.run.restart, self.attempts);
        self.attempts += 1;
        self.restart_at = now + pause;
        let reason = format!("starts again in {pause:?}, restart {}, after: {error}", self.attempts);
        self.run.pauses.set(&self.name(), Some(reason));
        TurnOutcome::Wait(Some(pause))
    }

    /// The instance in words: its first node, and its number.
    fn name(&self) -> String {
        let first = self.run.plan.chains[self.id.chain].nodes.first();
        let node = first.map_or("", |id| &self.run.plan.nodes[id.0].node.name);
        format!("{node}, instance {}", self.id.number)
    }

    fn failure(&self, stage: &str, code: &str, message: String) -> RunFailure {
        RunFailure {
            node: String::new(),
            instance: self.id.number,
            stage: stage.to_owned(),
            code: code.to_owned(),
            message,
            record: None,
            at: self.run.now(),
        }
    }
}

enum InstanceWait {
    Until(Duration),
    Failed(Error),
}

fn pause(restart: RestartPolicy, attempts: u32) -> Duration {
    let longest_ms = restart.backoff_max_ms.max(restart.backoff_min_ms);
    Duration::from_millis(restart.backoff_min_ms.saturating_mul(1 << attempts.min(20)).min(longest_ms))
}

/// `true` if records of the chain's instances stay in them. Files are left out: each has one writer, which may be busy yet.
fn stands_alone(plan: &Plan, chain: usize) -> bool {
    plan.nodes.iter().all(|planned| {
        let is_inside = planned.chain == chain;
        let leads_inside = |target: &NodeId| plan.nodes[target.0].chain == chain;
        let stays = planned.router.targets().iter().all(|target| leads_inside(target) == is_inside);
        stays && !(is_inside && planned.node.kind == "file")
    })
}

impl Turn for InstanceTask {
    fn turn(&mut self) -> TurnOutcome {
        if self.run.is_over() {
            if let Some(instance) = &mut self.instance
                && catch_unwind(AssertUnwindSafe(|| instance.stop_hooks())).is_err()
            {
                tracing::error!(job = self.run.job, "a hook panicked at the end of a job");
            }
            self.run.task_is_done();
            return TurnOutcome::Ended;
        }
        let outcome = match self.instance() {
            Ok(instance) => catch_unwind(AssertUnwindSafe(|| instance.take_turn())),
            Err(InstanceWait::Until(left)) => return TurnOutcome::Wait(Some(left)),
            Err(InstanceWait::Failed(error)) => {
                let failure = self.failure("start", "connector", error.to_string());
                return self.fail(failure);
            }
        };
        match outcome {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(failure)) => self.fail(*failure),
            Err(_) => {
                let message = "the job's task panicked; the server's log has the place".to_owned();
                let failure = self.failure("apply", "panic", message);
                self.fail(failure)
            }
        }
    }
}
