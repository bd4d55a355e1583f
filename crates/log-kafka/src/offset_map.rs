//! The offsets of a partition, and the numbers that Kafka gives their records.
//!
//! ```text
//!   offset      1000 1001      1007      2000 2001 2002 …        runs: 0 at 1000, 2 at 1007, 3 at 2000
//!   in Kafka       0    1         2         3    4    5 …
//! ```
//!
//! Kafka numbers the records of each partition from 0 on, without the gaps of a partition that was moved there. Both numbers
//! ascend, so what Kafka removes later leaves the others where they are. Behind the last run there is no gap but Kafka's own.

use millstream_types::{BatchBuilder, BatchError, BatchLimits, Compression, Epoch, Offset, Record, RecordBatch};

/// A range of records without a gap, which ends where the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    kafka: u64,
    offset: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OffsetMap {
    /// The first offset for as long as Kafka has removed nothing.
    first: Offset,
    /// Not empty; the first one begins at Kafka's 0, and all ascend.
    runs: Vec<Run>,
}

impl OffsetMap {
    /// The record that Kafka numbers 0 has this offset, and there is no gap.
    pub(crate) fn beginning_at(offset: Offset) -> Self {
        Self { first: offset, runs: vec![Run { kafka: 0, offset: offset.0 }] }
    }

    /// The offset of the record that Kafka gives this number; of its end, the offset of the next record.
    pub(crate) fn offset(&self, kafka_offset: i64) -> Offset {
        let kafka = kafka_offset.max(0).unsigned_abs();
        let run = self.runs[self.run_of(kafka)];
        Offset(run.offset.saturating_add(kafka - run.kafka))
    }

    fn run_of(&self, kafka: u64) -> usize {
        self.runs.partition_point(|run| run.kafka <= kafka).saturating_sub(1)
    }

    /// The first offset of a partition whose first record has this number.
    pub(crate) fn first(&self, kafka_offset: i64) -> Offset {
        match kafka_offset {
            ..=0 => self.first,
            later => self.offset(later - 1).next(),
        }
    }

    /// The number that Kafka gives the record at this offset, or in a gap the next one.
    pub(crate) fn kafka_offset(&self, offset: Offset) -> i64 {
        let next = self.runs.partition_point(|run| run.offset <= offset.0);
        let Some(run) = next.checked_sub(1).map(|index| self.runs[index]) else { return 0 };
        let kafka = run.kafka.saturating_add(offset.0 - run.offset);
        self.runs.get(next).map_or(kafka, |next| kafka.min(next.kafka)).cast_signed()
    }

    /// A batch without records for the gap at `from`; `None` if there is none.
    pub(crate) fn gap_at(&self, from: Offset, epoch: Epoch) -> Option<RecordBatch> {
        let next = self.runs.get(self.runs.partition_point(|run| run.offset <= from.0))?.offset;
        let is_gap = self.offset(self.kafka_offset(from)).0 == next;
        let reach = (next - from.0 - 1).min(SPREAD_MAX);
        is_gap.then(|| {
            let mut builder = BatchBuilder::default();
            builder.push(&Record::default());
            builder.extend_to(reach as u32);
            builder.seal(from, epoch, Compression::None).without_records()
        })
    }

    /// A batch as Kafka numbers it, at its offsets: several, if one cannot hold its gaps.
    ///
    /// # Errors
    /// A [`BatchError`] if it does not inflate.
    pub(crate) fn at_its_offsets(&self, batch: RecordBatch) -> Result<Vec<RecordBatch>, BatchError> {
        let (base, last) = (batch.base_offset().0, batch.last_offset().0);
        let is_in_one_run = self.run_of(base) == self.run_of(last);
        if is_in_one_run || batch.record_count() == 0 {
            // Readers go on behind its last offset.
            let first = Offset(self.offset(last.cast_signed()).0.saturating_sub(last - base));
            let epoch = batch.epoch();
            return Ok(vec![if first.0 == base { batch } else { batch.into_restamped(first, epoch) }]);
        }
        let end = self.offset(last.cast_signed()).0;
        let (epoch, batch) = (batch.epoch(), batch.inflated(&BatchLimits::default())?);
        let mut spread = SpreadBatches { epoch, batches: Vec::new(), builder: BatchBuilder::default(), base: None };
        for record in batch.records() {
            let record = record?;
            let headers: Vec<_> = record.headers().collect();
            let (key, value, timestamp_ms) = (record.key, record.value, record.timestamp_ms);
            let offset = self.offset(record.offset.0.cast_signed()).0;
            spread.push(offset, &Record { timestamp_ms, key, value, headers: &headers });
        }
        Ok(spread.finish(end))
    }
}

/// Records with gaps, in as few batches as can hold them.
struct SpreadBatches {
    epoch: Epoch,
    batches: Vec<RecordBatch>,
    builder: BatchBuilder,
    /// The offset of the first record in the builder.
    base: Option<u64>,
}

/// Largest distance of two records in one batch.
const SPREAD_MAX: u64 = 1 << 30;

impl SpreadBatches {
    fn push(&mut self, offset: u64, record: &Record<'_>) {
        if self.base.is_some_and(|base| offset - base >= SPREAD_MAX) {
            self.seal();
        }
        let base = *self.base.get_or_insert(offset);
        self.builder.push_at((offset - base) as u32, record);
    }

    fn seal(&mut self) {
        if let Some(base) = self.base.take() {
            self.batches.push(self.builder.seal(Offset(base), self.epoch, Compression::None));
        }
    }

    /// The batches; the last one reaches up to `last`, if it can.
    fn finish(mut self, last: u64) -> Vec<RecordBatch> {
        if let Some(reach) = self.base.map(|base| last - base).filter(|reach| *reach < SPREAD_MAX) {
            self.builder.extend_to(reach as u32);
        }
        self.seal();
        self.batches
    }
}

