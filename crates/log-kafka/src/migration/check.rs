//! Compares the records of one partition with those in Kafka.

use std::collections::VecDeque;
use std::sync::Arc;

use millstream_log::{ClosedLog, Error};
use millstream_types::{BatchError, BatchLimits, Offset, RecordBatch, RecordView};

use super::{MigrationStep, differs};
use crate::core::Core;
use crate::fetching::{self, Isolation};
use crate::partition_state::{Ends, PartitionState};

const FETCH_BYTES: i32 = 4 << 20;

/// A record by its offset and a checksum over its time, key, value and headers.
type Sum = (Offset, u32);

/// Compares all records.
///
/// # Errors
/// Those of reads; [`Error::Unfit`] with the first record that differs.
pub(super) fn partition(
    core: &Arc<Core>,
    log: &ClosedLog,
    partition: &Arc<PartitionState>,
    told: &(dyn Fn(MigrationStep) + Sync),
) -> Result<(), Error> {
    let closed = log.partition(&partition.id)?;
    let undecodable = |source| Error::Batch { partition: partition.id.clone(), source };
    let differs = |offset, what: &str| Err(differs(core, &partition.id, &partition.topic.kafka_name, offset, what));
    let mut copy = CopiedSums::begin(core, partition)?;
    let Ends { first, stable, high } = copy.ends;
    if (first, stable, high) != (closed.first, closed.tail, closed.tail) {
        let what = format!(
            "{} has records from {first} to {high}, the log from {} to {}",
            partition.topic.kafka_name, closed.first, closed.tail
        );
        return differs(closed.tail, &what);
    }
    for batch in log.batches(&partition.id)? {
        let batch = batch?;
        let sums = sums(&batch, closed.first).map_err(undecodable)?;
        let (records, bytes) = (sums.len() as u64, batch.size_bytes() as u64);
        for sum in sums {
            match copy.next()? {
                Some(copied) if copied == sum => {}
                Some((offset, _)) if offset == sum.0 => {
                    return differs(offset, "it differs from the record of the log");
                }
                Some((offset, _)) => return differs(offset, &format!("the log has offset {} there", sum.0)),
                None => return differs(sum.0, "it is missing"),
            }
        }
        told(MigrationStep::Compared { records, bytes });
    }
    match copy.next()? {
        Some((offset, _)) => differs(offset, "the log has no such record"),
        None => Ok(()),
    }
}

/// The records of a batch from `first` on.
fn sums(batch: &RecordBatch, first: Offset) -> Result<Vec<Sum>, BatchError> {
    let batch = batch.inflated(&BatchLimits::default())?;
    let mut sums = Vec::with_capacity(batch.record_count() as usize);
    for record in batch.records() {
        let record = record?;
        if record.offset >= first {
            sums.push((record.offset, checksum(&record)));
        }
    }
    Ok(sums)
}

fn checksum(record: &RecordView<'_>) -> u32 {
    let of_part = |sum, part: Option<&[u8]>| {
        let length = part.map_or(-1, |part| part.len() as i64);
        crc32c::crc32c_append(crc32c::crc32c_append(sum, &length.to_le_bytes()), part.unwrap_or_default())
    };
    let sum = crc32c::crc32c(&record.timestamp_ms.to_le_bytes());
    let sum = of_part(of_part(sum, record.key), record.value);
    record.headers().fold(sum, |sum, header| of_part(of_part(sum, Some(header.key.as_bytes())), header.value))
}

/// The records in Kafka, one after the other.
struct CopiedSums<'a> {
    core: &'a Arc<Core>,
    partition: &'a Arc<PartitionState>,
    ends: Ends,
    next: Offset,
    read: VecDeque<Sum>,
}

impl<'a> CopiedSums<'a> {
    fn begin(core: &'a Arc<Core>, partition: &'a Arc<PartitionState>) -> Result<Self, Error> {
        let (core_of_task, of_task) = (Arc::clone(core), Arc::clone(partition));
        let ends = core.wait(async move { fetching::ends(&core_of_task, &of_task).await })?;
        Ok(Self { core, partition, ends, next: ends.first, read: VecDeque::new() })
    }

    fn next(&mut self) -> Result<Option<Sum>, Error> {
        while self.read.is_empty() && self.next < self.ends.stable {
            let (core, partition, from) = (Arc::clone(self.core), Arc::clone(self.partition), self.next);
            let fetched = self.core.wait(async move {
                fetching::fetch(&core, &partition, from, FETCH_BYTES, Isolation::Committed).await
            })?;
            let Some((visible, next)) = fetched.and_then(|found| found.visible.next.map(|next| (found.visible, next)))
            else {
                break;
            };
            for batch in &visible.batches {
                let source = |source| Error::Batch { partition: self.partition.id.clone(), source };
                self.read.extend(sums(batch, self.next).map_err(source)?);
            }
            self.next = next;
        }
        Ok(self.read.pop_front())
    }
}
