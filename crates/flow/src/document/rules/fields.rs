//! Fields in expressions, as far as they are known.
//!
//! A select list without `*` says which fields a record has behind it. Filters keep them, and lookups add one; functions,
//! `explode` and sources make records whose fields nobody knows here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use super::joins::{is_join, join_members};
use super::parameters::{CONFIG_KEY, Expression, JOIN_KEY, TRIGGER_KEY, expressions};
use crate::document::draft::{DocumentDraft, DraftNode};
use crate::document::finding::{Findings, join};
use crate::document::model::{NodeId, Role};
use crate::document::tree::Tree;
use crate::template::Template;

/// The names of all fields of a record; `None` if they are not known.
type Fields = Option<Rc<BTreeSet<String>>>;

/// Names that have a meaning beside the fields of the record.
const RESERVED: [&str; 7] = ["input", "error", "output_count", "window", "fired_by", "key", "headers"];

/// The members of the records that an alarm makes.
const OF_ALARM: [&str; 7] = ["alarm", "event", "key", "at", "since", "severity", "record"];

/// A field that no record can have would be NULL for all of them.
pub(super) fn unknown_field(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let known = Known::of(draft);
    let mut add = |tree: &Tree, path: &str, name: &str, fields: &BTreeSet<String>| {
        let message = format!("the records here have no field '{name}'; add it to the select list before");
        findings.add(tree.place, path, rule, message).named(name).near(name, fields.iter().map(String::as_str));
    };
    for expression in expressions(draft) {
        let Some(node) = expression.node.and_then(|node| draft.by_name.get(node.name)) else { continue };
        let fields = match expression.key {
            JOIN_KEY => known.shared(&inputs_of_key(draft, *node, expression.tree)),
            "where" | "key_by" | "aggregates" | TRIGGER_KEY => known.inputs[node.0].clone(),
            "select" | CONFIG_KEY if expression.node.is_some_and(|node| node.tree.get("fn").is_some()) => continue,
            CONFIG_KEY => known.inputs[node.0].clone(),
            "select" => known.selectable(draft, node.0),
            "when" => known.outputs[node.0].clone(),
            _ => continue,
        };
        let (Some(fields), Ok(parsed)) = (&fields, expression.parsed(draft)) else { continue };
        let is_unknown = |name: &&String| !fields.contains(*name) && !RESERVED.contains(&name.as_str());
        for name in parsed.fields.iter().filter(is_unknown) {
            add(expression.tree, &expression.path, name, fields);
        }
    }
    for (node, known) in draft.nodes.iter().zip(&known.inputs) {
        let (Some(fields), Some(id)) = (known, entity_id(node)) else { continue };
        let path = ["config", "entities", "id"].iter().fold(node.path.clone(), |path, key| join(&path, key));
        let template = Template::read_text(id.text().unwrap_or_default());
        let names = template.fields().map(|field| field.split('.').next().unwrap_or_default());
        for name in names.filter(|name| !fields.contains(*name)) {
            add(id, &path, name, fields);
        }
    }
}

/// The id of a lookup's entities, if its node looks records up as they come in.
fn entity_id<'a>(node: &DraftNode<'a>) -> Option<&'a Tree> {
    let is_lookup = node.tree.text_of("type") == Some("lookup") && node.tree.get("fn").is_none();
    node.tree.get("config").filter(|_| is_lookup)?.get("entities")?.get("id")
}

/// The fields of each node's records.
struct Known {
    inputs: Vec<Fields>,
    outputs: Vec<Fields>,
}

impl Known {
    /// Goes along the edges; nodes in a cycle and behind it are left unknown.
    fn of(draft: &DocumentDraft<'_>) -> Self {
        let count = draft.nodes.len();
        let (mut waits, mut senders) = (vec![0usize; count], vec![Vec::new(); count]);
        for (from, to) in &draft.edges {
            waits[to.0] += 1;
            senders[to.0].push(*from);
        }
        let selected = selected(draft);
        let reshaped = reshaped(draft);
        let mut known = Self { inputs: vec![None; count], outputs: vec![None; count] };
        let mut ready: VecDeque<usize> = (0..count).filter(|node| waits[*node] == 0).collect();
        while let Some(node) = ready.pop_front() {
            if !reshaped.contains(&NodeId(node)) {
                known.inputs[node] = known.united(&senders[node]);
            }
            known.outputs[node] = known.output(draft, node, selected.get(&node).cloned());
            for successor in &draft.successors[node] {
                waits[successor.0] -= 1;
                if waits[successor.0] == 0 {
                    ready.push_back(successor.0);
                }
            }
        }
        known
    }

    fn united(&self, senders: &[NodeId]) -> Fields {
        let mut senders = senders.iter().map(|sender| self.outputs[sender.0].clone());
        let first = senders.next()??;
        senders.try_fold(first, |known, more| {
            let more = more?;
            Some(if Rc::ptr_eq(&known, &more) { known } else { Rc::new(known.union(&more).cloned().collect()) })
        })
    }

