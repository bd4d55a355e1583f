//! The marker of a transaction's end: a control batch of one record.
//!
//! ```text
//! key:   version i16 (0)   kind i16 (0 aborted, 1 committed)
//! value: version i16 (0)   coordinator epoch i32
//! ```
//!
//! Source: the section "Control Batches" of Apache Kafka's message format.

use super::{BatchBuilder, Producer, RecordBatch};
use crate::{Compression, Epoch, Offset, Record};

const VERSION: i16 = 0;
const ABORTED: i16 = 0;
const COMMITTED: i16 = 1;
/// What stands in a marker instead of a sequence number.
const NO_SEQUENCE: i32 = -1;

/// How a producer's transaction has ended, as a partition keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// The producer's id.
    pub producer_id: i64,
    /// Its epoch: what it sends under an earlier one is refused from here on.
    pub producer_epoch: i16,
    /// Whether the transaction's records count.
    pub committed: bool,
    /// The epoch of the coordinator that has ended it.
    pub coordinator_epoch: u32,
    /// When: milliseconds since 1970-01-01T00:00:00Z.
    pub timestamp_ms: i64,
}

impl Marker {
    /// The control batch that says so.
    ///
    /// # Panics
    /// As [`BatchBuilder::seal`].
    pub fn seal(&self, base_offset: Offset, epoch: Epoch) -> RecordBatch {
        let kind = if self.committed { COMMITTED } else { ABORTED };
        let key = [VERSION.to_be_bytes(), kind.to_be_bytes()].concat();
        let value = [&VERSION.to_be_bytes()[..], &self.coordinator_epoch.to_be_bytes()].concat();
        let mut builder = BatchBuilder::default();
        let (key, value) = (Some(&key[..]), Some(&value[..]));
        builder.push(&Record { timestamp_ms: self.timestamp_ms, key, value, headers: &[] });
        builder.set_producer(Producer { id: self.producer_id, epoch: self.producer_epoch, base_sequence: NO_SEQUENCE });
        builder.set_transactional();
        builder.set_control();
        builder.seal(base_offset, epoch, Compression::None)
    }

    /// What a batch says of a transaction's end; `None` if it is no such marker.
    pub(super) fn read(batch: &RecordBatch) -> Option<Self> {
        let producer = batch.producer().filter(|_| batch.is_control())?;
        let record = batch.records().next()?.ok()?;
        let key: [u8; 4] = record.key?.get(..4)?.try_into().ok()?;
        let value: [u8; 4] = record.value?.get(2..6)?.try_into().ok()?;
        let committed = match i16::from_be_bytes([key[2], key[3]]) {
            ABORTED => false,
            COMMITTED => true,
            _ => return None,
        };
        Some(Self {
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            committed,
            coordinator_epoch: u32::from_be_bytes(value),
            timestamp_ms: record.timestamp_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BatchLimits;

    #[test]
    fn a_marker_reads_back_and_has_the_bytes_that_kafkas_clients_look_for() {
        for committed in [false, true] {
            let marker = Marker {
                producer_id: 4_000,
                producer_epoch: 7,
                committed,
                coordinator_epoch: 12,
                timestamp_ms: 1_700_000_000_000,
            };
            let batch = marker.seal(Offset(42), Epoch(3));
            let batch = RecordBatch::parse(batch.bytes().clone(), &BatchLimits::default()).unwrap();
            assert_eq!(batch.marker(), Some(marker));
            assert!(batch.is_control() && batch.is_transactional());
            assert_eq!(batch.producer().map(|producer| producer.base_sequence), Some(-1));
            let record = batch.records().next().unwrap().unwrap();
            assert_eq!(record.key, Some(&[0, 0, 0, u8::from(committed)][..]));
            assert_eq!(record.value, Some(&[0, 0, 0, 0, 0, 12][..]));
        }
    }

    #[test]
    fn what_is_no_marker_is_not_read_as_one() {
        let mut builder = BatchBuilder::default();
        builder.push(&Record { key: Some(&[0, 0, 0, 1]), value: Some(&[0; 6]), ..Record::default() });
        builder.set_producer(Producer { id: 1, epoch: 0, base_sequence: 0 });
        builder.set_transactional();
        assert_eq!(builder.seal(Offset(0), Epoch(1), Compression::None).marker(), None, "it is no control batch");
        for (key, value) in [(&[0, 0, 0, 9][..], &[0; 6][..]), (&[0, 0], &[0; 6]), (&[0, 0, 0, 1], &[0])] {
            builder.push(&Record { key: Some(key), value: Some(value), ..Record::default() });
            builder.set_producer(Producer { id: 1, epoch: 0, base_sequence: -1 });
            builder.set_control();
            assert_eq!(builder.seal(Offset(0), Epoch(1), Compression::None).marker(), None, "{key:?} {value:?}");
        }
    }
}
