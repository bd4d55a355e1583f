//! The job that a new one goes on from: which of its nodes have state and positions for which of the new ones.

use std::collections::BTreeMap;

use serde_json::Value;

use super::model::{Document, NODE_MAPS, Node, Role, TriggerSetting, WindowKind, WindowSetting, gives_by_time_alone};

/// The keys of a source that name the topic or file to read.
pub(super) const READS: [&str; 2] = ["topic", "path"];

/// The jobs that a document may go on from.
pub trait EarlierJobs: std::fmt::Debug + Send + Sync {
    /// The job that `resume_from` names by its id or name.
    ///
    /// # Errors
    /// There is none that a job can go on from.
    fn named(&self, job: &str) -> Result<EarlierJob, NoEarlierJob>;

    /// The running job of this name, if the document is to replace it.
    fn replaced(&self, name: &str) -> Option<EarlierJob>;
}

/// The reason why a job cannot be gone on from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoEarlierJob {
    /// The reason and the remedy in words.
    pub message: String,
    /// The names of jobs that could be meant.
    pub names: Vec<String>,
}

/// A job that a new one may go on from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierJob {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its sources, the nodes with state, and its sinks.
    nodes: BTreeMap<String, EarlierNode>,
}

/// A node of an earlier job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EarlierNode {
    role: Role,
    kind: String,
    /// The topic or file that a source reads.
    reads: Option<String>,
    window: Option<WindowForm>,
    pub(crate) group: Option<String>,
}

/// A node of the new document, as far as it must be like that of the earlier job.
#[derive(Debug, Clone)]
pub(crate) struct NodeForm<'a> {
    pub(crate) name: &'a str,
    pub(crate) role: Role,
    pub(crate) kind: &'a str,
    /// The topic or file that a source reads.
    pub(crate) reads: Option<&'a str>,
    pub(crate) window: Option<WindowForm>,
}

/// The windows of an aggregate, as far as stored ones depend on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WindowForm {
    kind: WindowKind,
    offset_ms: i64,
    /// Windows have a state each, in place of parts that several share.
    has_triggers: bool,
}

impl WindowForm {
    pub(super) fn of(window: &WindowSetting, triggers: &[TriggerSetting]) -> Self {
        let has_triggers = !gives_by_time_alone(triggers, window.allowed_lateness_ms);
        Self { kind: window.kind.clone(), offset_ms: window.offset_ms, has_triggers }
    }
}

impl EarlierJob {
    /// The job of a stored document. `read` is what this process reads it as, if it still takes it: it tells the maps with state.
    pub fn new(id: &str, stored: &Value, read: Option<&Document>) -> Self {
        let may_be_meant = |name: &str, role: Role| {
            let known = read.and_then(|read| read.nodes.iter().find(|node| node.name == name));
            role != Role::Transform || known.is_none_or(|node| node.keeps_state)
        };
        let mut nodes = BTreeMap::new();
        for (map, role) in NODE_MAPS {
            for (name, node) in stored[map].as_object().into_iter().flatten() {
                let text = |value: &Value| value.as_str().map(str::to_owned);
                if may_be_meant(name, role) {
                    let kind = text(&node["type"]).unwrap_or_default();
                    let config = |key: &str| text(&node["config"][key]);
                    let reads = READS.iter().find_map(|key| config(key));
                    let known = read.and_then(|read| read.nodes.iter().find(|known| known.name == *name));
                    let window = known.and_then(NodeForm::window_of);
                    nodes.insert(name.clone(), EarlierNode { role, kind, reads, window, group: config("group") });
                }
            }
        }
        Self { id: id.to_owned(), name: stored["name"].as_str().unwrap_or_default().to_owned(), nodes }
    }

    /// The node from which one of a new document goes on: that of its name, or of the name in `map`, if it is of the same type, and
    /// reads the same topic or file, or has the same windows.
    pub(crate) fn node_of<'n>(
        &'n self,
        node: &NodeForm<'n>,
        map: &'n BTreeMap<String, String>,
    ) -> Option<(&'n str, &'n EarlierNode)> {
        let name = map.get(node.name).map_or(node.name, String::as_str);
        let (name, known) = self.nodes.get_key_value(name)?;
        known.fits(node).then_some((name, known))
    }

    /// The names of the nodes from which one could go on.
    pub(crate) fn names_for<'n>(&'n self, node: &'n NodeForm<'_>) -> impl Iterator<Item = &'n str> {
        self.nodes.iter().filter(move |(_, known)| known.fits(node)).map(|(name, _)| name.as_str())
    }

    /// The nodes with state.
    pub(crate) fn with_state(&self) -> impl Iterator<Item = &str> {
        let is_meant = |node: &EarlierNode| node.role == Role::Transform;
        self.nodes.iter().filter(move |(_, node)| is_meant(node)).map(|(name, _)| name.as_str())
    }

    pub(crate) fn node(&self, name: &str) -> Option<&EarlierNode> {
        self.nodes.get(name)
    }
}

impl<'a> NodeForm<'a> {
    pub(crate) fn of(node: &'a Node) -> Self {
        let reads = READS.iter().find_map(|key| node.config.get(*key)?.as_str());
        Self { name: &node.name, role: node.role, kind: &node.kind, reads, window: Self::window_of(node) }
    }

    fn window_of(node: &Node) -> Option<WindowForm> {
        node.window.as_ref().map(|window| WindowForm::of(window, &node.triggers))
    }
}

impl EarlierNode {
    pub(crate) fn fits(&self, node: &NodeForm<'_>) -> bool {
        self.role == node.role
            && self.kind == node.kind
            && self.window == node.window
            && (self.role != Role::Source || self.reads.as_deref() == node.reads)
    }
}
