//! The items that a follower finds in the batches of a source.

use std::collections::HashMap;

use millstream_types::{BatchError, BatchLimits, Offset, PartitionId, RecordBatch};

use super::cursor::SourceCursor;
use super::interface::{Follow, SourceRecord};
use crate::View;

/// A follower yields the core after this many records, about 0.1 ms, so that threads that
/// answer clients wait no longer.
const SHARE_RECORDS: usize = 64;

/// The items for each owner, with their offsets.
pub(super) type Items<I> = HashMap<PartitionId, Vec<(Offset, I)>>;

/// The size of one read.
#[derive(Default)]
struct ReadCount {
    records: usize,
    /// Heap size of the items.
    items_bytes: usize,
}

/// Collects the items of `batches`, the position up to which they were read, and the error that ended the read. Stops
/// after the batch that exceeds `max_bytes`. Takes nothing from an unreadable batch.
pub(super) fn collect<V: View, F: Follow<V>>(
    follow: &F,
    cursor: &SourceCursor,
    batches: &[RecordBatch],
    max_bytes: usize,
) -> (Items<F::Item>, Offset, Option<BatchError>) {
    let (mut items, mut next): (Items<F::Item>, _) = (HashMap::new(), cursor.next);
    let mut read = ReadCount::default();
    for batch in batches {
        if read.items_bytes > max_bytes {
            break;
        }
        if let Err(error) = collect_batch(follow, cursor, batch, &mut read, &mut items) {
            let next = next.max(batch.base_offset());
            items.values_mut().for_each(|items| items.retain(|(offset, _)| *offset < next));
            items.retain(|_, items| !items.is_empty());
            return (items, next, Some(error));
        }
        next = batch.last_offset().next();
    }
    (items, next, None)
}

fn collect_batch<V: View, F: Follow<V>>(
    follow: &F,
    cursor: &SourceCursor,
    batch: &RecordBatch,
    read: &mut ReadCount,
    items: &mut Items<F::Item>,
) -> Result<(), BatchError> {
    let (partition, mut found) = (cursor.partition.id().partition, Vec::new());
    for record in batch.inflated(&BatchLimits::default())?.records() {
        read.records += 1;
        if read.records.is_multiple_of(SHARE_RECORDS) {
            std::thread::yield_now();
        }
        let record = record?;
        if record.offset < cursor.next {
            continue;
        }
        follow.items(SourceRecord { topic: &cursor.topic, partition, record: &record }, &mut found);
        for (owner, item) in found.drain(..) {
            read.items_bytes += F::item_bytes(&item);
            items.entry(owner).or_default().push((record.offset, item));
        }
    }
    Ok(())
}
