//! A value of an attribute at one moment.

use std::sync::Arc;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    /// Time of observation; the time of the change if there is no such metadata.
    pub(crate) observed_ms: i64,
    /// Time of the entity's change.
    pub(crate) modified_ms: i64,
    /// Offset of the change in its partition; orders points with equal times.
    pub(crate) offset: u64,
    pub(crate) kind: Arc<str>,
    /// The value as JSON text.
    pub(crate) value: Arc<str>,
    /// The value, if it is a number.
    pub(crate) number: Option<f64>,
    /// NGSI metadata as a JSON object, without the time of observation; `None` if nothing else is there.
    pub(crate) metadata: Option<Arc<str>>,
}

/// The JSON value of a deletion point, as NGSI-LD defines it.
pub(crate) const DELETED: &str = "\"urn:ngsi-ld:null\"";

/// The same string as a regular value; the JSON escape tells it from a deletion.
pub(crate) const NOT_DELETED: &str = "\"urn:ngsi-ld:\\u006eull\"";

impl Point {
    pub(crate) fn is_deletion(&self) -> bool {
        *self.value == *DELETED
    }
}

/// Parses JSON text as a number.
pub(crate) fn number(json: &str) -> Option<f64> {
    let begins_so = json.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    begins_so.then(|| json.parse().ok()).flatten()
}

pub(crate) const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Returns the days since 1970-01-01.
pub(crate) fn day(ms: i64) -> i32 {
    // The calendar spans about four million days, so the value fits.
    ms.div_euclid(DAY_MS) as i32
}
