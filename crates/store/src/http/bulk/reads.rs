//! The reads of a bulk request beside the owner, which is asked for writes only: reads are served while the disk is full,
//! and do not count as writes.

use futures_util::{StreamExt, stream};

use super::item::{BulkAction, BulkItem};
use super::outcome::ItemOutcome;
use crate::{Bucket, Error};

/// Values of one request and partition that are read at a time.
const READS: usize = 8;

/// Reads the keys of all gets, up to `left_bytes` of values; `None` for items that write. Every answered write is seen.
pub(super) async fn read(
    bucket: &Bucket,
    items: &[BulkItem],
    mut left_bytes: u64,
) -> Vec<Option<Result<ItemOutcome, Error>>> {
    let mut reads = Vec::with_capacity(items.len());
    for item in items {
        let length = bucket.place(&item.key).map_or(0, |place| place.length);
        let left = left_bytes.checked_sub(length).filter(|_| item.action == BulkAction::Get);
        left_bytes = left.unwrap_or(left_bytes);
        reads.push(read_item(bucket, item, left.is_some()));
    }
    stream::iter(reads).buffered(READS).collect().await
}

async fn read_item(bucket: &Bucket, item: &BulkItem, has_room: bool) -> Option<Result<ItemOutcome, Error>> {
    match (&item.action, has_room) {
        (BulkAction::Get, true) => Some(read_key(bucket, item).await),
        (BulkAction::Get, false) => Some(Ok(ItemOutcome::TooMuch)),
        _ => None,
    }
}

async fn read_key(bucket: &Bucket, item: &BulkItem) -> Result<ItemOutcome, Error> {
    let found = bucket.read(&item.key).await?;
    let version = found.as_ref().map(|found| found.version);
    if item.version.is_some_and(|wanted| version != Some(wanted)) {
        return Ok(ItemOutcome::Unmet { is_there: found.is_some(), version });
    }
    Ok(match found {
        Some(found) => ItemOutcome::Found { stored: found.stored, version, write: None },
        None => ItemOutcome::Missing,
    })
}
