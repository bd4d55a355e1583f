//! Removes the parts that no value needs: of uploads that are given up or too old, and of values that were
//! replaced, deleted or have expired. Parts that a reader holds wait for it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millstream_log::AckLevel;
use millstream_types::PartitionId;

use super::commit::store_own;
use super::{Upload, UploadState, chunks_prefix, parts_prefix};
use crate::bucket::Bucket;
use crate::keys::OwnerTransaction;
use crate::record::{Listed, OWN};
use crate::{Error, Transaction};

/// Keys that are listed, and records that are removed, at a time.
pub(super) const LISTED_MAX: usize = 256;
/// Time between two batches of removals.
const PAUSE: Duration = Duration::from_millis(5);
/// The second byte of a chunk's key.
const CHUNK: u8 = b'p';

impl Bucket {
    /// Gives an open upload up: nothing can be added to it or committed, and its parts are removed later. Returns
    /// `false` if it was not open.
    ///
    /// # Errors
    /// The same errors as [`Bucket::transact`].
    pub async fn give_up(&self, upload: &Upload, level: Option<AckLevel>) -> Result<bool, Error> {
        let of_work = upload.clone();
        let work = move |transaction: &mut OwnerTransaction<'_, '_>| {
            let is_open = transaction.delete(&of_work.record(UploadState::Open));
            if is_open {
                store_own(transaction, &of_work.record(UploadState::Doomed), Bytes::from_static(&[1]))?;
            }
            Ok(is_open)
        };
        Ok(self.make_room(upload.partition, level, 0, work).await?.output)
    }

    /// Removes the parts that no value needs; those of an open upload once it is older than `max_age_ms`. Returns the
    /// number of records that it removed.
    ///
    /// # Errors
    /// Those of [`Bucket::transact`] and [`Bucket::list`].
    pub async fn remove_parts(self: &Arc<Self>, max_age_ms: u64) -> Result<usize, Error> {
        let mut removed = 0;
        let abandoned = std::mem::take(&mut *self.abandoned.lock());
        for (partition, key) in abandoned {
            match (key.get(1), Upload::of_record(partition, &key)) {
                (Some(&CHUNK), _) => removed += self.remove_all(partition, &key).await?,
                (_, Some(upload)) => drop(self.give_up(&upload, Some(AckLevel::Written)).await?),
                (_, None) => {}
            }
        }
        let oldest_ms = self.now_ms().saturating_sub_unsigned(max_age_ms);
        for number in 0..self.config().partitions {
            for state in [UploadState::Open, UploadState::InUse, UploadState::Doomed] {
                removed += self.look_after(PartitionId(number), state, oldest_ms).await?;
            }
        }
        Ok(removed)
    }

    /// Looks at every upload of the partition in `state`. Returns the number of records that were removed.
    async fn look_after(
        self: &Arc<Self>,
        partition: PartitionId,
        state: UploadState,
        oldest_ms: i64,
    ) -> Result<usize, Error> {
        let prefix = Bytes::copy_from_slice(&[OWN, state as u8]);
        let (mut removed, mut last) = (0, None);
        loop {
            let listed = self.list_own(partition, &prefix, last.as_ref()).await?;
            for (key, entry) in &listed {
                let Some(upload) = Upload::of_record(partition, key) else { continue };
                removed += self.look_at(state, &upload, entry, oldest_ms).await?;
            }
            if listed.len() < LISTED_MAX {
                return Ok(removed);
            }
            last = listed.last().map(|(key, _)| key.clone());
        }
    }

    /// Dooms the upload if nothing needs it, and removes the records of a doomed one.
    async fn look_at(
        self: &Arc<Self>,
        state: UploadState,
        upload: &Upload,
        entry: &Listed,
        oldest_ms: i64,
    ) -> Result<usize, Error> {
        match state {
            UploadState::Open if entry.written_ms < oldest_ms => {
                self.give_up(upload, Some(AckLevel::Written)).await?;
            }
            UploadState::InUse if self.place(&upload.key).is_none_or(|place| place.offset > entry.version) => {
                self.doom_replaced(upload).await?;
            }
            UploadState::Doomed if !self.part_holds.has(upload.id.0, self.part_hold_max) => {
                let chunks = self.remove_all(upload.partition, &chunks_prefix(upload.id, None)).await?;
                let parts = self.remove_all(upload.partition, &parts_prefix(upload.id)).await?;
                self.remove(upload.partition, vec![upload.record(UploadState::Doomed)]).await?;
                return Ok(chunks + parts);
            }
            // Its readers have it until they end.
            UploadState::Doomed | UploadState::Open | UploadState::InUse => {}
        }
        Ok(0)
    }

    /// Dooms an upload whose value has been replaced or is gone.
    async fn doom_replaced(&self, upload: &Upload) -> Result<(), Error> {
        let of_work = upload.clone();
        let work = move |transaction: &mut OwnerTransaction<'_, '_>| {
            let record = of_work.record(UploadState::InUse);
            // A record that is on its way belongs to a new manifest.
            let Some(used) = transaction.entry(&record).and_then(|entry| entry.version) else { return Ok(()) };
            let is_replaced = match transaction.entry(&of_work.key) {
                None => true,
                Some(entry) => entry.version.is_some_and(|version| version > used),
            };
            if is_replaced {
                transaction.delete(&record);
                store_own(transaction, &of_work.record(UploadState::Doomed), Bytes::from_static(&[1]))?;
            }
            Ok(())
        };
        self.make_room(upload.partition, Some(AckLevel::Written), 0, work).await.map(|_| ())
    }

    /// Removes all records whose keys begin with `prefix`, in batches.
    async fn remove_all(self: &Arc<Self>, partition: PartitionId, prefix: &Bytes) -> Result<usize, Error> {
        let mut removed = 0;
        loop {
            let listed = self.list_own(partition, prefix, None).await?;
            let count = listed.len();
            if count == 0 {
                return Ok(removed);
            }
            self.remove(partition, listed.into_iter().map(|(key, _)| key).collect()).await?;
            removed += count;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn remove(&self, partition: PartitionId, keys: Vec<Bytes>) -> Result<(), Error> {
        let size_bytes = keys.iter().map(Bytes::len).sum();
        let work = move |transaction: &mut OwnerTransaction<'_, '_>| {
            for key in &keys {
                transaction.delete(key);
            }
            Ok(())
        };
        self.make_room(partition, Some(AckLevel::Written), size_bytes, work).await.map(|_| ())
    }

    /// Lists keys of the store's own that begin with `prefix`, those behind `last` on, at most [`LISTED_MAX`].
    pub(super) async fn list_own(
        self: &Arc<Self>,
        partition: PartitionId,
        prefix: &Bytes,
        last: Option<&Bytes>,
    ) -> Result<Vec<(Bytes, Listed)>, Error> {
        let (bucket, prefix) = (Arc::clone(self), prefix.clone());
        let start = last.map_or_else(|| prefix.to_vec(), |last| [&last[..], &[0]].concat());
        let list = move || {
            let mut listed = Vec::new();
            bucket.list(partition, &start, |key, entry| {
                if !key.starts_with(&prefix) {
                    return ControlFlow::Break(());
                }
                listed.push((Bytes::copy_from_slice(key), entry));
                if listed.len() < LISTED_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            Ok(listed)
        };
        tokio::task::spawn_blocking(list).await.map_err(|_| Error::Stopped)?
    }
}
