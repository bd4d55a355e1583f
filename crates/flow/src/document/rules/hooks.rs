//! Rules of hooks.

use crate::document::draft::DocumentDraft;
use crate::document::finding::{Findings, join};
use crate::document::tree::Tree;

fn hooks<'a>(draft: &DocumentDraft<'a>) -> impl Iterator<Item = (String, &'a Tree)> {
    draft.hooks.iter().enumerate().map(|(index, hook)| (format!("hooks[{index}]"), hook))
}

pub(super) fn hook_task(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for (path, hook) in hooks(draft) {
        let Some(task) = hook.get("task").and_then(|task| draft.end(task, &join(&path, "task"))) else { continue };
        if task.node.is_none() && task.name != "all" {
            let message = format!("there is no node '{}'; name a node, or all", task.name);
            findings.add(task.place, &task.path, rule, message).named(task.name).near(task.name, draft.names());
        }
    }
}

pub(super) fn unknown_hook(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let known = &draft.context.hooks;
    for (path, hook) in hooks(draft) {
        let Some(call) = hook.get("call") else { continue };
        if let Some(name) = call.text().filter(|name| !known.contains(name)) {
            let message = format!("no hook '{name}' is registered");
            let finding = findings.add(call.place, &join(&path, "call"), rule, message).value(call);
            finding.near_or_listed(name, known, "millstream job connectors");
        }
    }
}

pub(super) fn hook_call(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for (path, hook) in hooks(draft) {
        let is_error = hook.text_of("on") == Some("error");
        let message = match (hook.get("call"), hook.get("answer")) {
            (Some(_), Some(_)) => "the hook has call and answer; keep one of them",
            (None, None) if is_error => {
                "the hook does nothing; add call: with the name of a hook, or answer: restart, kill or defer"
            }
            (None, None) => "the hook does nothing; add call: with the name of a hook",
            (None, Some(_)) if !is_error => "answer belongs to on: error; use call here",
            _ => continue,
        };
        findings.add(hook.place, &path, rule, message.to_owned()).value(hook);
    }
}
