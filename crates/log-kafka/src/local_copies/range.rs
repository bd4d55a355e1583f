//! The readable batches of a range of offsets, and the pieces in which they are written.

use millstream_types::{BatchBuilder, BatchError, Compression, Header, Offset, Record, RecordBatch};

/// Bytes of batches from which they are written as an extent. A read of a record reads an extent.
pub(super) const EXTENT_BYTES: usize = 8 << 10;

/// The readable batches of a range of offsets, in order.
pub(super) struct Range {
    pub(super) from: Offset,
    pub(super) to: Offset,
    pub(super) batches: Vec<RecordBatch>,
}

impl Range {
    pub(super) fn bytes(&self) -> usize {
        self.batches.iter().map(RecordBatch::size_bytes).sum()
    }

    pub(super) fn has(&self, offset: Offset) -> bool {
        self.from <= offset && offset < self.to
    }

    /// The range in pieces of [`EXTENT_BYTES`] and at most one record or small batch more. Together they cover it.
    pub(super) fn into_pieces(self) -> Vec<Self> {
        let Self { from, to, batches } = self;
        let small = batches.into_iter().flat_map(|batch| pieces_of(&batch).unwrap_or_else(|_| vec![batch]));
        let mut pieces = vec![Self { from, to, batches: Vec::new() }];
        for batch in small.filter(|batch| batch.next_offset() > from && batch.base_offset() < to) {
            let begun = pieces.len() - 1;
            if pieces[begun].bytes() >= EXTENT_BYTES {
                let from = batch.base_offset();
                pieces[begun].to = from;
                pieces.push(Self { from, to, batches: vec![batch] });
            } else {
                pieces[begun].batches.push(batch);
            }
        }
        pieces
    }
}

/// The batch with this offset, of batches in order.
pub(super) fn batch_at(batches: impl IntoIterator<Item = RecordBatch>, offset: Offset) -> Option<RecordBatch> {
    batches.into_iter().find(|batch| batch.next_offset() > offset).filter(|batch| batch.base_offset() <= offset)
}

/// A batch as one or several, each with records of [`EXTENT_BYTES`] and at most one more. Appends that wait for each other share a
/// batch that is much larger than a record.
fn pieces_of(batch: &RecordBatch) -> Result<Vec<RecordBatch>, BatchError> {
    if batch.size_bytes() < 2 * EXTENT_BYTES || batch.record_count() < 2 || batch.has_append_time() {
        return Ok(vec![batch.clone()]);
    }
    let (mut pieces, mut builder, mut base) = (Vec::new(), BatchBuilder::default(), batch.base_offset());
    for record in batch.records() {
        let record = record?;
        if builder.is_empty() {
            base = record.offset;
        }
        let headers: Vec<Header<'_>> = record.headers().collect();
        let delta = u32::try_from(record.offset.0 - base.0).expect("a batch has fewer than 2³¹ offsets");
        let (timestamp_ms, key, value) = (record.timestamp_ms, record.key, record.value);
        builder.push_at(delta, &Record { timestamp_ms, key, value, headers: &headers });
        if builder.size_bytes() >= EXTENT_BYTES {
            pieces.push(builder.seal(base, batch.epoch(), Compression::None));
        }
    }
    if !builder.is_empty() {
        pieces.push(builder.seal(base, batch.epoch(), Compression::None));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use millstream_types::Epoch;
    use proptest::prelude::*;

    use super::*;

    /// A batch of records at these distances from each other, with values of these sizes.
    fn batch(base: u64, records: &[(u32, usize)]) -> RecordBatch {
        let (mut builder, mut delta) = (BatchBuilder::default(), 0);
        for (number, (distance, size)) in records.iter().enumerate() {
            delta += distance;
            let (key, value) = (format!("k{number}"), vec![b'v'; *size]);
            let headers = [Header { key: "h", value: Some(key.as_bytes()) }];
            let value = (number % 7 != 0).then_some(&*value);
            let timestamp_ms = 1_700_000_000_000 + i64::from(delta % 5);
            builder.push_at(delta, &Record { timestamp_ms, key: Some(key.as_bytes()), value, headers: &headers });
            delta += 1;
        }
        builder.seal(Offset(base), Epoch(3), Compression::None)
    }

    fn records(batches: &[RecordBatch]) -> Vec<String> {
        let told = |batch: &RecordBatch| {
            let epoch = batch.epoch();
            let records = batch.records().map(|record| format!("{epoch:?} {:?}", record.unwrap()));
            records.collect::<Vec<_>>()
        };
        batches.iter().flat_map(told).collect()
    }

    proptest! {
        #[test]
        fn pieces_cover_a_range_have_all_its_records_and_are_small(
            batches in prop::collection::vec(prop::collection::vec((0..3_u32, 0..6_000_usize), 1..40), 0..6),
        ) {
            let (mut next, mut all) = (10, Vec::new());
            for records in &batches {
                all.push(batch(next, records));
                next = all[all.len() - 1].next_offset().0 + 1;
            }
            let (from, to) = (Offset(5), Offset(next + 5));
            let pieces = Range { from, to, batches: all.clone() }.into_pieces();
            prop_assert_eq!((pieces[0].from, pieces[pieces.len() - 1].to), (from, to));
            prop_assert!(pieces.windows(2).all(|two| two[0].to == two[1].from && two[0].bytes() >= EXTENT_BYTES));
            for piece in &pieces {
                // A batch below twice the size stays whole.
                prop_assert!(piece.bytes() < 3 * EXTENT_BYTES, "{} bytes", piece.bytes());
                prop_assert!(piece.batches.iter().all(|batch| piece.has(batch.base_offset()) && batch.last_offset() < piece.to));
            }
            let cut: Vec<RecordBatch> = pieces.into_iter().flat_map(|piece| piece.batches).collect();
            prop_assert_eq!(records(&cut), records(&all));
        }
    }
}
