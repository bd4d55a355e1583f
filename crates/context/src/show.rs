//! Entities and attributes as answers and change records show them.

use crate::entity::{Attribute, Entity};
use crate::given::Form;
use crate::json::push_string;

/// Stands for all attributes that users gave.
const ALL: &str = "*";

/// Which attributes are shown, and in which order; none named shows all that users gave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection(Vec<String>);

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
    pub(crate) fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut selection: Vec<String> = Vec::new();
        for name in names {
            if !selection.iter().any(|known| known == name) {
                selection.push(name.to_owned());
            }
        }
        Self(selection)
    }

    fn names(&self, name: &str) -> bool {
        self.0.iter().any(|known| known == name)
    }
}

/// Appends an entity as a JSON object.
pub(crate) fn push_entity(entity: &Entity, head: Head, form: Form, selection: &Selection, out: &mut String) {
    out.push('{');
    if head == Head::Shown {
        out.push_str("\"id\":");
        push_string(&entity.key.id, out);
        out.push_str(",\"type\":");
        push_string(&entity.key.kind, out);
    }
    let mut member = |attribute: &Attribute| {
        if !out.ends_with('{') {
            out.push(',');
        }
        push_string(&attribute.name, out);
        out.push(':');
        match form {
            Form::Normalized => push_attribute(attribute, out),
            Form::KeyValues => out.push_str(&attribute.value),
        }
    };
    if selection.0.is_empty() {
        entity.attributes.iter().for_each(&mut member);
    }
    for name in &selection.0 {
        if name == ALL {
            // One that is named as well stands where it is named.
            entity.attributes.iter().filter(|given| !selection.names(&given.name)).for_each(&mut member);
        } else if let Some(given) = entity.attribute(name) {
            member(given);
        } else if let Some(built_in) = entity.built_in(name) {
            member(&built_in);
        }
    }
    out.push('}');
}

/// Appends an attribute as a JSON object.
pub(crate) fn push_attribute(attribute: &Attribute, out: &mut String) {
    out.push_str("{\"type\":");
    push_string(&attribute.kind, out);
    out.push_str(",\"value\":");
    out.push_str(&attribute.value);
    out.push_str(",\"metadata\":{");
    for (i, item) in attribute.metadata.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        push_string(&item.name, out);
        out.push_str(":{\"type\":");
        push_string(&item.kind, out);
        out.push_str(",\"value\":");
        out.push_str(&item.value);
        out.push('}');
    }
    out.push_str("}}");
}

/// The entity as change records carry it: normalized, all that users gave.
pub(crate) fn normalized(entity: &Entity) -> String {
    let mut out = String::with_capacity(64 + entity.attributes.len() * 64);
    push_entity(entity, Head::Shown, Form::Normalized, &Selection::default(), &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entity::{Key, Metadata};

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
            push_entity(&room(), head, form, &Selection::of(names.iter().copied()), &mut out);
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
