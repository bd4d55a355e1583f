//! One run of a job: its tasks, figures and end.

mod epoch_task;
mod table_task;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use millstream_types::{MonotonicClock, TenantId, WallClock, iso_time};
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::epoch_task::EpochTask;
use self::table_task::TableTask;
use super::epoch_keeper::EpochKeeper;
use super::epochs::Epochs;
use super::inbox::Inbox;
use super::instance_task::InstanceTask;
use super::metrics::JobMetrics;
use super::neighbours::{InstanceId, Neighbours};
use super::node_reasons::NodeReasons;
use super::restored_state::RestoredState;
use super::run_failure::{RecentFailures, RunFailure};
use super::run_progress::RunProgress;
use super::workers::{Task, Workers};
use crate::Error;
use crate::batch::Batch;
use crate::connector::{Collected, Places, ReadUpTo, Services, TellPause, Waker, groups_of};
use crate::document::{Delivery, Document, ErrorAnswer, HookPoint, Mode, Node, NodeId, RestartPolicy, Role};
use crate::expression::Params;
use crate::function::Functions;
use crate::hook::{HookAnswer, HookBatch, HookCall, Hooks, Trace};
use crate::lookup::{self, FeedContext, LookupTable};
use crate::memory::JobMemory;
use crate::operator::{OpenAlarms, Output};
use crate::plan::{Plan, PlanNode};
use crate::state::{JobStateMemory, StateMemory};

const RUNNING: u8 = 0;
/// Sources read no more; the run ends once everything that was read is finished.
const STOPPING: u8 = 1;
const OVER: u8 = 2;

/// The end of a run.
#[derive(Debug, Clone)]
pub(crate) enum RunOutcome {
    Completed,
    Stopped,
    /// With the answer of the error hooks.
    Failed(RunFailure, ErrorAnswer),
}

/// Receives the end of a run, once.
pub(crate) type Over = Box<dyn FnOnce(RunOutcome) + Send>;

/// Sees the work of all nodes.
pub(crate) trait Observer: Send + Sync {
    /// A node has made `output` of `input`; routes have not chosen among it yet.
    fn made(&self, node: &PlanNode, input: &Batch, output: &Output);
}

/// The settings and services of a run.
pub(crate) struct JobSetting {
    pub(crate) tenant: TenantId,
    pub(crate) id: String,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) clock: Arc<dyn MonotonicClock>,
    /// `None` for tests, whose connectors are lists.
    pub(crate) services: Option<Services>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// Keeps the places of sources without a log; `None` keeps none.
    pub(crate) places: Option<Arc<dyn Places>>,
    pub(crate) workers: Arc<Workers>,
    /// The figures of the job's earlier runs, which this one goes on counting.
    pub(crate) metrics: Option<Arc<JobMetrics>>,
    pub(crate) functions: Functions,
    pub(crate) hooks: Hooks,
    /// `flow.params`: parameters that hooks do not override.
    pub(crate) fixed_params: BTreeMap<String, Params>,
    /// Called once, by a worker or by the caller of [`Run::kill`].
    pub(crate) over: Over,
}

pub(crate) struct Run {
    pub(crate) plan: Plan,
    pub(crate) tenant: TenantId,
    pub(crate) job: String,
    pub(crate) id: String,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) clock: Arc<dyn MonotonicClock>,
    pub(crate) services: Option<Services>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) places: Option<Arc<dyn Places>>,
    /// `None` in a test, whose records are few.
    pub(crate) memory: Option<JobMemory>,
    pub(crate) is_at_most_once: bool,
    /// `None` for a job without state that is not `exactly_once`.
    pub(super) epochs: Option<Arc<Epochs>>,
    is_exactly_once: bool,
    /// `None` in a test.
    state_memory: Option<JobStateMemory>,
    pub(crate) collected: Arc<Collected>,
    pub(crate) alarms: Arc<OpenAlarms>,
    pub(crate) trace: Arc<Trace>,
    pub(crate) fixed_params: BTreeMap<String, Params>,
    pub(crate) metrics: Arc<JobMetrics>,
    pub(crate) progress: RunProgress,
    /// The reasons why nodes have not started.
    pub(super) waits: NodeReasons,
    /// The reasons why sources that have started do not read.
    pub(super) pauses: NodeReasons,
    pub(crate) restart: RestartPolicy,
    completes: bool,
    instance_restarts: AtomicU64,
    control: AtomicU8,
    number: u64,
    workers: Arc<Workers>,
    tasks: OnceLock<Vec<Arc<Task>>>,
    neighbours: OnceLock<Arc<Neighbours>>,
    open_sources: AtomicUsize,
    open_tasks: AtomicUsize,
    /// Instances that have not started.
    starting: AtomicUsize,
    turns: Arc<AtomicU64>,
    failures: RecentFailures,
    over: Mutex<Option<Over>>,
}

