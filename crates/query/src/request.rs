//! A client's request for a query.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A query and how its results are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryRequest {
    /// The text, such as `SELECT * FROM STREAM() WHERE id = 'x' LIMIT 10`; or a JSON document, as a text or as an object.
    #[serde(alias = "sql", alias = "bql", alias = "json", deserialize_with = "text_or_document")]
    pub query: String,
    /// The required language of the text. Default: either one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<Language>,
    /// The first record that is seen. Default `now`.
    #[serde(default)]
    pub from: Start,
    /// The end of a query that begins in the past. Default `now`, unless the query has a lifetime or is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// When results are given and of which records, as a document says it: `{"emit": {"type": "TIME", "every": 1000}}`;
    /// unless the text says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Value>,
    /// Lifetime of the query in ms, unless its text has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The number of rows after which the query ends; the smaller one counts if the text has a LIMIT too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Adds the sending device as `$key` to whole records of telemetry and events (`SELECT *`). Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_device: bool,
    /// The delivery of the results. Default `wait`.
    #[serde(default)]
    pub deliver: Deliver,
    /// The reaction to a client that does not keep up. Default `kill`.
    #[serde(default)]
    pub on_slow: OnSlow,
    /// Keeps the query alive without its client, also over a restart of the server, until a client has
    /// read its end. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// True for a request on one of Bullet's paths, to which `query.bullet.group_values_as_text` applies.
    #[serde(skip)]
    pub is_of_bullet: bool,
    /// The name of the caller's credentials, which a kept query records.
    #[serde(skip)]
    pub submitted_by: Option<String>,
}

impl QueryRequest {
    /// A request for `query` with default options.
    pub fn new(query: impl Into<String>) -> Self {
        Self {
            query: query.into(),
            language: None,
            from: Start::default(),
            until: None,
            window: None,
            with_device: false,
            duration_ms: None,
            limit: None,
            deliver: Deliver::default(),
            on_slow: OnSlow::default(),
            keep: false,
            is_of_bullet: false,
            submitted_by: None,
        }
    }
}

/// Accepts a text unchanged, and an object as its JSON.
fn text_or_document<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    match Value::deserialize(from)? {
        Value::String(text) => Ok(text),
        document @ Value::Object(_) => Ok(document.to_string()),
        _ => Err(D::Error::custom("the query is a text, or a JSON document")),
    }
}

/// The language of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// A statement in the SQL-like language.
    #[serde(alias = "sql")]
    Bql,
    /// A document in JSON form.
    Json,
}

impl Language {
    pub(crate) fn described(self) -> &'static str {
        match self {
            Self::Bql => "a statement",
            Self::Json => "a JSON document, which begins with '{'",
        }
    }

    /// Detects the language of a text.
    pub(crate) fn of(text: &str) -> Self {
        if text.trim_start().starts_with('{') { Self::Json } else { Self::Bql }
    }
}

/// The first record that a query sees.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// The first that is appended after the query was accepted.
    #[default]
    Now,
    /// The oldest that is there.
    Earliest,
    /// The first record of each partition whose event time is at or after this one, milliseconds since 1970-01-01T00:00:00Z.
    TimeMs(i64),
    /// That at this offset, by partition; of other partitions as `Now`.
    Offsets(BTreeMap<u32, u64>),
}

/// The end of a query that begins in the past.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// The last record that exists when the request arrives.
    Now,
    /// Before the first record of each partition whose event time is at or after
    /// this one, milliseconds since 1970-01-01T00:00:00Z.
    TimeMs(i64),
    /// Before this offset, by partition; of other partitions as `Now`.
    Offsets(BTreeMap<u32, u64>),
    /// No end: the query continues with new records.
    Never,
}

/// The delivery of a query's results.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deliver {
    /// One response with all rows at the end; limited by `query.rows_max`, and
    /// by `query.duration_default_ms` without a lifetime.
    #[default]
    Wait,
    /// As server-sent events while they come; lives until it is ended, unless it says how long.
    Sse,
    /// Records in this topic, which must be the tenant's own; the query lives as with `sse`, whether
    /// or not clients are connected.
    Topic(String),
}

/// The reaction to a client that is slower than its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnSlow {
    /// The query ends with cause `limit`.
    #[default]
    Kill,
    /// The oldest waiting rows are dropped, and counted.
    DropOldest,
}
