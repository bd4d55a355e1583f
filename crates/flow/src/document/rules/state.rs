//! Rules of jobs that keep state.

use crate::document::draft::{DocumentDraft, DraftNode};
use crate::document::finding::Findings;
use crate::document::quantity::duration_ms;

/// `true` for a node that keeps a value for each key.
pub(super) fn keeps_state(node: &DraftNode<'_>) -> bool {
    node.node_type.is_some_and(|kind| kind.keeps_state)
}

pub(super) fn state_delivery(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let Some(delivery) = draft.tree.get("delivery").filter(|tree| tree.text() == Some("at_most_once")) else { return };
    if let Some(node) = draft.nodes.iter().find(|node| keeps_state(node)) {
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
