//! Rules of the files that nodes name.

use std::path::Path;

use crate::document::draft::{DocumentDraft, DraftNode};
use crate::document::file_form::file_form;
use crate::document::finding::{Findings, join};
use crate::document::model::Role;
use crate::document::tree::{Tree, TreeContent};

/// The nodes of a type, with their `config`.
fn configs<'d, 'a>(
    draft: &'d DocumentDraft<'a>,
    kind: &'static str,
) -> impl Iterator<Item = (&'d DraftNode<'a>, &'a Tree)> {
    let nodes = draft.nodes.iter().filter(move |node| node.node_type.is_some_and(|known| known.name == kind));
    nodes.filter_map(|node| Some((node, node.tree.get("config")?)))
}

pub(super) fn form(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for (node, config) in configs(draft, "lookup") {
        let Some(path) = config.text_of("file") else { continue };
        if let (Err(_), Some(file)) = (file_form(path, None, None, None), config.get("file")) {
            let message = format!(
                "the name '{path}' tells no format; name a file that ends in .csv or .jsonl, or further in .gz or .zst"
            );
            findings.add(file.place, &join(&join(&node.path, "config"), "file"), rule, message).value(file);
        }
    }
    for (node, config) in configs(draft, "file") {
        let Some(path) = config.text_of("path") else { continue };
        let names_columns = match config.get("columns").map(|columns| &columns.content) {
            Some(TreeContent::List(columns)) => !columns.is_empty(),
            other => other.is_some(),
        };
        let has_columns = (node.role == Role::Sink).then_some(names_columns);
        let form = file_form(path, config.text_of("format"), config.text_of("compression"), has_columns);
        if let Err((key, fault)) = form {
            let (given, place) = (config.get(key), join(&join(&node.path, "config"), key));
            findings.add(given.unwrap_or(config).place, &place, rule, fault);
        }
    }
}

pub(super) fn one_writer(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (node, config) in configs(draft, "file").filter(|(node, _)| node.role == Role::Sink) {
        if let Some(tree) = node.tree.get("parallelism") {
            let number = |key| tree.get(key).and_then(Tree::whole);
            if tree.whole().or_else(|| number("max")).or_else(|| number("min")).is_some_and(|count| count > 1) {
                let message = format!("'{}' writes a file, which has one writer; leave parallelism out", node.name);
                findings.add(tree.place, &join(&node.path, "parallelism"), rule, message).value(tree);
            }
        }
        let (Some(tree), Some(path)) = (config.get("path"), config.text_of("path")) else { continue };
        match seen.iter().find(|(known, _)| Path::new(known) == Path::new(path)) {
            Some((_, first)) => {
                let message = format!(
                    "'{first}' writes '{path}', too, and a file has one writer; name another file, or send both inputs to \
                     one sink"
                );
                findings.add(tree.place, &join(&join(&node.path, "config"), "path"), rule, message).value(tree);
            }
            None => seen.push((path, node.name)),
        }
    }
}
