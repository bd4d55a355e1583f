//! One copy of a chain: reads its sources and its inbox, applies operators, writes to sinks and to other inboxes.
//!
//! Nothing is read before the queue of work is empty, so pressure reaches the sources. A turn ends after some steps,
//! whatever is left.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use millstream_types::KeyGroup;

use super::boundary::{Boundary, InstanceBoundary};
use super::event_time::{SourceTime, TimeMark};
use super::inbox::Taken;
use super::instance_time::{self, InstanceTime};
use super::neighbours::{InstanceId, Neighbours};
use super::reading::{ReadBatch, ReadingSource, SourceState, Sources, SourcesStep};
use super::retry_queue::RetryQueue;
use super::run::{Run, RunFailure};
use super::started_nodes::StartedNodes;
use super::wait::sooner;
use super::work_queue::{Progress, WorkQueue, WorkStep};
use super::workers::TurnOutcome;
use super::writing_sink::WritingSink;
use crate::Error;
use crate::batch::{Batch, MadeRows, NO_TIME};
use crate::connector::{self, ConnectorContext, RefusedRecords, Started, Waker, Written};
use crate::delivery::Tracker;
use crate::document::{HookPoint, NodeId, Role};
use crate::expression::RecordError;
use crate::hook::HookBatch;
use crate::operator::{self, KeyedNode, Output};
use crate::plan::PlanNode;
use crate::route::Routed;

/// Batches that a turn takes in.
const BATCHES_PER_TURN: usize = 4;
/// Steps that are done for each of them in one turn.
const STEPS_MAX: usize = 32;
/// Pause before a connector that waits for something is asked to start again.
const START_RETRY: Duration = Duration::from_millis(500);

pub(super) struct Instance {
    run: Arc<Run>,
    id: InstanceId,
    neighbours: Arc<Neighbours>,
    waker: Waker,
    sources: Sources,
    sinks: BTreeMap<NodeId, WritingSink>,
    keyed: BTreeMap<NodeId, KeyedNode>,
    time: InstanceTime,
    has_started: bool,
    /// Keyed operators have given all that is left at the end of the job.
    has_finished: bool,
    /// `None` for a run without epochs.
    boundary: Option<InstanceBoundary>,
    work: WorkQueue,
    retries: RetryQueue,
    /// The nodes that have failed on records that wait to be read again.
    retrying: BTreeSet<NodeId>,
    started: StartedNodes,
}

/// The result of one attempt to go on.
enum WorkState {
    Made,
    /// There is more to do, in a later turn.
    Unfinished,
    /// Not before the task is woken, or this time has passed.
    Blocked(Option<Duration>),
}

impl Instance {
    pub(super) fn new(
        run: &Arc<Run>,
        id: InstanceId,
        neighbours: &Arc<Neighbours>,
        waker: Waker,
    ) -> Result<Self, Error> {
        let InstanceId { chain, number } = id;
        let context = |id: NodeId| ConnectorContext {
            services: run.services.as_ref(),
            wall: &run.wall,
            tenant: &run.tenant,
            job: &run.job,
            job_id: &run.id,
            node: &run.plan.nodes[id.0].node,
            instance: number,
            instances: run.plan.chains[chain].instances,
            waker: Arc::clone(&waker),
            routes_errors: run.plan.nodes[id.0].router.takes_errors(),
            collected: &run.collected,
            places: run.places_of(id),
            stores_by_epoch: run.epochs.is_some(),
            ends_epoch: run.ends_epoch(),
        };
        let read = |node: NodeId| {
            let wakes = Arc::clone(&waker);
            let tracker = Tracker::new(Arc::clone(&run.clock), move || wakes());
            run.add_tracker(&tracker);
            let source = connector::source(&context(node))?;
            if let Some(progress) = source.progress() {
                run.add_progress(node, progress);
            }
            let time = run.plan.keeps_time.then(|| SourceTime::new(&run.plan.nodes[node.0].node, run.wall.now_ms()));
            Ok(ReadingSource::new(node, source, tracker, time.transpose()?))
        };
        let write =
            |node: NodeId| Ok((node, WritingSink { sink: connector::sink(&context(node))?, has_started: false }));
        let keyed = |node: &NodeId| {
            let planned = &run.plan.nodes[node.0].node;
            let keyed = operator::keyed(planned, run.state_memory(&planned.name), &run.alarms);
            keyed.transpose().map(|keyed| Ok((*node, keyed?)))
        };
        let boundary = |epochs| {
            InstanceBoundary::new(epochs, run.plan.instances_before(chain) + number as usize, neighbours.is_root(id))
        };
        Ok(Self {
            keyed: run.plan.chains[chain].nodes.iter().filter_map(keyed).collect::<Result<_, Error>>()?,
            time: InstanceTime::new(),
            has_started: false,
            has_finished: false,
            boundary: run.epochs.as_ref().map(boundary),
            sources: Sources::new(run.plan.nodes_in(chain, Role::Source).map(read).collect::<Result<_, Error>>()?),
            sinks: run.plan.nodes_in(chain, Role::Sink).map(write).collect::<Result<_, Error>>()?,
            run: Arc::clone(run),
            id,
            neighbours: Arc::clone(neighbours),
            waker: Arc::clone(&waker),
            work: WorkQueue::default(),
            retries: RetryQueue::default(),
            retrying: BTreeSet::new(),
            started: StartedNodes::default(),
        })
    }

