//! A transaction of a durable bucket, on the thread of the partition's owner.

use std::collections::HashMap;

use bytes::Bytes;
use millstream_types::PartitionId;

use super::{KeyIndex, Keys};
use crate::record::StoredValue;
use crate::table::{Place, TotalsDelta};
use crate::{Interrupted, KeyEntry, Transaction, Value, WriteRefusal};

/// Largest value of one record, with room for key and headers.
pub(crate) const VALUE_MAX_BYTES: u64 = (4 << 20) - (64 << 10);
/// Most bytes of the writes of a transaction that stores values, with room for their headers in one append.
const TRANSACTION_MAX_BYTES: usize = (4 << 20) - (32 << 10);
/// Bytes of a write beside key and value, at most: those of its record and of its expiry.
const WRITE_BYTES: usize = 128;
/// Writes of a transaction from which on they are found by a map.
const WRITES_BY_MAP: usize = 16;

/// A key of the store's own that is never stored.
const NOBODYS_KEY: &[u8] = b"\0w";

/// A value that was read for a transaction.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub(crate) key: Bytes,
    pub(crate) offset: u64,
    pub(crate) stored: StoredValue,
}

/// A write that the transaction makes if it succeeds.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) key: Bytes,
    pub(crate) stored: Option<StoredValue>,
}

/// Reads and writes of one partition's keys, which take effect together.
pub struct OwnerTransaction<'a, 's> {
    keys: &'a Keys,
    partition: PartitionId,
    state: &'s KeyIndex,
    loaded: &'a [Loaded],
    now_ms: i64,
    /// One for each key, the newest.
    writes: Vec<Write>,
    by_key: HashMap<Bytes, usize>,
    /// Bytes of the writes, each with `WRITE_BYTES` for its record.
    written_bytes: usize,
    added: TotalsDelta,
    missing: Vec<(Bytes, u64)>,
}

impl std::fmt::Debug for OwnerTransaction<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnerTransaction({}, {} writes)", self.keys.name, self.writes.len())
    }
}

/// The state of a key inside a transaction.
enum KeyState<'a> {
    /// Written, and not yet in the log.
    Written(&'a StoredValue),
    /// The newest write is in the log, at this place.
    Landed(Place),
}

impl<'a, 's> OwnerTransaction<'a, 's> {
    pub(crate) fn new(
        keys: &'a Keys,
        partition: PartitionId,
        state: &'s KeyIndex,
        loaded: &'a [Loaded],
        now_ms: i64,
    ) -> Self {
        let (writes, missing, by_key) = (Vec::new(), Vec::new(), HashMap::new());
        let (written_bytes, added) = (0, TotalsDelta::default());
        Self { keys, partition, state, loaded, now_ms, writes, by_key, written_bytes, added, missing }
    }

    pub(crate) fn into_writes(self) -> Vec<Write> {
        self.writes
    }

    pub(crate) fn into_missing(self) -> Vec<(Bytes, u64)> {
        self.missing
    }

    /// The number of the write of `key` among those of the transaction, from 0 on.
    pub(crate) fn write_of(&self, key: &[u8]) -> Option<usize> {
        if self.writes.len() < WRITES_BY_MAP {
            return self.writes.iter().position(|write| write.key == key);
        }
        self.by_key.get(key).copied()
    }

