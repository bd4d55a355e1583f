//! The nodes of one instance at work: takes batches through them, on to sinks and to other instances.
//!
//! Work stands in a queue of steps. A step that cannot be done now stops the chain, and is the next one again.
//!
//! Not here: the input of the instance, and the epochs of its run (`instance.rs`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use millstream_types::KeyGroup;

use crate::Error;
use crate::batch::{Batch, MadeRows};
use crate::connector::{RefusedRecords, Sink, Started, Written};
use crate::document::{HookPoint, NodeId, Role};
use crate::expression::RecordError;
use crate::hook::HookBatch;
use crate::operator::{self, KeyedNode, Output};
use crate::plan::PlanNode;
use crate::route::Routed;
use crate::runtime::boundary::{Boundary, InstanceBoundary};
use crate::runtime::event_time::TimeMark;
use crate::runtime::instance_time::{self, InstanceTime};
use crate::runtime::neighbours::{InstanceId, Neighbours};
use crate::runtime::reading::ReadingSource;
use crate::runtime::restored_state::Values;
use crate::runtime::retry_queue::RetryQueue;
use crate::runtime::run::Run;
use crate::runtime::run_failure::RunFailure;
use crate::runtime::started_nodes::StartedNodes;
use crate::runtime::wait::sooner;
use crate::runtime::work_queue::{Progress, WorkQueue, WorkStep};
use crate::runtime::writing_sink::WritingSink;

/// Steps that are done at once.
const STEPS_MAX: usize = 32;

pub(super) struct OperatorChain {
    run: Arc<Run>,
    id: InstanceId,
    neighbours: Arc<Neighbours>,
    sinks: BTreeMap<NodeId, WritingSink>,
    keyed: BTreeMap<NodeId, KeyedNode>,
    time: InstanceTime,
    /// Keyed operators have given all that is left at the end of the job.
    has_finished: bool,
    work: WorkQueue,
    retries: RetryQueue,
    started: StartedNodes,
}

/// The result of one attempt to go on.
pub(super) enum WorkState {
    Made,
    /// There is more to do, in a later turn.
    Unfinished,
    /// Not before the task is woken, or this time has passed.
    Blocked(Option<Duration>),
}

impl OperatorChain {
    /// The nodes of an instance, with sinks that `sink` makes.
    pub(super) fn new(
        run: &Arc<Run>,
        id: InstanceId,
        neighbours: &Arc<Neighbours>,
        sink: impl Fn(NodeId) -> Result<Box<dyn Sink>, Error>,
    ) -> Result<Self, Error> {
        let write = |node: NodeId| Ok((node, WritingSink { sink: sink(node)?, has_started: false }));
        let keyed = |node: &NodeId| {
            let planned = &run.plan.nodes[node.0].node;
            let keyed = operator::keyed(planned, run.state_memory(&planned.name), &run.alarms);
            keyed.transpose().map(|keyed| Ok((*node, keyed?)))
        };
        Ok(Self {
            sinks: run.plan.nodes_in(id.chain, Role::Sink).map(write).collect::<Result<_, Error>>()?,
            keyed: run.plan.chains[id.chain].nodes.iter().filter_map(keyed).collect::<Result<_, Error>>()?,
            time: InstanceTime::new(),
            has_finished: false,
            run: Arc::clone(run),
            id,
            neighbours: Arc::clone(neighbours),
            work: WorkQueue::default(),
            retries: RetryQueue::default(),
            started: StartedNodes::default(),
        })
    }

    /// Starts the sinks that have not started; `note` takes the answers, and returns `true` for those that have.
    pub(super) fn start_sinks(&mut self, mut note: impl FnMut(NodeId, Started) -> bool) -> Result<(), Error> {
        for (node, sink) in self.sinks.iter_mut().filter(|(_, sink)| !sink.has_started) {
            sink.has_started = note(*node, sink.sink.start()?);
        }
        Ok(())
    }

    /// Calls the hooks of nodes that have not started; `false` if one is not ready.
    pub(super) fn start_nodes(&mut self) -> bool {
        self.started.start(&self.run, self.id.chain)
    }

    /// Calls the `stop` hooks of nodes that have started.
    pub(super) fn stop_hooks(&mut self) {
        self.started.stop(&self.run);
    }

