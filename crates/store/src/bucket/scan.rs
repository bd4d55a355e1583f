//! The reads of a bucket for listings, iterations and watches. All of it may block on the disk: it
//! runs on the reading threads.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use millstream_log::{Partition, UpTo};
use millstream_types::{Offset, PartitionId};

use super::{Bucket, FoundValue, LOOKUPS_MAX, Place, read_record};
use crate::Error;
use crate::key_merge::KeySource;
use crate::record::Listed;

impl Bucket {
    /// The partitions of the topic, by number.
    pub(crate) fn partitions(&self) -> &[Arc<dyn Partition>] {
        &self.partitions
    }

    /// Runs `work`, which may block, on one of the threads that read from the disk.
    ///
    /// # Errors
    /// [`Error::ReadsWaiting`] if too many wait for one; [`Error::Stopped`].
    pub(crate) async fn on_reading_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let pending = self
            .readers
            .submit(Some(self.topic.tenant()), work)
            .map_err(|full| Error::ReadsWaiting { waiting: full.waiting })?;
        pending.await.map_err(|_| Error::Stopped)
    }

    /// Reads the value of `key` on the calling thread; `None` if there is none, or if it has expired. Leaves the cache
    /// as it is, so that a scan drives nothing out of it.
    pub(crate) fn read_blocking(&self, key: &[u8]) -> Result<Option<FoundValue>, Error> {
        let partition = self.partition_of(key);
        let log = &self.partitions[partition.0 as usize];
        for _ in 0..LOOKUPS_MAX {
            let Some(Place { offset, .. }) = self.place(key) else { return Ok(None) };
            if let Some(stored) = read_record(&**log, offset, key)? {
                return Ok(Some(FoundValue { stored, version: offset }));
            }
            self.wait_for_newer_blocking(partition, offset, || self.place(key))?;
        }
        Err(Error::ReadsWaiting { waiting: LOOKUPS_MAX })
    }

    /// Any key; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Log`] if a record cannot be read; [`Error::ReadsWaiting`].
    pub async fn random_key(&self) -> Result<Option<Bytes>, Error> {
        let first = fastrand::usize(..self.tables.len());
        let now_ms = self.wall.now_ms();
        for step in 0..self.tables.len() {
            let number = (first + step) % self.tables.len();
            let Some(offset) = self.tables[number].random(now_ms) else { continue };
            let log = Arc::clone(&self.partitions[number]);
            let read = move || log.read_one(Offset(offset), UpTo::Tail);
            let pending = self
                .readers
                .submit(Some(self.topic.tenant()), read)
                .map_err(|full| Error::ReadsWaiting { waiting: full.waiting })?;
            if let Some(record) = pending.await.map_err(|_| Error::Stopped)?? {
                return Ok(record.key);
            }
        }
        Ok(None)
    }

    /// `true` if the record of `key` at `offset` is its newest, and the key is a client's and has not expired.
    pub(crate) fn is_live(&self, partition: PartitionId, key: &[u8], offset: u64) -> bool {
        let table = &self.tables[partition.0 as usize];
        let place = table.get(table.fingerprint(key));
        place.is_some_and(|place| place.offset == offset && !place.is_hidden && !place.has_expired(self.now_ms()))
    }
}

impl KeySource for Bucket {
    fn list_keys(
        &self,
        partition: PartitionId,
        start: &[u8],
        visit: &mut dyn FnMut(&[u8], Listed) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.list(partition, start, visit)
    }
}
