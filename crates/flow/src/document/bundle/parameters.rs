//! The values of a bundle's parameters.

use std::collections::BTreeMap;

use crate::document::finding::{Findings, join};
use crate::document::tree::{Tree, TreeContent, TreeMember};

/// The value of each parameter that the use gives or that has a default.
pub(super) fn given(bundle: &Tree, user: &TreeMember, path: &str, findings: &mut Findings) -> BTreeMap<String, Tree> {
    const RULE: &str = "bundle_parameter";
    let declared = bundle.get("params").map_or(&[][..], Tree::members);
    let path = join(path, "params");
    let written = user.value.get("params").map_or(&[][..], Tree::members);
    for member in written.iter().filter(|member| !declared.iter().any(|known| known.key == member.key)) {
        let message = format!("the bundle has no parameter '{}'; correct or remove it", member.key);
        let known = declared.iter().map(|known| known.key.as_str());
        findings
            .add(member.key_place, &join(&path, &member.key), RULE, message)
            .named(&member.key)
            .near(&member.key, known);
    }
    let mut values = BTreeMap::new();
    for parameter in declared {
        let value = written.iter().find(|member| member.key == parameter.key).map(|member| &member.value);
        let Some(value) = value.or_else(|| parameter.value.get("default")) else {
            if parameter.value.get("required").is_some_and(Tree::is_true) {
                let message = format!("the bundle needs the parameter '{}'; add it to params", parameter.key);
                findings.add(user.value.place, &join(&path, &parameter.key), RULE, message);
            }
            continue;
        };
        let form = parameter.value.text_of("type").unwrap_or_default();
        if !has_form(value, form) {
            let message =
                format!("this is {}; the parameter '{}' of the bundle is of type {form}", value.form(), parameter.key);
            findings.add(value.place, &join(&path, &parameter.key), RULE, message).value(value);
        }
        values.insert(parameter.key.clone(), value.clone());
    }
    values
}

fn has_form(value: &Tree, form: &str) -> bool {
    match (form, &value.content) {
        ("text", TreeContent::Text(_))
        | ("number", TreeContent::Number(_))
        | ("boolean", TreeContent::Bool(_))
        | ("list", TreeContent::List(_))
        | ("object", TreeContent::Object(_)) => true,
        ("whole", TreeContent::Number(number)) => number.is_u64() || number.is_i64(),
        // A type that does not exist is found when the bundle is checked.
        (other, _) => !crate::document::keys::PARAMETER_TYPES.contains(&other),
    }
}

/// The bundle with the values in place of texts `:name` in `config` and `params` of its nodes and hooks.
pub(super) fn filled(mut bundle: Tree, parameters: &BTreeMap<String, Tree>) -> Tree {
    let TreeContent::Object(members) = &mut bundle.content else { return bundle };
    for member in members.iter_mut().filter(|member| member.key != "params") {
        fill(&mut member.value, parameters, false);
    }
    bundle
}

fn fill(tree: &mut Tree, parameters: &BTreeMap<String, Tree>, is_inside: bool) {
    match &mut tree.content {
        TreeContent::Text(text) if is_inside => {
            if let Some(value) = text.strip_prefix(':').and_then(|name| parameters.get(name)) {
                *tree = value.clone();
            }
        }
        TreeContent::List(elements) => elements.iter_mut().for_each(|element| fill(element, parameters, is_inside)),
        TreeContent::Object(members) => {
            for member in members {
                let is_inside = is_inside || matches!(member.key.as_str(), "config" | "params");
                fill(&mut member.value, parameters, is_inside);
            }
        }
        _ => {}
    }
}
