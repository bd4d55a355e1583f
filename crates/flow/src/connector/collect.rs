//! The sink `collect`: keeps records in memory, for tests and trials.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_types::Grant;
use parking_lot::Mutex;

use super::{ConnectorContext, Sink, Written};
use crate::Error;
use crate::batch::Batch;
use crate::document::{Key, KeyType, NodeType, Role};

const LIMIT_DEFAULT: u64 = 10_000;
/// Bytes of the records that all `collect` sinks of one job keep.
const JOB_MAX_BYTES: u64 = 8 << 20;
/// Bytes of a record beside its payload.
const RECORD_BYTES: u64 = 32;

pub(super) const SINK: NodeType = NodeType {
    name: "collect",
    role: Role::Sink,
    summary: "Keeps the first records in memory for as long as the job runs.",
    keys: &[Key {
        name: "limit",
        value: KeyType::Whole(1, 1_000_000),
        is_required: false,
        default: Some("10000"),
        doc: "Records that are kept; further ones are dropped, as are those beyond 8 MiB of a job and 64 MiB of all jobs.",
    }],
    can_end: false,
    keeps_state: false,
};

/// The records of all `collect` sinks of a job, by node.
#[derive(Debug)]
pub(crate) struct Collected(Mutex<CollectedState>);

#[derive(Debug)]
struct CollectedState {
    by_node: BTreeMap<String, Vec<String>>,
    size_bytes: u64,
    /// `None` in a test, whose records are few.
    memory: Option<Grant>,
}

impl Collected {
    /// Keeps nothing yet; `memory` grows with what is kept.
    pub(crate) fn new(memory: Option<Grant>) -> Self {
        Self(Mutex::new(CollectedState { by_node: BTreeMap::new(), size_bytes: 0, memory }))
    }

    /// The payloads that the sink `node` has kept, in the order of their arrival.
    pub(crate) fn records(&self, node: &str) -> Vec<String> {
        self.0.lock().by_node.get(node).cloned().unwrap_or_default()
    }
}

impl CollectedState {
    /// Takes memory for a payload; `false` if there is none.
    fn grow(&mut self, payload: &[u8]) -> bool {
        let bytes = RECORD_BYTES + payload.len() as u64;
        let is_within = self.size_bytes + bytes <= JOB_MAX_BYTES;
        if !is_within || self.memory.as_mut().is_some_and(|memory| !memory.grow(bytes)) {
            return false;
        }
        self.size_bytes += bytes;
        true
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
        let mut kept = collected.by_node.remove(&self.node).unwrap_or_default();
        for row in 0..batch.len().min(self.limit.saturating_sub(kept.len())) {
            let payload = batch.payload(row).unwrap_or(b"null");
            if !collected.grow(payload) {
                break;
            }
            kept.push(String::from_utf8_lossy(payload).into_owned());
        }
        collected.by_node.insert(self.node.clone(), kept);
        Ok(Written::Taken)
    }
}
