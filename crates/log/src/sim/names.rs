//! The names in one directory: what a reader sees now, what is on the medium, and what lies between the two.

use std::collections::BTreeMap;

use super::{PowerLoss, Rng};

/// A file or directory, by its place in the disk's table.
pub(super) type NodeId = usize;

#[derive(Debug, Clone)]
pub(super) enum Change {
    Add { name: String, node: NodeId },
    Rename { from: String, to: String, node: NodeId },
    Remove { name: String },
}

/// Invariant: `now` is `durable` with all of `pending` applied.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    now: BTreeMap<String, NodeId>,
    durable: BTreeMap<String, NodeId>,
    pending: Vec<(u64, Change)>,
}

impl Names {
    /// A directory that has survived a crash: all of its names are durable.
    pub(super) fn durable(names: BTreeMap<String, NodeId>) -> Self {
        Self { now: names.clone(), durable: names, pending: Vec::new() }
    }

    pub(super) fn now(&self) -> &BTreeMap<String, NodeId> {
        &self.now
    }

    pub(super) fn change(&mut self, moment: u64, change: Change) {
        apply(&mut self.now, &change);
        self.pending.push((moment, change));
    }

    pub(super) fn sync(&mut self) {
        self.durable.clone_from(&self.now);
        self.pending.clear();
    }

    /// File systems that keep a journal lose the end of the changes, others any of them.
    pub(super) fn after_power_loss(
        &self,
        loss: PowerLoss,
        stopped_at: Option<u64>,
        rng: &mut Rng,
    ) -> BTreeMap<String, NodeId> {
        let mut names = self.durable.clone();
        if loss == PowerLoss::DropAll {
            return names;
        }
        let in_order = rng.chance(50);
        let kept = rng.below(self.pending.len() as u64 + 1);
        for (index, (moment, change)) in (0..).zip(&self.pending) {
            let survives = match stopped_at {
                Some(stopped_at) => *moment < stopped_at,
                None if in_order => index < kept,
                None => rng.chance(50),
            };
            if survives {
                apply(&mut names, change);
            }
        }
        names
    }
}

fn apply(names: &mut BTreeMap<String, NodeId>, change: &Change) {
    match change {
        Change::Add { name, node } => {
            names.insert(name.clone(), *node);
        }
        Change::Rename { from, to, node } => {
            names.remove(from);
            names.insert(to.clone(), *node);
        }
        Change::Remove { name } => {
            names.remove(name);
        }
    }
}
