//! Rules of the graph.

use crate::document::draft::{DocumentDraft, EdgeEnd};
use crate::document::finding::{Findings, join};
use crate::document::model::{NodeId, Role};

/// The references to nodes with this role, once per node and place.
fn ends_with_role<'d, 'a>(
    draft: &'d DocumentDraft<'a>,
    role: Role,
    end: fn(&'d crate::document::draft::Link<'a>) -> (&'d EdgeEnd<'a>, &'d EdgeEnd<'a>),
) -> impl Iterator<Item = (&'d EdgeEnd<'a>, &'d EdgeEnd<'a>)> {
    draft.links.iter().map(end).filter(move |(this, _)| this.node.is_some_and(|node| draft.node(node).role == role))
}

pub(super) fn source_with_inputs(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for (source, input) in ends_with_role(draft, Role::Source, |link| (&link.to, &link.from)) {
        let message = format!(
            "'{}' is a source and has the input '{}'; make it a transform, or remove the input",
            source.name, input.name
        );
        findings.add(input.place, &input.path, rule, message).named(input.name);
    }
}

pub(super) fn sink_with_outputs(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let takes_errors = |sink: &EdgeEnd<'_>, successor: &EdgeEnd<'_>| {
        draft.routes.iter().any(|route| {
            let is_from_it = route.from.as_ref().is_some_and(|from| from.node.is_some() && from.node == sink.node);
            route.is_on_error && is_from_it && route.destinations().iter().any(|to| to.node == successor.node)
        })
    };
    let links = ends_with_role(draft, Role::Sink, |link| (&link.from, &link.to));
    for (sink, successor) in links.into_iter().filter(|(sink, successor)| !takes_errors(sink, successor)) {
        let message = format!(
            "'{}' is a sink and has the successor '{}', which no error route of it names; take the records from an input \
             of the sink",
            sink.name, successor.name
        );
        findings.add(sink.place, &sink.path, rule, message).named(sink.name);
    }
}

pub(super) fn unknown_input(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let mut seen = std::collections::HashSet::new();
    let ends = draft.links.iter().flat_map(|link| [&link.from, &link.to]).filter(|end| end.node.is_none());
    for end in ends.filter(|end| seen.insert(end.place)) {
        let message = format!("there is no node '{}'", end.name);
        findings.add(end.place, &end.path, rule, message).named(end.name).near(end.name, draft.names());
    }
}

/// Rules after which an edge may be missing only because it could not be read.
const LOST_EDGES: [&str; 5] = ["unknown_input", "type", "duplicate_key", "duplicate_name", "not_available"];

pub(super) fn no_inputs(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    if findings.has_any(&LOST_EDGES) {
        return;
    }
    let mut has_input = vec![false; draft.nodes.len()];
    draft.successors.iter().flatten().for_each(|to| has_input[to.0] = true);
    draft.links.iter().filter_map(|link| link.to.node).for_each(|to| has_input[to.0] = true);
    for (index, node) in draft.nodes.iter().enumerate() {
        if !has_input[index] && node.role != Role::Source && draft.by_name[node.name] == NodeId(index) {
            let message = format!("'{}' gets no records; name the nodes before it in inputs", node.name);
            findings.add(node.name_place, &join(&node.path, "inputs"), rule, message).named(node.name);
        }
    }
}

pub(super) fn dead_end(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    if findings.has_any(&LOST_EDGES) {
        return;
    }
    for (index, node) in draft.nodes.iter().enumerate() {
        let is_first = draft.by_name[node.name] == NodeId(index);
        if node.role != Role::Sink && is_first && draft.successors[index].is_empty() {
            let message =
                format!("no node takes the records of '{}'; name it in the inputs of another, or remove it", node.name);
            findings.add(node.name_place, &node.path, rule, message).named(node.name);
        }
    }
}

/// Names one cycle: the nodes from one of them back to itself.
pub(super) fn cycle(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    // An edge into a source breaks a rule of its own.
    let is_sound = |to: &NodeId| draft.node(*to).role != Role::Source;
    let sound = draft.successors.iter().map(|successors| successors.iter().copied().filter(is_sound).collect());
    let Some(cycle) = find_cycle(&sound.collect::<Vec<_>>()) else { return };
    let names: Vec<&str> = cycle.iter().chain(cycle.first()).map(|id| draft.node(*id).name).collect();
    if let Some(first) = cycle.first() {
        let node = draft.node(*first);
        let message = format!("the nodes {} form a cycle; remove one of these edges", names.join(" → "));
        findings.add(node.name_place, &node.path, rule, message).named(node.name);
    }
}

/// The nodes of a cycle in their order. Depth first, without recursion; each edge is looked at once.
fn find_cycle(successors: &[Vec<NodeId>]) -> Option<Vec<NodeId>> {
    let mut is_done = vec![false; successors.len()];
    let mut is_open = vec![false; successors.len()];
    for start in 0..successors.len() {
        let mut path = vec![(NodeId(start), 0usize)];
        while let Some((node, next)) = path.last_mut() {
            let node = *node;
            if is_done[node.0] {
                path.pop();
                continue;
            }
            is_open[node.0] = true;
            let Some(successor) = successors[node.0].get(*next) else {
                is_done[node.0] = true;
                is_open[node.0] = false;
                path.pop();
                continue;
            };
            *next += 1;
            if is_open[successor.0] {
                return Some(path.into_iter().map(|(node, _)| node).skip_while(|node| node != successor).collect());
            }
            path.push((*successor, 0));
        }
    }
    None
}
