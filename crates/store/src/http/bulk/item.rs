//! A line of a bulk request.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use millstream_http::{Problem, json_fault};
use serde::Deserialize;

use crate::Attributes;
use crate::http::RECORD_VALUE_MAX_BYTES;
use crate::http::parameters::{duration_ms, time_ms};

/// Most bytes of content type, metadata and tags together.
const ATTRIBUTES_MAX_BYTES: usize = 16 << 10;
/// Characters of a line that a refusal quotes.
const SHOWN_MAX_CHARS: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Op {
    Get,
    Put,
    Delete,
}

/// A time or time span: text, or a number of milliseconds.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TextOrNumber {
    Number(i64),
    Text(String),
}

impl TextOrNumber {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BulkLine {
    op: Op,
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
    ttl: Option<TextOrNumber>,
    expires: Option<TextOrNumber>,
    content_type: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    timestamp: Option<TextOrNumber>,
    version: Option<u64>,
    #[serde(default)]
    create: bool,
}

/// A read or write of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BulkItem {
    pub(super) key: Bytes,
    /// The version that the key must have.
    pub(super) version: Option<u64>,
    pub(super) action: BulkAction,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BulkAction {
    Get,
    Put(Put),
    Delete,
}

/// A value with what is stored beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Put {
    pub(super) bytes: Bytes,
    pub(super) expiry: Expiry,
    pub(super) attributes: Option<Arc<Attributes>>,
    /// `true` if the key must not be there.
    pub(super) is_create: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expiry {
    /// As the bucket has it.
    OfBucket,
    /// So many milliseconds after the write.
    After(u64),
    /// At this time: milliseconds since 1970-01-01T00:00:00Z.
    At(i64),
}

impl BulkItem {
    pub(super) fn parse(line: &[u8]) -> Result<Self, Problem> {
        let shown = || String::from_utf8_lossy(line).trim().chars().take(SHOWN_MAX_CHARS).collect::<String>();
        let line: BulkLine = serde_json::from_slice(line).map_err(|error| {
            refused("the line cannot be taken", shown(), json_fault(&error))
                .remedy("send an object with 'op' (get, put or delete) and 'key'; see this route in /openapi.json")
        })?;
        let key = bytes("key", line.key.as_deref(), line.key_base64.as_deref())?
            .ok_or_else(|| refused("the line has no key", shown(), "it has 'key' or 'key_base64'".to_owned()))?;
        let op = line.op;
        if op != Op::Put && line.has_value() {
            let rule = "get and delete take key and version only".to_owned();
            return Err(refused("the line has members that its op does not take", shown(), rule));
        }
        let action = match op {
            Op::Get => BulkAction::Get,
            Op::Delete => BulkAction::Delete,
            Op::Put => BulkAction::Put(line.put(&shown)?),
        };
        Ok(Self { key, version: line.version, action })
    }

    /// Bytes that it takes in an append.
    pub(super) fn size_bytes(&self) -> usize {
        let of_attributes = |attributes: &Arc<Attributes>| attributes_bytes(attributes);
        self.key.len()
            + match &self.action {
                BulkAction::Put(put) => put.bytes.len() + put.attributes.as_ref().map_or(0, of_attributes),
                BulkAction::Get | BulkAction::Delete => 0,
            }
    }
}

impl BulkLine {
    fn has_value(&self) -> bool {
        let texts = [&self.value, &self.value_base64, &self.content_type];
        texts.into_iter().any(Option::is_some)
            || [&self.ttl, &self.expires, &self.timestamp].into_iter().any(Option::is_some)
            || !self.tags.is_empty()
            || !self.metadata.is_empty()
            || self.create
    }