/// Builds the map of a partition that is copied, record by record.
#[derive(Debug)]
pub(crate) struct OffsetMapBuilder {
    map: OffsetMap,
    records: u64,
    next: Option<u64>,
}

impl OffsetMapBuilder {
    /// A partition whose first offset is this.
    pub(crate) fn new(first: Offset) -> Self {
        Self { map: OffsetMap { first, runs: Vec::new() }, records: 0, next: None }
    }

    /// The number of records so far.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Adds the next record.
    pub(crate) fn push(&mut self, offset: Offset) {
        if self.next != Some(offset.0) {
            self.map.runs.push(Run { kafka: self.records, offset: offset.0 });
        }
        self.records += 1;
        self.next = Some(offset.0 + 1);
    }

    /// The map of a partition whose next record gets the offset `tail`.
    pub(crate) fn finish(mut self, tail: Offset) -> OffsetMap {
        if self.next != Some(tail.0) {
            self.map.runs.push(Run { kafka: self.records, offset: tail.0 });
        }
        self.map
    }
}

impl OffsetMap {
    /// Appends the form that [`OffsetMap::decode`] reads: the first offset, and of each run the distances to the one before, all
    /// of them with seven bits a byte.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.first.0);
        put(out, self.runs.len() as u64);
        let mut before = Run { kafka: 0, offset: 0 };
        for run in &self.runs {
            put(out, run.kafka - before.kafka);
            put(out, run.offset - before.offset);
            before = *run;
        }
    }

    pub(crate) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let first = Offset(take(bytes)?);
        let mut before = Run { kafka: 0, offset: 0 };
        let mut runs = Vec::new();
        for index in 0..take(bytes)? {
            let run = Run {
                kafka: before.kafka.checked_add(take(bytes)?)?,
                offset: before.offset.checked_add(take(bytes)?)?,
            };
            if index > 0 && (run.kafka <= before.kafka || run.offset <= before.offset) {
                return None;
            }
            runs.push(run);
            before = run;
        }
        (runs.first()?.kafka == 0).then_some(Self { first, runs })
    }
}

pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn map(first: u64, offsets: &[u64], tail: u64) -> OffsetMap {
        let mut builder = OffsetMapBuilder::new(Offset(first));
        offsets.iter().for_each(|offset| builder.push(Offset(*offset)));
        builder.finish(Offset(tail))
    }

    #[test]
    fn records_keep_their_offsets_and_gaps_lead_to_the_next_record() {
        const FAR: u64 = 1 << 50;
        let tables: [(u64, &[u64], u64); 6] = [
            (0, &[0, 1, 2], 3),
            (0, &[], 0),
            (7, &[], 9),
            (5, &[5, 6, 9, 20, 21], 30),
            (0, &[3], 4),
            (2, &[4, FAR, FAR + 1], FAR + 2),
        ];
        for (first, offsets, tail) in tables {
            let map = map(first, offsets, tail);
            let mut form = Vec::new();
            map.encode(&mut form);
            assert_eq!(OffsetMap::decode(&mut &form[..]), Some(map.clone()));
            assert_eq!(map.first(0), Offset(first));
            let end = offsets.len() as i64;
            for (kafka, offset) in (0..).zip(offsets.iter().copied().chain([tail, tail + 1])) {
                assert_eq!(map.offset(kafka), Offset(offset));
                assert_eq!(map.kafka_offset(Offset(offset)), kafka);
                if kafka > 0 && kafka <= end {
                    let before = map.offset(kafka - 1).0 + 1;
                    assert_eq!(map.first(kafka), Offset(before));
                    for gap in before..offset.min(before + 3) {
                        assert_eq!(map.kafka_offset(Offset(gap)), kafka, "{gap}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_batch_is_spread_over_its_gaps() {
        const FAR: u64 = 1 << 50;
        let map = map(0, &[5, 6, 9, FAR, FAR + 3], FAR + 9);
        let mut builder = BatchBuilder::default();
        for value in ["a", "b", "c", "d", "e"] {
            builder.push(&Record { timestamp_ms: 7, value: Some(value.as_bytes()), ..Record::default() });
        }
        builder.extend_to(5);
        let batch = builder.seal(Offset(0), Epoch(3), Compression::Zstd);
        let spread = map.at_its_offsets(batch).unwrap();
        let read: Vec<_> = spread
            .iter()
            .flat_map(|batch| batch.records())
            .map(|record| record.map(|record| (record.offset.0, record.value.unwrap().to_vec(), record.timestamp_ms)))
            .collect::<Result<_, _>>()
            .unwrap();
        let expected = [(5, "a"), (6, "b"), (9, "c"), (FAR, "d"), (FAR + 3, "e")];
        assert_eq!(read, expected.map(|(offset, value)| (offset, value.as_bytes().to_vec(), 7)));
        assert_eq!(spread.iter().map(RecordBatch::epoch).collect::<Vec<_>>(), [Epoch(3); 2]);
        // A reader that goes on behind the last one does not read the batch again.
        assert_eq!(map.kafka_offset(spread[1].next_offset()), 6);
        let whole = spread[1].without_records();
        assert_eq!(map.at_its_offsets(whole.restamped(Offset(3), Epoch(3))).unwrap().len(), 1);
    }

    #[test]
    fn bytes_that_are_no_map_are_refused() {
        for bytes in [&[][..], &[0, 0], &[0, 1, 1, 0], &[0, 2, 0, 0, 0, 1], &[0, 1, 0x80], &[0xff; 20]] {
            assert_eq!(OffsetMap::decode(&mut &bytes[..]), None, "{bytes:?}");
        }
    }
}
