//! Rules of `alarm`.

use crate::document::draft::DocumentDraft;
use crate::document::finding::{Findings, join};
use crate::document::quantity::duration_ms;

pub(super) fn alarm(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for node in draft.nodes.iter().filter(|node| node.node_type.is_some_and(|kind| kind.name == "alarm")) {
        let config = node.tree.get("config");
        let get = |key: &str| config.and_then(|config| config.get(key));
        let path = join(&node.path, "config");
        if get("raise").is_none() && get("absent_after").is_none() {
            let message =
                format!("'{}' has nothing to watch for; add raise, a condition, or absent_after, a time", node.name);
            findings.add(node.name_place, &path, rule, message);
        }
        for key in ["clear", "for", "clear_for", "severity"] {
            if let Some(tree) = get(key).filter(|_| get("raise").is_none()) {
                let message = format!("{key} belongs to raise, which is not there; add raise, or remove {key}");
                findings.add(tree.place, &join(&path, key), rule, message).value(tree);
            }
        }
        let time = |key: &str| get(key).and_then(|tree| tree.text()).and_then(duration_ms);
        if let (Some(tree), Some(forget), Some(absent)) =
            (get("forget_after"), time("forget_after"), time("absent_after"))
            && forget <= absent
        {
            let message =
                "a key that is forgotten can no longer be absent; let forget_after be longer than absent_after";
            findings.add(tree.place, &join(&path, "forget_after"), rule, message.to_owned()).value(tree);
        }
    }
}
