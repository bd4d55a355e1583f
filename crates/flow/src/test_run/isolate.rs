//! Puts lists in place of a document's connectors, and adds sources for the records of a test.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::connector::TICK_MS;
use crate::document::{Document, Hook, Mode, Node, NodeId, Parallelism, Role, Route, TestCase};

/// No node of a document can have such a name.
const INJECTED: &str = "$inject.";
/// A source of a test is idle as soon as it has nothing to be read.
const IDLE_TIMEOUT: Duration = Duration::from_millis(1);

/// Changes the document so that it needs no connector, ends by itself, and takes the records of the test.
pub(super) fn isolate(document: &mut Document, test: &TestCase, batch: Option<u32>) {
    document.mode = Mode::Batch;
    for node in &mut document.nodes {
        match node.role {
            Role::Source => replace_source(node, test),
            Role::Sink => (node.kind, node.config) = ("blackhole".to_owned(), Map::new()),
            Role::Transform if node.kind == "lookup" => replace_table(node, test),
            Role::Transform => {}
        }
        node.batch.size = batch.unwrap_or(node.batch.size);
        node.event_time.idle_timeout = IDLE_TIMEOUT;
    }
    spell_out_routes(document);
    spell_out_hooks(document);
    let count = document.nodes.len();
    for id in 0..count {
        let node = &document.nodes[id];
        if node.role != Role::Source
            && let Some(records) = test.inject.get(&node.name)
        {
            let injected = injection(node, records, test);
            document.nodes.push(injected);
            let source = NodeId(document.nodes.len() - 1);
            document.nodes[id].inputs.push(source);
        }
    }
}

/// The source reads the records of the test. A list keeps its own if the test injects nothing.
fn replace_source(node: &mut Node, test: &TestCase) {
    let injected = test.inject.get(&node.name);
    if injected.is_none() && test.inject.is_empty() && node.kind == "list" {
        node.config.insert("open".to_owned(), Value::Bool(false));
        node.config.insert(TICK_MS.to_owned(), tick_ms(test));
        return;
    }
    node.kind = "list".to_owned();
    node.config = list_of(injected.map_or(&[][..], Vec::as_slice), test);
}

fn list_of(records: &[Value], test: &TestCase) -> Map<String, Value> {
    let records = Value::Array(records.to_vec());
    Map::from_iter([("records".to_owned(), records), (TICK_MS.to_owned(), tick_ms(test))])
}

/// The table has the rows of the test.
fn replace_table(node: &mut Node, test: &TestCase) {
    let rows = test.tables.get(&node.name).cloned().unwrap_or_default();
    node.config.insert("rows".to_owned(), Value::Array(rows));
}

fn tick_ms(test: &TestCase) -> Value {
    (test.tick.as_millis() as u64).into()
}

/// A source whose only successor is `node`.
fn injection(node: &Node, records: &[Value], test: &TestCase) -> Node {
    Node {
        name: format!("{INJECTED}{}", node.name),
        role: Role::Source,
        keeps_state: false,
        kind: "list".to_owned(),
        inputs: Vec::new(),
        config: list_of(records, test),
        filter: None,
        select: None,
        function: None,
        is_batch_function: false,
        key_by: Vec::new(),
        window: None,
        triggers: Vec::new(),
        join: None,
        // One instance sends all records to a keyed node, so that they keep their order by key.
        parallelism: if node.key_by.is_empty() { node.parallelism } else { Parallelism { min: 1, max: 1 } },
        ..node.clone()
    }
}

/// Replaces routes from all nodes by routes from each, so that they do not hold for sources that are added.
fn spell_out_routes(document: &mut Document) {
    let senders = || {
        let nodes = document.nodes.iter().enumerate();
        nodes.filter(|(_, node)| node.role != Role::Sink).map(|(id, _)| NodeId(id))
    };
    let spelled_out = document.routes.iter().flat_map(|route| -> Vec<Route> {
        match route.from {
            Some(_) => vec![route.clone()],
            None => senders().map(|from| Route { from: Some(from), ..route.clone() }).collect(),
        }
    });
    document.routes = spelled_out.collect();
}

/// Replaces hooks of all nodes by hooks of each, so that they are not called for sources that are added.
fn spell_out_hooks(document: &mut Document) {
    let ids = || (0..document.nodes.len()).map(NodeId);
    let spelled_out = document.hooks.iter().flat_map(|hook| -> Vec<Hook> {
        match hook.task {
            Some(_) => vec![hook.clone()],
            None => ids().map(|node| Hook { task: Some(node), ..hook.clone() }).collect(),
        }
    });
    document.hooks = spelled_out.collect();
}
