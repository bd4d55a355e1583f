//! The records of `_history`: which files there are, up to where each source is in them, what was deleted.
//!
//! | key | value |
//! | --- | --- |
//! | `file/<number>` | [`FileRecord`] |
//! | `position/<topic's id>/<partition>` | [`PositionRecord`] |
//! | `erasure/<number>` | [`Erasure`] |
//!
//! Values are JSON with the version of their form. A record without a value ends what its key names.

use millstream_types::{Epoch, Offset, PartitionId, Position, TopicId};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::thinning::Plan;

const VERSION: u32 = 1;

/// A file and what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileRecord {
    pub(crate) number: u64,
    pub(crate) tenant: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Days since 1970-01-01.
    pub(crate) day: i32,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// The first and the last moment of observation, and of change.
    pub(crate) observed_ms: (i64, i64),
    pub(crate) modified_ms: (i64, i64),
    /// The first and the last id.
    pub(crate) ids: (String, String),
    /// When the newest of its points was written to a file.
    pub(crate) kept_ms: i64,
    /// How its points were sampled; empty if all of them are there, as in every record of versions that did not sample.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sampled: Plan,
}

/// How far a source is in files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PositionRecord {
    /// The topic's name; its id stands in the key.
    pub(crate) topic: String,
    pub(crate) epoch: u32,
    pub(crate) offset: u64,
}

/// What was deleted: of the files with lower numbers, the points of the entities and attributes that it names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Erasure {
    pub(crate) number: u64,
    pub(crate) tenant: String,
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) attribute: Option<String>,
    /// Service paths, as a request names them; none means all.
    pub(crate) paths: Option<String>,
}

/// A value of the topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Value {
    File(FileRecord),
    Position(PositionRecord),
    Erasure(Erasure),
}

#[derive(Serialize, Deserialize)]
struct Versioned {
    v: u32,
    #[serde(flatten)]
    value: Value,
}

/// What a key names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    File(u64),
    Position(TopicId, PartitionId),
    Erasure(u64),
}

impl Key {
    pub(crate) fn encode(self) -> String {
        match self {
            Self::File(number) => format!("file/{number}"),
            Self::Position(topic, partition) => format!("position/{topic}/{partition}"),
            Self::Erasure(number) => format!("erasure/{number}"),
        }
    }

    pub(crate) fn decode(key: &[u8]) -> Result<Self, Error> {
        let unreadable = || Error::Record { reason: format!("its key is '{}'", String::from_utf8_lossy(key)) };
        let text = std::str::from_utf8(key).map_err(|_| unreadable())?;
        let mut parts = text.split('/');
        let read = match (parts.next(), parts.next(), parts.next()) {
            (Some("file"), Some(number), None) => number.parse().ok().map(Self::File),
            (Some("erasure"), Some(number), None) => number.parse().ok().map(Self::Erasure),
            (Some("position"), Some(topic), Some(partition)) => u128::from_str_radix(topic, 16)
                .ok()
                .zip(partition.parse().ok())
                .map(|(topic, partition)| Self::Position(TopicId(topic), PartitionId(partition))),
            _ => None,
        };
        read.ok_or_else(unreadable)
    }
}

impl Value {
    pub(crate) fn encode(self) -> String {
        serde_json::to_string(&Versioned { v: VERSION, value: self }).expect("its keys are text")
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self, Error> {
        let versioned: Versioned =
            serde_json::from_slice(value).map_err(|error| Error::Record { reason: error.to_string() })?;
        if versioned.v != VERSION {
            return Err(Error::Record {
                reason: format!("its version is {}, this program knows {VERSION}", versioned.v),
            });
        }
        Ok(versioned.value)
    }
}

impl PositionRecord {
    pub(crate) fn position(&self, topic: TopicId) -> Position {
        Position { topic, epoch: Epoch(self.epoch), offset: Offset(self.offset) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As version 1 writes them, for ever.
    const FIXTURES: [(&str, &str); 4] = [
        (
            "file/7",
            r#"{"v":1,"file":{"number":7,"tenant":"acme","type":"Room","day":20000,"rows":3,"bytes":900,"observed_ms":[1,2],"modified_ms":[3,4],"ids":["a","b"],"kept_ms":5}}"#,
        ),
        (
            "position/0000000000000000000000000000002a/3",
            r#"{"v":1,"position":{"topic":"context.acme","epoch":2,"offset":99}}"#,
        ),
        (
            "erasure/8",
            r#"{"v":1,"erasure":{"number":8,"tenant":"acme","type":"Room","id":null,"attribute":"t","paths":"/a/#"}}"#,
        ),
        (
            "file/9",
            r#"{"v":1,"file":{"number":9,"tenant":"acme","type":"Room","day":20000,"rows":3,"bytes":900,"observed_ms":[1,2],"modified_ms":[3,4],"ids":["a","b"],"kept_ms":5,"sampled":[{"attribute":"alarm","sample":"all","period_ms":null},{"attribute":"*","sample":"last","period_ms":60000}]}}"#,
        ),
    ];

    #[test]
    fn records_are_read_and_written_as_their_fixtures() {
        let keys = [Key::File(7), Key::Position(TopicId(42), PartitionId(3)), Key::Erasure(8), Key::File(9)];
        for ((key, value), expected) in FIXTURES.into_iter().zip(keys) {
            assert_eq!(Key::decode(key.as_bytes()).unwrap(), expected);
            assert_eq!(expected.encode(), key);
            assert_eq!(Value::decode(value.as_bytes()).unwrap().encode(), value);
        }
    }

    #[test]
    fn what_this_version_does_not_write_is_refused() {
        for key in ["", "file/x", "file/1/2", "position/zz/1", "position/1", "other/1"] {
            assert!(Key::decode(key.as_bytes()).is_err(), "{key}");
        }
        let later = FIXTURES[0].1.replace("\"v\":1", "\"v\":2");
        for value in ["", "{}", "{\"v\":1}", &later] {
            assert!(Value::decode(value.as_bytes()).is_err(), "{value}");
        }
    }
}
