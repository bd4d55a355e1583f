//! Reads of several keys in one go, beside the owner.

use bytes::Bytes;

use super::Bucket;
use crate::keys::Loaded;
use crate::{Error, Interrupted, KeyEntry, Look, StoredValue, Transaction, Value, WriteRefusal};

/// A transaction that only reads, and does not wait for the owner: it sees every answered write. Each key is read by
/// itself, so what one owner wrote together may be seen in parts.
pub struct Snapshot<'a> {
    bucket: &'a Bucket,
    now_ms: i64,
    loaded: &'a [Loaded],
    missing: Vec<Bytes>,
    failure: Option<Error>,
}

impl std::fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({:?})", self.bucket)
    }
}

/// The keys that must be loaded before a read can run again.
#[derive(Debug, Default)]
pub struct Needed(Vec<Bytes>);

impl Bucket {
    /// Runs `read`, which only reads, without the disk. `Err` tells what it needs from there; see [`Bucket::load`].
    ///
    /// # Errors
    /// [`Error`] if a record cannot be read.
    pub fn snapshot<R>(
        &self,
        loaded: &[Loaded],
        read: impl FnOnce(&mut dyn Transaction) -> Result<R, Interrupted>,
    ) -> Result<Result<R, Needed>, Error> {
        let mut snapshot = Snapshot { bucket: self, now_ms: self.now_ms(), loaded, missing: Vec::new(), failure: None };
        let outcome = read(&mut snapshot);
        match (outcome, snapshot.failure) {
            (_, Some(failure)) => Err(failure),
            (Ok(output), None) => Ok(Ok(output)),
            (Err(Interrupted::NotLoaded), None) => Ok(Err(Needed(snapshot.missing))),
            (Err(Interrupted::Refused(refusal)), None) => Err(refusal.into()),
        }
    }

    /// Reads what a snapshot needs.
    ///
    /// # Errors
    /// The same errors as [`Bucket::read`].
    pub async fn load(&self, needed: Needed, loaded: &mut Vec<Loaded>) -> Result<(), Error> {
        for key in needed.0 {
            if let Some(found) = self.read(&key).await? {
                loaded.push(Loaded { key, offset: found.version, stored: found.stored });
            }
        }
        Ok(())
    }

    fn loaded_or_look(&self, loaded: &[Loaded], key: &[u8]) -> Result<Look, Error> {
        let looked = self.look(key)?;
        if let Look::OnDisk { version } = looked
            && let Some(known) = loaded.iter().find(|known| known.key == key && known.offset == version)
        {
            return Ok(Look::Found(crate::FoundValue { stored: known.stored.clone(), version }));
        }
        Ok(looked)
    }
}

impl Transaction for Snapshot<'_> {
    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    fn entry(&mut self, key: &[u8]) -> Option<KeyEntry> {
        let place = self.bucket.place(key)?;
        Some(KeyEntry { version: Some(place.offset), length: place.length, expires_ms: place.expires_ms })
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Value>, Interrupted> {
        match self.bucket.loaded_or_look(self.loaded, key) {
            Ok(Look::Missing) => Ok(None),
            Ok(Look::Found(found)) => match found.stored {
                StoredValue { large: Some(length), .. } => Err(WriteRefusal::InParts { length }.into()),
                StoredValue { value, .. } => Ok(Some(value)),
            },
            Ok(Look::OnDisk { .. }) => {
                self.missing.push(Bytes::copy_from_slice(key));
                Err(Interrupted::NotLoaded)
            }
            Err(failure) => {
                self.failure = Some(failure);
                Err(Interrupted::NotLoaded)
            }
        }
    }

    fn put(&mut self, _: &[u8], _: Value) -> Result<(), Interrupted> {
        Err(WriteRefusal::ReadOnly.into())
    }

    fn delete(&mut self, _: &[u8]) -> bool {
        self.failure = Some(WriteRefusal::ReadOnly.into());
        false
    }
}
