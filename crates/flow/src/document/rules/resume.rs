//! Rules of jobs that go on from the state of an earlier one.

use std::collections::BTreeMap;

use crate::document::draft::{DocumentDraft, DraftNode};
use crate::document::earlier::{EarlierJob, NoEarlierJob, NodeForm, READS, WindowForm};
use crate::document::finding::{Findings, join, shortened};
use crate::document::model::Role;
use crate::document::rules::keeps_state;
use crate::document::tree::{Tree, TreeContent};
use crate::document::windows::{triggers, window};

const KEY: &str = "resume_from";

/// The job that the document goes on from: the one that it replaces, or that it names; `None` for a new beginning, and where nobody
/// knows the earlier jobs.
fn earlier(draft: &DocumentDraft<'_>) -> Option<Result<EarlierJob, NoEarlierJob>> {
    let jobs = draft.context.earlier.as_ref()?;
    let named = named(draft).and_then(|(tree, _)| tree.text());
    match draft.tree.text_of("name").and_then(|name| jobs.replaced(name)) {
        None => named.map(|job| jobs.named(job)),
        Some(replaced) => Some(match named {
            Some(other) if other != replaced.name && other != replaced.id => Err(NoEarlierJob {
                message: format!(
                    "the job takes the place of '{}', and so goes on from that one and not from '{}'; name that one, or leave \
                     resume_from out",
                    replaced.name,
                    shortened(other)
                ),
                names: Vec::new(),
            }),
            _ => Ok(replaced),
        }),
    }
}

/// The job that the document goes on from, if there is one that it can.
pub(in crate::document) fn earlier_job(draft: &DocumentDraft<'_>) -> Option<EarlierJob> {
    earlier(draft)?.ok()
}

/// The name or id of the earlier job, with its path.
fn named<'a>(draft: &DocumentDraft<'a>) -> Option<(&'a Tree, String)> {
    let tree = draft.tree.get(KEY)?;
    match tree.content {
        TreeContent::Object(_) => Some((tree.get("job")?, join(KEY, "job"))),
        _ => Some((tree, KEY.to_owned())),
    }
}

/// The names of earlier nodes by those of new ones.
pub(in crate::document) fn node_map(tree: &Tree) -> BTreeMap<String, String> {
    let members = tree.get(KEY).and_then(|resume| resume.get("map")).map_or(&[][..], Tree::members).iter();
    members.filter_map(|member| Some((member.key.clone(), member.value.text()?.to_owned()))).collect()
}

fn form<'a>(draft: &DocumentDraft<'a>, node: &DraftNode<'a>) -> NodeForm<'a> {
    let config = node.tree.get("config");
    let window = node.tree.get("window").map(|tree| WindowForm::of(&window(draft, tree), &triggers(node.tree)));
    let reads = READS.iter().find_map(|key| config?.text_of(key));
    NodeForm { name: node.name, role: node.role, kind: node.tree.text_of("type").unwrap_or_default(), reads, window }
}

/// In words: the node that an earlier job must have.
fn described(node: &NodeForm<'_>) -> String {
    match (node.role, node.reads) {
        (Role::Source, Some(reads)) => format!("source of type {} that reads '{reads}'", node.kind),
        (Role::Source, None) => format!("source of type {}", node.kind),
        _ if node.window.is_some() => format!("{} with state and the same windows", node.kind),
        _ => format!("{} with state", node.kind),
    }
}

pub(super) fn resume_checkpoint(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let Some(tree) = draft.tree.get(KEY).and_then(|resume| resume.get("checkpoint")) else { return };
    if tree.text() != Some("latest") {
        let message = "a job keeps its state as of its last epoch, and no earlier ones; write checkpoint: latest, or leave it out";
        findings.add(tree.place, &join(KEY, "checkpoint"), rule, message.to_owned()).value(tree);
    }
}

pub(super) fn resume_job(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let Some(Err(NoEarlierJob { message, names })) = earlier(draft) else { return };
    let Some((tree, path)) = named(draft) else { return };
    let job = tree.text().unwrap_or_default();
    findings.add(tree.place, &path, rule, message).value(tree).near(job, names.iter().map(String::as_str));
}

pub(super) fn resume_map(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let Some(map) = draft.tree.get(KEY).and_then(|resume| resume.get("map")) else { return };
    let earlier = earlier_job(draft);
    for member in map.members() {
        let path = join(&join(KEY, "map"), &member.key);
        let Some(new) = draft.by_name.get(member.key.as_str()).map(|id| draft.node(*id)) else {
            let message = format!("the job has no node '{}', which is to go on from another", shortened(&member.key));
            findings.add(member.key_place, &path, rule, message).named(&member.key).near(&member.key, draft.names());
            continue;
        };
        let (Some(earlier), Some(old)) = (&earlier, member.value.text()) else { continue };
        let node = form(draft, new);
        if earlier.node(old).is_some_and(|known| known.fits(&node)) {
            continue;
        }
        let message = match earlier.node(old) {
            Some(_) => format!(
                "'{}' of job '{}' is no {}, which '{}' could go on from",
                old,
                earlier.name,
                described(&node),
                new.name
            ),
            None => format!("job '{}' has no source and no node with state called '{}'", earlier.name, shortened(old)),
        };
        findings.add(member.value.place, &path, rule, message).value(&member.value).near(old, earlier.names_for(&node));
    }
}

/// Sources and nodes with state go on from those of the earlier job, each from one of its own.
pub(super) fn resume_node(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let Some(earlier) = earlier_job(draft) else { return };
    let map = node_map(draft.tree);
    let may_begin = draft.tree.get(KEY).and_then(|resume| resume.text_of("on_missing")) == Some("initialize");
    let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
    for node in draft.nodes.iter().filter(|node| node.role == Role::Source || keeps_state(draft, node)) {
        let form = form(draft, node);
        match earlier.node_of(&form, &map) {
            Some((old, _)) => {
                if let Some(other) = taken.insert(old, node.name) {
                    let message = format!(
                        "'{other}' goes on from '{old}' of job '{}', too; name another one in resume_from.map, or give this node \
                         another name",
                        earlier.name
                    );
                    findings.add(node.name_place, &node.path, rule, message).named(node.name);
                }
            }
            // The map's own rule says more.
            None if may_begin || map.contains_key(node.name) => {}
            None => {
                let fault = match earlier.node(node.name) {
                    Some(_) => format!("'{}' of job '{}' is no {}", node.name, earlier.name, described(&form)),
                    None => format!("job '{}' has no {} called '{}'", earlier.name, described(&form), node.name),
                };
                let message = format!(
                    "{fault}, which this one could go on from; name another in resume_from: {{ job: …, map: {{ {}: … }} }}, or write \
                     on_missing: initialize to let it begin empty",
                    node.name
                );
                findings
                    .add(node.name_place, &node.path, rule, message)
                    .named(node.name)
                    .near(node.name, earlier.names_for(&form));
            }
        }
    }
}
