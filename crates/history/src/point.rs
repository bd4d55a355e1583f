//! One value of an attribute at one moment.

use std::sync::Arc;

/// A value that an attribute had.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    /// When it was observed; when it was changed, if nobody says.
    pub(crate) observed_ms: i64,
    /// When the entity was changed.
    pub(crate) modified_ms: i64,
    /// Of the change in its partition: tells apart what was observed at the same moment.
    pub(crate) offset: u64,
    /// The attribute's type.
    pub(crate) kind: Arc<str>,
    /// JSON text.
    pub(crate) value: Arc<str>,
    /// The value, if it is a number.
    pub(crate) number: Option<f64>,
    /// A JSON object, as NGSI has it, without what says when it was observed; `None` if nothing else is in it.
    pub(crate) metadata: Option<Arc<str>>,
}

/// The value, as JSON text, of a point that says that its attribute was deleted: NGSI-LD's word for it.
pub(crate) const DELETED: &str = "\"urn:ngsi-ld:null\"";

/// The same text as a value that an attribute has: other JSON of the same meaning, which tells it from a deletion.
pub(crate) const NOT_DELETED: &str = "\"urn:ngsi-ld:\\u006eull\"";

impl Point {
    /// Whether it says that the attribute was deleted.
    pub(crate) fn is_deletion(&self) -> bool {
        *self.value == *DELETED
    }
}

/// The number that JSON text is.
pub(crate) fn number(json: &str) -> Option<f64> {
    let begins_so = json.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    begins_so.then(|| json.parse().ok()).flatten()
}

pub(crate) const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Days since 1970-01-01 at a moment.
pub(crate) fn day(ms: i64) -> i32 {
    // A moment of the calendar is at most some four million days away.
    ms.div_euclid(DAY_MS) as i32
}
