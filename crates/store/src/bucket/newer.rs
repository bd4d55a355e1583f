//! Reads whose record has gone before the owner has noted a newer one.
//!
//! A newer record of a key may be in the log, and compaction may have removed the older one, while the table still has the
//! place of the older one: the owner learns of an append later than the log's other threads. The owner answers in order, so
//! once it has answered a question, everything that it appended before is in the table. A place that is then still the same
//! is damage.

use std::time::Duration;

use millstream_log::AckLevel;
use millstream_types::PartitionId;

use super::{Bucket, Place};
use crate::Error;

/// Time between two questions to an owner that takes none, as on a full disk.
const PAUSE: Duration = Duration::from_millis(5);

impl Bucket {
    /// Waits for a newer place of a key whose record at `offset` has gone; `place` looks the key up.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is none; [`Error::ReadsWaiting`].
    pub(super) async fn wait_for_newer(
        &self,
        partition: PartitionId,
        offset: u64,
        place: impl Fn() -> Option<Place> + Send + Sync,
    ) -> Result<(), Error> {
        if self.is_noted(partition, offset, place).await? {
            return Ok(());
        }
        self.on_reading_thread(|| std::thread::sleep(PAUSE)).await
    }

    /// As [`Bucket::wait_for_newer`], on the calling thread, which is none of a runtime.
    pub(super) fn wait_for_newer_blocking(
        &self,
        partition: PartitionId,
        offset: u64,
        place: impl Fn() -> Option<Place> + Send + Sync,
    ) -> Result<(), Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|_| Error::Stopped)?;
        if !runtime.block_on(self.is_noted(partition, offset, place))? {
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Has the owner note everything that it has appended. Returns `false` if it takes no question now.
    async fn is_noted(
        &self,
        partition: PartitionId,
        offset: u64,
        place: impl Fn() -> Option<Place> + Send + Sync,
    ) -> Result<bool, Error> {
        let is_old = || place().is_some_and(|place| place.offset == offset);
        if !is_old() {
            return Ok(true);
        }
        match self.ask(self.command(partition, Some(AckLevel::Memory), 0, |_| Ok(()))).await {
            Ok(_) if is_old() => Err(self.damaged(partition, offset, "there is no record of that key")),
            outcome => Ok(outcome.is_ok()),
        }
    }
}
