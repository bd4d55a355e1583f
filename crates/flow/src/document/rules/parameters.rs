//! Rules of expressions and their parameters.

use std::borrow::Cow;

use serde_json::Value;

use crate::document::aggregates;
use crate::document::catalogue::KeyType;
use crate::document::draft::{DocumentDraft, DraftNode};
use crate::document::expressions::{ExpressionFault, ExpressionNames, Form, parameters, parse};
use crate::document::finding::{Findings, join};
use crate::document::tree::Tree;

/// A text of the language in a node or a route.
pub(super) struct Expression<'d, 'a> {
    form: Form,
    pub(super) tree: &'a Tree,
    text: Cow<'a, str>,
    pub(super) path: String,
    /// The node that evaluates it; `None` for all nodes.
    pub(super) node: Option<&'d DraftNode<'a>>,
    /// The key under which it stands.
    pub(super) key: &'static str,
}

impl Expression<'_, '_> {
    pub(super) fn parsed(&self, draft: &DocumentDraft<'_>) -> Result<ExpressionNames, Vec<ExpressionFault>> {
        let value_of = |name: &str, max_bytes: usize| match value(draft, self.node, name) {
            Some(Given::Document(tree)) if tree.is_larger(max_bytes) => Err(max_bytes),
            Some(Given::Document(tree)) => Ok(tree.to_json()),
            Some(Given::Process(value)) => Ok(value.clone()),
            None => Ok(Value::Null),
        };
        parse(self.form, &self.text, value_of)
    }
}

/// The [`Expression::key`] of those in a `config`.
pub(super) const CONFIG_KEY: &str = "config";

/// The [`Expression::key`] of those in `triggers`.
pub(super) const TRIGGER_KEY: &str = "triggers";

/// The [`Expression::key`] of the keys of a join.
pub(super) const JOIN_KEY: &str = "on";

/// The keys of one form in the `config` of a node, with their values.
fn config_keys<'a>(
    node: &DraftNode<'a>,
    is_wanted: fn(&KeyType) -> bool,
) -> impl Iterator<Item = (&'static str, &'a Tree)> {
    let config = node.tree.get("config");
    let keys = node.node_type.map_or(&[][..], |kind| kind.keys).iter();
    keys.filter(move |key| is_wanted(&key.value)).filter_map(move |key| Some((key.name, config?.get(key.name)?)))
}

pub(super) fn expressions<'d, 'a>(draft: &'d DocumentDraft<'a>) -> Vec<Expression<'d, 'a>> {
    let mut expressions = Vec::new();
    let mut add = |form, key, tree: Option<&'a Tree>, path: String, node: Option<&'d DraftNode<'a>>| {
        let text = |tree: &'a Tree| match form {
            Form::Aggregates => aggregates::text(tree),
            _ => tree.text().map(Cow::from),
        };
        if let Some((tree, text)) = tree.and_then(|tree| Some((tree, text(tree)?))) {
            expressions.push(Expression { form, tree, text, path, node, key });
        }
    };
    for node in &draft.nodes {
        add(Form::Condition, "where", node.tree.get("where"), join(&node.path, "where"), Some(node));
        let form = select_form(node);
        add(form, "select", node.tree.get("select"), join(&node.path, "select"), Some(node));
        let aggregates = node.tree.get("aggregates");
        add(Form::Aggregates, "aggregates", aggregates, join(&node.path, "aggregates"), Some(node));
        let field = node.tree.get("event_time").and_then(|event_time| event_time.get("field"));
        add(Form::Value, "event_time", field, join(&join(&node.path, "event_time"), "field"), Some(node));
        for (index, trigger) in node.tree.get("triggers").map_or(&[][..], Tree::elements).iter().enumerate() {
            let path = format!("{}[{index}].when", join(&node.path, "triggers"));
            add(Form::Condition, TRIGGER_KEY, trigger.get("when"), path, Some(node));
        }
        for (key, tree) in config_keys(node, |form| matches!(form, KeyType::Condition)) {
            add(Form::Condition, CONFIG_KEY, Some(tree), join(&join(&node.path, "config"), key), Some(node));
        }
        for (key, tree) in config_keys(node, |form| matches!(form, KeyType::Expression)) {
            add(Form::Value, CONFIG_KEY, Some(tree), join(&join(&node.path, "config"), key), Some(node));
        }
        for (key, tree) in config_keys(node, |form| matches!(form, KeyType::ExpressionsByInput)) {
            let path = join(&join(&node.path, "config"), key);
            let by_input = tree.members().iter().map(|member| (&member.value, join(&path, &member.key)));
            for (tree, path) in std::iter::once((tree, path.clone())).chain(by_input) {
                add(Form::Value, JOIN_KEY, Some(tree), path.clone(), Some(node));
                for (index, part) in tree.elements().iter().enumerate() {
                    add(Form::Value, JOIN_KEY, Some(part), format!("{path}[{index}]"), Some(node));
                }
            }
        }
        let path = join(&node.path, "key_by");
        let Some(keys) = node.tree.get("key_by") else { continue };
        add(Form::Value, "key_by", Some(keys), path.clone(), Some(node));
        for (index, key) in keys.elements().iter().enumerate() {
            add(Form::Value, "key_by", Some(key), format!("{path}[{index}]"), Some(node));
        }
    }
    for route in &draft.routes {
        let node = route.from.as_ref().and_then(|from| from.node).map(|from| draft.node(from));
        add(Form::Condition, "when", route.tree.get("when"), join(&route.path, "when"), node);
        add(Form::SelectList, "route_select", route.tree.get("select"), join(&route.path, "select"), node);
    }
    expressions
}

