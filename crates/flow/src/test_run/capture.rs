//! Keeps the records that the nodes of a test make.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::Value;

use crate::batch::Batch;
use crate::document::{Document, NodeId};
use crate::operator::Output;
use crate::plan::PlanNode;
use crate::runtime::Observer;

/// Records that are kept of one node.
const RECORDS_PER_NODE_MAX: usize = 10_000;

/// A record that a node has made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Captured {
    pub(super) value: Value,
    /// The key of the source record.
    pub(super) key: Option<String>,
    /// Records of one group keep their order: the key by `key_by`, or that of the source record.
    pub(super) group: Option<String>,
}

/// The records of all nodes, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Capture {
    records: Mutex<BTreeMap<String, Vec<Captured>>>,
    total: AtomicU64,
    /// Nodes that see records of one key in the order of the sources.
    ordered: Vec<String>,
}

impl Capture {
    pub(super) fn new(document: &Document) -> Self {
        let ordered = document.nodes.iter().enumerate().filter(|(id, _)| keeps_order(document, NodeId(*id)));
        Self { ordered: ordered.map(|(_, node)| node.name.clone()).collect(), ..Self::default() }
    }

    /// `true` if the node sees records of one key in the order of the sources.
    pub(super) fn is_ordered(&self, node: &str) -> bool {
        self.ordered.iter().any(|ordered| ordered == node)
    }

    pub(super) fn records(&self, node: &str) -> Vec<Captured> {
        self.records.lock().get(node).cloned().unwrap_or_default()
    }

    /// The number of records of all nodes.
    pub(super) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}

impl Observer for Capture {
    fn made(&self, node: &PlanNode, input: &Batch, output: &Output) {
        self.total.fetch_add(output.batch.len() as u64, Ordering::Relaxed);
        let mut groups: Vec<Option<String>> = vec![None; input.len()];
        match &node.key {
            _ if !self.is_ordered(&node.node.name) => {}
            Some(key) => key.of_side(input.side()).each(input, |row, found| {
                groups[row] = found.ok().map(|found| String::from_utf8_lossy(found).into_owned());
            }),
            None => (0..input.len()).for_each(|row| groups[row] = key_of(input, row)),
        }
        let mut records = self.records.lock();
        let kept = records.entry(node.node.name.clone()).or_default();
        let room = RECORDS_PER_NODE_MAX.saturating_sub(kept.len());
        kept.extend((0..output.batch.len().min(room)).map(|row| {
            let input_row = output.inputs.as_ref().map_or(row, |rows| rows[row] as usize);
            Captured {
                value: output.batch.payload(row).map_or(Value::Null, read),
                key: key_of(&output.batch, row),
                group: groups[input_row].clone(),
            }
        }));
    }
}

fn key_of(batch: &Batch, row: usize) -> Option<String> {
    batch.key(row).map(|key| String::from_utf8_lossy(key).into_owned())
}

/// `true` if no instances of one node could have overtaken each other on the way to the node.
fn keeps_order(document: &Document, node: NodeId) -> bool {
    let (mut seen, mut open) = (vec![false; document.nodes.len()], vec![node]);
    while let Some(id) = open.pop() {
        let found = &document.nodes[id.0];
        let is_end = id == node && !found.key_by.is_empty();
        // The sides of a join overtake each other.
        if found.join.is_some() || (found.parallelism.max > 1 && !is_end) {
            return false;
        }
        open.extend(found.inputs.iter().filter(|input| !std::mem::replace(&mut seen[input.0], true)));
    }
    true
}

/// A payload that is no JSON is a text.
fn read(payload: &[u8]) -> Value {
    serde_json::from_slice(payload).unwrap_or_else(|_| String::from_utf8_lossy(payload).into())
}