    fn put(&self, shown: &impl Fn() -> String) -> Result<Put, Problem> {
        let value = bytes("value", self.value.as_deref(), self.value_base64.as_deref())?
            .ok_or_else(|| refused("the line has no value", shown(), "it has 'value' or 'value_base64'".to_owned()))?;
        if value.len() as u64 > RECORD_VALUE_MAX_BYTES {
            let rule = format!("a value of a bulk request has at most {RECORD_VALUE_MAX_BYTES} bytes");
            return Err(refused("the value is too large", format!("{} bytes", value.len()), rule)
                .with_status(axum::http::StatusCode::PAYLOAD_TOO_LARGE)
                .remedy("store it by 'PUT /kv/{bucket}/{key}'"));
        }
        let expiry = match (&self.ttl, &self.expires) {
            (None, None) => Expiry::OfBucket,
            (Some(ttl), None) => Expiry::After(duration_ms(&ttl.text())?),
            (None, Some(expires)) => Expiry::At(time_ms("expires", &expires.text())?),
            (Some(ttl), Some(_)) => {
                return Err(refused("the line has two expiries", ttl.text(), "it has 'ttl' or 'expires'".to_owned()));
            }
        };
        if self.create && self.version.is_some() {
            let rule = "a key that has a version is there already, so 'create' and 'version' never hold together";
            return Err(refused("the line has two conditions", shown(), rule.to_owned()));
        }
        Ok(Put { bytes: value, expiry, attributes: self.attributes()?, is_create: self.create })
    }

    fn attributes(&self) -> Result<Option<Arc<Attributes>>, Problem> {
        if let Some(content_type) = self.content_type.as_deref().filter(|text| HeaderValue::try_from(*text).is_err()) {
            return Err(refused("'content_type' cannot be taken", content_type, "it is one line of text".to_owned()));
        }
        if let Some(tag) = self.tags.iter().find(|tag| tag.is_empty() || tag.contains(',') || is_unprintable(tag)) {
            return Err(refused("a tag cannot be taken", tag, "it is one line of text without a comma".to_owned()));
        }
        let mut metadata = Vec::new();
        for (name, value) in &self.metadata {
            if HeaderName::try_from(format!("x-meta-{name}")).is_err() || is_unprintable(value) {
                let rule = "its names are those of headers, and its values one line of text".to_owned();
                return Err(refused("'metadata' cannot be taken", format!("{name}: {value}"), rule));
            }
            metadata.push((name.to_ascii_lowercase(), value.clone()));
        }
        metadata.sort();
        let time_ms = self.timestamp.as_ref().map(|time| time_ms("timestamp", &time.text())).transpose()?;
        let (content_type, tags) = (self.content_type.clone(), self.tags.clone());
        let attributes = Attributes { content_type, time_ms, metadata, tags, ..Attributes::default() };
        if attributes_bytes(&attributes) > ATTRIBUTES_MAX_BYTES {
            let rule = "content type, tags and metadata have at most 16 KiB together".to_owned();
            return Err(refused("there is too much beside the value", attributes_bytes(&attributes), rule));
        }
        Ok((attributes != Attributes::default()).then(|| Arc::new(attributes)))
    }
}

fn is_unprintable(text: &str) -> bool {
    HeaderValue::from_bytes(text.as_bytes()).is_err()
}

fn attributes_bytes(attributes: &Attributes) -> usize {
    let metadata = attributes.metadata.iter().map(|(name, value)| name.len() + value.len());
    let tags = attributes.tags.iter().map(|tag| tag.len() + 1);
    attributes.content_type.as_ref().map_or(0, String::len) + metadata.sum::<usize>() + tags.sum::<usize>()
}

/// The bytes of a member, which is text or base64.
fn bytes(name: &str, text: Option<&str>, encoded: Option<&str>) -> Result<Option<Bytes>, Problem> {
    match (text, encoded) {
        (None, None) => Ok(None),
        (Some(text), None) => Ok(Some(Bytes::copy_from_slice(text.as_bytes()))),
        (None, Some(encoded)) => match STANDARD.decode(encoded) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) => {
                let shown: String = encoded.chars().take(SHOWN_MAX_CHARS).collect();
                Err(refused("a member is no base64", format!("{name}_base64: {shown}"), error.to_string()))
            }
        },
        (Some(_), Some(_)) => {
            let rule = format!("it has '{name}' or '{name}_base64'");
            Err(refused("a member is given twice", name, rule))
        }
    }
}

