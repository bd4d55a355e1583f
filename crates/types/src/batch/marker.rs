//! The marker at the end of a transaction: a control batch with one record.
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
/// The sequence number in a marker.
const NO_SEQUENCE: i32 = -1;

/// The end of a producer's transaction, as a partition stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// Id of the idempotent producer.
    pub producer_id: i64,
    /// Epoch of the producer; records under an earlier one are refused afterwards.
    pub producer_epoch: i16,
    /// `true` if the transaction was committed.
    pub committed: bool,
    /// Epoch of the coordinator that ended the transaction.
    pub coordinator_epoch: u32,
    /// Time of the end: milliseconds since 1970-01-01T00:00:00Z.
    pub timestamp_ms: i64,
}

impl Marker {
    /// Builds the control batch of this marker.
    ///
    /// # Panics
    /// For the same reasons as [`BatchBuilder::seal`].
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

    /// Decodes a marker; `None` if the batch is no marker.
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
    fn other_batches_are_not_read_as_markers() {
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