    /// Takes over the stored values of a keyed node, and counts its keys; `None` if there is no such node.
    pub(super) fn restore(&mut self, node: NodeId, values: &Values) -> Result<Option<u64>, Error> {
        let Some(keyed) = self.keyed.get_mut(&node) else { return Ok(None) };
        values.iter().try_for_each(|(key, stored)| keyed.operator.restore(key, stored))?;
        Ok(Some(keyed.operator.keys() as u64))
    }

    /// Takes in the records that sinks could not write.
    ///
    /// # Errors
    /// A write that was taken has failed.
    pub(super) fn check_sinks(&mut self) -> Result<(), Box<RunFailure>> {
        for (node, sink) in &mut self.sinks {
            if let Err(error) = sink.sink.check() {
                return Err(self.failure("write", &error));
            }
            for RefusedRecords { batch, failed } in sink.sink.take_refused() {
                self.work.add(WorkStep::Fail(*node, batch, failed));
            }
        }
        Ok(())
    }

    /// Adds a step behind all others.
    pub(super) fn add(&mut self, step: WorkStep) {
        self.work.add(step);
    }

    /// Adds the step to an event time behind all others; `false` if it is no news.
    pub(super) fn add_time(&mut self, mark: TimeMark) -> bool {
        let news = self.time.news(mark);
        news.is_some_and(|time| {
            self.work.add(WorkStep::Time(time));
            true
        })
    }

    /// `true` if a step is queued.
    pub(super) fn has_work(&self) -> bool {
        !self.work.is_empty()
    }

    /// `true` if a keyed operator has something to do by the clock.
    pub(super) fn is_tick_due(&mut self) -> bool {
        !self.keyed.is_empty() && instance_time::is_tick_due(&mut self.keyed, self.run.wall.now_ms())
    }

    /// `true` if a keyed operator that watches silence has something to do by now.
    pub(super) fn is_due(&self) -> bool {
        self.time.is_due(&self.keyed, self.run.wall.now_ms())
    }

    /// The time until a keyed operator has something to do that no record brings.
    pub(super) fn time_to_due(&mut self) -> Option<Duration> {
        let wall_ms = self.run.wall.now_ms();
        let timeout = instance_time::time_to_tick(&mut self.keyed, wall_ms);
        sooner(timeout, self.time.time_to_due(&self.keyed, wall_ms))
    }

    /// `true` once keyed operators have given all that is left at the end of the job.
    pub(super) fn has_finished(&self) -> bool {
        self.has_finished
    }

    /// Has the sinks write everything before a boundary; see [`InstanceBoundary::prepare`].
    pub(super) fn prepare(&mut self, boundary: &mut InstanceBoundary) -> Result<Option<Option<Duration>>, Error> {
        boundary.prepare(&mut self.sinks)
    }