fn refused(detail: &'static str, value: impl std::fmt::Display, rule: String) -> Problem {
    Problem::invalid(detail).value(value).rule(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(bytes: &'static [u8], expiry: Expiry) -> Put {
        Put { bytes: Bytes::from_static(bytes), expiry, attributes: None, is_create: false }
    }

    #[test]
    fn lines_are_reads_and_writes() {
        let item = |action| BulkItem { key: Bytes::from_static(b"k"), version: None, action };
        let create = Put { is_create: true, ..put(b"v", Expiry::OfBucket) };
        for (line, expected) in [
            (r#"{"op":"get","key":"k"}"#, item(BulkAction::Get)),
            (
                r#"{"op":"delete","key_base64":"aw==","version":7}"#,
                BulkItem { version: Some(7), ..item(BulkAction::Delete) },
            ),
            (r#"{"op":"put","key":"k","value":""}"#, item(BulkAction::Put(put(b"", Expiry::OfBucket)))),
            (
                r#"{"op":"put","key":"k","value_base64":"/w==","ttl":"5m"}"#,
                item(BulkAction::Put(put(b"\xff", Expiry::After(300_000)))),
            ),
            (r#"{"op":"put","key":"k","value":"v","ttl":200}"#, item(BulkAction::Put(put(b"v", Expiry::After(200))))),
            (
                r#"{"op":"put","key":"k","value":"v","expires":"1970-01-01T00:00:01Z"}"#,
                item(BulkAction::Put(put(b"v", Expiry::At(1_000)))),
            ),
            (r#"{"op":"put","key":"k","value":"v","create":true}"#, item(BulkAction::Put(create))),
        ] {
            assert_eq!(BulkItem::parse(line.as_bytes()).unwrap(), expected, "{line}");
        }
        let line = r#"{"op":"put","key":"k","value":"","content_type":"text/plain","tags":["b","a"],"metadata":{"Owner":"ann"},"timestamp":5}"#;
        let BulkAction::Put(put) = BulkItem::parse(line.as_bytes()).unwrap().action else { panic!("it is a put") };
        let expected = Attributes {
            content_type: Some("text/plain".to_owned()),
            time_ms: Some(5),
            metadata: vec![("owner".to_owned(), "ann".to_owned())],
            tags: vec!["b".to_owned(), "a".to_owned()],
            ..Attributes::default()
        };
        assert_eq!(put.attributes.as_deref(), Some(&expected));
    }

    #[test]
    fn lines_that_are_none_are_refused_with_their_rule() {
        let large =
            format!(r#"{{"op":"put","key":"k","value":"{}"}}"#, "x".repeat(RECORD_VALUE_MAX_BYTES as usize + 1));
        let tags = format!(r#"{{"op":"put","key":"k","value":"","tags":["{}"]}}"#, "x".repeat(ATTRIBUTES_MAX_BYTES));
        for (line, rule) in [
            ("nonsense", "'op' (get, put or delete)"),
            (r#"{"op":"move","key":"k"}"#, "'op' (get, put or delete)"),
            (r#"{"op":"get","key":"k","colour":"red"}"#, "colour"),
            (r#"{"op":"get"}"#, "it has 'key' or 'key_base64'"),
            (r#"{"op":"get","key":"k","key_base64":"aw=="}"#, "it has 'key' or 'key_base64'"),
            (r#"{"op":"get","key_base64":"!"}"#, "no base64"),
            (r#"{"op":"get","key":"k","value":"v"}"#, "get and delete take key and version only"),
            (r#"{"op":"put","key":"k"}"#, "it has 'value' or 'value_base64'"),
            (r#"{"op":"put","key":"k","value":"v","ttl":0}"#, "at least 1 millisecond"),
            (r#"{"op":"put","key":"k","value":"v","ttl":1,"expires":1}"#, "it has 'ttl' or 'expires'"),
            (r#"{"op":"put","key":"k","value":"v","expires":"soon"}"#, "ISO 8601"),
            (r#"{"op":"put","key":"k","value":"v","version":1,"create":true}"#, "never hold together"),
            (r#"{"op":"put","key":"k","value":"v","tags":["a,b"]}"#, "without a comma"),
            (r#"{"op":"put","key":"k","value":"v","metadata":{"a b":"c"}}"#, "names are those of headers"),
            (r#"{"op":"put","key":"k","value":"v","content_type":"a\nb"}"#, "one line of text"),
            (&large, "at most 983040 bytes"),
            (&tags, "at most 16 KiB"),
        ] {
            let refused = BulkItem::parse(line.as_bytes()).unwrap_err().text();
            assert!(refused.contains(rule), "{}: {refused}", &line[..line.len().min(80)]);
        }
    }
}