impl Run {
    /// Plans a job and starts its tasks.
    ///
    /// # Errors
    /// [`Error::Plan`] if the document names what this program cannot do.
    pub(crate) fn start(document: &Document, setting: JobSetting) -> Result<Arc<Self>, Error> {
        let JobSetting {
            tenant,
            id,
            wall,
            clock,
            services,
            places,
            observer,
            workers,
            metrics,
            functions,
            hooks,
            fixed_params,
            over,
        } = setting;
        let plan = Plan::new(document, &functions, &hooks, workers.count() as u32)?;
        let metrics = match metrics {
            Some(earlier) => earlier.go_on(&plan),
            None => JobMetrics::new(&plan, Arc::clone(&clock)),
        };
        let sources = |chain: usize| plan.nodes_in(chain, Role::Source).count() * plan.chains[chain].instances as usize;
        let open_sources = (0..plan.chains.len()).map(sources).sum();
        let number = workers.new_job(&tenant, document.scheduler);
        let collected_memory = services.as_ref().map(|services| services.memory.of_collected());
        let epochs = plan.has_epochs(document.delivery).then(|| Epochs::new(document.checkpoint, Arc::clone(&clock)));
        let run = Arc::new(Self {
            epochs,
            is_exactly_once: document.delivery == Delivery::ExactlyOnce,
            state_memory: services.as_ref().map(|services| services.state.of_job(&tenant)),
            tenant,
            job: document.name.clone(),
            id,
            wall,
            clock,
            memory: services.as_ref().map(|services| services.memory.of_job()),
            services,
            observer,
            places,
            is_at_most_once: document.delivery == Delivery::AtMostOnce,
            collected: Arc::new(Collected::new(collected_memory)),
            alarms: Arc::default(),
            trace: Arc::default(),
            fixed_params,
            metrics,
            progress: RunProgress::new(&plan),
            waits: NodeReasons::default(),
            pauses: NodeReasons::default(),
            restart: document.restart,
            completes: document.mode == Mode::Batch,
            instance_restarts: AtomicU64::new(0),
            control: AtomicU8::new(RUNNING),
            number,
            workers,
            tasks: OnceLock::new(),
            neighbours: OnceLock::new(),
            open_sources: AtomicUsize::new(open_sources),
            open_tasks: AtomicUsize::new(0),
            starting: AtomicUsize::new(plan.chains.iter().map(|chain| chain.instances as usize).sum()),
            turns: Arc::default(),
            failures: RecentFailures::default(),
            over: Mutex::new(Some(over)),
            plan,
        });
        run.begin().inspect_err(|_| run.workers.forget(run.number))?;
        Ok(run)
    }

