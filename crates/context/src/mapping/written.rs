//! A mapping as the registry's documents have it.

use serde::Deserialize;
use serde_json::{Map, Value};

/// What becomes of a payload's members that no expression reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Rest {
    /// They become attributes of their names.
    #[default]
    Keep,
    /// They stay in the telemetry.
    Drop,
}

/// One mapping, or what a document says beside another one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Written {
    pub(super) id: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    #[serde(rename = "static")]
    pub(super) constants: Map<String, Value>,
    pub(super) attributes: Map<String, Value>,
    pub(super) skip: Vec<String>,
    pub(super) rest: Option<Rest>,
}

impl Written {
    /// Reads one that stands at `place`.
    pub(super) fn read(place: &str, value: Value) -> Result<Self, String> {
        if !value.is_object() {
            return Err(format!(
                "{place} is {value}: it must be an object with id, type, static, attributes, skip, rest"
            ));
        }
        serde_json::from_value(value).map_err(|error| format!("{place}: {error}"))
    }

    /// This one, and beside it what `own` says: its members win, those of `static` and `attributes` one by one.
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