    fn planned(&self, node: NodeId) -> &PlanNode {
        &self.run.plan.nodes[node.0]
    }

    fn failure(&self, stage: &str, error: &Error) -> Box<RunFailure> {
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

    pub(super) fn take_turn(&mut self) -> Result<TurnOutcome, Box<RunFailure>> {
        for (node, sink) in &mut self.sinks {
            if let Err(error) = sink.sink.check() {
                return Err(self.failure("write", &error));
            }
            for RefusedRecords { batch, failed } in sink.sink.take_refused() {
                self.work.add(WorkStep::Fail(*node, batch, failed));
            }
        }
        if !self.start().map_err(|error| self.failure("start", &error))? {
            return Ok(TurnOutcome::Wait(Some(START_RETRY)));
        }
        let settled = self.sources.settle(&self.run);
        self.read_again_due();
        let worked = self.work()?;
        // What was read in this turn counts, too: nobody else may wake the task.
        let timeout = sooner(settled, self.retries.time_to_next(self.run.clock.now()));
        let timeout = sooner(timeout, self.sources.time_to_ack(&self.run, self.id.number)?);
        Ok(match worked {
            WorkState::Made | WorkState::Unfinished => TurnOutcome::Again,
            WorkState::Blocked(wait) => TurnOutcome::Wait(sooner(wait, timeout)),
        })
    }

    /// Does what is queued, and takes in further batches.
    fn work(&mut self) -> Result<WorkState, Box<RunFailure>> {
        for _ in 0..BATCHES_PER_TURN {
            match self.do_work()? {
                WorkState::Made => {}
                other => return Ok(other),
            }
            match self.take_in().map_err(|error| self.failure("read", &error))? {
                WorkState::Made => {}
                other => return Ok(other),
            }
        }
        Ok(WorkState::Made)
    }

    /// Takes over the state of the instance; `false` while it is being read.
    fn restore(&mut self) -> Result<bool, Error> {
        let Some(boundary) = self.boundary.as_mut().filter(|boundary| !boundary.is_restored) else { return Ok(true) };
        let (run, InstanceId { chain, number }) = (&self.run, self.id);
        let nodes = &run.plan.chains[chain].nodes;
        let first = &run.plan.nodes[nodes[0].0].node.name;
        let names: Vec<(NodeId, &str)> =
            nodes.iter().map(|node| (*node, run.plan.nodes[node.0].node.name.as_str())).collect();
        let Some(restored) = boundary.epochs.take_restored(&names, number)? else {
            run.set_wait(first, Some("waits until the job's state is restored".to_owned()));
            return Ok(false);
        };
        run.set_wait(first, None);
        for (node, values) in restored.values {
            let Some(keyed) = self.keyed.get_mut(&node) else { continue };
            values.iter().try_for_each(|(key, stored)| keyed.operator.restore(key, stored))?;
            boundary.epochs.begin_keys(&run.plan.nodes[node.0].node.name, number, keyed.operator.keys() as u64);
        }
        self.sources.restore(run, &restored.times, restored.at_ms);
        if restored.watermark_ms != NO_TIME {
            // Records that were late before are late again.
            let quiet_since_ms = None;
            self.work.add(WorkStep::Time(TimeMark { watermark_ms: restored.watermark_ms, quiet_since_ms }));
        }
        boundary.restored(restored.epoch);
        Ok(true)
    }

    /// Starts what has not started; `false` if something must wait.
    fn start(&mut self) -> Result<bool, Error> {
        if !self.restore()? && !self.run.is_stopping() {
            return Ok(false);
        }
        let mut all_started = true;
        let run = &self.run;
        let mut note = |node: NodeId, started: Started| {
            let name = &run.plan.nodes[node.0].node.name;
            match started {
                Started::Yes => {
                    run.set_wait(name, None);
                    true
                }
                Started::NotYet(reason) => {
                    run.set_wait(name, Some(reason));
                    all_started = false;
                    false
                }
            }
        };
        for (node, sink) in self.sinks.iter_mut().filter(|(_, sink)| !sink.has_started) {
            sink.has_started = note(*node, sink.sink.start()?);
        }
        let starting = |source: &&mut ReadingSource| source.state == SourceState::Starting;
        for source in self.sources.iter_mut().filter(starting) {
            if run.is_stopping() {
                source.state = SourceState::Ended;
            } else if note(source.node, source.source.start()?) {
                source.state = SourceState::Reading;
            }
        }
        // A stopping job ends without what it still waits for.
        let has_started = (self.started.start(run, self.id.chain) && all_started) || run.is_stopping();
        if has_started && !std::mem::replace(&mut self.has_started, true) {
            run.instance_has_started();
        }
        Ok(has_started)
    }

    /// Calls the `stop` hooks of nodes that have started.
    pub(super) fn stop_hooks(&mut self) {
        self.started.stop(&self.run);
    }

    /// `true` if a source of the instance counts as done.
    pub(super) fn has_finished_a_source(&self) -> bool {
        self.sources.has_finished_one()
    }

    /// Ends the instance before it is made again. Its positions stay where they are.
    pub(super) fn end(&mut self) {
        for node in &self.retrying {
            self.run.set_pause(&self.planned(*node).node.name, None);
        }
        self.sources.end(&self.run);
        self.stop_hooks();
    }

    /// Does the steps that are queued, as many as a turn may.
    fn do_work(&mut self) -> Result<WorkState, Box<RunFailure>> {
        for _ in 0..STEPS_MAX {
            if self.run.is_over() {
                return Ok(WorkState::Unfinished);
            }
            let Some(step) = self.work.take() else { return Ok(WorkState::Made) };
            if let Some(boundary) = &mut self.boundary {
                boundary.has_worked();
            }
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
                        self.run.set_watermark(self.id, time.watermark_ms);
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

    /// Takes in one batch from the inbox or a source, or passes a boundary behind all that was taken in.
    fn take_in(&mut self) -> Result<WorkState, Error> {
        if let Some(boundary) = &mut self.boundary {
            boundary.look(self.sources.may_read(&self.run));
            if boundary.is_passing() {
                return self.pass_boundary();
            }
        }
        if !self.keyed.is_empty() && instance_time::is_tick_due(&mut self.keyed, self.run.wall.now_ms()) {
            self.work.add(WorkStep::Advance(Progress::Clock));
            return Ok(WorkState::Made);
        }
        match self.neighbours.inbox(self.id).take() {
            Taken::Batch(node, batch) => {
                self.work.add(WorkStep::Enter(node, batch));
                return Ok(WorkState::Made);
            }
            Taken::Time(time) => {
                self.work.add(WorkStep::Time(time));
                return Ok(WorkState::Made);
            }
            Taken::Barrier(epoch) => {
                self.boundary.iter_mut().for_each(|boundary| boundary.come_to(Boundary::Barrier(epoch)));
                return self.pass_boundary();
            }
            Taken::End => {
                self.boundary.iter_mut().for_each(|boundary| boundary.is_root = true);
                return Ok(WorkState::Made);
            }
            Taken::Nothing => {}
        }
        if let Some(time) = self.sources.time_mark().and_then(|mark| self.time.news(mark)) {
            self.work.add(WorkStep::Time(time));
            return Ok(WorkState::Made);
        }
        match self.sources.read(&self.run)? {
            SourcesStep::Read(node, read) => {
                self.take_read(node, read);
                Ok(WorkState::Made)
            }
            SourcesStep::Ended(mark) => {
                // It may be done at once.
                (self.waker)();
                let Some(time) = mark.and_then(|mark| self.time.news(mark)) else {
                    return Ok(WorkState::Blocked(None));
                };
                self.work.add(WorkStep::Time(time));
                Ok(WorkState::Made)
            }
            SourcesStep::NotYet(timeout) => self.look_at_time(timeout),
        }
    }

    /// Takes in records that a source has read.
    fn take_read(&mut self, node: NodeId, read: ReadBatch) {
        let ReadBatch { batch, failed } = read;
        if failed.is_empty() {
            return self.work.add(WorkStep::Enter(node, batch));
        }
        let has_failed = |row: &u32| failed.binary_search_by_key(row, |error| error.row).is_ok();
        let whole = batch.select((0..batch.len() as u32).filter(|row| !has_failed(row)));
        if !whole.is_empty() {
            self.work.add(WorkStep::Enter(node, whole.with_objects()));
        }
        self.work.add(WorkStep::Fail(node, batch, failed));
    }

    /// Lets event time go on without records: for idle sources, and for those who watch for silence.
    fn look_at_time(&mut self, timeout: Option<Duration>) -> Result<WorkState, Error> {
        if let Some(time) = self.sources.time_mark().and_then(|mark| self.time.news(mark)) {
            self.work.add(WorkStep::Time(time));
            return Ok(WorkState::Made);
        }
        let wall_ms = self.run.wall.now_ms();
        if self.time.is_due(&self.keyed, wall_ms) {
            self.work.add(WorkStep::Advance(Progress::Time));
            return Ok(WorkState::Made);
        }
        let timeout = sooner(timeout, self.sources.time_to_quiet());
        let timeout = sooner(timeout, instance_time::time_to_tick(&mut self.keyed, wall_ms));
        Ok(WorkState::Blocked(sooner(timeout, self.time.time_to_due(&self.keyed, wall_ms))))
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

    /// Passes the boundary that the instance has come to, once its sinks have written everything before it.
    fn pass_boundary(&mut self) -> Result<WorkState, Error> {
        let Some(boundary) = &mut self.boundary else { return Ok(WorkState::Made) };
        if boundary.is_at_end() && self.run.completes() && !self.has_finished {
            self.work.add(WorkStep::Advance(Progress::End));
            return Ok(WorkState::Made);
        }
        if let Some(timeout) = boundary.prepare(&mut self.sinks)? {
            return Ok(WorkState::Blocked(timeout));
        }
        match boundary.pass(&self.run.plan, &mut self.keyed, self.sources.iter_mut(), self.time.watermark_ms()) {
            Some(Boundary::Barrier(epoch)) => self.neighbours.send_barrier(self.id, epoch),
            Some(Boundary::End) => self.neighbours.send_end(self.id, !self.run.is_stopping()),
            None => {}
        }
        Ok(WorkState::Made)
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
            let pause = self.retries.add(roots, self.run.clock.now());
            let reason = format!("reads records again after pauses, now of {pause:?}, after: {}", error.message);
            self.run.set_pause(&self.planned(node).node.name, Some(reason));
            self.retrying.insert(node);
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
    fn read_again_due(&mut self) {
        let due = self.retries.take_due(self.run.clock.now());
        if !due.is_empty() && self.retries.is_empty() {
            for node in std::mem::take(&mut self.retrying) {
                self.run.set_pause(&self.planned(node).node.name, None);
            }
        }
        due.into_iter().for_each(|roots| self.read_again(roots));
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
