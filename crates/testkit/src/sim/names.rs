//! The names in one directory: as readers see them, as they are on the medium, and the changes in between.

use std::collections::BTreeMap;

use super::power_loss::PowerLoss;
use super::rng::Rng;

/// Index of a file or directory in the disk's table.
pub(super) type NodeId = usize;

#[derive(Debug, Clone)]
pub(super) enum NameChange {
    Add { name: String, node: NodeId },
    Rename { from: String, to: String, node: NodeId },
    Remove { name: String },
}

/// Invariant: `now` is `durable` with all of `pending` applied.
#[derive(Debug, Clone, Default)]
pub(super) struct DirectoryNames {
    now: BTreeMap<String, NodeId>,
    durable: BTreeMap<String, NodeId>,
    pending: Vec<(u64, NameChange)>,
}

impl DirectoryNames {
    /// A directory after a crash: all of its names are durable.
    pub(super) fn durable(names: BTreeMap<String, NodeId>) -> Self {
        Self { now: names.clone(), durable: names, pending: Vec::new() }
    }

    pub(super) fn now(&self) -> &BTreeMap<String, NodeId> {
        &self.now
    }

    pub(super) fn change(&mut self, moment: u64, change: NameChange) {
        apply(&mut self.now, &change);
        self.pending.push((moment, change));
    }

    pub(super) fn sync(&mut self) {
        self.durable.clone_from(&self.now);
        self.pending.clear();
    }

    /// A file system with a journal loses the last changes; others may lose any of them.
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

fn apply(names: &mut BTreeMap<String, NodeId>, change: &NameChange) {
    match change {
        NameChange::Add { name, node } => {
            names.insert(name.clone(), *node);
        }
        NameChange::Rename { from, to, node } => {
            names.remove(from);
            names.insert(to.clone(), *node);
        }
        NameChange::Remove { name } => {
            names.remove(name);
        }
    }
}
