//! What of an entity a notification shows, and in which format.

use std::borrow::Cow;
use std::sync::Arc;

use super::change::Change;
use super::details::Detail;
use super::subscription::{Content, Format};
use super::target::Patch;
use super::template::Names;
use crate::entity::{Attribute, DATE_EXPIRES, Entity, Items, Key, Metadata};
use crate::json::push_string;
use crate::show::{self, Selection};
use millstream_types::TenantId;

const ALL: &str = "*";
/// Stand before the attributes already.
const HEAD: [&str; 2] = ["id", "type"];
const ALTERATION_TYPE: &str = "alterationType";
/// Shown where they are named, although nothing was changed in them.
const ALWAYS: [&str; 3] = [ALTERATION_TYPE, "dateCreated", "dateModified"];

/// The body of a notification that shows the entity as its change record does: most do.
pub(crate) fn whole_body(id: &str, content: &Content, change: &Change<'_>) -> Option<String> {
    let is_whole = content.format == Format::Normalized
        && !content.only_changed
        && [&content.attrs, &content.except, &content.metadata].iter().all(|names| names.is_empty());
    is_whole.then(|| Some(["{\"subscriptionId\":\"", id, "\",\"data\":[", change.json()?, "]}"].concat()))?
}

/// The body of the notification of `entity`, which is the changed one or what a patch has made of it.
pub(crate) fn body(id: &str, content: &Content, change: &Change<'_>, entity: &Entity, patch: Option<&Patch>) -> String {
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
            show::push_value(attribute, out);
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
                show::push_attribute(attribute, &Selection::default(), out)
            }
            _ => show::push_value(attribute, out),
        }
    }
    out.push('}');
}

/// The attributes, in order, with the metadata that are to be shown.
fn shown(content: &Content, change: &Change<'_>, entity: &Entity, patch: Option<&Patch>) -> Vec<Attribute> {
    let is_patched = |name: &str| patch.is_some_and(|patch| patch.attributes.iter().any(|(known, ..)| known == name));
    let is_new =
        |name: &str| !content.only_changed || is_patched(name) || change.changed(false).any(|known| known == name);
    let mut shown: Vec<Attribute> = Vec::new();
    let with_metadata =
        |attribute: &Attribute| Attribute { metadata: metadata(content, change, attribute), ..attribute.clone() };
    // The end of a transient entity is shown where it is named.
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

fn built_in(change: &Change<'_>, entity: &Entity, name: &str) -> Option<Attribute> {
    if name == ALTERATION_TYPE {
        let value = format!("\"{}\"", change.alteration.name()).into();
        return Some(Attribute::new(name.into(), "Text".into(), value, Default::default()));
    }
    entity.built_in(name)
}

fn metadata(content: &Content, change: &Change<'_>, attribute: &Attribute) -> Items {
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

/// The metadata item that every attribute has under this name, in notifications.
fn built_in_metadata(change: &Change<'_>, attribute: &Attribute, name: &str) -> Option<Metadata> {
    let detail = || change.details.attrs.iter().find(|detail| *detail.0 == *attribute.name);
    match name {
        "previousValue" => match detail() {
            Some(Detail(_, _, _, Some((kind, value)))) => {
                Some(Metadata { name: name.into(), kind: (&**kind).into(), value: value.get().into() })
            }
            // What was asked for and does not differ had the value that it has.
            Some(Detail(_, super::details::Action::Update, ..)) => {
                Some(Metadata { name: name.into(), kind: attribute.kind.clone(), value: attribute.value.clone() })
            }
            _ => None,
        },
        "actionType" => {
            let value = format!("\"{}\"", detail()?.1.name()).into();
            Some(Metadata { name: name.into(), kind: "Text".into(), value })
        }
        _ => attribute.built_in(name),
    }
}

/// What macros stand for in a notification.
pub(crate) struct Scope<'a> {
    pub(crate) change: &'a Change<'a>,
    pub(crate) token: Option<&'a str>,
}

impl Names for Scope<'_> {
    fn json(&self, name: &str) -> Option<Cow<'_, str>> {
        if let Some((attribute, item)) = name.strip_prefix("metadata.").and_then(|rest| rest.split_once('.')) {
            let attribute = self.change.entity()?.attribute(attribute)?;
            let given = attribute.metadata.iter().find(|known| *known.name == *item);
            return match given {
                Some(item) => Some(Cow::Borrowed(&*item.value)),
                None => built_in_metadata(self.change, attribute, item).map(|item| Cow::Owned(item.value.to_string())),
            };
        }
        let key = &self.change.key;
        match name {
            "id" => return Some(quoted(&key.id)),
            "type" => return Some(quoted(&key.kind)),
            // Stands for no attribute: what is behind it is named by `metadata.<attribute>.<name>`.
            "metadata" => return None,
            _ => {}
        }
        let entity = self.change.entity()?;
        match entity.attribute(name) {
            Some(attribute) => Some(Cow::Borrowed(&*attribute.value)),
            None => match name {
                "service" => Some(quoted(service(self.change))),
                "servicePath" => Some(quoted(&key.path)),
                "authToken" => self.token.map(quoted),
                _ => built_in(self.change, entity, name).map(|built_in| Cow::Owned(built_in.value.to_string())),
            },
        }
    }
}

/// The tenant as NGSI clients name it: the default one has no name.
pub(crate) fn service<'a>(change: &Change<'a>) -> &'a str {
    if *change.tenant == TenantId::default() { "" } else { change.tenant.as_str() }
}

fn quoted(text: &str) -> Cow<'static, str> {
    let mut out = String::new();
    push_string(text, &mut out);
    Cow::Owned(out)
}

/// The entity with what the patch sets in it.
pub(crate) fn patched(patch: &Patch, entity: &Entity, scope: &Scope<'_>) -> Entity {
    let mut entity = entity.clone();
    let mut key = Key::clone(&entity.key);
    if let Some(id) = &patch.id {
        key.id = id.fill(scope).into();
    }
    if let Some(kind) = &patch.kind {
        key.kind = kind.fill(scope).into();
    }
    entity.key = Arc::new(key);
    for (name, kind, template) in &patch.attributes {
        let mut value = String::new();
        template.fill(scope, &mut value);
        let kind: Arc<str> = match kind {
            Some(kind) => kind.as_str().into(),
            None => kind_of(&value).into(),
        };
        match entity.attributes.iter_mut().find(|known| *known.name == **name) {
            Some(known) => (known.kind, known.value) = (kind, value.into()),
            None => {
                entity.attributes.push(Attribute::new(name.as_str().into(), kind, value.into(), Default::default()))
            }
        }
    }
    entity
}

/// The type of a value that comes without one, by the first character of its JSON text.
fn kind_of(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'"') => "Text",
        Some(b't' | b'f') => "Boolean",
        Some(b'n') => "None",
        Some(b'{' | b'[') => "StructuredValue",
        _ => "Number",
    }
}