    /// Passes a boundary; see [`InstanceBoundary::pass`].
    pub(super) fn pass<'s>(
        &mut self,
        boundary: &mut InstanceBoundary,
        sources: impl Iterator<Item = &'s mut ReadingSource>,
    ) -> Option<Boundary> {
        boundary.pass(&self.run.plan, &mut self.keyed, sources, self.time.watermark_ms())
    }

    fn planned(&self, node: NodeId) -> &PlanNode {
        &self.run.plan.nodes[node.0]
    }

    /// The failure of the run with an error of a stage.
    pub(super) fn failure(&self, stage: &str, error: &Error) -> Box<RunFailure> {
        let (node, code, record, message) = match error {
            Error::Connector { node, message } => (node.clone(), "connector", None, message.clone()),
            Error::Record { node, code, record, message, .. } => {
                (node.clone(), *code, Some(record.clone()), message.clone())
            }
            other => (String::new(), "connector", None, other.to_string()),
        };
        Box::new(RunFailure {
            node,
            instance: self.id.number,
            stage: stage.to_owned(),
            code: code.to_owned(),
            message,
            record,
            at: self.run.now(),
        })
    }

    /// Does the steps that are queued, as many as a turn may.
    pub(super) fn work(&mut self) -> Result<WorkState, Box<RunFailure>> {
        for _ in 0..STEPS_MAX {
            if self.run.is_over() {
                return Ok(WorkState::Unfinished);
            }
            let Some(step) = self.work.take() else { return Ok(WorkState::Made) };
            match step {
                WorkStep::Enter(node, batch) => self.enter(node, batch)?,
                WorkStep::GoOn(node, batch, skipped) => self.apply(node, batch, Some(skipped))?,
                WorkStep::Fail(node, batch, failed) => self.fail(node, &batch, failed)?,
                WorkStep::Write(node, batch, begun) => {
                    let Some(sink) = self.sinks.get_mut(&node) else { continue };
                    match sink.sink.write(&batch) {
                        Ok(Written::Taken) => self.run.metrics.counters(node).end(batch.len(), begun),
                        Ok(Written::NotYet(timeout)) => {
                            self.work.put_back(WorkStep::Write(node, batch, begun));
                            return Ok(WorkState::Blocked(timeout));
                        }
                        Err(Error::Record { row, code, message, .. }) if self.planned(node).router.takes_errors() => {
                            let others = (0..batch.len() as u32).filter(|other| *other != row);
                            let rest = batch.select(others);
                            let failed = vec![RecordError { row, code, message }];
                            self.work.make(WorkStep::Fail(node, batch, failed));
                            if !rest.is_empty() {
                                self.work.make(WorkStep::Write(node, rest, begun));
                            }
                        }
                        Err(error) => {
                            hold_position(&batch);
                            if let Error::Record { code, .. } = &error {
                                self.run.metrics.counters(node).refused(code);
                            }
                            return Err(self.failure("write", &error));
                        }
                    }
                }
                WorkStep::Time(time) => {
                    if let Some(time) = self.time.come_to(time) {
                        self.run.progress.set_watermark(self.id, time.watermark_ms);
                        self.work.make(WorkStep::Advance(Progress::Time));
                        self.work.make(WorkStep::SendTime(time));
                    }
                }
                WorkStep::Advance(progress) => self.advance(progress)?,
                WorkStep::SendTime(time) => self.neighbours.send_time(self.id, time.behind_by(self.delay_ms())),
                WorkStep::Send(to, node, batch) => {
                    if let Err(batch) = self.neighbours.send(self.id, to, node, batch) {
                        self.work.put_back(WorkStep::Send(to, node, batch));
                        return Ok(WorkState::Blocked(None));
                    }
                }
            }
            self.work.queue_made();
        }
        Ok(if self.work.is_empty() { WorkState::Made } else { WorkState::Unfinished })
    }

    /// Has keyed operators do what is due by time alone; or at the end of the job, all that is left.
    fn advance(&mut self, progress: Progress) -> Result<(), Box<RunFailure>> {
        let now_ms = self.run.wall.now_ms();
        let mut all_done = true;
        for node in self.keyed.keys().copied().collect::<Vec<_>>() {
            let Some(keyed) = self.keyed.get_mut(&node) else { continue };
            let (mut made, keys) = (MadeRows::default(), keyed.operator.keys());
            let time_ms = self.time.time_ms(keyed, now_ms);
            let done = match progress {
                Progress::Time => keyed.operator.advance(time_ms, &mut made),
                Progress::Clock => keyed.operator.tick(now_ms, &mut made),
                Progress::End => keyed.operator.finish(&mut made),
            };
            let has_forgotten = keyed.operator.keys() < keys;
            let maker = Arc::clone(&keyed.name);
            all_done &= done.map_err(|error| self.failure("apply", &error))?;
            if !made.is_empty() || has_forgotten {
                // It changes state without a record that was read.
                self.run.epochs.iter().for_each(|epochs| epochs.has_news());
            }
            if made.is_empty() {
                continue;
            }
            let (made, _) = made.finish(&maker, None);
            let planned = &self.run.plan.nodes[node.0];
            let output = planned.operator.select(made.clone(), now_ms);
            let counters = self.run.metrics.counters(node);
            counters.failed(&output.failed);
            counters.made(output.batch.len());
            if let Some(observer) = &self.run.observer {
                observer.made(planned, &made, &output);
            }
            let routed = planned.router.route(&made, output, now_ms);
            self.follow(node, &made, routed)?;
        }
        if !all_done {
            self.work.make(WorkStep::Advance(progress));
        } else if progress == Progress::End {
            self.has_finished = true;
        }
        Ok(())
    }

    /// A batch enters a node, in parts of the node's size.
    fn enter(&mut self, node: NodeId, batch: Batch) -> Result<(), Box<RunFailure>> {
        let size = self.planned(node).node.batch.size.max(1);
        if batch.len() > size as usize && self.planned(node).node.role != Role::Source {
            let rows = batch.len() as u32;
            for start in (0..rows).step_by(size as usize) {
                let part = batch.select(start..rows.min(start.saturating_add(size)));
                self.work.make(WorkStep::Enter(node, part));
            }
            return Ok(());
        }
        self.apply(node, batch, None)
    }

    /// A node works on a batch; on one that it has begun before, from the element `resumed_at` of its first row on.
    fn apply(&mut self, node: NodeId, batch: Batch, resumed_at: Option<usize>) -> Result<(), Box<RunFailure>> {
        let now_ms = self.run.wall.now_ms();
        let (planned, counters) = (&self.run.plan.nodes[node.0], self.run.metrics.counters(node));
        let begun = counters.begin(if resumed_at.is_some() { 0 } else { batch.len() });
        let has_hooks = !planned.hooks.is_empty();
        if has_hooks {
            let seen = HookBatch { input: &batch, output: None, accepted: None };
            self.run.call_hooks(planned, HookPoint::BeforeBatch, Some(seen));
            self.run.call_hooks(planned, HookPoint::AfterRead, Some(seen));
        }
        let started = self.started.params(node);
        let key = planned.key.as_ref().map(|key| key.of_side(batch.side()));
        let keyed = key.zip(self.keyed.get_mut(&node));
        let output = planned.operator.apply(&batch, resumed_at.unwrap_or_default(), started, keyed, now_ms);
        let output = output.map_err(|error| {
            hold_position(&batch);
            self.failure("apply", &error)
        })?;
        if has_hooks {
            let seen = HookBatch { input: &batch, output: Some(&output.batch), accepted: output.accepted.as_deref() };
            self.run.call_hooks(planned, HookPoint::AfterFunction, Some(seen));
            self.run.call_hooks(planned, HookPoint::AfterBatch, Some(seen));
        }
        counters.failed(&output.failed);
        counters.late(output.late.len() as u64);
        if let Some(observer) = &self.run.observer {
            observer.made(planned, &batch, &output);
        }
        if planned.node.role == Role::Sink {
            let Output { batch: written, failed, .. } = output;
            if !failed.is_empty() {
                let routed = planned.router.route(&batch, Output::of_failures(&batch, failed), now_ms);
                self.follow(node, &batch, routed)?;
            }
            if written.is_empty() {
                self.run.metrics.counters(node).end(0, begun);
            } else {
                self.work.make(WorkStep::Write(node, written, begun));
            }
            return Ok(());
        }
        let (made, rest) = (output.batch.len(), output.rest);
        let routed = planned.router.route(&batch, output, now_ms);
        counters.end(made, begun);
        self.follow(node, &batch, routed)?;
        if let Some(rest) = rest {
            let left = batch.select(rest.row..batch.len() as u32);
            self.work.make(WorkStep::GoOn(node, left, rest.element));
        }
        Ok(())
    }

    /// Sends a node's records on, and reports errors that no route took.
    fn follow(&mut self, node: NodeId, input: &Batch, routed: Routed) -> Result<(), Box<RunFailure>> {
        let Routed { sends, unrouted, unhandled, retried } = routed;
        self.run.metrics.counters(node).unrouted(unrouted);
        if let Some(error) = unhandled.first() {
            return Err(self.record_failure(node, input, error));
        }
        if let Some(error) = retried.first() {
            let roots = input.roots(retried.iter().map(|error| error.row));
            let pause = self.retries.add(node, roots, self.run.clock.now());
            let reason = format!("reads records again after pauses, now of {pause:?}, after: {}", error.message);
            self.run.pauses.set(&self.planned(node).node.name, Some(reason));
        }
        for (target, batch) in sends {
            if !batch.is_empty() {
                self.run.metrics.passes(node, target, &batch);
                self.send(node, target, batch)?;
            }
        }
        Ok(())
    }

    /// Reads records again whose pause is over.
    pub(super) fn read_again_due(&mut self) {
        let due = self.retries.take_due(self.run.clock.now());
        for node in self.retries.take_done_nodes() {
            self.run.pauses.set(&self.planned(node).node.name, None);
        }
        due.into_iter().for_each(|roots| self.read_again(roots));
    }

    /// The time until the next records are read again.
    pub(super) fn time_to_retry(&self) -> Option<Duration> {
        self.retries.time_to_next(self.run.clock.now())
    }

    /// Forgets the reasons of pauses, before the instance is made again.
    pub(super) fn end_pauses(&self) {
        for node in self.retries.nodes() {
            self.run.pauses.set(&self.planned(node).node.name, None);
        }
    }

    /// Source records enter their source node again.
    fn read_again(&mut self, roots: Batch) {
        let source = roots.source();
        let chain = self.run.plan.nodes[source.0].chain;
        if chain == self.id.chain {
            self.work.add(WorkStep::Enter(source, roots));
        } else {
            let inboxes = self.neighbours.inboxes(chain);
            inboxes[self.id.number as usize % inboxes.len()].put_back(source, roots);
        }
    }

    fn record_failure(&self, node: NodeId, input: &Batch, error: &RecordError) -> Box<RunFailure> {
        hold_position(input);
        Box::new(RunFailure {
            node: self.planned(node).node.name.clone(),
            instance: self.id.number,
            stage: "apply".to_owned(),
            code: error.code.to_owned(),
            message: error.message.clone(),
            record: Some(input.place(error.row as usize)),
            at: self.run.now(),
        })
    }

    /// The time by which results may lie behind the watermark.
    fn delay_ms(&self) -> i64 {
        self.keyed.values().map(|keyed| keyed.operator.delay_ms()).max().unwrap_or_default()
    }

    fn send(&mut self, from: NodeId, target: NodeId, batch: Batch) -> Result<(), Box<RunFailure>> {
        let planned = &self.run.plan.nodes[target.0];
        let batch = batch.of_side(planned.side_of(from));
        let chain = planned.chain;
        if chain == self.id.chain {
            self.work.make(WorkStep::Enter(target, batch));
            return Ok(());
        }
        let batch = match planned.several_ways_from.contains(&self.id.chain) {
            true => batch.beside(self.time.watermark_ms().saturating_sub(self.delay_ms())),
            false => batch,
        };
        let instances = self.neighbours.inboxes(chain).len() as u32;
        let Some(key) = planned.key.as_ref().map(|key| key.of_side(batch.side())) else {
            let number = self.instance_for(chain, &batch);
            self.work.make(WorkStep::Send(InstanceId { chain, number }, target, batch));
            return Ok(());
        };
        let mut rows: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut failed = Vec::new();
        key.each(&batch, |row, found| match found {
            Ok(found) => {
                rows.entry(KeyGroup::of(found).instance(instances)).or_default().push(row as u32);
            }
            Err(failure) => failed.push(failure.of_row(row as u32, key.text())),
        });
        for number in 0..instances {
            if let Some(rows) = rows.remove(&number) {
                self.work.make(WorkStep::Send(InstanceId { chain, number }, target, batch.select(rows)));
            }
        }
        if failed.is_empty() { Ok(()) } else { self.fail(target, &batch, failed) }
    }

    /// Sends records on which a node has failed along its error routes.
    fn fail(&mut self, node: NodeId, batch: &Batch, failed: Vec<RecordError>) -> Result<(), Box<RunFailure>> {
        self.run.metrics.counters(node).failed(&failed);
        let first = failed.first().cloned();
        let planned = self.planned(node);
        let output = Output::of_failures(batch, failed);
        let routed = planned.router.route(batch, output, self.run.wall.now_ms());
        // A source that reads the same record again fails again.
        match first.filter(|_| planned.node.role == Role::Source && !routed.retried.is_empty()) {
            Some(error) => Err(self.record_failure(node, batch, &error)),
            None => self.follow(node, batch, routed),
        }
    }

    /// The instance of another chain that gets an unkeyed batch. Batches of one partition stay together, so that records
    /// of one key keep their order.
    fn instance_for(&self, chain: usize, batch: &Batch) -> u32 {
        let inboxes = self.neighbours.inboxes(chain);
        if inboxes.len() == self.neighbours.inboxes(self.id.chain).len() {
            return self.id.number;
        }
        match batch.partition() {
            Some(partition) => partition.0 % inboxes.len() as u32,
            None => (0..).zip(inboxes).min_by_key(|(_, inbox)| inbox.len()).map_or(0, |(number, _)| number),
        }
    }
}

/// Keeps the source's position below a batch that failed. The batch
/// is dropped before the run ends, and would count as finished.
fn hold_position(batch: &Batch) {
    if let Some(ack) = batch.ack() {
        ack.fail();
    }
}
