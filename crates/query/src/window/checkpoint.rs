//! The stored state of a running aggregate.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The stored state of a query's aggregates.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct AggregateCheckpoint {
    /// The number of windows that were emitted.
    pub(crate) given: u64,
    /// The state that outlives a window.
    #[serde(with = "optional_bytes")]
    pub(crate) whole: Option<Vec<u8>>,
    /// The state of the running window, in parts.
    #[serde(with = "list_of_bytes")]
    pub(crate) parts: Vec<Vec<u8>>,
    /// The windows that lie on the clock, the calendar or event time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) placed: Option<PlacedCheckpoint>,
}

/// The stored windows of a query that lie on the clock, the calendar or event time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct PlacedCheckpoint {
    /// The time up to which windows were given.
    pub(crate) reached_ms: i64,
    /// The number of records that came too late.
    pub(crate) late: u64,
    /// The latest time of each partition.
    pub(crate) partitions: Vec<(u32, i64)>,
    /// The keys of sessions, each followed by its windows.
    #[serde(with = "list_of_bytes")]
    pub(crate) windows: Vec<Vec<u8>>,
}

/// Decodes a text in base64.
fn bytes<'de, D: Deserializer<'de>>(text: &str) -> Result<Vec<u8>, D::Error> {
    BASE64.decode(text).map_err(D::Error::custom)
}

mod optional_bytes {
    use super::*;

    pub(super) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
        bytes.as_ref().map(|bytes| BASE64.encode(bytes)).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
        Option::<String>::deserialize(from)?.map(|text| bytes::<D>(&text)).transpose()
    }
}

mod list_of_bytes {
    use super::*;

    pub(super) fn serialize<S: Serializer>(list: &[Vec<u8>], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(|bytes| BASE64.encode(bytes)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Vec<u8>>, D::Error> {
        Vec::<String>::deserialize(from)?.iter().map(|text| bytes::<D>(text)).collect()
    }
}
