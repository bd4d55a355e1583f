//! The sink `collect`: keeps records in memory, for tests and trials.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{ConnectorContext, Sink, Written};
use crate::Error;
use crate::batch::Batch;
use crate::document::{Key, KeyType, NodeType, Role};

const LIMIT_DEFAULT: u64 = 10_000;

pub(super) const SINK: NodeType = NodeType {
    name: "collect",
    role: Role::Sink,
    summary: "Keeps the first records in memory for as long as the job runs.",
    keys: &[Key {
        name: "limit",
        value: KeyType::Whole(1, 1_000_000),
        is_required: false,
        default: Some("10000"),
        doc: "Records that are kept; further ones are dropped.",
    }],
    can_end: false,
};

/// The records of all `collect` sinks of a job, by node.
#[derive(Debug, Default)]
pub(crate) struct Collected(Mutex<BTreeMap<String, Vec<String>>>);

impl Collected {
    /// The payloads that the sink `node` has kept, in the order of their arrival.
    pub(crate) fn records(&self, node: &str) -> Vec<String> {
        self.0.lock().get(node).cloned().unwrap_or_default()
    }
}

struct Collect {
    node: String,
    limit: usize,
    collected: Arc<Collected>,
}

pub(super) fn sink(context: &ConnectorContext<'_>) -> Box<dyn Sink> {
    let limit = context.node.config.get("limit").and_then(serde_json::Value::as_u64).unwrap_or(LIMIT_DEFAULT);
    let node = context.node.name.clone();
    Box::new(Collect { node, limit: limit as usize, collected: Arc::clone(context.collected) })
}

impl Sink for Collect {
    fn write(&mut self, batch: &Batch) -> Result<Written, Error> {
        let mut collected = self.collected.0.lock();
        let kept = collected.entry(self.node.clone()).or_default();
        let room = self.limit.saturating_sub(kept.len());
        let payloads = (0..batch.len().min(room)).map(|row| batch.payload(row).unwrap_or(b"null"));
        kept.extend(payloads.map(|payload| String::from_utf8_lossy(payload).into_owned()));
        Ok(Written::Taken)
    }
}
