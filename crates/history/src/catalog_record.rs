//! The records of `_history`: files, source positions and erasures.
//!
//! | key | value |
//! | --- | --- |
//! | `file/<number>` | [`FileRecord`] |
//! | `position/<topic's id>/<partition>` | [`PositionRecord`] |
//! | `erasure/<number>` | [`Erasure`] |
//!
//! Values are JSON with a format version. A tombstone removes its key.

use millstream_types::{Epoch, Offset, PartitionId, Position, StateTopic, TopicId};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::file_period::{FileDirectory, FilePeriod, Span};
use crate::sampling_plan::SamplingPlan;

const VERSION: u32 = StateTopic::History.version() as u32;
/// The version of records of files that cover more than a day, which earlier programs would take for missing.
const LONG_FILE_VERSION: u32 = 2;

/// A file and its content bounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileRecord {
    pub(crate) number: u64,
    pub(crate) tenant: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The first day, as days since 1970-01-01.
    pub(crate) day: i32,
    /// The length of the period that the file covers. Records of version 1 omit it.
    #[serde(default, skip_serializing_if = "Span::is_day")]
    pub(crate) span: Span,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// First and last time of observation, then of change.
    pub(crate) observed_ms: (i64, i64),
    pub(crate) modified_ms: (i64, i64),
    /// The least and greatest id.
    pub(crate) ids: (String, String),
    /// The flush time of the newest point.
    pub(crate) kept_ms: i64,
    /// The sampling applied to the points; empty if all are there. Versions without sampling omit it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sampled: SamplingPlan,
    /// The service paths and the attributes of its points; empty if there are many. Earlier versions omit them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) attributes: Vec<String>,
    /// The checksums of its blocks. Versions without checksums omit them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) checksums: Vec<u32>,
    /// The offset in `_history_files` from which the copy of the file is found; none if the log has no copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) copy: Option<u64>,
}

/// The position of a source that files cover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PositionRecord {
    /// Name of the topic; the key contains its id.
    pub(crate) topic: String,
    pub(crate) epoch: u32,
    pub(crate) offset: u64,
}

/// An erasure hides the points of the matching entities and attributes in files with lower numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Erasure {
    pub(crate) number: u64,
    pub(crate) tenant: String,
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) attribute: Option<String>,
    /// Service paths in the form of the request header; `None` means all.
    pub(crate) paths: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CatalogValue {
    File(FileRecord),
    Position(PositionRecord),
    Erasure(Erasure),
}

#[derive(Serialize, Deserialize)]
struct Versioned {
    v: u32,
    #[serde(flatten)]
    value: CatalogValue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CatalogKey {
    File(u64),
    Position(TopicId, PartitionId),
    Erasure(u64),
}

impl CatalogKey {
    pub(crate) fn encode(self) -> String {
        match self {
            Self::File(number) => format!("file/{number}"),
            Self::Position(topic, partition) => format!("position/{topic}/{partition}"),
            Self::Erasure(number) => format!("erasure/{number}"),
        }
    }

    pub(crate) fn decode(key: &[u8]) -> Result<Self, Error> {
        let unreadable = || Error::Record { reason: format!("unknown key '{}'", String::from_utf8_lossy(key)) };
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

impl CatalogValue {
    pub(crate) fn encode(self) -> String {
        let is_long = matches!(&self, Self::File(file) if !file.span.is_day());
        let v = if is_long { LONG_FILE_VERSION } else { VERSION };
        serde_json::to_string(&Versioned { v, value: self }).expect("its keys are text")
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self, Error> {
        let versioned: Versioned =
            serde_json::from_slice(value).map_err(|error| Error::Record { reason: error.to_string() })?;
        if !(VERSION..=LONG_FILE_VERSION).contains(&versioned.v) {
            let reason =
                format!("version {} is unknown; this program knows {VERSION} to {LONG_FILE_VERSION}", versioned.v);
            return Err(Error::Record { reason });
        }
        Ok(versioned.value)
    }
}

impl FileRecord {
    pub(crate) fn period(&self) -> FilePeriod {
        FilePeriod { first_day: self.day, span: self.span }
    }

    pub(crate) fn directory(&self) -> FileDirectory {
        (self.tenant.as_str().into(), self.kind.as_str().into(), self.period())
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

    /// Versions 1 and 2; these must stay readable.
    const FIXTURES: [(&str, &str); 7] = [
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
        (
            "file/10",
            r#"{"v":1,"file":{"number":10,"tenant":"acme","type":"Room","day":20000,"rows":3,"bytes":900,"observed_ms":[1,2],"modified_ms":[3,4],"ids":["a","b"],"kept_ms":5,"checksums":[4294967295]}}"#,
        ),
        (
            "file/11",
            r#"{"v":2,"file":{"number":11,"tenant":"acme","type":"Room","day":19997,"span":"month","rows":3,"bytes":900,"observed_ms":[1,2],"modified_ms":[3,4],"ids":["a","b"],"kept_ms":5,"paths":["/"],"attributes":["t","u"]}}"#,
        ),
        (
            "file/12",
            r#"{"v":1,"file":{"number":12,"tenant":"acme","type":"Room","day":20000,"rows":3,"bytes":900,"observed_ms":[1,2],"modified_ms":[3,4],"ids":["a","b"],"kept_ms":5,"copy":44}}"#,
        ),
    ];

    #[test]
    fn records_are_read_and_written_as_their_fixtures() {
        let keys = [
            CatalogKey::File(7),
            CatalogKey::Position(TopicId(42), PartitionId(3)),
            CatalogKey::Erasure(8),
            CatalogKey::File(9),
            CatalogKey::File(10),
            CatalogKey::File(11),
            CatalogKey::File(12),
        ];
        for ((key, value), expected) in FIXTURES.into_iter().zip(keys) {
            assert_eq!(CatalogKey::decode(key.as_bytes()).unwrap(), expected);
            assert_eq!(expected.encode(), key);
            assert_eq!(CatalogValue::decode(value.as_bytes()).unwrap().encode(), value);
        }
    }

    #[test]
    fn unknown_catalog_keys_and_values_are_refused() {
        for key in ["", "file/x", "file/1/2", "position/zz/1", "position/1", "other/1"] {
            assert!(CatalogKey::decode(key.as_bytes()).is_err(), "{key}");
        }
        let later = FIXTURES[0].1.replace("\"v\":1", "\"v\":3");
        for value in ["", "{}", "{\"v\":1}", &later] {
            assert!(CatalogValue::decode(value.as_bytes()).is_err(), "{value}");
        }
    }
}