    /// The fields that records of all these nodes have, as far as they are known.
    fn shared(&self, nodes: &[NodeId]) -> Fields {
        let known = nodes.iter().filter_map(|node| self.outputs[node.0].clone());
        known.reduce(|shared, more| Rc::new(shared.intersection(&more).cloned().collect()))
    }

    /// The fields that the select list of a node may name: those of its input, and the one that a lookup adds; or those of
    /// the records that the node makes.
    fn selectable(&self, draft: &DocumentDraft<'_>, node: usize) -> Fields {
        if is_aggregate(&draft.nodes[node]) {
            return made_by_aggregate(draft, &draft.nodes[node]);
        }
        if is_join(&draft.nodes[node]) {
            return join_members(&draft.nodes[node]).map(Rc::new);
        }
        if is_alarm(&draft.nodes[node]) {
            return Some(Rc::new(OF_ALARM.iter().map(|name| (*name).to_owned()).collect()));
        }
        let fields = self.inputs[node].clone()?;
        let Some(added) = added_by_lookup(&draft.nodes[node]) else { return Some(fields) };
        Some(Rc::new(fields.iter().cloned().chain([added.to_owned()]).collect()))
    }

    fn output(&self, draft: &DocumentDraft<'_>, node: usize, selected: Fields) -> Fields {
        let tree = draft.nodes[node].tree;
        if tree.get("select").is_some() {
            return selected;
        }
        let keeps = tree.text_of("type") == Some("filter")
            || is_alarm(&draft.nodes[node])
            || is_join(&draft.nodes[node])
            || is_aggregate(&draft.nodes[node])
            || added_by_lookup(&draft.nodes[node]).is_some();
        self.selectable(draft, node).filter(|_| keeps && tree.get("fn").is_none())
    }
}

/// The inputs of a join whose key has this expression.
fn inputs_of_key(draft: &DocumentDraft<'_>, node: NodeId, part: &Tree) -> Vec<NodeId> {
    let has_part =
        |tree: &Tree| std::ptr::eq(tree, part) || tree.elements().iter().any(|element| std::ptr::eq(element, part));
    let on = draft.node(node).tree.get("config").and_then(|config| config.get("on"));
    let of_one = on.and_then(|on| on.members().iter().find(|member| has_part(&member.value)));
    match of_one {
        Some(member) => draft.by_name.get(member.key.as_str()).copied().into_iter().collect(),
        None => draft.edges.iter().filter(|(_, to)| *to == node).map(|(from, _)| *from).collect(),
    }
}

fn is_aggregate(node: &DraftNode<'_>) -> bool {
    node.tree.text_of("type") == Some("aggregate")
}

/// The members of the records that an aggregate makes: its key, its values and the window.
fn made_by_aggregate(draft: &DocumentDraft<'_>, node: &DraftNode<'_>) -> Fields {
    let is_of_node = |known: &Expression<'_, '_>| known.node.is_some_and(|known| known.name == node.name);
    let mut names = BTreeSet::from(["window".to_owned(), "op".to_owned()]);
    for expression in expressions(draft).into_iter().filter(is_of_node) {
        match expression.key {
            "key_by" => drop(names.insert(expression.tree.text()?.to_owned())),
            "aggregates" => names.extend(expression.parsed(draft).ok()?.selected?),
            _ => {}
        }
    }
    Some(Rc::new(names))
}

fn is_alarm(node: &DraftNode<'_>) -> bool {
    node.tree.text_of("type") == Some("alarm")
}

/// The member that a lookup adds to its records.
fn added_by_lookup<'a>(node: &DraftNode<'a>) -> Option<&'a str> {
    node.tree.get("config").filter(|_| node.tree.text_of("type") == Some("lookup"))?.text_of("as")
}

/// The fields that select lists of nodes make.
fn selected(draft: &DocumentDraft<'_>) -> BTreeMap<usize, Rc<BTreeSet<String>>> {
    let lists = expressions(draft).into_iter().filter(|expression| expression.key == "select");
    let fields = lists.filter_map(|expression| {
        let node = draft.by_name.get(expression.node?.name)?;
        Some((node.0, Rc::new(expression.parsed(draft).ok()?.selected?)))
    });
    fields.collect()
}

/// The nodes that also take records of another shape: of error routes and failed conditions, and late ones.
fn reshaped(draft: &DocumentDraft<'_>) -> BTreeSet<NodeId> {
    let late_to = |node: &DraftNode<'_>| draft.by_name.get(node.tree.get("window")?.text_of("late_to")?).copied();
    let mut nodes: BTreeSet<NodeId> = draft.nodes.iter().filter_map(late_to).collect();
    for route in &draft.routes {
        nodes.extend(route.predicate_errors_to.iter().filter_map(|to| to.node));
        if route.is_on_error {
            match &route.to {
                crate::document::draft::RouteTargetDraft::Nodes(ends) => {
                    nodes.extend(ends.iter().filter_map(|to| to.node))
                }
                _ => nodes
                    .extend((0..draft.nodes.len()).filter(|node| draft.nodes[*node].role != Role::Source).map(NodeId)),
            }
        }
    }
    nodes
}
