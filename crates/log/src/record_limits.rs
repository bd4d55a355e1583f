//! The size of records, and the limits of a topic that every engine checks before it accepts them.

use millstream_types::{Header, Record, TopicPartition};

use crate::{Error, TopicConfig};

/// Largest overhead of a record in its batch: lengths, deltas, attributes.
const RECORD_OVERHEAD_BYTES: usize = 36;
/// Largest overhead of a record header.
const HEADER_OVERHEAD_BYTES: usize = 10;

impl TopicConfig {
    /// Checks the records of an append to `partition`, a partition of a topic with this configuration. Returns the most
    /// bytes that they can take in a batch.
    ///
    /// # Errors
    /// [`Error::EmptyAppend`]; [`Error::MissingKey`] in a compacted topic; [`Error::RecordTooLarge`].
    pub fn check_records(&self, partition: &TopicPartition, records: &[Record<'_>]) -> Result<usize, Error> {
        if records.is_empty() {
            return Err(Error::EmptyAppend { partition: partition.clone() });
        }
        let limit_bytes = self.record_max_bytes;
        let is_compacted = self.cleanup.compacts();
        let mut total = 0;
        for (index, record) in records.iter().enumerate() {
            if is_compacted && record.key.is_none() {
                return Err(Error::MissingKey { partition: partition.clone(), index });
            }
            let size_bytes = payload_of(record);
            if size_bytes > limit_bytes {
                return Err(Error::RecordTooLarge { partition: partition.clone(), size_bytes, limit_bytes });
            }
            total += size_bytes + overhead_bytes(record);
        }
        Ok(total)
    }
}

/// Bytes of key, value and headers, which [`TopicConfig::record_max_bytes`] limits.
pub(crate) fn payload_bytes<'a>(
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl Iterator<Item = Header<'a>>,
) -> usize {
    let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    length(key) + length(value) + headers.map(|header| header.key.len() + length(header.value)).sum::<usize>()
}

/// The most bytes that a record can take in a batch.
pub(crate) fn record_bytes(record: &Record<'_>) -> usize {
    payload_of(record) + overhead_bytes(record)
}

fn payload_of(record: &Record<'_>) -> usize {
    payload_bytes(record.key, record.value, record.headers.iter().copied())
}

fn overhead_bytes(record: &Record<'_>) -> usize {
    RECORD_OVERHEAD_BYTES + record.headers.len() * HEADER_OVERHEAD_BYTES
}
