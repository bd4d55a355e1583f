//! Reads of one key's record from the log.

use std::time::Instant;

use millstream_log::{CachedRead, Partition, UpTo};
use millstream_types::{BatchLimits, Offset, PartitionId, StoredRecord};

use crate::Error;
use crate::counters::BucketCounts;
use crate::read_cache::ReadCache;
use crate::record::{StoredValue, is_own};

/// A read of a value that no memory of the bucket holds.
#[derive(Clone, Copy)]
pub(super) struct DiskRead {
    pub(super) partition: PartitionId,
    pub(super) offset: u64,
    pub(super) begun: Option<Instant>,
}

impl DiskRead {
    /// Reads the record without waiting for the disk; `None` if the page cache does not have it.
    pub(super) fn cached(
        self,
        log: &dyn Partition,
        key: &[u8],
        cache: &ReadCache,
        counts: &BucketCounts,
    ) -> Result<Option<Option<StoredValue>>, Error> {
        let read = match log.read_one_cached(Offset(self.offset), UpTo::Tail) {
            Ok(CachedRead::OnDisk) => return Ok(None),
            Ok(CachedRead::Read(record)) => stored_of(log, self.offset, key, record),
            Err(error) => Err(error.into()),
        };
        self.noted(read, key, cache, counts).map(Some)
    }

    /// Reads the record. Blocks on the disk: call it from a plain thread.
    pub(super) fn blocking(
        self,
        log: &dyn Partition,
        key: &[u8],
        cache: &ReadCache,
        counts: &BucketCounts,
    ) -> Result<Option<StoredValue>, Error> {
        self.noted(read_record(log, self.offset, key), key, cache, counts)
    }

    /// Counts the read, and keeps what was found for the next one.
    fn noted(
        self,
        read: Result<Option<StoredValue>, Error>,
        key: &[u8],
        cache: &ReadCache,
        counts: &BucketCounts,
    ) -> Result<Option<StoredValue>, Error> {
        let read = read.inspect_err(|_| counts.read_disk.failed())?;
        // Chunks of large values would drive everything else out.
        if let Some(stored) = read.as_ref().filter(|_| !is_own(key)) {
            counts.read_from_disk(key, stored.value.bytes.len() as u64, self.begun);
            cache.insert(self.partition, self.offset, key, stored);
        }
        Ok(read)
    }
}

/// Reads the record at `offset`; `None` if it has gone or has another key.
pub(super) fn read_record(log: &dyn Partition, offset: u64, key: &[u8]) -> Result<Option<StoredValue>, Error> {
    stored_of(log, offset, key, log.read_one(Offset(offset), UpTo::Tail)?)
}

/// Reads the record at `offset` if it lies in memory: `None` if it does not, and within it `None` if it has gone or has
/// another key.
pub(super) fn read_record_in_memory(
    log: &dyn Partition,
    offset: u64,
    key: &[u8],
) -> Result<Option<Option<StoredValue>>, Error> {
    let batches = match log.read_from_memory(Offset(offset), 0, UpTo::Tail) {
        Err(millstream_log::Error::Trimmed { .. }) => return Ok(None),
        known => known?,
    };
    let Some(batches) = batches else { return Ok(None) };
    let Some(batch) = batches.into_iter().next() else { return Ok(Some(None)) };
    let record = batch.inflated(&BatchLimits::default()).and_then(|batch| batch.record_at(Offset(offset)));
    let record = record.map_err(|source| millstream_log::Error::Batch { partition: log.id().clone(), source })?;
    stored_of(log, offset, key, record).map(Some)
}

fn stored_of(
    log: &dyn Partition,
    offset: u64,
    key: &[u8],
    record: Option<StoredRecord>,
) -> Result<Option<StoredValue>, Error> {
    let Some(record) = record else { return Ok(None) };
    let (Some(found), Some(value)) = (&record.key, &record.value) else { return Ok(None) };
    if found != key {
        return Ok(None);
    }
    let stored = StoredValue::read(&record.view(), value.clone()).map_err(|fault| Error::Damaged {
        partition: log.id().clone(),
        offset,
        what: fault.what,
    })?;
    Ok(Some(stored))
}
