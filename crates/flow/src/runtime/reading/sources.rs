//! The sources of one instance, which are asked in turn.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{ReadBatch, ReadStep, ReadingSource, SourceState};
use crate::Error;
use crate::document::NodeId;
use crate::runtime::event_time::{PartitionTimes, TimeMark};
use crate::runtime::run::Run;
use crate::runtime::run_failure::RunFailure;
use crate::runtime::wait::sooner;

pub(in crate::runtime) struct Sources {
    all: Vec<ReadingSource>,
    /// The source that is asked next.
    turn: usize,
}

/// The result of an attempt to read from one of them.
pub(in crate::runtime) enum SourcesStep {
    Read(NodeId, ReadBatch),
    /// A source has ended, which may end the instance; the event time to which they have come until then.
    Ended(Option<TimeMark>),
    /// Not before the task is woken, or this time has passed.
    NotYet(Option<Duration>),
}

impl Sources {
    pub(in crate::runtime) fn new(all: Vec<ReadingSource>) -> Self {
        Self { all, turn: 0 }
    }

    pub(in crate::runtime) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ReadingSource> {
        self.all.iter_mut()
    }

    /// Goes on from the event times of an epoch that was committed at this time by the wall clock.
    pub(in crate::runtime) fn restore(&mut self, run: &Run, times: &BTreeMap<String, PartitionTimes>, at_ms: i64) {
        for source in &mut self.all {
            let name = &run.plan.nodes[source.node.0].node.name;
            if let Some((time, times)) = source.time.as_mut().zip(times.get(name)) {
                time.restore(times.clone(), at_ms);
            }
        }
    }

    /// The next records of the next source that has some.
    pub(in crate::runtime) fn read(&mut self, run: &Run) -> Result<SourcesStep, Error> {
        let mut timeout = None;
        for _ in 0..self.all.len() {
            let index = self.turn % self.all.len();
            self.turn = self.turn.wrapping_add(1);
            let reading = &mut self.all[index];
            match reading.read(run)? {
                ReadStep::Read(ReadBatch { batch, failed }) => {
                    let node = reading.node;
                    let batch = batch.beside(self.watermark_beside(index));
                    return Ok(SourcesStep::Read(node, ReadBatch { batch, failed }));
                }
                ReadStep::NotYet(wait) => timeout = sooner(timeout, wait),
                ReadStep::End => {
                    // A source that is restored may have nothing left to read, and nobody else tells its time.
                    let mark = self.time_mark();
                    self.all[index].state = SourceState::Ended;
                    return Ok(SourcesStep::Ended(mark));
                }
            }
        }
        Ok(SourcesStep::NotYet(timeout))
    }

    /// `true` unless all have ended for good.
    pub(in crate::runtime) fn may_read(&self, run: &Run) -> bool {
        !self.all.iter().all(|source| source.state == SourceState::Ended && run.may_complete())
    }

    /// `true` if one of them counts as done.
    pub(in crate::runtime) fn has_finished_one(&self) -> bool {
        self.all.iter().any(|source| source.state == SourceState::Done)
    }

    /// Moves the positions, and reports the sources that are done, unless epochs do both.
    pub(in crate::runtime) fn settle(&mut self, run: &Run) -> Option<Duration> {
        let (is_stopping, may_complete) = (run.is_stopping(), run.may_complete());
        let mut retry = None;
        let mut done = 0;
        for source in self.all.iter_mut().filter(|source| source.state != SourceState::Done) {
            let finished = source.tracker.take_finished();
            let finished = if run.is_at_most_once { &[][..] } else { &finished };
            retry = sooner(retry, source.source.finished(finished));
            if is_stopping {
                source.state = SourceState::Ended;
            }
            let is_empty = source.tracker.in_flight_records() == 0;
            let has_ended = source.state == SourceState::Ended && may_complete && is_empty;
            if run.epochs.is_none() && has_ended && source.source.is_settled() {
                source.state = SourceState::Done;
                done += 1;
            }
        }
        (0..done).for_each(|_| run.source_is_done());
        retry
    }

    /// The time until the oldest records are read again; the failure if they are late.
    pub(in crate::runtime) fn time_to_ack(
        &self,
        run: &Run,
        instance: u32,
    ) -> Result<Option<Duration>, Box<RunFailure>> {
        let mut timeout = None;
        for source in &self.all {
            timeout = sooner(timeout, source.time_to_ack(run, instance)?);
        }
        Ok(timeout)
    }

    /// Gives up what is in flight; positions stay where they are.
    pub(in crate::runtime) fn end(&self, run: &Run) {
        for source in &self.all {
            // Before any batch is thrown away: a dropped batch would count as finished.
            source.tracker.close();
            run.progress.remove_tracker(&source.tracker);
        }
    }

    /// The progress of event time behind all of them; `None` without event time, or once all have ended.
    pub(in crate::runtime) fn time_mark(&mut self) -> Option<TimeMark> {
        let marks: Vec<TimeMark> = self.all.iter_mut().filter_map(ReadingSource::time_mark).collect();
        (!marks.is_empty()).then(|| TimeMark::behind(marks.into_iter()))
    }

    /// The watermark of all but one.
    fn watermark_beside(&mut self, index: usize) -> i64 {
        if self.all.len() == 1 {
            return i64::MAX;
        }
        let others = self.all.iter_mut().enumerate().filter(|(other, _)| *other != index);
        TimeMark::beside(others.filter_map(|(_, source)| source.time_mark()))
    }

    /// The time until the next of them is idle, if they have event time and nothing comes.
    pub(in crate::runtime) fn time_to_quiet(&self) -> Option<Duration> {
        self.all.iter().filter_map(ReadingSource::time_to_quiet).min()
    }
}
