//! Rules of functions.

use crate::document::draft::{DocumentDraft, DraftNode};
use crate::document::finding::{Findings, join, shortened};
use crate::document::tree::{Tree, TreeContent, TreeMember};

pub(super) fn unknown_function(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let functions = &draft.context.functions;
    for node in &draft.nodes {
        let Some(tree) = node.tree.get("fn") else { continue };
        if let Some(name) = tree.text().filter(|name| !functions.contains(name)) {
            let message = format!("no function '{name}' is registered");
            findings.add(tree.place, &join(&node.path, "fn"), rule, message).value(tree).near_or_listed(
                name,
                functions,
                "millstream job connectors",
            );
        }
    }
}

pub(super) fn batch_fn(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for node in &draft.nodes {
        let Some(member) = node.tree.member("batch_fn").filter(|_| node.tree.get("fn").is_none()) else { continue };
        let message = format!("'{}' has batch_fn without fn; add fn or remove batch_fn", node.name);
        findings.add(member.key_place, &join(&node.path, "batch_fn"), rule, message).value(&member.value);
    }
}

/// Functions that change a number by their parameter `value`.
const WITH_VALUE: [&str; 2] = ["math.add", "math.multiply"];
const VALUE: &str = "value";
/// The hook that gives its own parameters to the function of its node.
const SETS_PARAMS: &str = "params.set";

pub(super) fn function_value(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for node in &draft.nodes {
        let Some(tree) = node.tree.get("fn") else { continue };
        let Some(name) = tree.text().filter(|name| WITH_VALUE.contains(name)) else { continue };
        let whole = format!(
            "'value' of {name} is a whole number; write one, or compute with a map such as select: \"*, n + 0.5 AS n\""
        );
        for (path, value) in values_of_start_hooks(draft, node) {
            if !is_whole(value) {
                let message = format!("this is no whole number, and the hook gives it to {name}; {whole}");
                findings.add(value.place, &path, rule, message).value(value);
            }
        }
        if let Some(value) = draft.context.params.get(node.name).and_then(|params| params.get(VALUE)) {
            if !value.is_i64() {
                let given = shortened(&value.to_string());
                let message = format!("the process configuration (flow.params) gives {given}; {whole}");
                findings.add(tree.place, &join(&node.path, "fn"), rule, message).value(tree);
            }
            continue;
        }
        let (path, written) = match (member(node.params), member(draft.params)) {
            (Some(member), _) => (join(&join(&node.path, "params"), VALUE), Some(member)),
            (None, member) => (join("params", VALUE), member),
        };
        match written {
            Some(member) if !is_whole(&member.value) => {
                let message = format!("this is no whole number; {whole}");
                findings.add(member.value.place, &path, rule, message).value(&member.value);
            }
            None if !may_be_given_by_hook(draft, node) => {
                let message =
                    format!("{name} has no parameter 'value'; add it to params, such as params: {{ value: 1 }}");
                findings.add(tree.place, &join(&node.path, "fn"), rule, message).value(tree);
            }
            _ => {}
        }
    }
}

fn member(params: &[TreeMember]) -> Option<&TreeMember> {
    params.iter().find(|member| member.key == VALUE)
}

fn is_whole(tree: &Tree) -> bool {
    matches!(&tree.content, TreeContent::Number(number) if number.is_i64())
}

/// `true` if a hook that is called on start gives the value, or may do so.
fn may_be_given_by_hook(draft: &DocumentDraft<'_>, node: &DraftNode<'_>) -> bool {
    start_hooks(draft, node).any(|(_, hook)| match hook.text_of("call") {
        Some(SETS_PARAMS) => given_value(hook).is_some(),
        other => other.is_some(),
    })
}

/// The values that start hooks of a node set, with their paths.
fn values_of_start_hooks<'a>(draft: &DocumentDraft<'a>, node: &DraftNode<'_>) -> Vec<(String, &'a Tree)> {
    let set = start_hooks(draft, node).filter(|(_, hook)| hook.text_of("call") == Some(SETS_PARAMS));
    set.filter_map(|(index, hook)| Some((format!("hooks[{index}].params.{VALUE}"), given_value(hook)?))).collect()
}

fn start_hooks<'d, 'a>(
    draft: &'d DocumentDraft<'a>,
    node: &DraftNode<'_>,
) -> impl Iterator<Item = (usize, &'a Tree)> + use<'d, 'a> {
    let name = node.name.to_owned();
    let of_node = move |hook: &Tree| matches!(hook.text_of("task"), Some(task) if task == "all" || task == name);
    draft.hooks.iter().enumerate().filter(move |(_, hook)| of_node(hook) && hook.text_of("on") == Some("start"))
}

fn given_value(hook: &Tree) -> Option<&Tree> {
    hook.get("params")?.get(VALUE)
}
