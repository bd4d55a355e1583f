//! Entities and attributes as answers and change records show them.

use std::collections::HashSet;

use crate::entity::{Attribute, DATE_EXPIRES, Entity, Metadata};
use crate::geometry::{self, GEO_JSON};
use crate::given::Form;
use crate::json::{self, push_string};

/// Stands for all attributes that users gave.
const ALL: &str = "*";

/// Which attributes and metadata are shown, and in which order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    /// None named shows all that users gave.
    attributes: Vec<String>,
    /// None named shows all that users gave.
    metadata: Vec<String>,
}

/// Whether the entity's id and type are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// Members `id` and `type` come first.
    Shown,
    /// Attributes only.
    Hidden,
}

impl Selection {
    /// Those named, in that order, each once.
    pub(crate) fn new(mut attributes: Vec<String>, mut metadata: Vec<String>) -> Self {
        for names in [&mut attributes, &mut metadata] {
            let mut known = HashSet::new();
            names.retain(|name| known.insert(name.clone()));
        }
        Self { attributes, metadata }
    }
}

/// Appends an entity as a JSON object, or the values of its attributes as an array.
pub(crate) fn push_entity(entity: &Entity, head: Head, form: Form, selection: &Selection, out: &mut String) {
    match form {
        Form::Normalized | Form::KeyValues => push_object(entity, head, form, selection, out),
        Form::Values | Form::Unique => push_values(entity, form, selection, out),
    }
}

fn push_object(entity: &Entity, head: Head, form: Form, selection: &Selection, out: &mut String) {
    out.push('{');
    if head == Head::Shown {
        out.push_str("\"id\":");
        push_string(&entity.key.id, out);
        out.push_str(",\"type\":");
        push_string(&entity.key.kind, out);
    }
    each_selected(entity, selection, |attribute| {
        if !out.ends_with('{') {
            out.push(',');
        }
        push_string(&attribute.name, out);
        out.push(':');
        match form {
            Form::Normalized => push_attribute(attribute, selection, out),
            _ => push_value(attribute, out),
        }
    });
    out.push('}');
}

fn push_values(entity: &Entity, form: Form, selection: &Selection, out: &mut String) {
    let mut known = HashSet::new();
    out.push('[');
    each_selected(entity, selection, |attribute| {
        if form == Form::Unique && !known.insert(attribute.value.clone()) {
            return;
        }
        if !out.ends_with('[') {
            out.push(',');
        }
        push_value(attribute, out);
    });
    out.push(']');
}

/// Hands the attributes that are shown to `show`, in their order.
fn each_selected(entity: &Entity, selection: &Selection, mut show: impl FnMut(&Attribute)) {
    let names = &selection.attributes;
    let given = || entity.attributes.iter().filter(|attribute| *attribute.name != *DATE_EXPIRES);
    if names.is_empty() {
        given().for_each(&mut show);
    }
    for name in names {
        if name == ALL {
            // One that is named as well stands where it is named.
            given().filter(|given| !names.iter().any(|name| **name == *given.name)).for_each(&mut show);
        } else if let Some(given) = entity.attribute(name) {
            show(given);
        } else if let Some(built_in) = entity.built_in(name) {
            show(&built_in);
        }
    }
}

/// Appends an attribute as a JSON object.
pub(crate) fn push_attribute(attribute: &Attribute, selection: &Selection, out: &mut String) {
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

/// Appends an attribute's value as JSON: of a `Feature` the geometry.
pub(crate) fn push_value(attribute: &Attribute, out: &mut String) {
    if *attribute.kind == *GEO_JSON && attribute.value.contains("\"Feature") {
        let value = json::parsed(&attribute.value);
        out.push_str(&json::text(geometry::shown(&value).unwrap_or(&value)));
    } else {
        out.push_str(&attribute.value);
    }
}

/// The entity as change records carry it: normalized, all that users gave.
pub(crate) fn normalized(entity: &Entity) -> String {
    // Names of members, quotes and commas included; metadata are seldom.
    let of_attribute = |attribute: &Attribute| attribute.name.len() + attribute.kind.len() + attribute.value.len() + 48;
    let attributes: usize = entity.attributes.iter().map(of_attribute).sum();
    let mut out = String::with_capacity(entity.key.id.len() + entity.key.kind.len() + attributes + 32);
    push_entity(entity, Head::Shown, Form::Normalized, &Selection::default(), &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entity::Key;

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
    fn what_is_selected_is_shown_in_that_order() {
        let check = |head, form, names: &[&str], expected: &str| {
            let mut out = String::new();
            push_entity(
                &room(),
                head,
                form,
                &Selection::new(names.iter().map(|name| (*name).to_owned()).collect(), Vec::new()),
                &mut out,
            );
            assert_eq!(out, expected);
            serde_json::from_str::<serde_json::Value>(&out).unwrap();
        };
        let t = r#""t":{"type":"Number","value":21.5,"metadata":{"m":{"type":"Text","value":"x"}}}"#;
        let slash = r#""back\\slash":{"type":"None","value":null,"metadata":{}}"#;
        let head = r#""id":"room1","type":"Room""#;
        check(Head::Shown, Form::Normalized, &[], &format!("{{{head},{t},{slash}}}"));
        check(Head::Shown, Form::KeyValues, &["*"], &format!(r#"{{{head},"t":21.5,"back\\slash":null}}"#));
        check(Head::Hidden, Form::KeyValues, &["*", "t", "t"], r#"{"back\\slash":null,"t":21.5}"#);
        check(Head::Hidden, Form::KeyValues, &["nothing"], "{}");
        check(
            Head::Shown,
            Form::KeyValues,
            &["servicePath", "dateCreated"],
            &format!(r#"{{{head},"servicePath":"/a","dateCreated":"1970-01-01T00:00:00.000Z"}}"#),
        );
    }
}
