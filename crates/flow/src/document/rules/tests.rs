//! Rules of the tests in a document.

use std::collections::{BTreeMap, BTreeSet};

use super::joins::is_join;
use crate::document::check::ENTRIES_MAX;
use crate::document::draft::DocumentDraft;
use crate::document::finding::{Findings, join};
use crate::document::model::NodeId;
use crate::document::tree::{Tree, TreeContent};

fn tests<'a>(draft: &DocumentDraft<'a>) -> impl Iterator<Item = (String, &'a Tree)> {
    let tests = draft.tree.get("tests").map_or(&[][..], Tree::elements);
    tests.iter().take(ENTRIES_MAX).enumerate().map(|(index, test)| (format!("tests[{index}]"), test))
}

pub(super) fn test_name(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, test) in tests(draft) {
        let Some((name, tree)) = test.get("name").and_then(|tree| Some((tree.text()?, tree))) else { continue };
        let path = join(&path, "name");
        if name.trim().is_empty() {
            let message = "the name is empty; say what the test expects".to_owned();
            findings.add(tree.place, &path, rule, message).value(tree);
        } else if let Some(line) = lines.insert(name, tree.place.line) {
            let message = format!("the test in line {line} has this name, too; rename one of them");
            findings.add(tree.place, &path, rule, message).value(tree);
        }
    }
}

pub(super) fn test_node(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for (path, test) in tests(draft) {
        for key in ["inject", "expect", "tables", "params"] {
            let path = join(&path, key);
            for member in test.get(key).map_or(&[][..], Tree::members) {
                if !draft.by_name.contains_key(member.key.as_str()) {
                    let message = format!("there is no node '{}'", member.key);
                    findings
                        .add(member.key_place, &join(&path, &member.key), rule, message)
                        .named(&member.key)
                        .near(&member.key, draft.names());
                }
            }
        }
    }
}

/// A record that a test gives to a join would come from none of its sides.
pub(super) fn test_join(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for (path, test) in tests(draft) {
        let path = join(&path, "inject");
        for member in test.get("inject").map_or(&[][..], Tree::members) {
            let node = draft.by_name.get(member.key.as_str()).map(|node| draft.node(*node));
            if node.is_some_and(is_join) {
                let message = format!("'{}' is a join; inject into the nodes before it", member.key);
                findings.add(member.key_place, &join(&path, &member.key), rule, message).named(&member.key);
            }
        }
    }
}

pub(super) fn test_table(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let is_lookup = |node: &NodeId| draft.node(*node).tree.text_of("type") == Some("lookup");
    for (path, test) in tests(draft) {
        for member in test.get("tables").map_or(&[][..], Tree::members) {
            let path = join(&join(&path, "tables"), &member.key);
            let Some(node) = draft.by_name.get(member.key.as_str()) else { continue };
            if !is_lookup(node) {
                let message = format!("'{}' is no lookup and has no table; name a lookup, or use inject", member.key);
                findings.add(member.key_place, &path, rule, message).named(&member.key);
                continue;
            }
            let config = draft.node(*node).tree.get("config");
            let column = match config.and_then(|config| config.get("entities")) {
                Some(_) => "id",
                None => config.and_then(|config| config.text_of("column")).unwrap_or("$key"),
            };
            for (index, row) in member.value.elements().iter().enumerate() {
                if matches!(row.content, TreeContent::Object(_)) && row.get(column).is_none() {
                    let message = format!("the row has no '{column}', by which '{}' finds it; add it", member.key);
                    findings.add(row.place, &format!("{path}[{index}]"), rule, message);
                }
            }
        }
    }
}

pub(super) fn test_empty(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for (path, test) in tests(draft) {
        let is_empty = |key| test.get(key).is_none_or(|tree| tree.members().is_empty());
        if is_empty("expect") && is_empty("trace") {
            let message = "the test expects nothing; add expect: with records by node".to_owned();
            findings.add(test.place, &join(&path, "expect"), rule, message);
        }
    }
}

pub(super) fn test_trace(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let calls: BTreeSet<&str> = draft.hooks.iter().filter_map(|hook| hook.text_of("call")).collect();
    for (path, test) in tests(draft) {
        let path = join(&path, "trace");
        for member in test.get("trace").map_or(&[][..], Tree::members) {
            if !calls.contains(member.key.as_str()) {
                let message = format!("no hook of the document calls '{}'", member.key);
                findings
                    .add(member.key_place, &join(&path, &member.key), rule, message)
                    .named(&member.key)
                    .near(&member.key, calls.iter().copied());
            }
        }
    }
}