    fn begin(self: &Arc<Self>) -> Result<(), Error> {
        let new_task = |_| self.workers.new_task(self.number, &self.turns);
        let tasks: Vec<Vec<Arc<Task>>> =
            self.plan.chains.iter().map(|chain| (0..chain.instances).map(new_task).collect()).collect();
        let wakers: Vec<Vec<Waker>> = tasks.iter().map(|of_chain| of_chain.iter().map(waker).collect()).collect();
        let neighbours = Arc::new(Neighbours::new(&self.plan, &wakers));
        let mut instances = Vec::new();
        for (chain, of_chain) in tasks.iter().enumerate() {
            for (number, task) in (0..).zip(of_chain) {
                let instance = InstanceTask::new(self, InstanceId { chain, number }, &neighbours, waker(task))?;
                instances.push((Arc::clone(task), instance));
            }
        }
        let mut tables = Vec::new();
        if let Some(services) = &self.services {
            for (node, table) in self.plan.tables() {
                let (task, memory) = (new_task(0), self.state_memory(&node.name));
                let (tenant, waker) = (&self.tenant, waker(&task));
                let feed = lookup::open(FeedContext { services, tenant, node, table, memory, waker })?;
                tables.push((task, TableTask::new(self, &node.name, feed)));
            }
        }
        self.open_tasks.store(instances.len() + tables.len(), Ordering::Release);
        let of_instances = instances.iter().map(|(task, _)| task);
        let mut all: Vec<Arc<Task>> = of_instances.chain(tables.iter().map(|(task, _)| task)).cloned().collect();
        if let Some(epochs) = &self.epochs {
            let task = self.workers.new_task(self.number, &self.turns);
            let wakers = std::iter::once(waker(&task)).chain(wakers.into_iter().flatten()).collect();
            epochs.begin(self.plan.chains.iter().map(|chain| chain.instances), wakers);
            self.open_tasks.fetch_add(1, Ordering::AcqRel);
            all.push(Arc::clone(&task));
            Workers::begin(&task, Box::new(EpochTask::new(self)));
            self.restore(epochs);
        }
        let is_first = self.tasks.set(all).is_ok() && self.neighbours.set(neighbours).is_ok();
        assert!(is_first, "a run begins once");
        for (task, table) in tables {
            Workers::begin(&task, Box::new(table));
        }
        for (task, instance) in instances {
            Workers::begin(&task, Box::new(instance));
        }
        Ok(())
    }

    /// Lets the epochs begin, with the state of the last run if there was one.
    fn restore(self: &Arc<Self>, epochs: &Arc<Epochs>) {
        let Some(services) = &self.services else { return epochs.begin_empty() };
        let (run, epochs, log) = (Arc::clone(self), Arc::clone(epochs), Arc::clone(&services.log));
        services.restoring.run(move || {
            // Its writer would end that of the job's next run.
            if run.is_over() {
                return;
            }
            epochs.restore(|| {
                let keeper = EpochKeeper::open(&log, &run.tenant, &run.id)?;
                let groups = groups_of(&run.tenant, &run.job, run.plan.nodes.iter().map(|planned| &planned.node));
                let restored = RestoredState::read(&*log, keeper.topic(), &run.plan.state_layout(), &groups)?;
                Ok((keeper, restored))
            });
        });
    }

    /// The memory for the state of a node's instance.
    pub(super) fn state_memory(&self, node: &str) -> StateMemory {
        self.state_memory.as_ref().map_or_else(|| StateMemory::unbounded(node), |memory| memory.of_node(node))
    }

    /// The places of a node's instances: of a source those of the last epoch, if there are epochs.
    pub(super) fn places_of(&self, node: NodeId) -> Option<Arc<dyn Places>> {
        let is_source = self.plan.nodes[node.0].node.role == Role::Source;
        match &self.epochs {
            Some(epochs) if is_source => Some(Arc::clone(epochs) as _),
            _ => self.places.clone(),
        }
    }

    /// Asks for the end of the epoch; `None` if sinks write at once.
    pub(super) fn ends_epoch(&self) -> Option<Waker> {
        let epochs = self.epochs.as_ref().filter(|_| self.is_exactly_once && self.services.is_some())?;
        let epochs = Arc::clone(epochs);
        Some(Arc::new(move || epochs.hurry()))
    }

