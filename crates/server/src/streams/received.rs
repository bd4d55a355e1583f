//! Parses records from clients, NDJSON or a JSON array; all are checked before any is stored.

use std::borrow::Cow;
use std::fmt;

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine as _};
use millstream_http::{Problem, Reason, json_fault};
use millstream_types::Header;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Limit of records per request.
pub(super) const RECORDS_MAX: usize = 50_000;
/// Length of the input that a refusal quotes.
const SHOWN_MAX_CHARS: usize = 200;

/// The form of the body's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Objects with key, value and further members.
    Records,
    /// Values of records without keys.
    Values,
}

/// The way in which the body separates its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    Ndjson,
    Array,
}

impl Framing {
    /// Returns the word for an element in refusals.
    const fn word(self) -> &'static str {
        match self {
            Self::Ndjson => "line",
            Self::Array => "element",
        }
    }
}

/// Position of an element in the body, counted from 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    pub(super) framing: Framing,
    pub(super) number: usize,
}

#[derive(Debug)]
pub(super) struct Received<'a> {
    pub(super) at: At,
    pub(super) text: &'a str,
    pub(super) timestamp_ms: Option<i64>,
    pub(super) key: Option<Cow<'a, [u8]>>,
    pub(super) value: Option<Cow<'a, [u8]>>,
    pub(super) headers: Vec<(String, Option<Vec<u8>>)>,
    pub(super) partition: Option<u32>,
}

impl Received<'_> {
    /// Returns the headers in the log's form.
    pub(super) fn borrowed_headers(&self) -> Vec<Header<'_>> {
        self.headers.iter().map(|(key, value)| Header { key, value: value.as_deref() }).collect()
    }

    /// Returns the size of key, value and headers, which `record_max_bytes` limits.
    pub(super) fn size_bytes(&self) -> usize {
        let length = |part: &Option<Cow<'_, [u8]>>| part.as_ref().map_or(0, |bytes| bytes.len());
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len));
        length(&self.key) + length(&self.value) + headers.sum::<usize>()
    }
}

/// Parses all records of a body.
pub(super) fn parse(body: &[u8], framing: Framing, format: Format) -> Result<Vec<Received<'_>>, Problem> {
    let mut records = Vec::new();
    for (at, text) in elements(body, framing)? {
        if records.len() == RECORDS_MAX {
            return Err(Problem::invalid(format!("more than {RECORDS_MAX} records in one request"))
                .value(format!("{} {}", framing.word(), at.number))
                .rule(format!("a request carries at most {RECORDS_MAX}"))
                .remedy("send them in several requests"));
        }
        records.push(element(at, text, format)?);
    }
    if records.is_empty() {
        return Err(Problem::new(Reason::MalformedBody, "the body holds no record")
            .rule("at least one record is sent")
            .remedy("send NDJSON as application/x-ndjson, or a JSON array as application/json"));
    }
    Ok(records)
}

/// Splits a body into JSON texts with their positions.
fn elements(body: &[u8], framing: Framing) -> Result<Vec<(At, &str)>, Problem> {
    let text = std::str::from_utf8(body).map_err(|error| {
        Problem::new(Reason::MalformedBody, format!("the body is not UTF-8 from byte {} on", error.valid_up_to()))
            .rule("JSON is UTF-8")
            .remedy("send other bytes as value_base64")
    })?;
    if framing == Framing::Ndjson {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        return Ok(lines
            .map(|(index, line)| (At { framing, number: index + 1 }, line.trim()))
            .take(RECORDS_MAX + 1)
            .collect());
    }
    let Capped(array) = serde_json::from_str(text).map_err(|error| {
        let (what, line, column) = (json_fault(&error), error.line(), error.column());
        Problem::new(Reason::MalformedBody, format!("the body cannot be taken: {what} at line {line} column {column}"))
            .rule("a body of application/json is an array of records")
            .remedy("correct it there, or send one record a line as application/x-ndjson")
            .member("line", error.line())
            .member("column", error.column())
    })?;
    let places = array.into_iter().enumerate();
    Ok(places.map(|(index, raw)| (At { framing, number: index + 1 }, raw.get())).collect())
}

/// An array that is read only up to its limit.
struct Capped<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Capped<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements;
        impl<'de> Visitor<'de> for Elements {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of records")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
                let mut kept = Vec::new();
                while kept.len() <= RECORDS_MAX {
                    let Some(element) = elements.next_element()? else { return Ok(kept) };
                    kept.push(element);
                }
                while elements.next_element::<IgnoredAny>()?.is_some() {}
                Ok(kept)
            }
        }
        deserializer.deserialize_seq(Elements).map(Self)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given<'a> {
    key: Option<String>,
    key_base64: Option<String>,
    #[serde(borrow, default, deserialize_with = "given")]
    value: Option<&'a RawValue>,
    value_text: Option<String>,
    value_base64: Option<String>,
    #[serde(default)]
    headers: Map<String, Value>,
    timestamp: Option<Value>,
    partition: Option<u32>,
    /// The offset of an exported record; a new append assigns another one.
    #[serde(rename = "offset")]
    _offset: Option<u64>,
}

