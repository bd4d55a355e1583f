//! Rules of routes: their ends, stops and order.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::document::draft::{DocumentDraft, DraftRoute, EdgeEnd, RouteTargetDraft};
use crate::document::finding::{Findings, join};
use crate::document::model::{NodeId, Role};

impl<'a> DraftRoute<'a> {
    pub(super) fn destinations(&self) -> &[EdgeEnd<'a>] {
        match &self.to {
            RouteTargetDraft::Nodes(ends) => ends,
            _ => &[],
        }
    }

    /// `to: all`, `to: none`, others that stop, others: the order in which they stand.
    fn rank(&self) -> u8 {
        match (&self.to, self.is_stop) {
            (RouteTargetDraft::All, _) => 0,
            (RouteTargetDraft::None, _) => 1,
            (_, true) => 2,
            (_, false) => 3,
        }
    }
}

pub(super) fn route_node(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for route in &draft.routes {
        let from = route.from.iter().filter(|_| !route.is_from_all);
        let ends = from.chain(route.destinations()).chain(&route.predicate_errors_to);
        for end in ends.filter(|end| end.node.is_none() && !matches!(end.name, "all" | "none")) {
            let message = format!("there is no node '{}'", end.name);
            findings.add(end.place, &end.path, rule, message).named(end.name).near(end.name, draft.names());
        }
    }
}

pub(super) fn route_target(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for route in &draft.routes {
        for end in route.destinations().iter().filter(|end| matches!(end.name, "all" | "none")) {
            let message = format!("'{}' stands beside other names; write it alone, or remove it", end.name);
            findings.add(end.place, &end.path, rule, message).named(end.name);
        }
        let to = route.tree.get("to").filter(|to| route.destinations().is_empty() && to.elements().is_empty());
        if let Some(to) = to.filter(|to| matches!(to.content, crate::document::tree::TreeContent::List(_))) {
            let message = "the list is empty; write none for no successor".to_owned();
            findings.add(to.place, &join(&route.path, "to"), rule, message).value(to);
        }
    }
}

pub(super) fn route_edge(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let edges: HashSet<(usize, NodeId)> =
        draft.successors.iter().enumerate().flat_map(|(from, to)| to.iter().map(move |to| (from, *to))).collect();
    let lacks = |from: usize, target: NodeId| !edges.contains(&(from, target));
    let is_sender = |from: &usize, target: NodeId| draft.nodes[*from].role != Role::Sink && NodeId(*from) != target;
    // For routes from all: a node without an edge to the target.
    let mut lacking: HashMap<NodeId, Option<usize>> = HashMap::new();
    for route in &draft.routes {
        for to in route.destinations() {
            let Some(target) = to.node else { continue };
            let first_lacking =
                || (0..draft.nodes.len()).filter(|from| is_sender(from, target)).find(|from| lacks(*from, target));
            let missing = match &route.from {
                Some(_) if route.is_from_all => *lacking.entry(target).or_insert_with(first_lacking),
                Some(EdgeEnd { node: Some(from), .. }) => Some(from.0).filter(|from| lacks(*from, target)),
                _ => None,
            };
            if let Some(from) = missing {
                let from = draft.nodes[from].name;
                let message = format!(
                    "there is no edge from '{from}' to '{}'; add '{from}' to the inputs of '{}'",
                    to.name, to.name
                );
                let successors = || route_successors(draft, from);
                findings.add(to.place, &to.path, rule, message).named(to.name).near(to.name, successors());
            }
        }
    }
}

fn route_successors<'a>(draft: &DocumentDraft<'a>, from: &str) -> Vec<&'a str> {
    let from = draft.by_name.get(from).map_or(&[][..], |from| &draft.successors[from.0]);
    from.iter().map(|to| draft.node(*to).name).collect()
}

pub(super) fn route_from_sink(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for from in draft.routes.iter().filter(|route| !route.is_on_error).filter_map(|route| route.from.as_ref()) {
        if from.node.is_some_and(|node| draft.node(node).role == Role::Sink) {
            let message = format!(
                "'{}' is a sink and sends nothing on but errors; add on_error: true, or route from one of its inputs",
                from.name
            );
            findings.add(from.place, &from.path, rule, message).named(from.name);
        }
    }
}

pub(super) fn route_stop(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for route in draft.routes.iter().filter(|route| !route.is_stop && !route.is_on_error && route.rank() < 2) {
        let word = if matches!(route.to, RouteTargetDraft::All) { "all" } else { "none" };
        let message = format!("the route goes to {word} and does not stop; add stop: true");
        findings.add(route.tree.place, &join(&route.path, "stop"), rule, message);
    }
}

pub(super) fn error_route_stop(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for route in draft.routes.iter().filter(|route| route.is_on_error && !route.is_stop) {
        let message = "the route is for errors and does not stop; add stop: true".to_owned();
        findings.add(route.tree.place, &join(&route.path, "stop"), rule, message);
    }
}

/// Checked for each `from` and class by itself.
pub(super) fn route_order(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    const RANKS: [&str; 4] = ["routes to all", "routes to none", "routes that stop", "other routes"];
    let mut last: BTreeMap<(&str, bool), (u8, &str)> = BTreeMap::new();
    for route in &draft.routes {
        let Some(from) = &route.from else { continue };
        let rank = route.rank();
        let before = last.entry((from.name, route.is_on_error)).or_insert((rank, &route.path));
        if rank < before.0 {
            let message = format!(
                "{} of '{}' come before {}; move this route before {}",
                RANKS[usize::from(rank)],
                from.name,
                RANKS[usize::from(before.0)],
                before.1
            );
            findings.add(route.tree.place, &route.path, rule, message).value(route.tree);
        } else {
            *before = (rank, &route.path);
        }
    }
}

pub(super) fn error_target(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let pairs = |route: &DraftRoute<'_>| -> Vec<(NodeId, NodeId)> {
        let from = route.from.as_ref().and_then(|from| from.node);
        route.destinations().iter().filter_map(|to| from.zip(to.node)).collect()
    };
    let errors: HashSet<_> = draft.routes.iter().filter(|route| route.is_on_error).flat_map(pairs).collect();
    for route in draft.routes.iter().filter(|route| !route.is_on_error) {
        for to in route.destinations() {
            let pair = route.from.as_ref().and_then(|from| from.node).zip(to.node);
            if let Some((from, _)) = pair.filter(|pair| errors.contains(pair)) {
                let message = format!(
                    "'{}' takes the errors of '{}' by another route, and then nothing else; use a node of its own for errors",
                    to.name,
                    draft.node(from).name
                );
                findings.add(to.place, &to.path, rule, message).named(to.name);
            }
        }
    }
}
