//! Rules of single nodes.

use super::joins::is_join;
use crate::document::draft::DocumentDraft;
use crate::document::finding::{Findings, join};
use crate::document::model::{INSTANCES_MAX, NodeId, Role};
use crate::document::{node_types, tree::Tree};

pub(super) fn duplicate_name(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for (index, node) in draft.nodes.iter().enumerate() {
        let first = draft.by_name[node.name];
        if first != NodeId(index) {
            let first = draft.node(first);
            let message = format!(
                "'{}' is already the name of {} in line {}; rename one of them",
                node.name, first.path, first.name_place.line
            );
            findings.add(node.name_place, &node.path, rule, message).named(node.name);
        }
    }
}

pub(super) fn reserved_name(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for node in draft.nodes.iter().filter(|node| matches!(node.name, "all" | "none")) {
        let message = format!("'{}' has a meaning in routes and hooks; choose another name for the node", node.name);
        findings.add(node.name_place, &node.path, rule, message).named(node.name);
    }
}

/// Types that a later version has.
const LATER_TYPES: [(&str, &str); 2] =
    [("kafka", "use stream: Kafka clients write to the same topics"), ("object_store", "use file")];

pub(super) fn unknown_type(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for node in draft.nodes.iter().filter(|node| node.node_type.is_none()) {
        let Some(tree) = node.tree.get("type") else { continue };
        let Some(kind) = tree.text().filter(|kind| !is_later(kind)) else { continue };
        let names = || node_types(draft.context, node.role).map(|known| known.name);
        let other = draft.context.catalogue.iter().find(|known| known.name == kind);
        let message = match other {
            Some(other) => format!("'{kind}' is a {}, not a {}; move the node", role(other.role), role(node.role)),
            None => format!("'{kind}' is no type of a {}; there are {}", role(node.role), listed(names())),
        };
        findings.add(tree.place, &join(&node.path, "type"), rule, message).value(tree).near(kind, names());
    }
}

pub(super) fn type_not_available(draft: &DocumentDraft<'_>, findings: &mut Findings, _: &'static str) {
    for node in draft.nodes.iter().filter(|node| node.node_type.is_none()) {
        let Some(tree) = node.tree.get("type") else { continue };
        let later = LATER_TYPES.iter().find(|(name, _)| tree.text() == Some(name));
        if let Some((name, remedy)) = later {
            let message = format!("nodes of type '{name}' are not available in this version; {remedy}");
            findings.add(tree.place, &join(&node.path, "type"), "not_available", message).value(tree);
        }
    }
}

fn is_later(kind: &str) -> bool {
    LATER_TYPES.iter().any(|(name, _)| *name == kind)
}

pub(super) fn missing_expression(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    const NEEDED: [(&str, &str); 3] = [("filter", "where"), ("map", "select"), ("function", "fn")];
    for node in &draft.nodes {
        let Some(kind) = node.tree.text_of("type") else { continue };
        // A join has its keys in its config.
        let keeps_state = node.node_type.is_some_and(|kind| kind.keeps_state) && !is_join(node);
        let needed = NEEDED.iter().find(|(name, _)| kind == *name).map(|(_, key)| *key);
        // An aggregate without a key is over all records.
        let needs_key = keeps_state && kind != "aggregate";
        let Some(key) = needed.or(needs_key.then_some("key_by")) else { continue };
        if node.tree.get(key).is_none() {
            let message = format!("'{}' is of type {kind} and has no '{key}'; add it", node.name);
            findings.add(node.name_place, &join(&node.path, key), rule, message);
        }
    }
}

pub(super) fn batch_timeout(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for node in draft.nodes.iter().filter(|node| node.role != Role::Source) {
        let Some(member) = node.tree.get("batch").and_then(|batch| batch.member("timeout")) else { continue };
        let message = format!(
            "'{}' is a {} and hands on what is there without waiting; remove timeout, or set it at the source",
            node.name,
            role(node.role)
        );
        findings
            .add(member.key_place, &join(&join(&node.path, "batch"), "timeout"), rule, message)
            .value(&member.value);
    }
}

pub(super) fn parallelism(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for node in &draft.nodes {
        let Some(tree) = node.tree.get("parallelism") else { continue };
        let bound = |key| tree.get(key).and_then(Tree::whole);
        if let (Some(min), Some(max)) = (bound("min"), bound("max"))
            && min > max
        {
            let message = format!("min = {min} is above max = {max}; exchange them or write one number");
            findings.add(tree.place, &join(&node.path, "parallelism"), rule, message).value(tree);
        }
    }
}

pub(super) fn instances(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let of_node = |tree: &Tree| match tree.get("parallelism") {
        None => 1,
        Some(number) => number.whole().or_else(|| number.get("min").and_then(Tree::whole)).unwrap_or(1),
    };
    let total: u64 = draft.nodes.iter().map(|node| of_node(node.tree)).sum();
    if total > INSTANCES_MAX {
        let message = format!(
            "the nodes have {total} instances together, at most {INSTANCES_MAX} may be; lower parallelism, or split the job"
        );
        findings.add(draft.tree.place, "", rule, message);
    }
}

pub(super) fn cannot_end(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    if draft.tree.text_of("mode") != Some("batch") {
        return;
    }
    for node in &draft.nodes {
        let Some(kind) = node.node_type.filter(|kind| kind.role == Role::Source && !kind.can_end) else { continue };
        let message = format!(
            "'{}' is a source of type '{}', which never ends, in a job of mode batch; use mode: streaming or another source",
            node.name, kind.name
        );
        findings.add(node.name_place, &node.path, rule, message).named(node.name);
    }
}

pub(super) fn role(role: Role) -> &'static str {
    match role {
        Role::Source => "source",
        Role::Transform => "transform",
        Role::Sink => "sink",
    }
}

fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
