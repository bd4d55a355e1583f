//! Runs the items of a bulk request at the owners of their partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use futures_util::future::join_all;
use millstream_http::Problem;
use millstream_log::AckLevel;
use millstream_types::PartitionId;
use serde_json::{Map, Value as Json};

use super::NumberedItem;
use super::item::{BulkAction, BulkItem, Expiry, Put};
use super::outcome::ItemOutcome;
use super::reads;
use crate::http::key_line::KeyLine;
use crate::http::problems::problem;
use crate::{Bucket, Error, Interrupted, OwnerTransaction, Transaction, Value};

/// Most items and bytes of one transaction. Its writes fit one append.
const TRANSACTION_ITEMS: usize = 512;
const TRANSACTION_BYTES: usize = 1 << 20;
/// Bytes of an item beside what it writes.
const ITEM_BYTES: usize = 128;
/// Bytes of the values that one request reads.
const VALUES_MAX_BYTES: u64 = 8 << 20;

/// The answer of all lines, in order.
pub(super) async fn run(bucket: &Arc<Bucket>, lines: Vec<NumberedItem>, level: Option<AckLevel>) -> String {
    let mut answers: Vec<(usize, String)> = Vec::with_capacity(lines.len());
    let mut by_partition: BTreeMap<PartitionId, Vec<(usize, BulkItem)>> = BTreeMap::new();
    for (line, item) in lines {
        match item {
            Ok(item) => by_partition.entry(bucket.partition_of(&item.key)).or_default().push((line, item)),
            Err(refusal) => answers.push((line, refused_line(line, &refusal))),
        }
    }
    let values_max_bytes = VALUES_MAX_BYTES / by_partition.len().max(1) as u64;
    let runs = by_partition
        .into_iter()
        .map(|(partition, items)| run_partition(bucket, partition, items, level, values_max_bytes));
    answers.extend(join_all(runs).await.into_iter().flatten());
    answers.sort_unstable_by_key(|(line, _)| *line);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

async fn run_partition(
    bucket: &Arc<Bucket>,
    partition: PartitionId,
    items: Vec<(usize, BulkItem)>,
    level: Option<AckLevel>,
    values_max_bytes: u64,
) -> Vec<(usize, String)> {
    let mut answers = Vec::with_capacity(items.len());
    let mut left_bytes = values_max_bytes;
    for (lines, items, size_bytes) in transactions(items) {
        let (first, outcomes) = run_together(bucket, partition, items.clone(), size_bytes, level, left_bytes).await;
        for ((line, item), outcome) in lines.into_iter().zip(&items[..]).zip(outcomes) {
            if let Ok(ItemOutcome::Found { stored, .. }) = &outcome {
                left_bytes = left_bytes.saturating_sub(stored.value.bytes.len() as u64);
            }
            let answer = outcome.map(|outcome| outcome.line(line, item, first));
            answers.push((line, answer.unwrap_or_else(|refusal| refused_line(line, &refusal))));
        }
    }
    answers
}

/// Runs items in one transaction, or beside the owner if none of them writes. Returns the version of the first write and
/// the outcome of each item.
async fn run_together(
    bucket: &Arc<Bucket>,
    partition: PartitionId,
    items: Arc<[BulkItem]>,
    size_bytes: usize,
    level: Option<AckLevel>,
    left_bytes: u64,
) -> (u64, Vec<Result<ItemOutcome, Problem>>) {
    let is_written = items.iter().any(|item| item.action != BulkAction::Get);
    let refusal = if is_written {
        let (of_work, ttl_ms) = (Arc::clone(&items), bucket.config().ttl_ms);
        let work = move |transaction: &mut OwnerTransaction<'_, '_>| work(transaction, &of_work, ttl_ms, left_bytes);
        match bucket.transact(partition, level, size_bytes, work).await {
            Ok(done) => return (done.first, done.output.into_iter().map(Ok).collect()),
            // None of them is stored, and the owner takes no further ones now. The keys can be read all the same.
            Err(Error::View(full)) if full.is_full() => Some(problem(&Error::View(full))),
            Err(error) => {
                let refusal = problem(&error);
                return (0, items.iter().map(|_| Err(refusal.clone())).collect());
            }
        }
    } else {
        None
    };
    let outcomes = reads::read(bucket, &items, left_bytes).await.into_iter().map(|read| match (read, &refusal) {
        (Some(read), _) => read.map_err(|error| problem(&error)),
        (None, Some(refusal)) => Err(refusal.clone()),
        (None, None) => Ok(ItemOutcome::Missing),
    });
    (0, outcomes.collect())
}

/// The items of each transaction, with the numbers of their lines and their size.
fn transactions(items: Vec<(usize, BulkItem)>) -> impl Iterator<Item = (Vec<usize>, Arc<[BulkItem]>, usize)> {
    let mut all: Vec<(Vec<usize>, Vec<BulkItem>, usize)> = Vec::new();
    for (line, item) in items {
        let size_bytes = ITEM_BYTES + item.size_bytes();
        let has_room = |(_, items, held): &&mut (Vec<usize>, Vec<BulkItem>, usize)| {
            items.len() < TRANSACTION_ITEMS && *held + size_bytes <= TRANSACTION_BYTES
        };
        match all.last_mut().filter(has_room) {
            Some((lines, items, held)) => {
                lines.push(line);
                items.push(item);
                *held += size_bytes;
            }
            None => all.push((vec![line], vec![item], size_bytes)),
        }
    }
    all.into_iter().map(|(lines, items, size_bytes)| (lines, items.into(), size_bytes))
}

fn work(
    transaction: &mut OwnerTransaction<'_, '_>,
    items: &[BulkItem],
    ttl_ms: Option<u64>,
    mut left_bytes: u64,
) -> Result<Vec<ItemOutcome>, Interrupted> {
    // The values that are on the disk are read together.
    let mut is_too_much = vec![false; items.len()];
    for (item, is_too_much) in items.iter().zip(&mut is_too_much).filter(|(item, _)| item.action == BulkAction::Get) {
        let length = transaction.entry(&item.key).map_or(0, |entry| entry.length);
        match left_bytes.checked_sub(length) {
            Some(left) => {
                left_bytes = left;
                transaction.will_get(&item.key);
            }
            None => *is_too_much = true,
        }
    }
    transaction.all_loaded()?;
    let apply = |(item, is_too_much): (&BulkItem, bool)| match is_too_much {
        true => Ok(ItemOutcome::TooMuch),
        false => apply(transaction, item, ttl_ms),
    };
    items.iter().zip(is_too_much).map(apply).collect()
}

fn apply(
    transaction: &mut OwnerTransaction<'_, '_>,
    item: &BulkItem,
    ttl_ms: Option<u64>,
) -> Result<ItemOutcome, Interrupted> {
    let key = &item.key;
    let entry = transaction.entry(key);
    let (is_there, version) = (entry.is_some(), entry.and_then(|entry| entry.version));
    let is_unwanted = matches!(&item.action, BulkAction::Put(put) if put.is_create) && is_there;
    if is_unwanted || item.version.is_some_and(|wanted| version != Some(wanted)) {
        return Ok(ItemOutcome::Unmet { is_there, version });
    }
    match &item.action {
        BulkAction::Get => Ok(match transaction.stored(key)? {
            Some(stored) => ItemOutcome::Found { stored, version, write: transaction.write_of(key) },
            None => ItemOutcome::Missing,
        }),
        BulkAction::Delete if transaction.delete(key) => Ok(ItemOutcome::Deleted { write: transaction.write_of(key) }),
        BulkAction::Delete => Ok(ItemOutcome::Missing),
        BulkAction::Put(put) => match transaction.put(key, put.value(transaction.now_ms(), ttl_ms)) {
            Ok(()) => Ok(ItemOutcome::Stored { is_new: !is_there, write: transaction.write_of(key) }),
            // The others of the transaction go on.
            Err(Interrupted::Refused(refusal)) => Ok(ItemOutcome::Refused(refusal)),
            Err(interrupted) => Err(interrupted),
        },
    }
}

impl Put {
    fn value(&self, now_ms: i64, ttl_ms: Option<u64>) -> Value {
        let expires_ms = match self.expiry {
            Expiry::OfBucket => ttl_ms.map(|ttl_ms| now_ms.saturating_add_unsigned(ttl_ms)),
            Expiry::After(ttl_ms) => Some(now_ms.saturating_add_unsigned(ttl_ms)),
            Expiry::At(expires_ms) => Some(expires_ms),
        };
        Value { bytes: self.bytes.clone(), expires_ms, attributes: self.attributes.clone() }
    }
}

impl ItemOutcome {
    /// The line of the answer. `first` is the version of the transaction's first write.
    fn line(self, line: usize, item: &BulkItem, first: u64) -> String {
        let version_of = |write: Option<usize>| write.map(|write| first + write as u64);
        match self {
            Self::Found { stored, version, write } => {
                let shown = KeyLine::of_stored(&item.key, &stored, version_of(write).or(version));
                let json = shown.with_value(&stored, usize::MAX).json();
                format!("{{\"line\":{line},\"status\":200,{}\n", json.strip_prefix('{').unwrap_or_default())
            }
            Self::Stored { is_new, write } => {
                let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
                told(line, status, version_of(write), None)
            }
            Self::Deleted { write } => told(line, StatusCode::NO_CONTENT, version_of(write), None),
            Self::Missing => told(line, StatusCode::NOT_FOUND, None, Some("there is no such key".to_owned())),
            Self::Unmet { is_there, version } => {
                let found = match (is_there, version) {
                    (false, _) => "is not there".to_owned(),
                    (true, Some(version)) => format!("has version {version}"),
                    (true, None) => "has just been written".to_owned(),
                };
                let error = format!("the condition does not hold: the key {found}; read it again and decide anew");
                told(line, StatusCode::PRECONDITION_FAILED, version, Some(error))
            }
            Self::Refused(refusal) => refused_line(line, &problem(&Error::from(refusal))),
            Self::TooMuch => {
                let error = format!(
                    "the values of one request have at most {VALUES_MAX_BYTES} bytes; ask for this one in another request"
                );
                told(line, StatusCode::PAYLOAD_TOO_LARGE, None, Some(error))
            }
        }
    }
}

fn refused_line(line: usize, refusal: &Problem) -> String {
    told(line, refusal.status(), None, Some(refusal.text()))
}

fn told(line: usize, status: StatusCode, version: Option<u64>, error: Option<String>) -> String {
    let mut members = Map::new();
    members.insert("line".to_owned(), line.into());
    members.insert("status".to_owned(), status.as_u16().into());
    members.extend(version.map(|version| ("version".to_owned(), version.into())));
    members.extend(error.map(|error| ("error".to_owned(), error.into())));
    format!("{}\n", Json::Object(members))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_transaction_has_bounded_items_and_bytes() {
        let item = |bytes: usize| {
            let put =
                Put { bytes: vec![0; bytes].into(), expiry: Expiry::OfBucket, attributes: None, is_create: false };
            BulkItem { key: Bytes::from_static(b"k"), version: None, action: BulkAction::Put(put) }
        };
        let sizes = |items: Vec<BulkItem>| -> Vec<usize> {
            transactions(items.into_iter().enumerate().collect()).map(|(lines, _, _)| lines.len()).collect()
        };
        assert_eq!(sizes(vec![item(0); 1_200]), [512, 512, 176]);
        assert_eq!(sizes(vec![item(900 << 10), item(900 << 10), item(1), item(1)]), [1, 3]);
        let lines: Vec<usize> =
            transactions((0..1_200).map(|line| (line, item(0))).collect()).flat_map(|(lines, ..)| lines).collect();
        assert!(lines.into_iter().eq(0..1_200));
    }
}
