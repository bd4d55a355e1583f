//! A record as expressions read it.

use millstream_types::{Header, Offset, PartitionId, RecordView};

/// A JSON payload, and the metadata of the record that it belongs to. The payload may differ from the stored one.
#[derive(Debug, Clone, Copy)]
pub struct InputRecord<'a> {
    /// The payload. Without one all its fields are NULL.
    pub payload: Option<&'a [u8]>,
    /// The fields that begin with `$`.
    pub metadata: Metadata<'a>,
}

/// The metadata of a record. Each member that is `None` is NULL.
#[derive(Debug, Clone, Copy, Default)]
pub struct Metadata<'a> {
    /// `$key`
    pub key: Option<&'a [u8]>,
    /// `$timestamp`: the event time, milliseconds since 1970-01-01T00:00:00Z.
    pub timestamp_ms: Option<i64>,
    /// `$topic`
    pub topic: Option<&'a str>,
    /// `$partition`
    pub partition: Option<PartitionId>,
    /// `$offset`
    pub offset: Option<Offset>,
    /// `$header['name']`
    pub headers: Headers<'a>,
}

/// The headers of a record; of headers with one name the last counts.
#[derive(Debug, Clone, Copy)]
pub enum Headers<'a> {
    /// The headers of a stored record.
    Stored(RecordView<'a>),
    /// A list of headers that are not part of a stored record.
    List(&'a [Header<'a>]),
}

impl Default for Headers<'_> {
    fn default() -> Self {
        Self::List(&[])
    }
}

impl<'a> Headers<'a> {
    /// The value of the last header called `name`.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        match self {
            Self::Stored(record) => record.header(name),
            Self::List(list) => list.iter().rfind(|header| header.key == name)?.value,
        }
    }
}

impl<'a> InputRecord<'a> {
    /// A stored record with its payload.
    #[inline]
    pub fn stored(record: &RecordView<'a>, topic: Option<&'a str>, partition: Option<PartitionId>) -> Self {
        let metadata = Metadata {
            key: record.key,
            timestamp_ms: Some(record.timestamp_ms),
            topic,
            partition,
            offset: Some(record.offset),
            headers: Headers::Stored(*record),
        };
        Self { payload: record.value, metadata }
    }
}
