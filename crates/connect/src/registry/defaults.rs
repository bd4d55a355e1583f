//! Properties that messages get when they do not carry them: of a device, else of its tenant.

use millstream_types::header;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::adapter::is_of_the_adapter;

/// Default properties of messages that do not carry them, set on a device or a tenant.
///
/// `content-type` and `ttl` (in seconds) replace the properties that a message leaves out. Every other member becomes a
/// header of the record, except for standard properties and the headers that the adapter writes. The document is parsed
/// once when it is set, not for each message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct Defaults {
    given: Map<String, Value>,
    content_type: Option<String>,
    ttl_s: Option<u64>,
    headers: Vec<(String, String)>,
}

impl Defaults {
    /// Returns the default media type of payloads.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// Returns the default time to live, in seconds.
    pub fn ttl_s(&self) -> Option<u64> {
        self.ttl_s
    }

    /// Names and values of the other properties.
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// Returns true if there are no defaults.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }
}

impl From<Defaults> for Map<String, Value> {
    fn from(defaults: Defaults) -> Self {
        defaults.given
    }
}

impl TryFrom<Map<String, Value>> for Defaults {
    type Error = String;

    fn try_from(given: Map<String, Value>) -> Result<Self, String> {
        let content_type = match given.get(header::CONTENT_TYPE) {
            None => None,
            Some(Value::String(text)) if is_header_text(text) => Some(text.clone()),
            Some(other) => {
                return Err(format!("default content-type {other} is no media type; use text like text/plain"));
            }
        };
        let ttl_s = match given.get(header::TTL) {
            None => None,
            Some(value) => Some(
                value.as_u64().ok_or_else(|| format!("default ttl {value} is no whole number of seconds from 0 on"))?,
            ),
        };
        let others = given.iter().filter(|(name, _)| !is_of_the_message(name));
        let headers = others.map(|(name, value)| (name.clone(), as_text(value))).collect();
        Ok(Self { content_type, ttl_s, headers, given })
    }
}

fn is_header_text(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// Further standard properties of messages (AMQP 1.0, section 3.2.4): applications take them for the sender's own word.
const STANDARD: [&str; 9] = [
    "absolute-expiry-time",
    "group-id",
    "group-sequence",
    "message-id",
    "reply-to",
    "reply-to-group-id",
    "subject",
    "to",
    "user-id",
];

/// Names that the adapter or the message fills; a default of that name is kept but never used.
fn is_of_the_message(name: &str) -> bool {
    is_of_the_adapter(name) || STANDARD.contains(&name)
}

fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_ttl_and_content_type_stand_for_standard_properties() {
        let given = json!({"content-type": "text/csv", "ttl": 30, "qos": 1, "site": "roof", "height": 2.5, "to": "x",
            "correlation-id": "x", "status": 200, "tenant_id": "x", "subject": "x", "x-opt-retain": true,
            "message-id": "x", "user-id": "x", "reply-to": "x", "group-id": "x", "absolute-expiry-time": 1});
        let defaults: Defaults = serde_json::from_value(given.clone()).unwrap();
        assert_eq!((defaults.content_type(), defaults.ttl_s()), (Some("text/csv"), Some(30)));
        let headers = [("site".to_owned(), "roof".to_owned()), ("height".to_owned(), "2.5".to_owned())];
        assert_eq!(defaults.headers(), headers);
        assert_eq!(serde_json::to_value(&defaults).unwrap(), given);
        for wrong in
            [json!({"ttl": -1}), json!({"ttl": "x"}), json!({"content-type": 1}), json!({"content-type": "\n"})]
        {
            assert!(serde_json::from_value::<Defaults>(wrong).is_err());
        }
    }
}
