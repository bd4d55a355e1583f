//! The reasons why nodes wait, for the status of their job.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Reasons by node.
#[derive(Default)]
pub(crate) struct NodeReasons(Mutex<BTreeMap<String, String>>);

impl NodeReasons {
    /// Keeps the reason of a node; `None` once it waits no more.
    pub(super) fn set(&self, node: &str, reason: Option<String>) {
        let mut reasons = self.0.lock();
        match reason {
            Some(reason) => drop(reasons.insert(node.to_owned(), reason)),
            None if reasons.is_empty() => {}
            None => drop(reasons.remove(node)),
        }
    }

    /// The reason of a node.
    pub(super) fn of(&self, node: &str) -> Option<String> {
        self.0.lock().get(node).cloned()
    }

    /// The first reason, behind the name of its node.
    pub(super) fn first(&self) -> Option<String> {
        self.0.lock().iter().next().map(|(node, reason)| format!("{node} {reason}"))
    }
}
