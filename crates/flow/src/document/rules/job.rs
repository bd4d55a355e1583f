//! Rules of the job's own keys.

use crate::document::draft::DocumentDraft;
use crate::document::finding::{Findings, shortened};
use crate::document::model::Role;
use crate::document::tree::TreeContent;

/// The longest id, in characters.
const ID_MAX_CHARS: usize = 128;

pub(super) fn id(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let Some(tree) = draft.tree.get("id") else { return };
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    let is_id = |id: &str| (1..=ID_MAX_CHARS).contains(&id.len()) && id.chars().all(is_legal);
    if let Some(id) = tree.text().filter(|id| !is_id(id)) {
        let id = shortened(id);
        let message = format!("'{id}' is no id; use 1 to {ID_MAX_CHARS} of the characters a-z A-Z 0-9 _ - . :");
        findings.add(tree.place, "id", rule, message).value(tree);
    }
}

pub(super) fn no_source(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let is_readable = draft.tree.get("sources").is_none_or(|sources| matches!(sources.content, TreeContent::Object(_)));
    if is_readable && !draft.nodes.iter().any(|node| node.role == Role::Source) {
        let message = "the job has no source; name one under sources".to_owned();
        let place = draft.tree.get("sources").unwrap_or(draft.tree).place;
        findings.add(place, "sources", rule, message);
    }
}
