//! Rules of windows.

use std::collections::BTreeSet;

use super::parameters::expressions;
use crate::document::draft::DocumentDraft;
use crate::document::finding::{Findings, join};
use crate::document::model::Role;
use crate::document::quantity::duration_ms;
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

const TIMES: [WindowTimes; 4] = [
    WindowTimes { kind: "tumbling", needed: &["size"], also: &["offset"] },
    WindowTimes { kind: "sliding", needed: &["size", "slide"], also: &["offset"] },
    WindowTimes { kind: "session", needed: &["gap"], also: &[] },
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

fn times(window: &Tree, path: &str, findings: &mut Findings, rule: &'static str) {
    let Some(kind) = window.text_of("type") else { return };
    let Some(WindowTimes { needed, also, .. }) = TIMES.iter().find(|times| times.kind == kind) else { return };
    for key in ["size", "slide", "gap", "offset"] {
        let (tree, path) = (window.get(key), join(path, key));
        match tree {
            None if needed.contains(&key) => {
                findings.add(window.place, &path, rule, format!("a {kind} window needs {key}; add it"));
            }
            Some(tree) if !needed.contains(&key) && !also.contains(&key) => {
                let message = format!("a {kind} window has no {key}; remove it");
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
    let time = |key: &str| window.get(key).and_then(Tree::text).and_then(duration_ms);
    if let (Some(tree), Some(size), Some(slide)) = (window.get("slide"), time("size"), time("slide"))
        && kind == "sliding"
        && slide > size
    {
        let message = "records between two windows would be lost; let slide be at most size, or use a filter before";
        findings.add(tree.place, &join(path, "slide"), rule, message.to_owned()).value(tree);
    }
}
