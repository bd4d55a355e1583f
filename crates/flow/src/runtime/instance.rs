//! One copy of a chain: reads its sources and its inbox, has the operators do the work, and passes the ends of epochs.
//!
//! Nothing is read before all work is done, so pressure reaches the sources. A turn ends after some steps, whatever is left.

mod operator_chain;

use std::sync::Arc;
use std::time::Duration;

use self::operator_chain::{OperatorChain, WorkState};
use super::boundary::{Boundary, InstanceBoundary};
use super::event_time::{SourceTime, TimeMark};
use super::inbox::Taken;
use super::neighbours::{InstanceId, Neighbours};
use super::reading::{ReadBatch, ReadingSource, SourceState, Sources, SourcesStep};
use super::run::Run;
use super::run_failure::RunFailure;
use super::wait::sooner;
use super::work_queue::{Progress, WorkStep};
use super::workers::TurnOutcome;
use crate::Error;
use crate::batch::NO_TIME;
use crate::connector::{self, ConnectorContext, Started, Waker};
use crate::delivery::Tracker;
use crate::document::{NodeId, Role};

/// Batches that a turn takes in.
const BATCHES_PER_TURN: usize = 4;
/// Pause before a connector that waits for something is asked to start again.
const START_RETRY: Duration = Duration::from_millis(500);

