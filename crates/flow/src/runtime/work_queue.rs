//! The steps that an instance has still to do, in order.
//!
//! The results of a step are worked off before the steps behind it, so that little is held at a time. A step that cannot be done now
//! goes back to the head, so records keep their order on every edge.

use std::collections::VecDeque;
use std::time::Duration;

use super::event_time::TimeMark;
use super::neighbours::InstanceId;
use crate::batch::Batch;
use crate::document::NodeId;
use crate::expression::RecordError;

pub(super) enum WorkStep {
    /// A batch enters a node.
    Enter(NodeId, Batch),
    /// A node goes on with a batch, whose first row has lost so many elements.
    GoOn(NodeId, Batch, usize),
    /// Records of a batch on which a node has failed.
    Fail(NodeId, Batch, Vec<RecordError>),
    /// A batch that entered a sink at this time leaves through it.
    Write(NodeId, Batch, Duration),
    /// A batch goes to an instance of another chain.
    Send(InstanceId, NodeId, Batch),
    /// Event time has come so far.
    Time(TimeMark),
    /// Keyed operators do what is due without a record.
    Advance(Progress),
    /// It goes to the instances of other chains.
    SendTime(TimeMark),
}

/// The reason why keyed operators have something to do without a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Event time has come so far.
    Time,
    /// The clock has come so far.
    Clock,
    /// The job completes.
    End,
}

#[derive(Default)]
pub(super) struct WorkQueue {
    steps: VecDeque<WorkStep>,
    /// The steps that the present one has made.
    made: Vec<WorkStep>,
}

impl WorkQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The next step.
    pub(super) fn take(&mut self) -> Option<WorkStep> {
        self.steps.pop_front()
    }

    /// Adds a step behind all others.
    pub(super) fn add(&mut self, step: WorkStep) {
        self.steps.push_back(step);
    }

    /// A step that cannot be done now is the next one again.
    pub(super) fn put_back(&mut self, step: WorkStep) {
        self.steps.push_front(step);
    }

    /// Keeps a step that the present one makes, until [`Self::queue_made`].
    pub(super) fn make(&mut self, step: WorkStep) {
        self.made.push(step);
    }

    /// Puts what the present step has made before all others.
    pub(super) fn queue_made(&mut self) {
        self.made.drain(..).rev().for_each(|step| self.steps.push_front(step));
    }
}
