//! NGSI's rules for attributes that a mapping makes.

use serde_json::Value;

use crate::model::syntax::{self, NESTING_MAX};

/// NGSI allows an attribute of this name and value.
pub(super) fn check(name: &str, value: &Value) -> Result<(), String> {
    if syntax::is_attribute_name(name) && syntax::forbidden_in(value).is_none() && depth(value) < NESTING_MAX {
        return Ok(());
    }
    let what = format!("attribute '{name}'");
    let named = syntax::check_attribute_name(name).and_then(|()| syntax::check_text(&what, value));
    Err(named.err().map_or_else(|| format!("{what} nests deeper than {NESTING_MAX}"), |refusal| refusal.description))
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
