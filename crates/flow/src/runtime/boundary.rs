//! The place of an instance in the epochs of its run: what it does at the end of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::epoch_part::EpochPart;
use super::epochs::{Epochs, InstanceNumber};
use super::reading::ReadingSource;
use super::writing_sink::WritingSink;
use crate::Error;
use crate::batch::NO_TIME;
use crate::connector::Preparation;
use crate::document::NodeId;
use crate::operator::KeyedNode;
use crate::plan::Plan;

/// The end of an epoch, or of everything, behind the batches that came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Boundary {
    Barrier(u64),
    End,
}

/// The epochs as one instance sees them.
pub(super) struct InstanceBoundary {
    pub(super) epochs: Arc<Epochs>,
    pub(super) number: InstanceNumber,
    pub(super) is_restored: bool,
    /// Barriers come from the coordinator: nobody sends to the instance, or all who did have ended.
    pub(super) is_root: bool,
    /// The last epoch whose barrier has passed.
    passed: u64,
    /// The boundary that waits for sinks.
    passing: Option<Passing>,
    has_ended: bool,
}

/// A boundary that the instance has come to.
struct Passing {
    boundary: Boundary,
    part: EpochPart,
    /// The sinks that have written everything before the boundary.
    prepared: BTreeSet<NodeId>,
}

impl InstanceBoundary {
    pub(super) fn new(epochs: &Arc<Epochs>, number: InstanceNumber, is_root: bool) -> Self {
        Self {
            epochs: Arc::clone(epochs),
            number,
            is_restored: false,
            is_root,
            passed: 0,
            passing: None,
            has_ended: false,
        }
    }

    /// The instance has its state, and stands behind the epoch from which it was restored.
    pub(super) fn restored(&mut self, epoch: u64) {
        (self.is_restored, self.passed) = (true, epoch);
    }

    /// Comes to a boundary, which lies behind everything that the instance has taken in.
    pub(super) fn come_to(&mut self, boundary: Boundary) {
        let (part, prepared) = (EpochPart::default(), BTreeSet::new());
        self.passing = Some(Passing { boundary, part, prepared });
    }

    /// Comes to the next boundary that does not come through the inbox, if there is one: `has_input` tells if the instance
    /// can have further records.
    pub(super) fn look(&mut self, has_input: bool) {
        if self.passing.is_some() || self.has_ended || !self.is_root {
            return;
        }
        let wanted = self.epochs.wanted();
        if wanted > self.passed {
            self.come_to(Boundary::Barrier(wanted));
        } else if !has_input {
            self.come_to(Boundary::End);
        }
    }

    /// `true` at the end of everything.
    pub(super) fn is_at_end(&self) -> bool {
        self.passing.as_ref().is_some_and(|passing| passing.boundary == Boundary::End)
    }

    /// `true` at a boundary that waits.
    pub(super) fn is_passing(&self) -> bool {
        self.passing.is_some()
    }

    /// Records have reached sinks behind the ones that were prepared.
    pub(super) fn has_worked(&mut self) {
        if let Some(passing) = &mut self.passing {
            passing.prepared.clear();
        }
    }

    /// Has the sinks write everything before the boundary; `Some` if one of them is not ready, which wakes the task, at the
    /// latest after this time.
    pub(super) fn prepare(
        &mut self,
        sinks: &mut BTreeMap<NodeId, WritingSink>,
    ) -> Result<Option<Option<Duration>>, Error> {
        let Some(passing) = &mut self.passing else { return Ok(None) };
        for (node, writing) in sinks.iter_mut().filter(|(_, writing)| writing.has_started) {
            if passing.prepared.contains(node) {
                continue;
            }
            match writing.sink.prepare()? {
                Preparation::Done(prepared) => {
                    passing.part.prepared.extend(prepared);
                    passing.prepared.insert(*node);
                }
                Preparation::NotYet(timeout) => return Ok(Some(timeout)),
            }
        }
        Ok(None)
    }

    /// Hands over what the instance adds to the epoch, with the watermark to which it has come. The boundary goes on to others from
    /// here.
    pub(super) fn pass<'s>(
        &mut self,
        plan: &Plan,
        keyed: &mut BTreeMap<NodeId, KeyedNode>,
        sources: impl Iterator<Item = &'s mut ReadingSource>,
        watermark_ms: i64,
    ) -> Option<Boundary> {
        let Passing { boundary, mut part, .. } = self.passing.take()?;
        let name = |node: NodeId| &plan.nodes[node.0].node.name;
        for (node, keyed) in keyed {
            keyed.operator.take_changes(&mut |key, value| part.changes.add(name(*node), key, value));
            part.keys.insert(name(*node).clone(), keyed.operator.keys() as u64);
            part.digests.insert(name(*node).clone(), keyed.operator.digest());
            if watermark_ms != NO_TIME {
                part.watermarks.insert(name(*node).clone(), watermark_ms);
            }
        }
        for source in sources {
            source.take_places(name(source.node), &mut part);
        }
        match boundary {
            Boundary::Barrier(epoch) => {
                self.passed = epoch;
                self.epochs.add(self.number, part);
            }
            Boundary::End => {
                self.has_ended = true;
                self.epochs.end(self.number, part);
            }
        }
        Some(boundary)
    }
}