/// Distinguishes `null` from an absent member.
fn given<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

fn element(at: At, text: &str, format: Format) -> Result<Received<'_>, Problem> {
    let malformed = |error: serde_json::Error| {
        let remedy = "correct it; nothing was stored";
        refused(
            at,
            text,
            format!("{} at column {}", json_fault(&error), error.column()),
            "each is one JSON text; a record has key, key_base64, value, value_text, value_base64, headers, timestamp, partition",
            remedy,
        )
    };
    let mut record =
        Received { at, text, timestamp_ms: None, key: None, value: None, headers: Vec::new(), partition: None };
    if format == Format::Values {
        let raw: &RawValue = serde_json::from_str(text).map_err(malformed)?;
        record.value = Some(raw.get().as_bytes().into());
        return Ok(record);
    }
    let given: Given<'_> = serde_json::from_str(text).map_err(malformed)?;
    record.partition = given.partition;
    record.timestamp_ms = given.timestamp.map(|time| timestamp(at, text, &time)).transpose()?;
    record.key = match (given.key, given.key_base64) {
        (Some(_), Some(_)) => return Err(one_of(at, text, "key and key_base64", "send one of them, or neither")),
        (Some(key), None) => Some(key.into_bytes().into()),
        (None, Some(encoded)) => Some(decode(at, text, "key_base64", &encoded)?.into()),
        (None, None) => None,
    };
    record.value = match (given.value, given.value_text, given.value_base64) {
        (Some(raw), None, None) => (raw.get() != "null").then(|| raw.get().as_bytes().into()),
        (None, Some(text), None) => Some(text.into_bytes().into()),
        (None, None, Some(encoded)) => Some(decode(at, text, "value_base64", &encoded)?.into()),
        _ => {
            return Err(one_of(
                at,
                text,
                "value, value_text and value_base64",
                "send exactly one of them; \"value\": null is a record without value",
            ));
        }
    };
    for (name, value) in given.headers {
        header(at, text, name, value, &mut record.headers)?;
    }
    Ok(record)
}

/// Parses a header: text, null, `{"base64": …}`, or an array of these for a repeated name.
fn header(
    at: At,
    text: &str,
    name: String,
    value: Value,
    headers: &mut Vec<(String, Option<Vec<u8>>)>,
) -> Result<(), Problem> {
    let bytes = match value {
        Value::Array(values) => {
            return values.into_iter().try_for_each(|value| match value {
                Value::Array(_) => header(at, text, name.clone(), Value::Bool(false), headers),
                value => header(at, text, name.clone(), value, headers),
            });
        }
        Value::Null => None,
        Value::String(value) => Some(value.into_bytes()),
        Value::Object(object) if object.len() == 1 && object.get("base64").is_some_and(Value::is_string) => {
            Some(decode(at, text, "base64", object["base64"].as_str().unwrap_or_default())?)
        }
        _ => {
            let rule = "a header is text, null, {\"base64\": …}, or an array of these";
            return Err(refused(
                at,
                text,
                format!("header '{name}' cannot be taken"),
                rule,
                "correct it; nothing was stored",
            ));
        }
    };
    headers.push((name, bytes));
    Ok(())
}

fn timestamp(at: At, text: &str, given: &Value) -> Result<i64, Problem> {
    let parsed = match given {
        Value::String(time) => time.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond),
        other => other.as_i64().filter(|ms| *ms >= 0),
    };
    parsed.ok_or_else(|| {
        let rule =
            "a timestamp is milliseconds since 1970, or an ISO time with its offset such as 2026-01-31T12:00:00Z";
        refused(at, text, format!("timestamp {given} cannot be taken"), rule, "correct it, or leave it out for now")
    })
}

fn decode(at: At, text: &str, field: &str, encoded: &str) -> Result<Vec<u8>, Problem> {
    STANDARD.decode(encoded).map_err(|error| {
        let cause = match error {
            DecodeError::InvalidByte(index, byte) => {
                format!("character {} is {:?}", index + 1, char::from(byte))
            }
            DecodeError::InvalidLength(length) => format!("it has {length} characters, not a multiple of four"),
            DecodeError::InvalidLastSymbol(..) => "its last character holds bits of no byte".to_owned(),
            DecodeError::InvalidPadding => "its padding is missing or wrong".to_owned(),
        };
        refused(
            at,
            text,
            format!("{field} cannot be taken: {cause}"),
            "it is standard base64 with padding",
            "encode it so; nothing was stored",
        )
    })
}

fn one_of(at: At, text: &str, fields: &str, rule: &'static str) -> Problem {
    refused(at, text, format!("it has not exactly one of {fields}"), rule, "correct it; nothing was stored")
}

/// Builds the refusal of one element.
pub(super) fn refused(
    at: At,
    text: &str,
    what: String,
    rule: impl Into<Cow<'static, str>>,
    remedy: &'static str,
) -> Problem {
    let word = at.framing.word();
    let shown: String = text.chars().take(SHOWN_MAX_CHARS).collect();
    Problem::new(Reason::MalformedBody, format!("{word} {}: {what}", at.number))
        .value(shown)
        .rule(rule)
        .remedy(remedy)
        .member(word, at.number)
}