/// The form of the select list of a node: a map of records with keys may look back at earlier ones.
fn select_form(node: &DraftNode<'_>) -> Form {
    let is_map = node.node_type.is_some_and(|kind| kind.name == "map");
    match is_map && node.tree.get("key_by").is_some() {
        true => Form::KeyedSelectList,
        false => Form::SelectList,
    }
}

/// `true` for a node whose select list looks back at the earlier records of a key; `None` for a select list with faults.
pub(super) fn looks_back(draft: &DocumentDraft<'_>, node: &DraftNode<'_>) -> Option<bool> {
    let Some((tree, text)) = node.tree.get("select").and_then(|tree| Some((tree, tree.text()?))) else {
        return Some(false);
    };
    let path = join(&node.path, "select");
    let select = Expression { form: select_form(node), tree, text: text.into(), path, node: Some(node), key: "select" };
    select.parsed(draft).ok().map(|names| names.looks_back)
}

pub(super) fn expression(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for expression in expressions(draft) {
        let Err(faults) = expression.parsed(draft) else { continue };
        for fault in faults {
            let message = format!("correct the {}: {}", expression.form.noun(), fault.message);
            findings
                .add(expression.tree.place, &expression.path, rule, message)
                .value(expression.tree)
                .suggest(fault.suggestion);
        }
    }
}

pub(super) fn unknown_parameter(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for expression in expressions(draft).iter().filter(|expression| !may_be_given_at_start(draft, expression.node)) {
        let names = parameters(&expression.text);
        for name in names.keys().filter(|name| value(draft, expression.node, name).is_none()) {
            let message =
                format!("the parameter ':{name}' has no value; give it in params, or in the process configuration");
            findings
                .add(expression.tree.place, &expression.path, rule, message)
                .named(&format!(":{name}"))
                .near(name, given(draft, expression.node));
        }
    }
}

/// The value of a parameter: written in the document, or given by the process configuration.
enum Given<'d> {
    Document(&'d Tree),
    Process(&'d Value),
}

/// The value of a parameter of a node; without a node, of all nodes.
fn value<'d>(draft: &'d DocumentDraft<'_>, node: Option<&'d DraftNode<'_>>, name: &str) -> Option<Given<'d>> {
    let of_process = node.and_then(|node| draft.context.params.get(node.name)?.get(name));
    of_process.map(Given::Process).or_else(|| {
        let mut written = node.map_or(&[][..], |node| node.params).iter().chain(draft.params);
        written.find(|member| member.key == name).map(|member| Given::Document(&member.value))
    })
}

/// The names of all parameters that [`value`] knows.
fn given<'d>(draft: &'d DocumentDraft<'_>, node: Option<&'d DraftNode<'_>>) -> Vec<&'d str> {
    let of_process = node.and_then(|node| draft.context.params.get(node.name));
    let written = node.map_or(&[][..], |node| node.params).iter().chain(draft.params);
    written
        .map(|member| member.key.as_str())
        .chain(of_process.into_iter().flatten().map(|(name, _)| name.as_str()))
        .collect()
}

/// True if a hook may return parameters before the first batch.
fn may_be_given_at_start(draft: &DocumentDraft<'_>, node: Option<&DraftNode<'_>>) -> bool {
    draft.hooks.iter().any(|hook| {
        let task = hook.text_of("task");
        hook.text_of("on") == Some("start")
            && hook.get("call").is_some()
            && (task == Some("all") || node.is_some_and(|node| task == Some(node.name)))
    })
}
