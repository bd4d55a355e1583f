//! Renders entities and attributes for replies and change records.

use std::collections::HashSet;

use crate::model::entity::{Attribute, DATE_EXPIRES, Entity, Metadata};
use crate::model::geometry::{self, GEO_JSON};
use crate::model::json::{self, push_string};
use crate::model::request_body::Representation;

/// Selects all attributes of users.
const ALL: &str = "*";

/// The attributes and metadata to render, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct AttributeSelection {
    /// An empty list selects all attributes of users.
    attributes: Vec<String>,
    /// An empty list selects all metadata of users.
    metadata: Vec<String>,
}

/// Renders the entity's id and type, or leaves them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    Shown,
    Hidden,
}

impl AttributeSelection {
    /// Selects by names, in order, without duplicates.
    pub(crate) fn new(mut attributes: Vec<String>, mut metadata: Vec<String>) -> Self {
        for names in [&mut attributes, &mut metadata] {
            let mut known = HashSet::new();
            names.retain(|name| known.insert(name.clone()));
        }
        Self { attributes, metadata }
    }

    /// The names of the attributes; none for all.
    pub(crate) fn attributes(&self) -> &[String] {
        &self.attributes
    }
}

/// Appends an entity with its id, its type and the values of the attributes of these names, of all if there are none.
pub(crate) fn push_key_values(entity: &Entity, attributes: &[String], out: &mut String) {
    open_object(entity, Head::Shown, out);
    each_selected(entity, attributes, |attribute| {
        begin_member(&attribute.name, out);
        push_value(attribute, out);
    });
    out.push('}');
}

/// Appends an entity as a JSON object, or the values of its attributes as an array.
pub(crate) fn push_entity(
    entity: &Entity,
    head: Head,
    form: Representation,
    selection: &AttributeSelection,
    out: &mut String,
) {
    match form {
        Representation::Normalized | Representation::KeyValues => push_object(entity, head, form, selection, out),
        Representation::Values | Representation::Unique => push_values(entity, form, selection, out),
    }
}

fn push_object(entity: &Entity, head: Head, form: Representation, selection: &AttributeSelection, out: &mut String) {
    open_object(entity, head, out);
    each_selected(entity, &selection.attributes, |attribute| {
        begin_member(&attribute.name, out);
        match form {
            Representation::Normalized => push_attribute(attribute, selection, out),
            _ => push_value(attribute, out),
        }
    });
    out.push('}');
}

fn open_object(entity: &Entity, head: Head, out: &mut String) {
    out.push('{');
    if head == Head::Shown {
        out.push_str("\"id\":");
        push_string(&entity.key.id, out);
        out.push_str(",\"type\":");
        push_string(&entity.key.kind, out);
    }
}

fn begin_member(name: &str, out: &mut String) {
    if !out.ends_with('{') {
        out.push(',');
    }
    push_string(name, out);
    out.push(':');
}

fn push_values(entity: &Entity, form: Representation, selection: &AttributeSelection, out: &mut String) {
    let mut known = HashSet::new();
    out.push('[');
    each_selected(entity, &selection.attributes, |attribute| {
        if form == Representation::Unique && !known.insert(attribute.value.clone()) {
            return;
        }
        if !out.ends_with('[') {
            out.push(',');
        }
        push_value(attribute, out);
    });
    out.push(']');
}

/// Passes the attributes of these names to `show`, in order; all of users if there are no names.
fn each_selected(entity: &Entity, names: &[String], mut show: impl FnMut(&Attribute)) {
    let given = || entity.attributes.iter().filter(|attribute| *attribute.name != *DATE_EXPIRES);
    if names.is_empty() {
        given().for_each(&mut show);
    }
    for name in names {
        if name == ALL {
            // An attribute that is also named takes the position of its name.
            given().filter(|given| !names.iter().any(|name| **name == *given.name)).for_each(&mut show);
        } else if let Some(given) = entity.attribute(name) {
            show(given);
        } else if let Some(built_in) = entity.built_in(name) {
            show(&built_in);
        }
    }
}

