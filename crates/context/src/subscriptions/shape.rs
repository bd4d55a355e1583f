//! Selects the content of a notification and renders its body in a format.

use super::built_ins::{ALTERATION_TYPE, built_in, built_in_metadata};
use super::change::{Alteration, ChangeRecord};
use super::patch::Patch;
use super::subscription::{Format, NotificationContent};
use crate::model::entity::{Attribute, DATE_EXPIRES, Entity, Items, Metadata};
use crate::model::json::push_string;
use crate::model::render::{self, AttributeSelection};

const ALL: &str = "*";
/// Already rendered before the attributes.
const HEAD: [&str; 2] = ["id", "type"];
/// Built-ins that are rendered if named, although they never change.
const ALWAYS: [&str; 3] = [ALTERATION_TYPE, "dateCreated", "dateModified"];

/// The body of a notification that shows the entity exactly as its change record: the common case.
pub(crate) fn whole_body(id: &str, content: &NotificationContent, change: &ChangeRecord<'_>) -> Option<String> {
    let is_whole = content.format == Format::Normalized
        && !content.only_changed
        && [&content.attrs, &content.except, &content.metadata].iter().all(|names| names.is_empty());
    is_whole.then(|| Some(["{\"subscriptionId\":\"", id, "\",\"data\":[", change.json()?, "]}"].concat()))?
}

/// The body of a notification of `entity`, the changed one or the result of a patch.
pub(crate) fn body(
    id: &str,
    content: &NotificationContent,
    change: &ChangeRecord<'_>,
    entity: &Entity,
    patch: Option<&Patch>,
) -> String {
    let shown = shown(content, change, entity, patch);
    let mut out = String::with_capacity(128 + 64 * shown.len());
    let is_simplified = matches!(content.format, Format::SimplifiedNormalized | Format::SimplifiedKeyValues);
    if !is_simplified {
        out.push_str("{\"subscriptionId\":\"");
        out.push_str(id);
        out.push_str("\",\"data\":[");
    }
    push_entity(content.format, entity, &shown, &mut out);
    if !is_simplified {
        out.push_str("]}");
    }
    out
}

fn push_entity(format: Format, entity: &Entity, shown: &[Attribute], out: &mut String) {
    if format == Format::Values {
        out.push('[');
        for (i, attribute) in shown.iter().enumerate() {
            out.push_str(if i > 0 { "," } else { "" });
            render::push_value(attribute, out);
        }
        out.push(']');
        return;
    }
    out.push_str("{\"id\":");
    push_string(&entity.key.id, out);
    out.push_str(",\"type\":");
    push_string(&entity.key.kind, out);
    for attribute in shown {
        out.push(',');
        push_string(&attribute.name, out);
        out.push(':');
        match format {
            Format::Normalized | Format::SimplifiedNormalized => {
                render::push_attribute(attribute, &AttributeSelection::default(), out)
            }
            _ => render::push_value(attribute, out),
        }
    }
    out.push('}');
}

/// `onlyChangedAttrs` leaves nothing: no visible attribute has changed.
pub(crate) fn has_nothing_new(content: &NotificationContent, change: &ChangeRecord<'_>, patch: Option<&Patch>) -> bool {
    let sets = patch.is_some_and(Patch::sets_something);
    // Attributes that are sent as null because the entity lacks them are not new.
    let is_left = |entity: &Entity| {
        let is_there = |name: &str| entity.attribute(name).is_some() || built_in(change, entity, name).is_some();
        shown(content, change, entity, None).iter().any(|one| is_there(&one.name))
    };
    content.only_changed && !sets && !change.entity().is_some_and(is_left)
}

/// The selected attributes, in order, with the selected metadata.
fn shown(
    content: &NotificationContent,
    change: &ChangeRecord<'_>,
    entity: &Entity,
    patch: Option<&Patch>,
) -> Vec<Attribute> {
    let is_patched = |name: &str| patch.is_some_and(|patch| patch.sets(name));
    // An update without a difference shows the attributes that it set.
    let is_set_again =
        |name: &str| change.alteration == Alteration::Update && change.touched().any(|known| known == name);
    let is_changed = |name: &str| change.changed(false).any(|known| known == name) || is_set_again(name);
    let is_new = |name: &str| !content.only_changed || is_patched(name) || is_changed(name);
    let mut shown: Vec<Attribute> = Vec::new();
    let with_metadata =
        |attribute: &Attribute| Attribute { metadata: metadata(content, change, attribute), ..attribute.clone() };
    // `dateExpires` is shown only if it is named.
    let given = || entity.attributes.iter().filter(|attribute| *attribute.name != *DATE_EXPIRES);
    if content.attrs.is_empty() {
        let all = given().filter(|given| !content.except.iter().any(|name| **name == *given.name));
        shown.extend(all.filter(|given| is_new(&given.name)).map(with_metadata));
        return shown;
    }
    for name in &content.attrs {
        if name == ALL {
            let others = given().filter(|given| !content.attrs.iter().any(|name| **name == *given.name));
            shown.extend(others.filter(|given| is_new(&given.name)).map(with_metadata));
        } else if let Some(given) = entity.attribute(name) {
            if is_new(name) {
                shown.push(with_metadata(given));
            }
        } else if let Some(built_in) = built_in(change, entity, name) {
            if !content.only_changed || ALWAYS.contains(&name.as_str()) {
                shown.push(built_in);
            }
        } else if content.covered && !HEAD.contains(&name.as_str()) {
            shown.push(Attribute::new(name.as_str().into(), "None".into(), "null".into(), Default::default()));
        }
    }
    shown
}

fn metadata(content: &NotificationContent, change: &ChangeRecord<'_>, attribute: &Attribute) -> Items {
    if content.metadata.is_empty() {
        return attribute.metadata.clone();
    }
    let named = |item: &Metadata| content.metadata.iter().any(|name| **name == *item.name);
    let mut shown: Vec<Metadata> = Vec::new();
    for name in &content.metadata {
        if name == ALL {
            shown.extend(attribute.metadata.iter().filter(|item| !named(item)).cloned());
        } else if let Some(item) = attribute.metadata.iter().find(|item| *item.name == **name) {
            shown.push(item.clone());
        } else {
            shown.extend(built_in_metadata(change, attribute, name));
        }
    }
    shown.into()
}
