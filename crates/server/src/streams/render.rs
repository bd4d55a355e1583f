//! A record as JSON, such that appending that JSON again gives the same record.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millstream_types::{RecordView, iso_time};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// `{"partition", "offset", "timestamp", "key", "value", "headers"}` on one line.
pub(super) fn record(partition: u32, record: &RecordView<'_>) -> String {
    let mut text = format!(
        "{{\"partition\":{partition},\"offset\":{},\"timestamp\":\"{}\"",
        record.offset,
        iso_time(record.timestamp_ms)
    );
    match record.key.map(|key| (key, std::str::from_utf8(key))) {
        None => text.push_str(",\"key\":null"),
        Some((_, Ok(key))) => push(&mut text, "key", &Value::from(key)),
        Some((key, Err(_))) => push(&mut text, "key_base64", &Value::from(STANDARD.encode(key))),
    }
    value(&mut text, record.value);
    let headers = headers(record);
    if !headers.is_empty() {
        push(&mut text, "headers", &Value::Object(headers));
    }
    text.push('}');
    text
}

fn push(text: &mut String, name: &str, value: &Value) {
    text.push_str(&format!(",\"{name}\":{value}"));
}

fn value(text: &mut String, value: Option<&[u8]>) {
    let Some(bytes) = value else { return text.push_str(",\"value\":null") };
    let Ok(value) = std::str::from_utf8(bytes) else {
        return push(text, "value_base64", &Value::from(STANDARD.encode(bytes)));
    };
    // A value of `null` is text here: without quotes it would read as no value.
    if value == "null" || serde_json::from_str::<&RawValue>(value).is_err() {
        return push(text, "value_text", &Value::from(value));
    }
    text.push_str(",\"value\":");
    // Within JSON line breaks stand between tokens only.
    text.extend(value.trim().chars().map(|c| if matches!(c, '\n' | '\r') { ' ' } else { c }));
}

fn headers(record: &RecordView<'_>) -> Map<String, Value> {
    let mut headers = Map::new();
    for header in record.headers() {
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
