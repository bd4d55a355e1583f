//! The result of a window, and its meta.

use millstream_columns::SketchMeta;
use serde::{Deserialize, Serialize};

use crate::MetaNames;
use crate::rows::RowBatch;

/// The rows of one window.
#[derive(Debug, Clone)]
pub struct WindowResult {
    /// The rows, in their order.
    pub rows: RowBatch,
    /// The meta of the window.
    pub meta: WindowMeta,
}

/// The meta of a window's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WindowMeta {
    /// `tumbling`, `additive`, `sliding`, `calendar` or `session`, by `time`, by `records` or by `event time`: `tumbling time`.
    pub name: String,
    /// The number of the window within its query, from 1.
    pub number: u64,
    /// The length of the window: milliseconds, or records that match; of a session the pause that ends it.
    pub size: u64,
    /// The time at which the result was emitted, milliseconds since 1970-01-01T00:00:00Z.
    pub emit_time_ms: i64,
    /// The time at which the result was due, in the same unit; `None` for windows by records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_emit_time_ms: Option<i64>,
    /// The beginning of a window that lies on the clock, the calendar or event time, in the same unit; of a session its first
    /// record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<i64>,
    /// The end of such a window, which is no part of it; of a session its last record, which is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_ms: Option<i64>,
    /// The number of records in the window.
    pub records: u64,
    /// The meta of the sketches behind the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sketches: Vec<SketchMeta>,
    /// The estimated parts of the result, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The part of a result's meta that describes its window.
#[derive(Serialize)]
struct WindowOnly<'a> {
    window: &'a WindowMeta,
}

impl WindowResult {
    /// The size of the result in bytes.
    pub fn size_bytes(&self) -> usize {
        self.rows.size_bytes() + size_of::<Self>() + self.meta.sketches.len() * size_of::<SketchMeta>()
    }

    /// `{"records": […], "meta": {"window": {…}}}`.
    pub fn to_json(&self) -> Vec<u8> {
        self.to_json_called(&MetaNames::default())
    }

    /// As [`Self::to_json`], with these names of the meta's members.
    pub fn to_json_called(&self, names: &MetaNames) -> Vec<u8> {
        let mut json = self.rows.to_json();
        json.pop();
        json.extend_from_slice(b",\"meta\":");
        names.write(&WindowOnly { window: &self.meta }, &mut json);
        json.push(b'}');
        json
    }
}