pub(super) struct Instance {
    run: Arc<Run>,
    id: InstanceId,
    neighbours: Arc<Neighbours>,
    waker: Waker,
    sources: Sources,
    chain: OperatorChain,
    has_started: bool,
    /// `None` for a run without epochs.
    boundary: Option<InstanceBoundary>,
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
            tell_pause: Run::tell_pause(run, id),
            routes_errors: run.plan.nodes[id.0].router.takes_errors(),
            collected: &run.collected,
            places: run.places_of(id),
            stores_by_epoch: run.epochs.is_some(),
            ends_epoch: run.ends_epoch(),
        };
        let read = |node: NodeId| {
            let wakes = Arc::clone(&waker);
            let tracker = Tracker::new(Arc::clone(&run.clock), move || wakes());
            run.progress.add_tracker(&tracker);
            let source = connector::source(&context(node))?;
            if let Some(progress) = source.progress() {
                run.progress.add_source(node, progress);
            }
            let time = run.plan.keeps_time.then(|| SourceTime::new(&run.plan.nodes[node.0].node, run.wall.now_ms()));
            Ok(ReadingSource::new(node, source, tracker, time.transpose()?))
        };
        let sources = run.plan.nodes_in(chain, Role::Source).map(read).collect::<Result<_, Error>>()?;
        let boundary = |epochs| {
            InstanceBoundary::new(epochs, run.plan.instances_before(chain) + number as usize, neighbours.is_root(id))
        };
        Ok(Self {
            sources: Sources::new(sources),
            chain: OperatorChain::new(run, id, neighbours, |node| connector::sink(&context(node)))?,
            has_started: false,
            boundary: run.epochs.as_ref().map(boundary),
            run: Arc::clone(run),
            id,
            neighbours: Arc::clone(neighbours),
            waker: Arc::clone(&waker),
        })
    }

    pub(super) fn take_turn(&mut self) -> Result<TurnOutcome, Box<RunFailure>> {
        self.chain.check_sinks()?;
        if !self.start().map_err(|error| self.chain.failure("start", &error))? {
            return Ok(TurnOutcome::Wait(Some(START_RETRY)));
        }
        let settled = self.sources.settle(&self.run);
        self.chain.read_again_due();
        let worked = self.work()?;
        // What was read in this turn counts, too: nobody else may wake the task.
        let timeout = sooner(settled, self.chain.time_to_retry());
        let timeout = sooner(timeout, self.sources.time_to_ack(&self.run, self.id.number)?);
        Ok(match worked {
            WorkState::Made | WorkState::Unfinished => TurnOutcome::Again,
            WorkState::Blocked(wait) => TurnOutcome::Wait(sooner(wait, timeout)),
        })
    }

    /// Does what is queued, and takes in further batches.
    fn work(&mut self) -> Result<WorkState, Box<RunFailure>> {
        for _ in 0..BATCHES_PER_TURN {
            if self.chain.has_work() {
                self.boundary.iter_mut().for_each(InstanceBoundary::has_worked);
            }
            match self.chain.work()? {
                WorkState::Made => {}
                other => return Ok(other),
            }
            match self.take_in().map_err(|error| self.chain.failure("read", &error))? {
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
            run.waits.set(first, Some("waits until the job's state is restored".to_owned()));
            return Ok(false);
        };
        run.waits.set(first, None);
        for (node, values) in restored.values {
            let Some(keys) = self.chain.restore(node, &values)? else { continue };
            boundary.epochs.begin_keys(&run.plan.nodes[node.0].node.name, number, keys);
        }
        self.sources.restore(run, &restored.times, restored.at_ms);
        if restored.watermark_ms != NO_TIME {
            // Records that were late before are late again.
            let quiet_since_ms = None;
            self.chain.add(WorkStep::Time(TimeMark { watermark_ms: restored.watermark_ms, quiet_since_ms }));
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
                    run.waits.set(name, None);
                    true
                }
                Started::NotYet(reason) => {
                    run.waits.set(name, Some(reason));
                    all_started = false;
                    false
                }
            }
        };
        self.chain.start_sinks(&mut note)?;
        let starting = |source: &&mut ReadingSource| source.state == SourceState::Starting;
        for source in self.sources.iter_mut().filter(starting) {
            if run.is_stopping() {
                source.state = SourceState::Ended;
            } else if note(source.node, source.source.start()?) {
                source.state = SourceState::Reading;
            }
        }
        // A stopping job ends without what it still waits for.
        let has_started = (self.chain.start_nodes() && all_started) || run.is_stopping();
        if has_started && !std::mem::replace(&mut self.has_started, true) {
            run.instance_has_started();
        }
        Ok(has_started)
    }

    /// Calls the `stop` hooks of nodes that have started.
    pub(super) fn stop_hooks(&mut self) {
        self.chain.stop_hooks();
    }

    /// `true` if a source of the instance counts as done.
    pub(super) fn has_finished_a_source(&self) -> bool {
        self.sources.has_finished_one()
    }

    /// Ends the instance before it is made again. Its positions stay where they are.
    pub(super) fn end(&mut self) {
        self.chain.end_pauses();
        self.sources.end(&self.run);
        self.stop_hooks();
    }

    /// Takes in one batch from the inbox or a source, or passes a boundary behind all that was taken in.
    fn take_in(&mut self) -> Result<WorkState, Error> {
        if let Some(boundary) = &mut self.boundary {
            boundary.look(self.sources.may_read(&self.run));
            if boundary.is_passing() {
                return self.pass_boundary();
            }
        }
        if self.chain.is_tick_due() {
            self.chain.add(WorkStep::Advance(Progress::Clock));
            return Ok(WorkState::Made);
        }
        match self.neighbours.inbox(self.id).take() {
            Taken::Batch(node, batch) => {
                self.chain.add(WorkStep::Enter(node, batch));
                return Ok(WorkState::Made);
            }
            Taken::Time(time) => {
                self.chain.add(WorkStep::Time(time));
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
        if self.sources.time_mark().is_some_and(|mark| self.chain.add_time(mark)) {
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
                let has_news = mark.is_some_and(|mark| self.chain.add_time(mark));
                Ok(if has_news { WorkState::Made } else { WorkState::Blocked(None) })
            }
            SourcesStep::NotYet(timeout) => self.look_at_time(timeout),
        }
    }

    /// Takes in records that a source has read.
    fn take_read(&mut self, node: NodeId, read: ReadBatch) {
        let ReadBatch { batch, failed } = read;
        if failed.is_empty() {
            return self.chain.add(WorkStep::Enter(node, batch));
        }
        let has_failed = |row: &u32| failed.binary_search_by_key(row, |error| error.row).is_ok();
        let whole = batch.select((0..batch.len() as u32).filter(|row| !has_failed(row)));
        if !whole.is_empty() {
            self.chain.add(WorkStep::Enter(node, whole.with_objects()));
        }
        self.chain.add(WorkStep::Fail(node, batch, failed));
    }

    /// Lets event time go on without records: for idle sources, and for those who watch for silence.
    fn look_at_time(&mut self, timeout: Option<Duration>) -> Result<WorkState, Error> {
        if self.sources.time_mark().is_some_and(|mark| self.chain.add_time(mark)) {
            return Ok(WorkState::Made);
        }
        if self.chain.is_due() {
            self.chain.add(WorkStep::Advance(Progress::Time));
            return Ok(WorkState::Made);
        }
        let timeout = sooner(timeout, self.sources.time_to_quiet());
        Ok(WorkState::Blocked(sooner(timeout, self.chain.time_to_due())))
    }

    /// Passes the boundary that the instance has come to, once its sinks have written everything before it.
    fn pass_boundary(&mut self) -> Result<WorkState, Error> {
        let Some(boundary) = &mut self.boundary else { return Ok(WorkState::Made) };
        if boundary.is_at_end() && self.run.completes() && !self.chain.has_finished() {
            self.chain.add(WorkStep::Advance(Progress::End));
            return Ok(WorkState::Made);
        }
        if let Some(timeout) = self.chain.prepare(boundary)? {
            return Ok(WorkState::Blocked(timeout));
        }
        match self.chain.pass(boundary, self.sources.iter_mut()) {
            Some(Boundary::Barrier(epoch)) => self.neighbours.send_barrier(self.id, epoch),
            Some(Boundary::End) => self.neighbours.send_end(self.id, !self.run.is_stopping()),
            None => {}
        }
        Ok(WorkState::Made)
    }
}
