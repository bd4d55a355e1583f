//! Rules of joins.

use std::collections::BTreeSet;

use crate::document::draft::{DocumentDraft, DraftNode};
use crate::document::finding::{Findings, join as join_path};
use crate::document::quantity::{duration_ms, signed_duration_ms};
use crate::document::tree::{Tree, TreeContent};

/// `true` for a node that joins two inputs.
pub(in crate::document) fn is_join(node: &DraftNode<'_>) -> bool {
    node.tree.text_of("type") == Some("join")
}

/// The bounds `before` and `after` of `within`, in milliseconds; `None` for a value that is no time.
pub(in crate::document) fn join_bounds_ms(within: &Tree) -> Option<(i64, i64)> {
    if let TreeContent::Object(_) = within.content {
        let bound = |key: &str| within.get(key).map_or(Some(0), |tree| tree.text().and_then(signed_duration_ms));
        return Some((bound("before")?, bound("after")?));
    }
    let both = i64::try_from(duration_ms(within.text()?)?).ok()?;
    Some((both, both))
}

/// The members of the results of a join.
pub(super) fn join_members(node: &DraftNode<'_>) -> Option<BTreeSet<String>> {
    let config = node.tree.get("config")?;
    let member = |side: &str| Some(member_of(config, config.text_of(side)?).to_owned());
    Some(BTreeSet::from([member("left")?, member("right")?]))
}

/// The member of the results that has the records of an input.
pub(in crate::document) fn member_of<'a>(config: &'a Tree, input: &'a str) -> &'a str {
    config.get("as").and_then(|names| names.text_of(input)).unwrap_or(input)
}

/// The parts of the key of an input.
fn parts(tree: &Tree) -> usize {
    tree.elements().len().max(1)
}

pub(super) fn join(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for node in draft.nodes.iter().filter(|node| is_join(node) && node.node_type.is_some()) {
        inputs(draft, node, findings, rule);
        if let Some(key) = node.tree.get("key_by") {
            let message = "the keys of a join stand in config.on; move key_by there".to_owned();
            findings.add(key.place, &join_path(&node.path, "key_by"), rule, message).value(key);
        }
        if let Some(config) = node.tree.get("config") {
            sides(config, &join_path(&node.path, "config"), findings, rule);
            within(config, &join_path(&node.path, "config"), findings, rule);
        }
    }
}

/// The names of the nodes before a join, in their order.
fn inputs(draft: &DocumentDraft<'_>, node: &DraftNode<'_>, findings: &mut Findings, rule: &'static str) {
    let path = join_path(&node.path, "inputs");
    let is_of_node = |to: &crate::document::model::NodeId| draft.node(*to).name == node.name;
    let before = draft.edges.iter().filter(|(_, to)| is_of_node(to)).map(|(from, _)| draft.node(*from).name);
    let before: BTreeSet<&str> = before.collect();
    let mut seen = BTreeSet::new();
    let links = draft.links.iter().filter(|link| link.to.node.as_ref().is_some_and(is_of_node));
    if let Some(twice) = links.map(|link| &link.from).find(|from| !seen.insert(from.name)) {
        let message = format!(
            "'{}' comes in twice; put a map with select: \"*\" behind it, and let that be the other input",
            twice.name
        );
        findings.add(twice.place, &twice.path, rule, message).named(twice.name);
    } else if !before.is_empty() && before.len() != 2 {
        let message = format!("'{}' joins two inputs, and has {}; name two nodes in inputs", node.name, before.len());
        findings.add(node.tree.get("inputs").map_or(node.name_place, |inputs| inputs.place), &path, rule, message);
    } else if let Some(config) = node.tree.get("config") {
        for side in ["left", "right"] {
            let Some(tree) = config.get(side) else { continue };
            let Some(name) = tree.text().filter(|name| !before.is_empty() && !before.contains(name)) else { continue };
            let message = format!("'{name}' is no input of '{}'; name one of its inputs", node.name);
            let path = join_path(&join_path(&node.path, "config"), side);
            findings.add(tree.place, &path, rule, message).value(tree).near(name, before.iter().copied());
        }
    }
}

/// `left` and `right` differ, and what is said by input is said of them.
fn sides(config: &Tree, path: &str, findings: &mut Findings, rule: &'static str) {
    let (Some(left), Some(right)) = (config.text_of("left"), config.text_of("right")) else { return };
    if let Some(tree) = config.get("right").filter(|_| left == right) {
        let message = "it is the left input, too; name the other one".to_owned();
        findings.add(tree.place, &join_path(path, "right"), rule, message).value(tree);
        return;
    }
    for key in ["on", "as"] {
        let path = join_path(path, key);
        for member in config.get(key).map_or(&[][..], Tree::members) {
            if member.key != left && member.key != right {
                let message = format!("'{}' is neither left nor right; name '{left}' or '{right}'", member.key);
                findings
                    .add(member.key_place, &join_path(&path, &member.key), rule, message)
                    .named(&member.key)
                    .near(&member.key, [left, right]);
            }
        }
    }
    if let Some(on) = config.get("on").filter(|on| matches!(on.content, TreeContent::Object(_))) {
        let path = join_path(path, "on");
        match (on.get(left), on.get(right)) {
            (Some(of_left), Some(of_right)) if parts(of_left) != parts(of_right) => {
                let message = format!(
                    "the keys of '{left}' and '{right}' have {} and {} parts; give both as many",
                    parts(of_left),
                    parts(of_right)
                );
                findings.add(of_right.place, &join_path(&path, right), rule, message).value(of_right);
            }
            (Some(_), Some(_)) => {}
            (found, _) => {
                let missing = if found.is_none() { left } else { right };
                let message = format!("the key of '{missing}' is missing; add it");
                findings.add(on.place, &join_path(&path, missing), rule, message);
            }
        }
    }
    let member = member_of(config, left);
    if member == member_of(config, right) {
        let message = format!("both inputs are the member '{member}' of the results; give them two names");
        let place = config.get("as").map_or(config.place, |names| names.place);
        findings.add(place, &join_path(path, "as"), rule, message);
    }
}

fn within(config: &Tree, path: &str, findings: &mut Findings, rule: &'static str) {
    let Some(within) = config.get("within") else { return };
    let Some((before_ms, after_ms)) = join_bounds_ms(within) else { return };
    if before_ms + after_ms < 0 {
        let message = "before and after leave no time between them; let their sum be 0 or more".to_owned();
        findings.add(within.place, &join_path(path, "within"), rule, message).value(within);
    }
}
