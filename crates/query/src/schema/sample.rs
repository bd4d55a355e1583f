//! The choice of the sampled records.

use std::sync::Arc;

use millstream_log::{Error as LogError, Partition, UpTo};
use millstream_types::Offset;

use super::SchemaConfig;
use super::observed::Observed;
use crate::live::LiveStream;
use crate::read_error::ReadError;
use crate::stream_batch::readable;

/// Most places of a partition, besides its end, that are sampled.
const PLACES_MAX: usize = 8;
/// Fewest records that are read at one place, because each place may cost a disk access.
const OF_PLACE_MIN: usize = 32;
/// Bytes that one read returns.
const READ_BYTES: usize = 64 << 10;

/// The rest of the sample's limits.
struct SampleBudget {
    records: usize,
    bytes: usize,
}

/// Shows records to `observed`: of each partition the latest, and as many from places over all that it keeps.
pub(super) fn records(stream: &LiveStream, config: &SchemaConfig, observed: &mut Observed) -> Result<(), ReadError> {
    let share = config.records_max.div_ceil(stream.partitions.len().max(1));
    let mut left = SampleBudget { records: config.records_max, bytes: config.read_max_bytes };
    for partition in &stream.partitions {
        let offsets = partition.offsets();
        let (first, tail) = (offsets.first.0, offsets.tail.0);
        let latest = if tail - first <= share as u64 { share } else { share.div_ceil(2) };
        let from = first.max(tail.saturating_sub(latest as u64));
        look(stream, partition, Offset(from)..Offset(tail), latest, &mut left, observed)?;
        let places = (share - latest).div_ceil(OF_PLACE_MIN).min(PLACES_MAX);
        for place in 0..places {
            let at = first + (from - first) / places as u64 * place as u64;
            let wanted = (share - latest).div_ceil(places);
            look(stream, partition, Offset(at)..Offset(from), wanted, &mut left, observed)?;
        }
    }
    Ok(())
}

/// Shows at most `wanted` records of a part of a partition.
fn look(
    stream: &LiveStream,
    partition: &Arc<dyn Partition>,
    part: std::ops::Range<Offset>,
    wanted: usize,
    left: &mut SampleBudget,
    observed: &mut Observed,
) -> Result<(), ReadError> {
    let (mut next, mut wanted) = (part.start, wanted.min(left.records));
    let broken = |source| ReadError::Batch { stream: stream.topic.name.clone(), source };
    while next < part.end && wanted > 0 && left.bytes > 0 {
        let batches = match partition.read(next, READ_BYTES.min(left.bytes), UpTo::Tail) {
            Ok(batches) => batches,
            Err(LogError::Trimmed { oldest, .. }) if oldest > next => {
                next = oldest;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let Some(last) = batches.last() else { return Ok(()) };
        let end = last.next_offset();
        for batch in &batches {
            left.bytes = left.bytes.saturating_sub(batch.size_bytes());
            let Some(batch) = readable(batch).map_err(broken)? else { continue };
            for view in batch.records() {
                let view = view.map_err(broken)?;
                if view.offset < next || view.offset >= part.end {
                    continue;
                }
                if wanted == 0 {
                    return Ok(());
                }
                observed.add(&view);
                (wanted, left.records) = (wanted - 1, left.records - 1);
            }
        }
        next = end;
    }
    Ok(())
}
