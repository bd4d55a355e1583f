//! Rules of jobs that keep state.

use crate::document::draft::{DocumentDraft, DraftNode};
use crate::document::finding::{Findings, join};
use crate::document::quantity::duration_ms;
use crate::document::rules::parameters::looks_back;

/// `true` for a node that keeps a value for each key.
pub(in crate::document) fn keeps_state(draft: &DocumentDraft<'_>, node: &DraftNode<'_>) -> bool {
    node.node_type.is_some_and(|kind| kind.keeps_state) || looks_back(draft, node) == Some(true)
}

/// A map that does not look back knows no key that could be forgotten.
pub(super) fn map_ttl(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for node in draft.nodes.iter().filter(|node| node.node_type.is_some_and(|kind| kind.name == "map")) {
        let Some(member) = node.tree.get("config").and_then(|config| config.member("ttl")) else { continue };
        if looks_back(draft, node) == Some(false) {
            let message =
                "ttl says when a key is forgotten, and select looks back at the records of none; leave ttl out";
            let path = join(&join(&node.path, "config"), "ttl");
            findings.add(member.key_place, &path, rule, message.to_owned()).value(&member.value);
        }
    }
}

pub(super) fn state_delivery(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let Some(delivery) = draft.tree.get("delivery").filter(|tree| tree.text() == Some("at_most_once")) else { return };
    if let Some(node) = draft.nodes.iter().find(|node| keeps_state(draft, node)) {
        let message = format!(
            "'{}' keeps state, which at_most_once would lose; write delivery: at_least_once or exactly_once",
            node.name
        );
        findings.add(delivery.place, "delivery", rule, message).value(delivery);
    }
}

pub(super) fn checkpoint_interval(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let Some(interval) = draft.tree.get("checkpoint").and_then(|checkpoint| checkpoint.get("interval")) else { return };
    if interval.text().and_then(duration_ms) == Some(0) {
        let message = "epochs of no time would never end; write 10ms or more".to_owned();
        findings.add(interval.place, "checkpoint.interval", rule, message).value(interval);
    }
}
