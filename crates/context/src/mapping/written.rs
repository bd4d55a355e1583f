//! The mapping document in the registry.

use serde::Deserialize;
use serde_json::{Map, Value};

/// Treatment of payload members that no expression reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum UnmappedMembers {
    /// They become attributes of the same name.
    #[default]
    Keep,
    /// They stay in the telemetry only.
    Drop,
}

/// A mapping document, or the overrides of one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct MappingDocument {
    pub(super) id: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    #[serde(rename = "static")]
    pub(super) constants: Map<String, Value>,
    pub(super) attributes: Map<String, Value>,
    pub(super) skip: Vec<String>,
    pub(super) rest: Option<UnmappedMembers>,
}

impl MappingDocument {
    /// Reads the document at `place`.
    pub(super) fn read(place: &str, value: Value) -> Result<Self, String> {
        if !value.is_object() {
            return Err(format!(
                "{place} is {value}: it must be an object with id, type, static, attributes, skip, rest"
            ));
        }
        serde_json::from_value(value).map_err(|error| format!("{place}: {error}"))
    }

    /// Merges with `own`: its members win; those of `static` and `attributes` one by one.
    pub(super) fn with(mut self, own: Self) -> Self {
        self.id = own.id.or(self.id);
        self.kind = own.kind.or(self.kind);
        self.rest = own.rest.or(self.rest);
        self.constants.extend(own.constants);
        self.attributes.extend(own.attributes);
        self.skip.extend(own.skip);
        self
    }
}
