//! Renders a record as JSON; an append of this JSON gives the same record.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millstream_types::{Header, Offset, RecordView, iso_time};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The parts of a record in JSON, but for its headers.
pub(crate) struct RecordJson<'a> {
    pub(crate) partition: u32,
    pub(crate) offset: Offset,
    pub(crate) timestamp_ms: i64,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
}

/// Renders `{"partition", "offset", "timestamp", "key", "value", "headers"}` on one line.
pub(super) fn record(partition: u32, record: &RecordView<'_>) -> String {
    let RecordView { offset, timestamp_ms, key, value, .. } = *record;
    RecordJson { partition, offset, timestamp_ms, key, value }.render(record.headers(), &[])
}

impl RecordJson<'_> {
    /// Renders the record with its headers and further members on one line.
    pub(crate) fn render<'a>(&self, all: impl Iterator<Item = Header<'a>>, members: &[(&str, Value)]) -> String {
        let mut text = format!(
            "{{\"partition\":{},\"offset\":{},\"timestamp\":\"{}\"",
            self.partition,
            self.offset,
            iso_time(self.timestamp_ms)
        );
        match self.key.map(|key| (key, std::str::from_utf8(key))) {
            None => text.push_str(",\"key\":null"),
            Some((_, Ok(key))) => push(&mut text, "key", &Value::from(key)),
            Some((key, Err(_))) => push(&mut text, "key_base64", &Value::from(STANDARD.encode(key))),
        }
        value(&mut text, self.value);
        let headers = headers(all);
        if !headers.is_empty() {
            push(&mut text, "headers", &Value::Object(headers));
        }
        members.iter().for_each(|(name, value)| push(&mut text, name, value));
        text.push('}');
        text
    }
}

fn push(text: &mut String, name: &str, value: &Value) {
    text.push_str(&format!(",\"{name}\":{value}"));
}

fn value(text: &mut String, value: Option<&[u8]>) {
    let Some(bytes) = value else { return text.push_str(",\"value\":null") };
    let Ok(value) = std::str::from_utf8(bytes) else {
        return push(text, "value_base64", &Value::from(STANDARD.encode(bytes)));
    };
    // A value with the text `null` is quoted, because a bare null means no value.
    if value == "null" || serde_json::from_str::<&RawValue>(value).is_err() {
        return push(text, "value_text", &Value::from(value));
    }
    text.push_str(",\"value\":");
    // Line breaks in JSON occur only between tokens.
    text.extend(value.trim().chars().map(|c| if matches!(c, '\n' | '\r') { ' ' } else { c }));
}

fn headers<'a>(all: impl Iterator<Item = Header<'a>>) -> Map<String, Value> {
    let mut headers = Map::new();
    for header in all {
        let value = match header.value.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
            None => Value::Null,
            Some((_, Ok(text))) => Value::from(text),
            Some((bytes, Err(_))) => json!({"base64": STANDARD.encode(bytes)}),
        };
        match headers.get_mut(header.key) {
            None => drop(headers.insert(header.key.to_owned(), value)),
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = json!([first.take(), value]),
        }
    }
    headers
}
