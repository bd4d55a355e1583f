//! Rules of what a route does besides choosing successors.

use crate::document::draft::{DocumentDraft, DraftRoute, RouteTargetDraft};
use crate::document::finding::{Findings, join};
use crate::document::model::Role;
use crate::document::rules::state::keeps_state;

pub(super) fn route_select(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for route in draft.routes.iter().filter(|route| !route.is_on_error) {
        if let Some(select) = route.tree.get("select") {
            let message = "select stands on error routes only; put a map before the successor".to_owned();
            findings.add(select.place, &join(&route.path, "select"), rule, message).value(select);
        }
    }
}

pub(super) fn predicate_errors_to(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for route in &draft.routes {
        let Some(to) = &route.predicate_errors_to else { continue };
        let is_source = to.node.is_some_and(|node| draft.node(node).role == Role::Source);
        let message = if route.tree.get("when").is_none() {
            "predicate_errors_to is for records on which `when` fails; add when, or remove it".to_owned()
        } else if is_source || matches!(to.name, "all" | "none") {
            format!("'{}' cannot take records; name a transform or sink", to.name)
        } else {
            continue;
        };
        findings.add(to.place, &to.path, rule, message).named(to.name);
    }
}

/// The routes with this action, and the place of the word.
fn with_action<'d, 'a>(
    draft: &'d DocumentDraft<'a>,
    action: &'static str,
) -> impl Iterator<Item = (&'d DraftRoute<'a>, &'a crate::document::tree::Tree)> {
    let has_action = move |route: &'d DraftRoute<'a>| {
        let tree = route.tree.get("action")?;
        (tree.text() == Some(action)).then_some((route, tree))
    };
    draft.routes.iter().filter_map(has_action)
}

pub(super) fn retry(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    let (delivery, keeps_state) =
        (draft.tree.text_of("delivery"), draft.nodes.iter().any(|node| keeps_state(draft, node)));
    for (route, action) in with_action(draft, "retry") {
        let path = join(&route.path, "action");
        if !matches!(route.to, RouteTargetDraft::None) {
            let message = "a route that retries sends nothing on; write to: none".to_owned();
            findings.add(action.place, &path, rule, message).value(action);
        }
        if matches!(delivery, Some("at_most_once" | "exactly_once")) || keeps_state {
            let message =
                "a record can be read again only with delivery: at_least_once, in a job that keeps no state; \
                           change that, or drop the record"
                    .to_owned();
            findings.add(action.place, &path, rule, message).value(action);
        }
    }
}

pub(super) fn action_target(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for (route, action) in with_action(draft, "drop").filter(|(route, _)| !matches!(route.to, RouteTargetDraft::None)) {
        let message = "a route that drops sends nothing on; write to: none, or remove action".to_owned();
        findings.add(action.place, &join(&route.path, "action"), rule, message).value(action);
    }
    for (route, action) in
        with_action(draft, "dead_letter").filter(|(route, _)| !matches!(route.to, RouteTargetDraft::Nodes(_)))
    {
        let message = "dead letters need a destination; name a successor in to".to_owned();
        findings.add(action.place, &join(&route.path, "action"), rule, message).value(action);
    }
}

pub(super) fn max_attempts(draft: &DocumentDraft<'_>, findings: &mut Findings, rule: &'static str) {
    for route in draft.routes.iter().filter(|route| route.tree.text_of("action") != Some("retry")) {
        if let Some(member) = route.tree.member("max_attempts") {
            let message = "max_attempts belongs to action: retry; add that, or remove max_attempts".to_owned();
            findings.add(member.key_place, &join(&route.path, "max_attempts"), rule, message).value(&member.value);
        }
    }
}
