//! A key and its value as one line of JSON, in listings, iterations, watches and bulk answers.
//!
//! Text is text; other bytes are base64, under a name that ends in `_base64`.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millstream_types::iso_time;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{Listed, StoredValue};

/// Largest value that a line holds. A larger one is left out, and `value_omitted` is true.
pub(super) const VALUE_SHOWN_MAX_BYTES: usize = 64 << 10;

/// A line. Members without a value are left out.
#[derive(Debug, Default, Serialize)]
pub(super) struct KeyLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    value_omitted: bool,
}

impl<'a> KeyLine<'a> {
    /// A line with the key alone.
    pub(super) fn of_key(key: &'a [u8]) -> Self {
        let (key, key_base64) = text_or_base64(key);
        Self { key, key_base64, ..Self::default() }
    }

    /// The line of a key as a listing knows it.
    pub(super) fn of_listed(key: &'a [u8], listed: &'a Listed) -> Self {
        Self {
            version: Some(listed.version),
            length: Some(listed.length),
            written: Some(iso_time(listed.written_ms)),
            expires: listed.expires_ms.map(iso_time),
            content_type: listed.content_type.as_deref(),
            tags: &listed.tags,
            ..Self::of_key(key)
        }
    }

    /// Leaves out the time of the write, which caches do not note.
    pub(super) fn untimed(self) -> Self {
        Self { written: None, ..self }
    }

    /// The line of a key as its record has it, without the value.
    pub(super) fn of_stored(key: &'a [u8], stored: &'a StoredValue, version: Option<u64>) -> Self {
        let mut line = Self {
            version,
            length: Some(stored.length()),
            written: Some(iso_time(stored.written_ms)),
            expires: stored.value.expires_ms.map(iso_time),
            ..Self::of_key(key)
        };
        let Some(attributes) = stored.value.attributes.as_deref() else { return line };
        line.content_type = attributes.content_type.as_deref();
        line.tags = &attributes.tags;
        line.timestamp = attributes.time_ms.map(iso_time);
        line.metadata = attributes.metadata.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        line
    }

    /// Adds the value if it has at most `max_bytes`.
    pub(super) fn with_value(mut self, stored: &'a StoredValue, max_bytes: usize) -> Self {
        let bytes = &stored.value.bytes;
        if stored.large.is_some() || bytes.len() > max_bytes {
            self.value_omitted = true;
        } else {
            (self.value, self.value_base64) = text_or_base64(bytes);
        }
        self
    }

    /// Adds the partition of the record, and its offset there as the version.
    pub(super) fn at(self, partition: u32, offset: u64) -> Self {
        Self { partition: Some(partition), version: Some(offset), ..self }
    }

    /// Adds the time of a delete.
    pub(super) fn written_at(self, written_ms: i64) -> Self {
        Self { written: Some(iso_time(written_ms)), ..self }
    }

    /// The line as JSON, without a line break.
    pub(super) fn json(&self) -> String {
        // Strings and numbers only: it always has a form in JSON.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The line of a common prefix.
pub(super) fn prefix_json(prefix: &[u8]) -> String {
    let (name, value) = match text_or_base64(prefix) {
        (Some(text), _) => ("prefix", Cow::Borrowed(text)),
        (None, encoded) => ("prefix_base64", Cow::Owned(encoded.unwrap_or_default())),
    };
    Value::from_iter([(name, value)]).to_string()
}

fn text_or_base64(bytes: &[u8]) -> (Option<&str>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::{Attributes, Value};

    #[test]
    fn a_line_has_text_or_base64_and_leaves_out_what_is_not_there() {
        let attributes = Attributes {
            content_type: Some("text/plain".to_owned()),
            time_ms: Some(0),
            metadata: vec![("owner".to_owned(), "ann".to_owned())],
            tags: vec!["a".to_owned()],
            ..Attributes::default()
        };
        let value = Value { bytes: Bytes::from_static(b"x\"y"), expires_ms: Some(2_000), attributes: None };
        let bare = StoredValue { value, large: None, written_ms: 1_000 };
        let full =
            StoredValue { value: Value { attributes: Some(Arc::new(attributes)), ..bare.value.clone() }, ..bare };
        let binary = StoredValue { value: Value::of(&b"\xff"[..]), ..bare };
        let large = StoredValue { large: Some(9), ..binary.clone() };
        for (line, expected) in [
            (KeyLine::of_key(b"k"), r#"{"key":"k"}"#),
            (
                KeyLine::of_stored(b"k", &full, Some(7)).with_value(&full, 3),
                r#"{"key":"k","version":7,"length":3,"written":"1970-01-01T00:00:01.000Z","expires":"1970-01-01T00:00:02.000Z","content_type":"text/plain","tags":["a"],"timestamp":"1970-01-01T00:00:00.000Z","metadata":{"owner":"ann"},"value":"x\"y"}"#,
            ),
            (
                KeyLine::of_key(b"\xfe").at(1, 2).with_value(&binary, 3),
                r#"{"key_base64":"/g==","partition":1,"version":2,"value_base64":"/w=="}"#,
            ),
            (KeyLine::of_key(b"k").with_value(&full, 2), r#"{"key":"k","value_omitted":true}"#),
            (KeyLine::of_key(b"k").with_value(&large, 20), r#"{"key":"k","value_omitted":true}"#),
        ] {
            assert_eq!(line.json(), expected);
        }
        assert_eq!(prefix_json(b"a/"), r#"{"prefix":"a/"}"#);
        assert_eq!(prefix_json(b"\xff/"), r#"{"prefix_base64":"/y8="}"#);
    }
}
