//! Rules of windows.

use std::collections::BTreeSet;

use super::parameters::expressions;
use crate::document::draft::DocumentDraft;
use crate::document::finding::{Findings, join};
use crate::document::model::Role;
use crate::document::quantity::{calendar_step, duration_ms};
use crate::document::tree::Tree;

/// A value of a window is of many records: fields of single ones stand in aggregates, unless all records of the key have them.
pub(super) fn aggregate_of_many(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let all = expressions(draft);
    for list in all.iter().filter(|expression| expression.key == "aggregates") {
        let (Some(node), Ok(parsed)) = (list.node, list.parsed(draft)) else { continue };
        let of_key =
            all.iter().filter(|known| known.key == "key_by" && known.node.is_some_and(|known| known.name == node.name));
        let keys: BTreeSet<String> =
            of_key.filter_map(|key| key.parsed(draft).ok()).flat_map(|key| key.fields).collect();
        for name in parsed.of_single_records.difference(&keys) {
            let message = format!("'{name}' is of single records; write an aggregate of it, or add it to key_by");
            findings.add(list.tree.place, &list.path, rule, message).named(name);
        }
    }
}

/// The times of a type of windows.
struct WindowTimes {
    kind: &'static str,
    needed: &'static [&'static str],
    also: &'static [&'static str],
}

const TIMES: [WindowTimes; 5] = [
    WindowTimes { kind: "tumbling", needed: &["size"], also: &["offset", "timezone"] },
    WindowTimes { kind: "sliding", needed: &["size", "slide"], also: &["offset"] },
    WindowTimes { kind: "session", needed: &["gap"], also: &[] },
    WindowTimes { kind: "count", needed: &["size"], also: &["slide"] },
    WindowTimes { kind: "global", needed: &[], also: &[] },
];

pub(super) fn window(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for node in draft.nodes.iter().filter(|node| node.role == Role::Transform) {
        let is_aggregate = node.node_type.is_some_and(|kind| kind.name == "aggregate");
        for key in ["window", "aggregates"] {
            let path = join(&node.path, key);
            match node.tree.get(key) {
                None if is_aggregate => {
                    let message = format!("'{}' is an aggregate without {key}; add it", node.name);
                    findings.add(node.name_place, &path, rule, message);
                }
                Some(tree) if !is_aggregate && node.node_type.is_some() => {
                    let message =
                        format!("{key} belongs to a transform of type aggregate; change the type, or remove {key}");
                    findings.add(tree.place, &path, rule, message);
                }
                _ => {}
            }
        }
        if let Some(window) = node.tree.get("window") {
            times(window, &join(&node.path, "window"), findings, rule);
        }
    }
}

/// An operation has the keys that it needs.
pub(super) fn aggregate_op(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for node in &draft.nodes {
        let list = node.tree.get("aggregates").map_or(&[][..], Tree::elements);
        for (index, tree) in list.iter().enumerate() {
            let path = format!("{}[{index}]", join(&node.path, "aggregates"));
            let Some(op) = tree.text_of("op") else { continue };
            if tree.get("field").is_none() && !matches!(op, "count" | "collect") {
                let message = format!("{op} needs field, the expression over each record; add it");
                findings.add(tree.place, &join(&path, "field"), rule, message);
            }
            match tree.get("q") {
                None if op == "quantile" => {
                    let message = "quantile needs q, a rank such as 0.99; add it".to_owned();
                    findings.add(tree.place, &join(&path, "q"), rule, message);
                }
                Some(rank) if op != "quantile" => {
                    let message = format!("{op} has no q; remove it, or write op: quantile");
                    findings.add(rank.place, &join(&path, "q"), rule, message).value(rank);
                }
                _ => {}
            }
        }
    }
}

/// Late records go to a node that can take them.
pub(super) fn late_to(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for node in &draft.nodes {
        let Some(window) = node.tree.get("window") else { continue };
        let Some((tree, name)) = window.get("late_to").and_then(|tree| Some((tree, tree.text()?))) else { continue };
        let path = join(&join(&node.path, "window"), "late_to");
        let target = draft.by_name.get(name).map(|id| draft.node(*id));
        match (target, window.text_of("type")) {
            (None, _) => {
                let message = format!("there is no node '{name}'");
                findings.add(tree.place, &path, rule, message).named(name).near(name, draft.names());
            }
            (Some(target), _) if target.role == Role::Source => {
                let message = format!("'{name}' is a source and cannot take records; name a transform or sink");
                findings.add(tree.place, &path, rule, message).named(name);
            }
            (_, Some(kind @ ("global" | "count"))) => {
                let message = format!("no record is too late for a {kind} window; remove late_to");
                findings.add(tree.place, &path, rule, message).value(tree);
            }
            _ => {}
        }
    }
}

fn times(window: &Tree, path: &str, findings: &mut Findings, rule: &'static str) {
    let Some(kind) = window.text_of("type") else { return };
    let Some(WindowTimes { needed, also, .. }) = TIMES.iter().find(|times| times.kind == kind) else { return };
    for key in ["size", "slide", "gap", "offset", "timezone"] {
        let (tree, path) = (window.get(key), join(path, key));
        match tree {
            None if needed.contains(&key) => {
                findings.add(window.place, &path, rule, format!("a {kind} window needs {key}; add it"));
            }
            Some(tree) if !needed.contains(&key) && !also.contains(&key) => {
                let message = format!("a {kind} window has no {key}; remove it");
                findings.add(tree.place, &path, rule, message).value(tree);
            }
            Some(tree) if matches!(key, "size" | "slide") && (kind == "count") != tree.whole().is_some() => {
                let message = match kind {
                    "count" => format!("{key} of a count window is a number of records, such as 100"),
                    _ => format!("{key} of a {kind} window is a duration, such as 5m"),
                };
                findings.add(tree.place, &path, rule, message).value(tree);
            }
            Some(tree)
                if key == "size"
                    && kind != "tumbling"
                    && tree.text().is_some_and(|text| duration_ms(text).is_none()) =>
            {
                let message =
                    format!("weeks, months and years are for tumbling windows; write size of a {kind} window in days");
                findings.add(tree.place, &path, rule, message).value(tree);
            }
            Some(tree) if matches!(key, "size" | "slide") && tree.text().and_then(duration_ms) == Some(0) => {
                findings
                    .add(tree.place, &path, rule, format!("{key} is no time at all; write 1ms or more"))
                    .value(tree);
            }
            _ => {}
        }
    }
    if let (Some(zone), Some(size)) = (window.get("timezone"), window.text_of("size"))
        && kind == "tumbling"
        && calendar_step(size).is_none()
    {
        let message = "a time zone is for windows of days, weeks, months or years, such as size: 1d; remove timezone";
        findings.add(zone.place, &join(path, "timezone"), rule, message.to_owned()).value(zone);
    }
    let extent = |key: &str| {
        let tree = window.get(key)?;
        tree.text().and_then(duration_ms).or_else(|| tree.whole())
    };
    if let (Some(tree), Some(size), Some(slide)) = (window.get("slide"), extent("size"), extent("slide"))
        && also.contains(&"slide") | needed.contains(&"slide")
        && slide > size
    {
        let message = "records between two windows would be lost; let slide be at most size, or use a filter before";
        findings.add(tree.place, &join(path, "slide"), rule, message.to_owned()).value(tree);
    }
}
