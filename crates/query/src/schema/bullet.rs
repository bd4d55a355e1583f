//! The observed fields in the shape that Bullet's web service gives its columns, a JSON:API document.
//!
//! Bullet knows fields of the record itself only: primitives, maps and lists of these, maps of maps, lists of maps.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::field::{Schema, SchemaField};
use crate::{Field, PathStep};

/// The version of the form of this document.
const VERSION: &str = "1.2";
const UNKNOWN: &str = "UNKNOWN";

impl Schema {
    /// `{"data": [{"id", "type": "field", "attributes": {"name", "type", …}}, …], "meta": {"version"}}`.
    pub fn bullet_columns(&self) -> Value {
        let data: Vec<Value> = self.parts_of(&[]).map(|(field, step)| self.column(field, step)).collect();
        json!({"data": data, "meta": {"version": VERSION}})
    }

    fn column(&self, field: &SchemaField, step: &PathStep) -> Value {
        let PathStep::Key(name) = step else { return Value::Null };
        let path = std::slice::from_ref(step);
        let mut attributes = Map::new();
        attributes.insert("name".to_owned(), name.as_str().into());
        let kind = match kind(field) {
            "MAP" => self.map(path, &mut attributes),
            "LIST" => self.list(path, &mut attributes),
            primitive => primitive.to_owned(),
        };
        attributes.insert("type".to_owned(), kind.into());
        json!({"id": name, "type": "field", "attributes": attributes})
    }

    /// The type of a map; adds the names of its members to `attributes`.
    fn map(&self, path: &[PathStep], attributes: &mut Map<String, Value>) -> String {
        attributes.insert("subFields".to_owned(), names(self.parts_of(path)));
        let of = common(self.parts_of(path).map(|(field, _)| kind(field)));
        match of {
            "MAP" => {
                let inner = || {
                    self.parts_of(path)
                        .flat_map(|(_, step)| self.parts_of(&[path, std::slice::from_ref(step)].concat()))
                };
                attributes.insert("subSubFields".to_owned(), names(inner()));
                format!("{}_MAP_MAP", primitive(common(inner().map(|(field, _)| kind(field)))))
            }
            of => format!("{}_MAP", primitive(of)),
        }
    }

    /// The type of a list; the names of the members of its maps are put to `attributes`.
    fn list(&self, path: &[PathStep], attributes: &mut Map<String, Value>) -> String {
        let of = common(self.parts_of(path).map(|(field, _)| kind(field)));
        if of != "MAP" {
            return format!("{}_LIST", primitive(of));
        }
        let element = [path, &[PathStep::Index(0)]].concat();
        attributes.insert("subListFields".to_owned(), names(self.parts_of(&element)));
        format!("{}_MAP_LIST", primitive(common(self.parts_of(&element).map(|(field, _)| kind(field)))))
    }

    /// The parts of the field at `path`, with their last steps.
    fn parts_of<'s>(&'s self, path: &[PathStep]) -> impl Iterator<Item = (&'s SchemaField, &'s PathStep)> + use<'s> {
        let path = path.to_vec();
        self.fields.iter().filter_map(move |field| match &field.field {
            Some(Field::Payload(steps)) => {
                let (last, before) = steps.split_last()?;
                (before == path).then_some((field, last))
            }
            _ => None,
        })
    }
}

/// The type that it mostly is, as Bullet calls it.
fn kind(field: &SchemaField) -> &str {
    let mut types: Vec<(&str, u64)> = field.types.iter().map(|(name, count)| (&**name, *count)).collect();
    types.retain(|(name, _)| *name != "NULL");
    if types.iter().all(|(name, _)| matches!(*name, "LONG" | "DOUBLE")) && types.len() == 2 {
        return "DOUBLE";
    }
    types.into_iter().max_by_key(|(_, count)| *count).map_or(UNKNOWN, |(name, _)| name)
}

/// The type that all `kinds` have in common.
fn common<'k>(kinds: impl Iterator<Item = &'k str>) -> &'k str {
    let mut kinds: BTreeSet<&str> = kinds.collect();
    kinds.remove(UNKNOWN);
    if kinds == BTreeSet::from(["DOUBLE", "LONG"]) {
        return "DOUBLE";
    }
    match kinds.len() {
        1 => kinds.into_iter().next().unwrap_or(UNKNOWN),
        _ => UNKNOWN,
    }
}

/// The type, if Bullet has containers of it.
fn primitive(kind: &str) -> &str {
    if matches!(kind, "MAP" | "LIST") { UNKNOWN } else { kind }
}

fn names<'s>(parts: impl Iterator<Item = (&'s SchemaField, &'s PathStep)>) -> Value {
    let names = parts.filter_map(|(_, step)| match step {
        PathStep::Key(name) => Some(name.as_str()),
        PathStep::Index(_) => None,
    });
    let names: BTreeSet<&str> = names.collect();
    names.into_iter().map(|name| json!({"name": name})).collect()
}
