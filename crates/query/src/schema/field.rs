//! The schema of a stream, as clients see it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Field, PathStep};

/// The schema of a stream, from sampled records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    /// The name of the topic.
    pub stream: String,
    /// The number of sampled records.
    pub records: u64,
    /// The number of objects among them; other payloads have no fields except those with `$`.
    pub objects: u64,
    /// True if fields are left out because of `query.schema.fields_max` or `query.schema.depth_max`.
    pub cut: bool,
    /// The fields: first `$key` and the headers, then those of the payload, each followed by its parts.
    pub fields: Vec<SchemaField>,
}

impl Schema {
    /// The fields of the payload that have been seen.
    pub(crate) fn payload_paths(&self) -> impl Iterator<Item = &[PathStep]> {
        self.fields.iter().filter_map(|seen| match &seen.field {
            Some(Field::Payload(steps)) => Some(steps.as_slice()),
            _ => None,
        })
    }
}

/// A field that some records have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SchemaField {
    /// The field's name in a query, such as `a.b`. Of a list only the first element is sampled: `a[0]`.
    pub path: String,
    /// The number of records for each type, named as by `TYPEOF`, or `NULL`.
    pub types: BTreeMap<String, u64>,
    /// In which share of the records it is there and not null, from 0 to 1.
    pub present: f64,
    /// Some distinct values; none for lists and objects, whose parts are fields of their own.
    pub examples: Vec<Value>,
    /// The same path as a field.
    #[serde(skip)]
    pub(super) field: Option<Field>,
}