pub(crate) fn push_attribute(attribute: &Attribute, selection: &AttributeSelection, out: &mut String) {
    out.push_str("{\"type\":");
    push_string(&attribute.kind, out);
    out.push_str(",\"value\":");
    push_value(attribute, out);
    out.push_str(",\"metadata\":{");
    let mut push = |item: &Metadata| {
        if !out.ends_with('{') {
            out.push(',');
        }
        push_string(&item.name, out);
        out.push_str(":{\"type\":");
        push_string(&item.kind, out);
        out.push_str(",\"value\":");
        out.push_str(&item.value);
        out.push('}');
    };
    let names = &selection.metadata;
    if names.is_empty() {
        attribute.metadata.iter().for_each(&mut push);
    }
    for name in names {
        if name == ALL {
            let others = attribute.metadata.iter().filter(|item| !names.iter().any(|name| **name == *item.name));
            others.for_each(&mut push);
        } else if let Some(item) = attribute.metadata.iter().find(|item| **name == *item.name) {
            push(item);
        } else if let Some(built_in) = attribute.built_in(name) {
            push(&built_in);
        }
    }
    out.push_str("}}");
}

/// Appends an attribute's value as JSON: of a `Feature` the geometry, unless it is plain data.
pub(crate) fn push_value(attribute: &Attribute, out: &mut String) {
    let may_be_feature = *attribute.kind == *GEO_JSON && attribute.value.contains("\"Feature");
    if may_be_feature && !attribute.ignores_type() {
        let value = json::parsed(&attribute.value);
        out.push_str(&json::text(geometry::shown(&value).unwrap_or(&value)));
    } else {
        out.push_str(&attribute.value);
    }
}

/// The entity in a change record: normalized, with all attributes of users.
pub(crate) fn normalized(entity: &Entity) -> String {
    // Estimates names of members, quotes and commas; few attributes have metadata.
    let of_attribute = |attribute: &Attribute| attribute.name.len() + attribute.kind.len() + attribute.value.len() + 48;
    let attributes: usize = entity.attributes.iter().map(of_attribute).sum();
    let mut out = String::with_capacity(entity.key.id.len() + entity.key.kind.len() + attributes + 32);
    push_entity(entity, Head::Shown, Representation::Normalized, &AttributeSelection::default(), &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::entity::Key;

    fn room() -> Entity {
        let key = Key { id: "room1".into(), kind: "Room".into(), path: "/a".into() };
        let mut room = Entity::new(key.into(), 0);
        let metadata = vec![Metadata { name: "m".into(), kind: "Text".into(), value: "\"x\"".into() }];
        let attribute = |name: &str, kind: &str, value: &str| {
            Attribute::new(name.into(), kind.into(), value.into(), Default::default())
        };
        room.attributes.push(Attribute { metadata: metadata.into(), ..attribute("t", "Number", "21.5") });
        room.attributes.push(attribute("back\\slash", "None", "null"));
        room
    }

    #[test]
    fn selected_attributes_are_shown_in_the_order_of_the_selection() {
        let check = |head, form, names: &[&str], expected: &str| {
            let mut out = String::new();
            push_entity(
                &room(),
                head,
                form,
                &AttributeSelection::new(names.iter().map(|name| (*name).to_owned()).collect(), Vec::new()),
                &mut out,
            );
            assert_eq!(out, expected);
            serde_json::from_str::<serde_json::Value>(&out).unwrap();
        };
        let t = r#""t":{"type":"Number","value":21.5,"metadata":{"m":{"type":"Text","value":"x"}}}"#;
        let slash = r#""back\\slash":{"type":"None","value":null,"metadata":{}}"#;
        let head = r#""id":"room1","type":"Room""#;
        check(Head::Shown, Representation::Normalized, &[], &format!("{{{head},{t},{slash}}}"));
        check(Head::Shown, Representation::KeyValues, &["*"], &format!(r#"{{{head},"t":21.5,"back\\slash":null}}"#));
        check(Head::Hidden, Representation::KeyValues, &["*", "t", "t"], r#"{"back\\slash":null,"t":21.5}"#);
        check(Head::Hidden, Representation::KeyValues, &["nothing"], "{}");
        check(
            Head::Shown,
            Representation::KeyValues,
            &["servicePath", "dateCreated"],
            &format!(r#"{{{head},"servicePath":"/a","dateCreated":"1970-01-01T00:00:00.000Z"}}"#),
        );
    }
}
