//! What a client asks for.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A query and how its results are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryRequest {
    /// The text, such as `SELECT * FROM STREAM() WHERE id = 'x' LIMIT 10`; or a JSON document, also as the object that it is.
    #[serde(alias = "sql", alias = "bql", alias = "json", deserialize_with = "text_or_document")]
    pub query: String,
    /// Which of the two the text must be. Default: whichever it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<Language>,
    /// The first record that is seen. Default `now`.
    #[serde(default)]
    pub from: Start,
    /// When results are given and of which records, as a document says it: `{"emit": {"type": "TIME", "every": 1000}}`; unless
    /// the text says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Value>,
    /// How long the query lives, unless its text says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// After how many rows it ends; the smaller one counts if the text has a LIMIT too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// How results travel. Default `wait`.
    #[serde(default)]
    pub deliver: Deliver,
    /// What happens when the client does not keep up. Default `kill`.
    #[serde(default)]
    pub on_slow: OnSlow,
    /// Whether the query goes on without its client, also after the server has been started anew, until somebody has
    /// read its end. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// Whether it came on one of Bullet's paths, of which `query.bullet.group_values_as_text` speaks.
    #[serde(skip)]
    pub is_of_bullet: bool,
}

impl QueryRequest {
    /// `query` with everything else as it is by default.
    pub fn new(query: impl Into<String>) -> Self {
        Self {
            query: query.into(),
            language: None,
            from: Start::default(),
            window: None,
            duration_ms: None,
            limit: None,
            deliver: Deliver::default(),
            on_slow: OnSlow::default(),
            keep: false,
            is_of_bullet: false,
        }
    }
}

/// A text as it is, an object as JSON.
fn text_or_document<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    match Value::deserialize(from)? {
        Value::String(text) => Ok(text),
        document @ Value::Object(_) => Ok(document.to_string()),
        _ => Err(D::Error::custom("the query is a text, or a JSON document")),
    }
}

/// How a query is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// A statement.
    #[serde(alias = "sql")]
    Bql,
    /// A JSON document.
    Json,
}

impl Language {
    pub(crate) fn described(self) -> &'static str {
        match self {
            Self::Bql => "a statement",
            Self::Json => "a JSON document, which begins with '{'",
        }
    }

    /// That of a text.
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
    /// The first of each partition whose event time is at or after this one, milliseconds since 1970-01-01T00:00:00Z.
    TimeMs(i64),
    /// That at this offset, by partition; of other partitions as `Now`.
    Offsets(BTreeMap<u32, u64>),
}

/// How results travel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deliver {
    /// All in one answer at the end; bounded by `query.rows_max`, and by `query.duration_default_ms` unless it says
    /// how long.
    #[default]
    Wait,
    /// As server-sent events while they come; lives until it is ended, unless it says how long.
    Sse,
    /// As records of this topic, which must be the tenant's own; lives as with `sse`, whoever comes and goes.
    Topic(String),
}

/// What happens when rows come faster than a client takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnSlow {
    /// The query ends with cause `limit`.
    #[default]
    Kill,
    /// The oldest waiting rows are dropped, and counted.
    DropOldest,
}