    /// Returns the key's newest value or place, whether it has expired or not.
    fn newest(&self, key: &[u8]) -> Option<KeyState<'_>> {
        if let Some(at) = self.write_of(key) {
            return self.writes[at].stored.as_ref().map(KeyState::Written);
        }
        if let Some(newest) = self.state.on_their_way.get(key) {
            return newest.stored.as_ref().map(KeyState::Written);
        }
        let table = &self.state.table;
        table.get(table.fingerprint(key)).map(KeyState::Landed)
    }

    /// The place of `key` as the quotas count it, expired or not.
    fn counted(&self, key: &[u8]) -> Option<Place> {
        self.newest(key).map(|found| match found {
            KeyState::Written(stored) => stored.place(key, u64::MAX),
            KeyState::Landed(place) => place,
        })
    }

    /// The value under `key`, as its record holds it; `None` if there is nothing, or if it has expired.
    ///
    /// # Errors
    /// [`Interrupted::NotLoaded`] if it must be read from the disk first.
    pub fn stored(&mut self, key: &[u8]) -> Result<Option<StoredValue>, Interrupted> {
        let now_ms = self.now_ms;
        let place = match self.newest(key) {
            None => return Ok(None),
            Some(KeyState::Written(stored)) => {
                let has_expired = stored.value.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms);
                return Ok((!has_expired).then(|| stored.clone()));
            }
            Some(KeyState::Landed(place)) => place,
        };
        if place.has_expired(now_ms) {
            return Ok(None);
        }
        let is_it = |loaded: &&Loaded| loaded.offset == place.offset && loaded.key == key;
        if let Some(loaded) = self.loaded.iter().find(is_it) {
            return Ok(Some(loaded.stored.clone()));
        }
        if let Some(stored) = self.keys.cache.get(self.partition, place.offset, key) {
            return Ok(Some(stored));
        }
        self.missing.push((Bytes::copy_from_slice(key), place.offset));
        Err(Interrupted::NotLoaded)
    }

    /// Notes that the value of `key` will be asked for, so that values from the disk are read together.
    pub fn will_get(&mut self, key: &[u8]) {
        // The outcome is noted, whatever it is.
        let _ = self.stored(key);
    }

    /// Ends early if a value that was noted must be read first.
    ///
    /// # Errors
    /// [`Interrupted::NotLoaded`] if a value that was noted is not in memory.
    pub fn all_loaded(&self) -> Result<(), Interrupted> {
        if self.missing.is_empty() { Ok(()) } else { Err(Interrupted::NotLoaded) }
    }

    /// Stores what a record of `key` shall hold.
    ///
    /// # Errors
    /// [`Interrupted::Refused`] by a limit or quota.
    pub fn store(&mut self, key: &[u8], stored: StoredValue) -> Result<(), Interrupted> {
        if stored.value.expires_ms.is_some_and(|expires_ms| expires_ms <= self.now_ms) {
            self.delete(key);
            return Ok(());
        }
        let after = stored.place(key, u64::MAX);
        let added = TotalsDelta::between(key, self.counted(key), Some(after));
        if stored.large.is_none() && stored.length() > VALUE_MAX_BYTES {
            return Err(WriteRefusal::ValueTooLarge { length: stored.length(), max_bytes: VALUE_MAX_BYTES }.into());
        }
        self.check_quotas(added, stored.length())?;
        let bytes = self.bytes_with(key, Some(&stored));
        if bytes > TRANSACTION_MAX_BYTES {
            return Err(WriteRefusal::TransactionTooLarge { bytes, max_bytes: TRANSACTION_MAX_BYTES }.into());
        }
        self.write(key, Some(stored), added);
        Ok(())
    }

    /// Writes a record that changes nothing: the deletion of a key that nobody can have.
    pub(crate) fn touch(&mut self) {
        self.write(NOBODYS_KEY, None, TotalsDelta::default());
    }

    /// Number of keys written so far.
    pub(crate) fn written(&self) -> usize {
        self.writes.len()
    }

    /// Deletes `key` if it has expired.
    pub(crate) fn remove_if_expired(&mut self, key: &[u8]) -> bool {
        let now_ms = self.now_ms;
        let has_expired = self.counted(key).is_some_and(|place| place.has_expired(now_ms));
        if has_expired {
            self.delete(key);
        }
        has_expired
    }

    fn check_quotas(&self, added: TotalsDelta, length: u64) -> Result<(), WriteRefusal> {
        let quotas = **self.keys.quotas.load();
        if let Some(max_bytes) = quotas.value_max_bytes.filter(|max_bytes| length > *max_bytes) {
            return Err(WriteRefusal::ValueTooLarge { length, max_bytes });
        }
        if quotas.max_bytes.is_none() && quotas.max_keys.is_none() {
            return Ok(());
        }
        let (landed, to_come) = (self.keys.totals(), self.state.to_come);
        let held_bytes = landed.bytes.saturating_add_signed(to_come.bytes).saturating_add_signed(self.added.bytes);
        let held_keys = landed.keys.saturating_add_signed(to_come.keys).saturating_add_signed(self.added.keys);
        match (quotas.max_bytes, quotas.max_keys) {
            (Some(max_bytes), _) if added.bytes > 0 && held_bytes + added.bytes as u64 > max_bytes => {
                Err(WriteRefusal::BucketFull { held: held_bytes, max_bytes })
            }
            (_, Some(max_keys)) if added.keys > 0 && held_keys + added.keys as u64 > max_keys => {
                Err(WriteRefusal::TooManyKeys { held: held_keys, max_keys })
            }
            _ => Ok(()),
        }
    }

    /// Bytes of all writes once `key` is written.
    fn bytes_with(&self, key: &[u8], stored: Option<&StoredValue>) -> usize {
        let replaced = self.write_of(key).map_or(0, |at| write_bytes(key, self.writes[at].stored.as_ref()));
        self.written_bytes - replaced + write_bytes(key, stored)
    }

    fn write(&mut self, key: &[u8], stored: Option<StoredValue>, added: TotalsDelta) {
        self.added += added;
        self.written_bytes = self.bytes_with(key, stored.as_ref());
        match self.write_of(key) {
            Some(at) => self.writes[at].stored = stored,
            None => {
                let key = Bytes::copy_from_slice(key);
                self.writes.push(Write { key, stored });
                match self.writes.len() {
                    WRITES_BY_MAP => {
                        let all = self.writes.iter().enumerate();
                        self.by_key = all.map(|(at, write)| (write.key.clone(), at)).collect();
                    }
                    length if length > WRITES_BY_MAP => {
                        let at = length - 1;
                        self.by_key.insert(self.writes[at].key.clone(), at);
                    }
                    _ => {}
                }
            }
        }
    }
}

fn write_bytes(key: &[u8], stored: Option<&StoredValue>) -> usize {
    WRITE_BYTES + key.len() + stored.map_or(0, |stored| stored.value.bytes.len())
}

impl Transaction for OwnerTransaction<'_, '_> {
    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    fn entry(&mut self, key: &[u8]) -> Option<KeyEntry> {
        let now_ms = self.now_ms;
        let (place, version) = match self.newest(key)? {
            KeyState::Written(stored) => (stored.place(key, 0), None),
            KeyState::Landed(place) => (place, Some(place.offset)),
        };
        let Place { length, expires_ms, .. } = place;
        (!place.has_expired(now_ms)).then_some(KeyEntry { version, length, expires_ms })
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Value>, Interrupted> {
        let Some(stored) = self.stored(key)? else { return Ok(None) };
        match stored.large {
            Some(length) => Err(WriteRefusal::InParts { length }.into()),
            None => Ok(Some(stored.value)),
        }
    }

    fn put(&mut self, key: &[u8], value: Value) -> Result<(), Interrupted> {
        self.keys.check_key(key)?;
        let written_ms = self.now_ms;
        self.store(key, StoredValue { value, large: None, written_ms })
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        let Some(before) = self.counted(key) else { return false };
        let added = TotalsDelta::between(key, Some(before), None);
        self.write(key, None, added);
        !before.has_expired(self.now_ms)
    }
}
