//! Entities that providers send, and updates that are sent to them.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::registration::Registration;
use crate::model::content::kind_of;
use crate::model::entity::{Attribute, Entity, Key, Metadata};
use crate::model::json::{self, push_string};
use crate::model::render::{self, AttributeSelection};
use crate::model::request_body::{BodyAttribute, DEFAULT_ENTITY_KIND};
use crate::model::update;
use crate::refusal::Refusal;

/// Reads a provider's answer to a query. What is no entity is left out: a provider cannot spoil the answer of others.
pub(super) fn entities(answer: &[u8], path: &Arc<str>) -> Vec<Entity> {
    let Ok(Value::Array(items)) = json::read(answer) else { return Vec::new() };
    items.into_iter().filter_map(|item| entity(item, path)).collect()
}

fn entity(item: Value, path: &Arc<str>) -> Option<Entity> {
    let Value::Object(mut members) = item else { return None };
    let Some(Value::String(id)) = members.shift_remove("id") else { return None };
    let kind = match members.shift_remove("type") {
        Some(Value::String(kind)) => kind,
        _ => DEFAULT_ENTITY_KIND.to_owned(),
    };
    let key = Arc::new(Key { id: id.into(), kind: kind.into(), path: path.clone() });
    let attributes = members.into_iter().filter_map(|(name, value)| attribute(name, value)).collect();
    Some(Entity { key, created_us: 0, modified_ms: 0, version: 0, attributes })
}

fn attribute(name: String, value: Value) -> Option<Attribute> {
    let Value::Object(mut members) = value else { return None };
    let (kind, value) = kind_and_value(&mut members);
    let metadata = match members.shift_remove("metadata") {
        Some(Value::Object(items)) => items.into_iter().filter_map(|(name, item)| metadata(name, item)).collect(),
        _ => Vec::new(),
    };
    Some(Attribute::new(name.into(), kind, value, metadata.into()))
}

fn metadata(name: String, item: Value) -> Option<Metadata> {
    let Value::Object(mut members) = item else { return None };
    let (kind, value) = kind_and_value(&mut members);
    Some(Metadata { name: name.into(), kind, value })
}

fn kind_and_value(members: &mut Map<String, Value>) -> (Arc<str>, Arc<str>) {
    let value = members.shift_remove("value").unwrap_or(Value::Null);
    let kind = match members.shift_remove("type") {
        Some(Value::String(kind)) => kind.into(),
        _ => kind_of(&value).into(),
    };
    (kind, json::text(&value))
}

/// The update of one provider.
pub(crate) struct UpdateForward {
    /// Those whose attributes it has; the provider is that of the first.
    pub(super) registrations: Vec<Arc<Registration>>,
    /// Each entity's id, type and attributes.
    entities: Vec<(Arc<str>, Option<String>, Vec<Attribute>)>,
}

/// An update of one attribute for the provider of `registration`.
///
/// # Errors
/// The attribute cannot be set where there is none yet.
pub(crate) fn provided_update(
    forwards: &mut Vec<UpdateForward>,
    registration: Arc<Registration>,
    id: &Arc<str>,
    kind: Option<&str>,
    given: BodyAttribute,
) -> Result<(), Refusal> {
    let attributes = update::create(given)?;
    let at = match forwards.iter().position(|known| known.registrations[0].is_at_provider_of(&registration)) {
        Some(at) => at,
        None => {
            forwards.push(UpdateForward { registrations: Vec::new(), entities: Vec::new() });
            forwards.len() - 1
        }
    };
    let UpdateForward { registrations, entities } = &mut forwards[at];
    if !registrations.iter().any(|known| Arc::ptr_eq(known, &registration)) {
        registrations.push(registration);
    }
    match entities.iter_mut().find(|(known, known_kind, _)| known == id && known_kind.as_deref() == kind) {
        Some((_, _, known)) => known.extend(attributes),
        None => entities.push((id.clone(), kind.map(str::to_owned), attributes.into_iter().collect())),
    }
    Ok(())
}

impl UpdateForward {
    /// The body for `/op/update`.
    pub(super) fn body(&self) -> String {
        let mut out = String::from("{\"actionType\":\"update\",\"entities\":[");
        for (at, (id, kind, attributes)) in self.entities.iter().enumerate() {
            out.push_str(if at > 0 { ",{\"id\":" } else { "{\"id\":" });
            push_string(id, &mut out);
            if let Some(kind) = kind {
                out.push_str(",\"type\":");
                push_string(kind, &mut out);
            }
            for attribute in attributes {
                out.push(',');
                push_string(&attribute.name, &mut out);
                out.push(':');
                render::push_attribute(attribute, &AttributeSelection::default(), &mut out);
            }
            out.push('}');
        }
        out.push_str("]}");
        out
    }

    /// The names of the entities and attributes, for errors.
    pub(crate) fn named(&self) -> String {
        let of_entity = |(id, _, attributes): &(Arc<str>, Option<String>, Vec<Attribute>)| {
            let names: Vec<&str> = attributes.iter().map(|attribute| &*attribute.name).collect();
            format!("{} of entity '{id}'", names.join(", "))
        };
        self.entities.iter().map(of_entity).collect::<Vec<_>>().join(", ")
    }
}
