//! How a device's measurements become an entity: a default, and what the registry says otherwise.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_types::TenantId;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::entity::Attribute;
use crate::syntax::{check_attribute_name, check_identifier};
use crate::update;
use crate::{Error, given};

/// The member of a device's `ext` that holds its mapping.
pub const MAPPING_MEMBER: &str = "context";
/// What stands before the device's name in the entity's id by default.
pub const DEFAULT_ID_PREFIX: &str = "urn:ngsi-ld:Device:";
/// The entity's type by default.
pub const DEFAULT_TYPE: &str = "Device";

/// What the registry knows of devices' mappings. Asked for each measurement, so the answer should come from a cache.
pub trait Mappings: Send + Sync + 'static {
    /// The mapping of `device`; `None` for the default one.
    fn mapping(&self, tenant: &TenantId, device: &str) -> Option<Arc<Mapping>>;
}

/// How one device's measurements become an entity.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    id: Option<Arc<str>>,
    kind: Option<Arc<str>>,
    constants: Vec<Attribute>,
    skip: Vec<String>,
    rename: HashMap<String, Arc<str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(rename = "static", default)]
    constants: Map<String, Value>,
    #[serde(default)]
    skip: Vec<String>,
    #[serde(default)]
    rename: HashMap<String, String>,
}

impl Mapping {
    /// Reads the mapping in a device's `ext`, if it has one:
    /// `{"context": {"id": …, "type": …, "static": {name: value or attribute}, "skip": [name], "rename": {name: name}}}`.
    ///
    /// # Errors
    /// [`Error::Mapping`] names what breaks which rule.
    pub fn of_ext(ext: &Value) -> Result<Option<Self>, Error> {
        let Some(value) = ext.get(MAPPING_MEMBER) else { return Ok(None) };
        let written: Written =
            serde_json::from_value(value.clone()).map_err(|error| Error::Mapping { what: error.to_string() })?;
        Self::checked(written).map(Some).map_err(|refusal| Error::Mapping { what: refusal.description })
    }

    fn checked(written: Written) -> Result<Self, crate::refusal::Refusal> {
        let Written { id, kind, constants, skip, rename } = written;
        for (what, text) in [("entity id", &id), ("entity type", &kind)] {
            text.as_ref().map_or(Ok(()), |text| check_identifier(what, text))?;
        }
        rename.values().try_for_each(|name| check_attribute_name(name))?;
        let mut created = Vec::with_capacity(constants.len());
        for (name, value) in constants {
            created.extend(update::create(given::attribute_of_mapping(&name, value)?)?);
        }
        Ok(Self {
            id: id.map(Into::into),
            kind: kind.map(Into::into),
            constants: created,
            skip,
            rename: rename.into_iter().map(|(from, to)| (from, to.into())).collect(),
        })
    }

    /// The entity's id for `device`.
    pub(crate) fn id(&self, device: &str) -> Arc<str> {
        self.id.clone().unwrap_or_else(|| format!("{DEFAULT_ID_PREFIX}{device}").into())
    }

    /// The entity's type.
    pub(crate) fn kind(&self) -> Arc<str> {
        self.kind.clone().unwrap_or_else(|| DEFAULT_TYPE.into())
    }

    /// Attributes that the entity has whatever is measured.
    pub(crate) fn constants(&self) -> &[Attribute] {
        &self.constants
    }

    /// The attribute that the member `name` becomes; `None` if it becomes none.
    pub(crate) fn attribute_name(&self, name: &str) -> Option<Arc<str>> {
        if self.skip.iter().any(|skipped| skipped == name) {
            return None;
        }
        Some(self.rename.get(name).cloned().unwrap_or_else(|| name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mapping_is_read_from_the_member_context() {
        assert_eq!(Mapping::of_ext(&json!({"other": 1})).unwrap(), None);
        let mapping = Mapping::of_ext(&json!({"context": {
            "id": "urn:x", "type": "WeatherObserved",
            "static": {"name": "JFK", "location": {"type": "geo:json", "value": {"type": "Point", "coordinates": [1.0, 2.5]}}},
            "skip": ["x"], "rename": {"a": "b"},
        }}));
        let mapping = mapping.unwrap().unwrap();
        assert_eq!((&*mapping.id("d"), &*mapping.kind()), ("urn:x", "WeatherObserved"));
        let constants: Vec<_> = mapping.constants().iter().map(|a| (&*a.name, &*a.kind, &*a.value)).collect();
        let point = r#"{"type":"Point","coordinates":[1,2.5]}"#;
        assert_eq!(constants, [("name", "Text", "\"JFK\""), ("location", "geo:json", point)]);
        assert_eq!(mapping.attribute_name("x"), None);
        assert_eq!(mapping.attribute_name("a").as_deref(), Some("b"));
        assert_eq!(mapping.attribute_name("c").as_deref(), Some("c"));
    }

    #[test]
    fn what_breaks_a_rule_is_named() {
        for (mapping, named) in [
            (json!(7), "7"),
            (json!({"idd": "x"}), "idd"),
            (json!({"id": "a b"}), "a b"),
            (json!({"type": ""}), "entity type"),
            (json!({"static": {"id": 1}}), "'id'"),
            (json!({"static": {"n": "a(b)"}}), "a(b)"),
            (json!({"static": {"t": {"value": "x", "type": "DateTime"}}}), "DateTime"),
            (json!({"rename": {"a": "b c"}}), "b c"),
        ] {
            let error = Mapping::of_ext(&json!({"context": mapping})).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
