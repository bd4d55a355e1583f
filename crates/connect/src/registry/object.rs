//! JSON objects in the documents of the registry.

use serde_json::{Map, Value};

pub(crate) type Object = Map<String, Value>;

/// The default of members that are true unless they are given.
pub(crate) const fn yes() -> bool {
    true
}
