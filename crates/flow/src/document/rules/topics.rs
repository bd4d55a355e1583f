//! Rules of the topics and hosts that nodes name.

use std::collections::HashMap;

use hyper::Uri;

use crate::document::catalogue::KeyType;
use crate::document::draft::DocumentDraft;
use crate::document::finding::{Findings, join};
use crate::document::model::Role;
use crate::document::topic::unwritable;
use crate::document::value::url_fault;

pub(super) fn topic_access(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let Some(access) = &draft.context.topics else { return };
    for node in &draft.nodes {
        let keys = node.node_type.map_or(&[][..], |kind| kind.keys);
        for key in keys.iter().filter(|key| matches!(key.value, KeyType::Topic)) {
            let Some(tree) = node.tree.get("config").and_then(|config| config.get(key.name)) else { continue };
            let Some(text) = tree.text() else { continue };
            // The check of the value has found what no sink of any tenant may write.
            if node.role == Role::Sink && unwritable(text, &access.tenant).is_some() {
                continue;
            }
            if let Some(fault) = access.fault(text, node.role) {
                let path = join(&join(&node.path, "config"), key.name);
                findings.add(tree.place, &path, rule, fault).value(tree);
            }
        }
        for key in ["bucket", "entities"].into_iter().filter(|_| node.role == Role::Transform && !access.may_read) {
            let Some(tree) = node.tree.get("config").and_then(|config| config.get(key)) else { continue };
            let message =
                "buckets and entities are read by callers with the role reader; submit with a login that has it";
            let path = join(&join(&node.path, "config"), key);
            findings.add(tree.place, &path, rule, message.to_owned());
        }
    }
}

pub(super) fn target(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let Some(targets) = &draft.context.targets else { return };
    for node in &draft.nodes {
        let keys = node.node_type.map_or(&[][..], |kind| kind.keys);
        for key in keys.iter().filter(|key| matches!(key.value, KeyType::Url)) {
            let Some(tree) = node.tree.get("config").and_then(|config| config.get(key.name)) else { continue };
            let legal = tree.text().filter(|url| url_fault(url).is_none());
            let url = legal.and_then(|url| url.parse::<Uri>().ok());
            let Some(host) = url.as_ref().and_then(Uri::host) else { continue };
            if let Err(fault) = targets.check(host.trim_matches(['[', ']'])) {
                let path = join(&join(&node.path, "config"), key.name);
                findings.add(tree.place, &path, rule, fault).value(tree);
            }
        }
    }
}

pub(super) fn shared_group(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let mut seen: HashMap<(&str, &str), &str> = HashMap::new();
    for node in draft.nodes.iter().filter(|node| node.role == Role::Source) {
        let Some(config) = node.tree.get("config") else { continue };
        let (Some(topic), Some(tree)) = (config.text_of("topic"), config.get("group")) else { continue };
        let Some(group) = tree.text() else { continue };
        let first = *seen.entry((topic, group)).or_insert(node.name);
        if first != node.name {
            let message = format!(
                "'{first}' reads topic '{topic}' under the group '{group}', too, and each would skip what the other has \
                 read; give one of them another group, or remove both"
            );
            findings.add(tree.place, &join(&join(&node.path, "config"), "group"), rule, message).value(tree);
        }
    }
}
