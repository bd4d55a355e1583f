//! The content of the catalog as one of its two topics has it.

use std::collections::BTreeMap;

use millstream_log::{AckLevel, Partition, UpTo, reply};
use millstream_types::{BatchError, BatchLimits, Record};

use crate::Error;
use crate::catalog_record::{CatalogKey, CatalogValue};

const READ_BYTES: usize = 1 << 20;
/// Bytes of records per append when a copy is filled.
const FILL_BYTES: usize = 1 << 20;

/// A record to append: a key, and its value or a tombstone.
pub(crate) type EncodedRecord = (String, Option<String>);

/// The last value of each key.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CatalogContent {
    pub(crate) values: BTreeMap<CatalogKey, CatalogValue>,
    /// The least number above those of all files and erasures.
    pub(crate) next_number: u64,
}

impl CatalogContent {
    pub(crate) fn read(partition: &dyn Partition) -> Result<Self, Error> {
        let mut content = Self { next_number: 1, ..Self::default() };
        let mut next = partition.offsets().first;
        loop {
            let batches = partition.read(next, READ_BYTES, UpTo::Stable)?;
            let Some(last) = batches.last() else { return Ok(content) };
            next = last.next_offset();
            for batch in &batches {
                let unreadable = |error: BatchError| Error::Record { reason: error.to_string() };
                let batch = batch.inflated(&BatchLimits::default()).map_err(unreadable)?;
                for record in batch.records() {
                    let record = record.map_err(unreadable)?;
                    let key = CatalogKey::decode(record.key.unwrap_or_default())?;
                    content.apply(key, record.value.map(CatalogValue::decode).transpose()?);
                }
            }
        }
    }

    fn apply(&mut self, key: CatalogKey, value: Option<CatalogValue>) {
        if let CatalogKey::File(number) | CatalogKey::Erasure(number) = key {
            self.next_number = self.next_number.max(number + 1);
        }
        match value {
            Some(value) => drop(self.values.insert(key, value)),
            None => drop(self.values.remove(&key)),
        }
    }

    /// `true` if these records are the last of their keys.
    pub(crate) fn has(&self, records: &[EncodedRecord]) -> Result<bool, Error> {
        for (key, value) in records {
            let known = self.values.get(&CatalogKey::decode(key.as_bytes())?);
            if known.map(|known| known.clone().encode()) != *value {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// `true` if `other` has everything that this content has.
    pub(crate) fn is_part_of(&self, other: &Self) -> bool {
        self.values.iter().all(|(key, value)| other.values.get(key) == Some(value))
    }

    /// Appends to `partition`, which has this content, what makes its content equal to `wanted`.
    pub(crate) fn make_equal(&self, partition: &dyn Partition, wanted: &Self) -> Result<(), Error> {
        let is_missing = |(key, value): &(&CatalogKey, &CatalogValue)| self.values.get(key) != Some(value);
        let missing = wanted.values.iter().filter(is_missing);
        let missing = missing.map(|(key, value)| (key.encode(), Some(value.clone().encode())));
        let gone = self.values.keys().filter(|key| !wanted.values.contains_key(key)).map(|key| (key.encode(), None));
        let mut pending: Vec<EncodedRecord> = Vec::new();
        let mut pending_bytes = 0;
        for (key, value) in missing.chain(gone) {
            pending_bytes += key.len() + value.as_ref().map_or(0, String::len);
            pending.push((key, value));
            if pending_bytes >= FILL_BYTES {
                append(partition, &std::mem::take(&mut pending))?;
                pending_bytes = 0;
            }
        }
        if pending.is_empty() { Ok(()) } else { append(partition, &pending) }
    }
}

/// Borrows records for an append.
pub(crate) fn borrowed(records: &[EncodedRecord]) -> Vec<Record<'_>> {
    let records = records.iter().map(|(key, value)| Record {
        key: Some(key.as_bytes()),
        value: value.as_ref().map(String::as_bytes),
        ..Record::default()
    });
    records.collect()
}

fn append(partition: &dyn Partition, records: &[EncodedRecord]) -> Result<(), Error> {
    let (done, answer) = reply();
    partition.append(&borrowed(records), AckLevel::Synced, done)?;
    answer.wait()?;
    Ok(())
}
