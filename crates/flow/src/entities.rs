//! Entities by their ids, which lookups read in place of a table.
//!
//! An entity is read when a record asks for it, as it is then: nothing is copied beforehand and nothing is followed.

use std::fmt;
use std::sync::Arc;

use millstream_types::{TenantId, service_path};
use serde_json::{Map, Value};

/// Reads entities for the lookups of jobs.
pub trait EntityReader: Send + Sync {
    /// Appends the entity that `query` names to `out`, if there is exactly one: as a JSON object in keyValues form. The workers
    /// of jobs call it for each record, so it answers from memory.
    ///
    /// # Errors
    /// The reason, in words, why the entities cannot be read here.
    fn read(&self, query: &EntityQuery<'_>, out: &mut String) -> Result<EntityMatch, String>;
}

/// An entity that a lookup asks for, and the parts of it.
#[derive(Debug, Clone, Copy)]
pub struct EntityQuery<'a> {
    /// The tenant of the job.
    pub tenant: &'a TenantId,
    /// The entity's id.
    pub id: &'a str,
    /// The entity's type; any if `None`.
    pub kind: Option<&'a str>,
    /// The entity's service path.
    pub service_path: &'a str,
    /// The attributes to give, each once; all if the list is empty.
    pub attributes: &'a [String],
}

/// The number of entities that a query fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntityMatch {
    /// There is no such entity.
    None,
    /// There is one.
    One,
    /// Entities of several types have the id.
    Several,
}

/// The part of a query that all records of a lookup have in common.
#[derive(Debug, Clone)]
pub(crate) struct EntitySelection {
    kind: Option<String>,
    service_path: String,
    attributes: Vec<String>,
}

impl EntitySelection {
    /// The selection that the `entities` of a lookup describe.
    pub(crate) fn new(config: &Map<String, Value>) -> Result<Self, String> {
        let text = |key: &str| config.get(key).and_then(Value::as_str);
        let service_path = service_path(text("service_path").unwrap_or("/")).map_err(|error| error.to_string())?;
        let mut attributes: Vec<String> = Vec::new();
        for name in config.get("attrs").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            if !attributes.iter().any(|known| known == name) {
                attributes.push(name.to_owned());
            }
        }
        Ok(Self { kind: text("type").map(str::to_owned), service_path, attributes })
    }

    /// The value of an entity that a test gives; `None` if it is of another type.
    pub(crate) fn of_row(&self, row: &Value) -> Option<Value> {
        let (row, kind) = (row.as_object()?, self.kind.as_deref());
        let given = row.get("type").and_then(Value::as_str);
        if kind.is_some_and(|kind| given.is_some_and(|given| given != kind)) {
            return None;
        }
        let is_shown = |name: &str| {
            self.attributes.is_empty() || ["id", "type"].contains(&name) || self.attributes.iter().any(|of| of == name)
        };
        let shown = row.iter().filter(|(name, _)| is_shown(name));
        Some(shown.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>().into())
    }
}

/// The entities that one lookup reads.
pub(crate) struct LookupEntities {
    pub(crate) reader: Arc<dyn EntityReader>,
    pub(crate) tenant: TenantId,
    pub(crate) selection: EntitySelection,
}

impl fmt::Debug for LookupEntities {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LookupEntities").field("selection", &self.selection).finish_non_exhaustive()
    }
}

impl LookupEntities {
    /// Appends the entity of this id; see [`EntityReader::read`].
    pub(crate) fn read(&self, id: &[u8], out: &mut String) -> Result<EntityMatch, String> {
        let Ok(id) = std::str::from_utf8(id) else { return Ok(EntityMatch::None) };
        let Self { reader, tenant, selection: EntitySelection { kind, service_path, attributes } } = self;
        reader.read(&EntityQuery { tenant, id, kind: kind.as_deref(), service_path, attributes }, out)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entity_of_a_test_has_the_chosen_attributes_and_fits_its_type() {
        let check = |config: Value, row: Value, expected: Option<Value>| {
            let selection = EntitySelection::new(config.as_object().unwrap()).unwrap();
            assert_eq!(selection.of_row(&row), expected, "{config} {row}");
        };
        let row = json!({"id": "s1", "type": "Station", "name": "Rome", "limit": 5});
        check(json!({"id": "{s}"}), row.clone(), Some(row.clone()));
        let limit = json!({"id": "s1", "type": "Station", "limit": 5});
        check(json!({"id": "{s}", "attrs": ["limit", "none", "limit"]}), row.clone(), Some(limit));
        check(json!({"id": "{s}", "type": "Station"}), row.clone(), Some(row.clone()));
        check(json!({"id": "{s}", "type": "Car"}), row, None);
        check(json!({"id": "{s}", "type": "Car"}), json!({"id": "c1"}), Some(json!({"id": "c1"})));
    }
}
