//! The source records of a batch: their positions, keys, times and headers, and their payloads as they were read.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use millstream_types::{BatchError, Offset, PartitionId, RecordBatch};

use super::Batch;
use super::base::{Base, BaseRow};

/// Records that were read together.
#[derive(Debug, Default)]
pub(super) struct Origin {
    pub(super) topic: Option<Arc<str>>,
    pub(super) partition: Option<PartitionId>,
    /// The node that has made the records itself.
    pub(super) maker: Option<Arc<str>>,
    pub(super) buffer: Bytes,
    pub(super) records: Vec<SourceRecord>,
    pub(super) headers: Vec<HeaderSpan>,
}

#[derive(Debug, Clone)]
pub(super) struct SourceRecord {
    pub(super) offset: Offset,
    pub(super) timestamp_ms: i64,
    pub(super) key: Option<Range<u32>>,
    pub(super) value: Option<Range<u32>>,
    pub(super) headers: Range<u32>,
}

#[derive(Debug)]
pub(super) struct HeaderSpan {
    pub(super) name: Range<u32>,
    pub(super) value: Option<Range<u32>>,
}

impl Origin {
    pub(super) fn part(&self, span: Range<u32>) -> &[u8] {
        &self.buffer[span.start as usize..span.end as usize]
    }

    /// The stored payloads of these records.
    pub(super) fn base(&self, records: impl Iterator<Item = u32>) -> Base {
        let row = |record: u32| BaseRow::new(record, self.records[record as usize].value.clone());
        Base::new(self.buffer.clone(), records.map(row).collect())
    }

    /// The records of stored batches of one partition from `from` on.
    /// One batch is not copied; several are, once, into one buffer.
    pub(super) fn of_log(
        topic: &Arc<str>,
        partition: PartitionId,
        stored: &[RecordBatch],
        from: Offset,
    ) -> Result<Self, BatchError> {
        let buffer = match stored {
            [one] => one.bytes().clone(),
            several => several.iter().map(|batch| &batch.bytes()[..]).collect::<Vec<_>>().concat().into(),
        };
        let count = stored.iter().map(|batch| batch.record_count() as usize).sum();
        let (mut records, mut headers) = (Vec::with_capacity(count), Vec::new());
        let mut shift = 0;
        for batch in stored {
            let base = batch.bytes().as_ptr() as usize;
            let span = |part: &[u8]| {
                let start = part.as_ptr() as usize - base + shift;
                start as u32..(start + part.len()) as u32
            };
            for record in batch.records() {
                let record = record?;
                if record.offset < from {
                    continue;
                }
                let first = headers.len() as u32;
                headers.extend(
                    record
                        .headers()
                        .map(|header| HeaderSpan { name: span(header.key.as_bytes()), value: header.value.map(span) }),
                );
                records.push(SourceRecord {
                    offset: record.offset,
                    timestamp_ms: record.timestamp_ms,
                    key: record.key.map(span),
                    value: record.value.map(span),
                    headers: first..headers.len() as u32,
                });
            }
            shift += batch.size_bytes();
        }
        Ok(Self { topic: Some(Arc::clone(topic)), partition: Some(partition), maker: None, buffer, records, headers })
    }
}

/// Builds a batch of records that come from no log.
#[derive(Debug, Default)]
pub(crate) struct SourceBatch {
    buffer: Vec<u8>,
    records: Vec<SourceRecord>,
}

impl SourceBatch {
    /// Appends a record with this number, key and time; `write` appends its payload, a JSON object.
    pub(crate) fn push(
        &mut self,
        number: u64,
        key: Option<&[u8]>,
        timestamp_ms: i64,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let key = key.map(|key| {
            let start = self.buffer.len() as u32;
            self.buffer.extend_from_slice(key);
            start..self.buffer.len() as u32
        });
        let start = self.buffer.len() as u32;
        write(&mut self.buffer);
        let value = Some(start..self.buffer.len() as u32);
        self.records.push(SourceRecord { offset: Offset(number), timestamp_ms, key, value, headers: 0..0 });
    }

    /// The number of records so far.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// The bytes of the keys and payloads so far.
    pub(super) fn size_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// `true` before the first record.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The batch of all records, of which some may be no JSON objects.
    pub(crate) fn finish_unchecked(self) -> Batch {
        Batch::of_origin(Origin { buffer: self.buffer.into(), records: self.records, ..Origin::default() })
    }

    /// The batch of all records, which the node `maker` has made.
    pub(super) fn finish_of(self, maker: &Arc<str>) -> Batch {
        let maker = Some(Arc::clone(maker));
        let origin = Origin { maker, buffer: self.buffer.into(), records: self.records, ..Origin::default() };
        Batch::of_origin(origin).with_objects()
    }

    /// The batch of all records.
    pub(crate) fn finish(self) -> Batch {
        self.finish_unchecked().with_objects()
    }
}