    /// `true` once the run has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.control.load(Ordering::Acquire) == OVER
    }

    /// `true` if sources read no more.
    pub(crate) fn is_stopping(&self) -> bool {
        self.control.load(Ordering::Acquire) != RUNNING
    }

    /// `true` if a source that has ended may be counted as done.
    pub(crate) fn may_complete(&self) -> bool {
        self.completes || self.is_stopping()
    }

    /// `true` if the end of all sources completes the job, which nobody has stopped.
    pub(crate) fn completes(&self) -> bool {
        self.completes && !self.is_stopping()
    }

    /// Calls the hooks of a node for a point, in order.
    pub(crate) fn call_hooks(
        &self,
        planned: &PlanNode,
        point: HookPoint,
        batch: Option<HookBatch<'_>>,
    ) -> Vec<HookAnswer> {
        let mut answers = Vec::new();
        for known in planned.hooks.iter().filter(|known| known.on == point) {
            let Some(hook) = known.hook else { continue };
            let call = HookCall { point, node: &planned.node.name, params: &known.params, batch, error: None };
            let mut lines = Vec::new();
            answers.push((hook.call)(&call, &mut lines));
            self.trace.add(hook.name, lines);
        }
        answers
    }

    /// The answer of the error hooks to a failure: the first that does not leave it to the next one.
    pub(crate) fn answer_to(&self, failure: &RunFailure) -> ErrorAnswer {
        let Some(planned) = self.plan.nodes.iter().find(|planned| planned.node.name == failure.node) else {
            return ErrorAnswer::Defer;
        };
        for known in planned.hooks.iter().filter(|known| known.on == HookPoint::Error) {
            let answer = match (known.answer, known.hook) {
                (Some(answer), _) => answer,
                (None, Some(hook)) => {
                    let call = HookCall {
                        point: HookPoint::Error,
                        node: &failure.node,
                        params: &known.params,
                        batch: None,
                        error: Some(&failure.message),
                    };
                    let mut lines = Vec::new();
                    let answer = (hook.call)(&call, &mut lines);
                    self.trace.add(hook.name, lines);
                    match answer {
                        HookAnswer::Error(answer) => answer,
                        _ => ErrorAnswer::Defer,
                    }
                }
                (None, None) => ErrorAnswer::Defer,
            };
            if answer != ErrorAnswer::Defer {
                return answer;
            }
        }
        ErrorAnswer::Defer
    }

    /// A source has ended, and everything it read is finished and stored.
    pub(crate) fn source_is_done(&self) {
        if self.open_sources.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.finish();
        }
    }

    /// Ends the run in order.
    fn finish(&self) {
        self.end(if self.is_stopping() { RunOutcome::Stopped } else { RunOutcome::Completed });
    }

    /// A task will take no more turns.
    pub(crate) fn task_is_done(&self) {
        if self.open_tasks.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.workers.forget(self.number);
        }
    }

    /// A function that keeps the reason why a node of the run does not go on.
    pub(super) fn tell_pause(run: &Arc<Self>, node: NodeId) -> TellPause {
        let (run, name) = (Arc::downgrade(run), run.plan.nodes[node.0].node.name.clone());
        Arc::new(move |reason| {
            if let Some(run) = run.upgrade() {
                run.pauses.set(&name, reason);
            }
        })
    }

    /// The first reason why a node does not go on.
    pub(crate) fn pauses_for(&self) -> Option<String> {
        self.pauses.first().or_else(|| self.epochs.as_ref()?.waits_for())
    }

    /// The first reason why the job waits.
    pub(crate) fn waits_for(&self) -> Option<String> {
        let of_table = |(node, table): (&Node, &Arc<LookupTable>)| Some(format!("{} {}", node.name, table.waits()?));
        let starts = || (self.starting.load(Ordering::Acquire) > 0).then(|| "its nodes start".to_owned());
        self.waits.first().or_else(|| self.plan.tables().find_map(of_table)).or_else(starts)
    }

    /// An instance has started for the first time.
    pub(super) fn instance_has_started(&self) {
        let _ = self.starting.fetch_update(Ordering::AcqRel, Ordering::Acquire, |starting| starting.checked_sub(1));
    }

    /// `true` once the tables of all lookups are loaded.
    pub(super) fn tables_are_loaded(&self) -> bool {
        self.plan.tables().all(|(_, table)| table.waits().is_none())
    }

    /// The latest errors, oldest first.
    pub(crate) fn errors(&self) -> Vec<RunFailure> {
        self.failures.all()
    }

    /// Ends the run with an error, to which the error hooks have given this answer.
    pub(crate) fn fail(&self, failure: RunFailure, answer: ErrorAnswer) {
        self.failures.add(failure.clone());
        self.end(RunOutcome::Failed(failure, answer));
    }

    /// Remembers the failure of an instance that is started again by itself.
    pub(crate) fn instance_restarts(&self, failure: RunFailure) {
        self.failures.add(failure);
        self.instance_restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets the run end once everything that was read is finished.
    pub(crate) fn stop(&self) {
        let _ = self.control.compare_exchange(RUNNING, STOPPING, Ordering::AcqRel, Ordering::Acquire);
        self.wake_all();
    }

    /// Ends the run at once; what is in flight is read again by a later run.
    pub(crate) fn kill(&self) {
        self.end(RunOutcome::Stopped);
    }

    fn end(&self, outcome: RunOutcome) {
        let Some(over) = self.over.lock().take() else { return };
        // Before any batch is thrown away: a dropped batch would count as finished.
        self.progress.close_trackers();
        self.control.store(OVER, Ordering::Release);
        self.wake_all();
        over(outcome);
    }

    fn wake_all(&self) {
        self.tasks.get().into_iter().flatten().for_each(Task::wake);
    }

    /// The time of now as text.
    pub(crate) fn now(&self) -> String {
        iso_time(self.wall.now_ms())
    }

    /// Turns that the tasks have taken.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// The batches in the queue in front of a node, and their limit; `None` for a node without a queue.
    pub(crate) fn queue(&self, node: NodeId) -> Option<QueueFill> {
        let metrics = &self.metrics.nodes[node.0];
        let neighbours = self.neighbours.get().filter(|_| metrics.has_queue)?;
        let inboxes = neighbours.inboxes(metrics.chain);
        let sum = |count: fn(&Inbox) -> usize| inboxes.iter().map(count).sum();
        Some(QueueFill { used: sum(Inbox::len), bound: sum(Inbox::bound) })
    }

    /// Adds the figures of this run to those of its job.
    pub(crate) fn describe(&self, job: &mut Value) {
        job["instance_restarts"] = self.instance_restarts.load(Ordering::Relaxed).into();
        if let Some(memory) = &self.memory {
            (job["in_flight_bytes"], job["memory_waits"]) = (memory.used_bytes().into(), memory.waits().into());
        }
        if let Some(lag) = self.progress.lag() {
            job["lag"] = lag.into();
        }
        if let Some(epochs) = &self.epochs {
            job["checkpoint"] = epochs.describe().unwrap_or_default();
        }
        if self.epochs.is_some() || self.plan.tables().next().is_some() {
            job["state_bytes"] = self.state_memory.as_ref().map_or(0, JobStateMemory::used_bytes).into();
        }
    }

    /// The last epochs that are committed, newest first.
    pub(crate) fn checkpoints(&self) -> Vec<Value> {
        self.epochs.as_ref().map(|epochs| epochs.describe_recent()).unwrap_or_default()
    }

    /// The nodes with their figures, in the order of the document.
    pub(crate) fn describe_nodes(&self) -> Vec<Value> {
        let mut nodes = self.metrics.describe_nodes(true);
        for (number, node) in nodes.iter_mut().enumerate() {
            let id = NodeId(number);
            let queue = self.queue(id);
            node["queue"] = queue.map_or(Value::Null, |queue| json!({"used": queue.used, "bound": queue.bound}));
            if let Some(ReadUpTo { offset, lag, trimmed }) = self.progress.read_up_to(id) {
                (node["offset"], node["lag"]) = (offset.into(), lag.into());
                if trimmed > 0 {
                    node["trimmed"] = trimmed.into();
                }
            }
            let of_state = self.epochs.as_ref().and_then(|epochs| epochs.keys_of(&self.metrics.nodes[number].name));
            let table = self.plan.nodes[number].operator.table();
            if let Some(keys) = of_state.or_else(|| Some(table?.len() as u64)) {
                node["keys"] = keys.into();
            }
            if let Some(watermark_ms) = self.progress.watermark(self.plan.nodes[number].chain) {
                node["watermark"] = iso_time(watermark_ms).into();
            }
            let waits = self.waits.of(&self.metrics.nodes[number].name);
            if let Some(reason) = waits.or_else(|| table?.waits()) {
                node["waits"] = reason.into();
            }
        }
        nodes
    }
}

/// The batches in the queue in front of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFill {
    pub(crate) used: usize,
    pub(crate) bound: usize,
}

fn waker(task: &Arc<Task>) -> Waker {
    let task = Arc::downgrade(task);
    Arc::new(move || {
        if let Some(task) = task.upgrade() {
            task.wake();
        }
    })
}
