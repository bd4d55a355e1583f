//! Canonical JSON: keys sorted by their code points, no white space. Equal documents have equal bytes, and so equal hashes.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The canonical JSON of a value. Numbers stay as they are written: `1` and `1.0` differ.
pub(super) fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

/// SHA-256 over the canonical JSON, in hexadecimal.
pub(super) fn hash(value: &Value) -> String {
    Sha256::digest(canonical(value).as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Array(elements) => {
            text.push('[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(element, text);
            }
            text.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (index, (key, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write(member, text);
            }
            text.push('}');
        }
        plain => text.push_str(&plain.to_string()),
    }
}
