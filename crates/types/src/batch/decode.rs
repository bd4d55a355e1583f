//! Decodes the records of a batch and the headers of a record in place.

use super::varint::RecordReader;
use super::{BATCH_HEADER_BYTES, BatchError, RecordBatch, RecordFault};
use crate::{Compression, Header, Offset, RecordView, header};

/// The smallest header: two numbers of one byte each.
const MIN_HEADER_BYTES: usize = 2;

/// The records of an uncompressed batch; see [`RecordBatch::records`].
#[derive(Debug, Clone)]
pub struct RecordIter<'a> {
    rest: &'a [u8],
    count: u32,
    left: u32,
    min_delta: u32,
    last_delta: u32,
    base_offset: u64,
    base_timestamp_ms: i64,
    append_time_ms: Option<i64>,
    compressed: Option<Compression>,
}

/// A place between two records of a batch; see [`RecordIter::cursor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordCursor {
    /// Bytes of the records behind it.
    rest_bytes: usize,
    left: u32,
    min_delta: u32,
}

impl<'a> RecordIter<'a> {
    /// The place before the next record, to continue from with [`RecordBatch::records_from`] of the same batch.
    pub fn cursor(&self) -> RecordCursor {
        RecordCursor { rest_bytes: self.rest.len(), left: self.left, min_delta: self.min_delta }
    }

    pub(super) fn continued(mut self, cursor: RecordCursor) -> Self {
        // Of another batch, it leads to nothing.
        let start = self.rest.len().checked_sub(cursor.rest_bytes).filter(|_| cursor.left <= self.left);
        let (rest, left) = start.map_or((&[][..], 0), |start| (&self.rest[start..], cursor.left));
        (self.rest, self.left, self.min_delta) = (rest, left, cursor.min_delta);
        self
    }

    pub(super) fn new(batch: &'a RecordBatch) -> Self {
        let codec = batch.compression();
        let (rest, count) = match codec {
            Compression::None => (&batch.bytes()[BATCH_HEADER_BYTES..], batch.record_count()),
            _ => (&[][..], 0),
        };
        Self {
            rest,
            count,
            left: count,
            min_delta: 0,
            last_delta: batch.last_offset_delta(),
            base_offset: batch.base_offset().0,
            base_timestamp_ms: batch.base_timestamp_ms(),
            append_time_ms: batch.has_append_time().then(|| batch.max_timestamp_ms()),
            compressed: (codec != Compression::None).then_some(codec),
        }
    }

    #[inline]
    fn record(&mut self) -> Result<RecordView<'a>, RecordFault> {
        let mut batch = RecordReader { rest: self.rest };
        let length = batch.i32("length")?;
        let mut record = RecordReader { rest: batch.bytes(length, "length")? };
        self.rest = batch.rest;
        record.byte("attributes")?;
        let timestamp_delta = record.i64("timestamp delta")?;
        let delta = self.offset_delta(record.i32("offset delta")?)?;
        let key = record.nullable("key length")?;
        let value = record.nullable("value length")?;
        let (header_count, encoded_headers) = headers(record)?;
        Ok(RecordView {
            offset: Offset(self.base_offset + u64::from(delta)),
            timestamp_ms: self.append_time_ms.unwrap_or_else(|| self.base_timestamp_ms.wrapping_add(timestamp_delta)),
            key,
            value,
            encoded_headers,
            header_count,
        })
    }

    #[inline]
    fn offset_delta(&mut self, value: i32) -> Result<u32, RecordFault> {
        let (min, max) = (self.min_delta, self.last_delta);
        let delta = u32::try_from(value).ok().filter(|delta| (min..=max).contains(delta));
        let delta = delta.ok_or(RecordFault::OffsetDelta { value, min, max })?;
        self.min_delta = delta + 1;
        Ok(delta)
    }

    /// Reports, once, bytes after the last record.
    #[cold]
    fn end(&mut self) -> Option<Result<RecordView<'a>, BatchError>> {
        if let Some(codec) = self.compressed.take() {
            return Some(Err(BatchError::Compressed { codec }));
        }
        let extra_bytes = std::mem::take(&mut self.rest).len();
        (extra_bytes > 0).then_some(Err(BatchError::Excess { count: self.count, extra_bytes }))
    }

    #[cold]
    fn malformed(&mut self, fault: RecordFault) -> BatchError {
        let index = self.count - self.left - 1;
        self.left = 0;
        self.rest = &[];
        BatchError::Record { index, fault }
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<RecordView<'a>, BatchError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return self.end();
        }
        self.left -= 1;
        Some(match self.record() {
            Ok(record) => Ok(record),
            Err(fault) => Err(self.malformed(fault)),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left > 0), Some(self.left as usize + 1))
    }
}

impl std::iter::FusedIterator for RecordIter<'_> {}

