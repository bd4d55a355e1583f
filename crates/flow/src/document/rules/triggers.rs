//! Rules of triggers.

use crate::document::draft::DocumentDraft;
use crate::document::finding::{Findings, join};
use crate::document::model::Role;
use crate::document::quantity::duration_ms;
use crate::document::tree::{Tree, TreeContent};

/// Most triggers of a node.
const TRIGGERS_MAX: usize = 32;

/// The keys of an event.
struct TriggerKeys {
    on: &'static str,
    needed: &'static [&'static str],
    also: &'static [&'static str],
}

const KEYS: [TriggerKeys; 5] = [
    TriggerKeys { on: "watermark", needed: &[], also: &["delay"] },
    TriggerKeys { on: "count", needed: &["every"], also: &["fire"] },
    TriggerKeys { on: "interval", needed: &["every"], also: &[] },
    TriggerKeys { on: "punctuation", needed: &["when"], also: &["fire"] },
    TriggerKeys { on: "percentile", needed: &["at"], also: &["fire"] },
];

/// Windows without an end, and those whose length changes.
const ENDLESS: [&str; 1] = ["global"];
const WITHOUT_LENGTH: [&str; 2] = ["global", "session"];

pub(super) fn trigger(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for node in draft.nodes.iter().filter(|node| node.role == Role::Transform) {
        let Some(list) = node.tree.get("triggers") else { continue };
        let path = join(&node.path, "triggers");
        let window = node.tree.get("window").and_then(|window| window.text_of("type"));
        if node.node_type.is_some_and(|kind| kind.name != "aggregate") {
            let message = "triggers belong to a transform of type aggregate; change the type, or remove triggers";
            findings.add(list.place, &path, rule, message.to_owned()).value(list);
        } else if window == Some("count") {
            let message = "a count window is sent once it is full, and has no triggers; use window: { type: global }";
            findings.add(list.place, &path, rule, message.to_owned()).value(list);
        }
        if list.elements().len() > TRIGGERS_MAX {
            let message = format!("{} triggers are more than {TRIGGERS_MAX}; remove some", list.elements().len());
            findings.add(list.place, &path, rule, message);
        }
        if matches!(&list.content, TreeContent::List(elements) if elements.is_empty()) {
            let message = "the list is empty; leave it out to send windows once time has come to their end";
            findings.add(list.place, &path, rule, message.to_owned());
        }
        let mut names = std::collections::BTreeSet::new();
        for (index, trigger) in list.elements().iter().enumerate() {
            let path = format!("{path}[{index}]");
            if let Some(id) = trigger.get("id").filter(|id| id.text().is_some_and(|name| !names.insert(name))) {
                let message = "another trigger of the node has this id; rename one of them".to_owned();
                findings.add(id.place, &join(&path, "id"), rule, message).value(id);
            }
            keys(trigger, &path, findings, rule);
            of_window(trigger, window, &path, findings, rule);
        }
    }
}

fn keys(trigger: &Tree, path: &str, findings: &mut Findings, rule: &'static str) {
    let Some(on) = trigger.text_of("on") else { return };
    let Some(TriggerKeys { needed, also, .. }) = KEYS.iter().find(|keys| keys.on == on) else { return };
    for key in ["every", "when", "delay", "at", "fire"] {
        match trigger.get(key) {
            None if needed.contains(&key) => {
                let message = format!("a trigger on {on} needs {key}; add it");
                findings.add(trigger.place, &join(path, key), rule, message);
            }
            Some(tree) if !needed.contains(&key) && !also.contains(&key) => {
                let message = format!("a trigger on {on} has no {key}; remove it");
                findings.add(tree.place, &join(path, key), rule, message).value(tree);
            }
            _ => {}
        }
    }
    let Some(every) = trigger.get("every") else { return };
    let is_time = every.text().and_then(duration_ms);
    let message = match on {
        "count" if is_time.is_some() => "count goes by records; write their number, such as 100",
        "interval" if every.whole().is_some() => "interval goes by the clock; write a duration such as 10s",
        "interval" if is_time == Some(0) => "the interval is no time at all; write 1ms or more",
        _ => return,
    };
    findings.add(every.place, &join(path, "every"), rule, message.to_owned()).value(every);
}

/// Events that a type of window does not have.
fn of_window(trigger: &Tree, window: Option<&str>, path: &str, findings: &mut Findings, rule: &'static str) {
    let (Some(on), Some(window)) = (trigger.get("on"), window) else { return };
    let message = match on.text() {
        Some("watermark") if ENDLESS.contains(&window) => {
            format!("a {window} window has no end that time could come to; use count, interval or punctuation")
        }
        Some("percentile") if WITHOUT_LENGTH.contains(&window) => {
            format!("a {window} window has no length of which this could be a part; use another event")
        }
        _ => return,
    };
    findings.add(on.place, &join(path, "on"), rule, message).value(on);
}
