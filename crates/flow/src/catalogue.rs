//! The types of nodes of this program.

use serde_json::{Value, json};

use crate::document::{Key, NodeType, Role};
use crate::{connector, operator};

/// Every type of node that a document may name, in the order of the reference page.
pub fn catalogue() -> Vec<NodeType> {
    connector::catalogue().into_iter().chain(operator::catalogue()).collect()
}

/// A type of node as the API and the command line show it.
pub fn describe_type(kind: &NodeType) -> Value {
    let role = match kind.role {
        Role::Source => "source",
        Role::Transform => "transform",
        Role::Sink => "sink",
    };
    let key =
        |key: &Key| json!({"name": key.name, "required": key.is_required, "default": key.default, "doc": key.doc});
    let keys: Vec<Value> = kind.keys.iter().map(key).collect();
    json!({"name": kind.name, "role": role, "summary": kind.summary, "ends": kind.can_end, "keys": keys})
}