/// Checks the headers at the end of a record; returns their number and bytes.
#[inline]
fn headers(mut record: RecordReader<'_>) -> Result<(usize, &[u8]), RecordFault> {
    let count = record.i32("header count")?;
    let encoded = record.rest;
    if count != 0 {
        check_headers(&mut record, count)?;
    }
    if !record.rest.is_empty() {
        return Err(RecordFault::Excess { extra_bytes: record.rest.len() });
    }
    Ok((count as usize, encoded))
}

fn check_headers(record: &mut RecordReader<'_>, count: i32) -> Result<(), RecordFault> {
    let left_bytes = record.rest.len();
    let count = usize::try_from(count)
        .ok()
        .filter(|&count| count <= left_bytes / MIN_HEADER_BYTES)
        .ok_or(RecordFault::Length { field: "header count", value: count, left_bytes })?;
    for index in 0..count {
        let (name, _) = raw_header(record)?;
        // Nearly all names are ASCII, and the check is cheap.
        if !name.is_ascii() && std::str::from_utf8(name).is_err() {
            return Err(RecordFault::HeaderName { index });
        }
    }
    Ok(())
}

#[inline]
fn raw_header<'a>(reader: &mut RecordReader<'a>) -> Result<(&'a [u8], Option<&'a [u8]>), RecordFault> {
    let length = reader.i32("header name length")?;
    Ok((reader.bytes(length, "header name length")?, reader.nullable("header value length")?))
}

impl<'a> RecordView<'a> {
    /// The headers of the record, in order.
    pub fn headers(&self) -> HeaderIter<'a> {
        HeaderIter { rest: self.encoded_headers, left: self.header_count }
    }

    /// The value of the last header called `name`; `None` if there is none or its value is null.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        let [value] = self.header_values([name]);
        value
    }

    /// Like [`RecordView::header`] for several headers, in one pass.
    pub fn header_values<const N: usize>(&self, names: [&str; N]) -> [Option<&'a [u8]>; N] {
        let mut reader = RecordReader { rest: self.encoded_headers };
        let mut found = [None; N];
        for _ in 0..self.header_count {
            // Cannot fail: a `RecordView` exists only once its headers have been checked.
            let Ok((key, value)) = raw_header(&mut reader) else { break };
            if let Some(at) = names.iter().position(|name| name.as_bytes() == key) {
                found[at] = value;
            }
        }
        found
    }

    /// True if the record had expired at `now_ms` by its creation time and time to live, which are headers of devices' messages.
    pub fn is_void(&self, now_ms: i64) -> bool {
        let [ttl, created] = self.header_values([header::TTL, header::CREATION_TIME]);
        let number = |value: Option<&[u8]>| std::str::from_utf8(value?).ok()?.parse::<i64>().ok();
        let Some(ttl_ms) = number(ttl) else { return false };
        let created_ms = number(created).unwrap_or(self.timestamp_ms);
        created_ms.saturating_add(ttl_ms) <= now_ms
    }
}

/// The headers of a record; see [`RecordView::headers`].
#[derive(Debug, Clone)]
pub struct HeaderIter<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.left = self.left.checked_sub(1)?;
        let mut reader = RecordReader { rest: self.rest };
        // Cannot fail: a `RecordView` exists only once its headers have been checked.
        let (name, value) = raw_header(&mut reader).ok()?;
        let key = std::str::from_utf8(name).ok()?;
        self.rest = reader.rest;
        Some(Header { key, value })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for HeaderIter<'_> {}

#[cfg(test)]
mod tests {
    use crate::{BatchBuilder, Compression, Epoch, Header, Offset, Record};

    #[test]
    fn a_record_is_void_once_its_time_has_passed_since_it_was_created() {
        type Headers<'a> = &'a [(&'a str, &'a [u8])];
        let table: [(Headers<'_>, i64, bool); 6] = [
            (&[], i64::MAX, false),
            (&[("ttl", b"500")], 1_499, false),
            (&[("ttl", b"500")], 1_500, true),
            (&[("ttl", b"500"), ("creation-time", b"2000")], 2_499, false),
            (&[("ttl", b"500"), ("creation-time", b"2000")], 2_500, true),
            (&[("ttl", b"soon")], i64::MAX, false),
        ];
        for (headers, now_ms, expected) in table {
            let headers: Vec<_> = headers.iter().map(|(key, value)| Header { key, value: Some(value) }).collect();
            let mut builder = BatchBuilder::default();
            builder.push(&Record { timestamp_ms: 1_000, key: None, value: None, headers: &headers });
            let batch = builder.seal(Offset(0), Epoch(0), Compression::None);
            let record = batch.records().next().unwrap().unwrap();
            assert_eq!(record.is_void(now_ms), expected, "{headers:?} {now_ms}");
        }
    }
}
