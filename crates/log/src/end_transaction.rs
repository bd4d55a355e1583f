//! Ends a transaction: markers in all its partitions, the group positions, and the coordinator's records, in one
//! atomic append. An atomic append is all or nothing over a crash, so there is no prepare phase.

use std::sync::Arc;

use millstream_types::{Marker, TopicPartition};

use crate::accept::APPEND_OVERHEAD_BYTES;
use crate::acceptor::Acceptor;
use crate::partition::{LockedPartitions, PartitionLog};
use crate::{AckLevel, Appended, AtomicAppend, Done, EndTransaction, Error, PositionCommit};

/// Most bytes that a marker adds to an append: its batch and the journal's headers.
pub(crate) const MARKER_MAX_BYTES: usize = APPEND_OVERHEAD_BYTES;

/// The markers of one transaction's end.
pub(crate) struct TransactionMarkers {
    pub(crate) logs: Vec<Arc<PartitionLog>>,
    marker: Marker,
}

impl Acceptor {
    pub(crate) fn accept_end(
        &self,
        end: &EndTransaction<'_>,
        level: AckLevel,
        done: Done<Vec<Appended>>,
    ) -> Result<(), Error> {
        check_numbers(end)?;
        let markers = self.markers(end.producer_id, end.producer_epoch, end.commit, &end.partitions);
        let positions = end.positions.iter().filter(|commit| end.commit && self.is_there(commit));
        let append = AtomicAppend { records: end.records.clone(), positions: positions.cloned().collect() };
        self.accept_atomic(&append, Some(&markers), None, level, done)
    }

    /// The markers of a producer's transaction, one for each partition. Deleted topics are skipped: their part of the
    /// transaction is gone.
    pub(crate) fn markers<'a>(
        &self,
        producer_id: i64,
        producer_epoch: i16,
        committed: bool,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
    ) -> TransactionMarkers {
        let found = partitions.into_iter().filter_map(|partition| self.catalog.partition(partition).ok());
        let mut logs: Vec<_> = found.filter(|log| !log.topic.is_memory).collect();
        logs.sort_by_key(|log| log.key());
        logs.dedup_by_key(|log| log.key());
        let coordinator_epoch = self.shared.epoch.0;
        let timestamp_ms = self.shared.wall.now_ms();
        TransactionMarkers {
            logs,
            marker: Marker { producer_id, producer_epoch, committed, coordinator_epoch, timestamp_ms },
        }
    }

    fn is_there(&self, commit: &PositionCommit) -> bool {
        self.catalog.partition(&commit.partition).is_ok_and(|log| log.topic.id == commit.position.topic)
    }
}

impl TransactionMarkers {
    /// Checks that every partition accepts its marker.
    pub(crate) fn check(&self, locked: &mut LockedPartitions<'_>) -> Result<(), Error> {
        let Marker { producer_id: producer, producer_epoch: given, .. } = self.marker;
        for log in &self.logs {
            let Some(accept) = locked.get_mut(&log.key()) else { continue };
            log.check_room(accept, 1)?;
            if let Some(current) = accept.producers.epoch_of(producer).filter(|current| *current > given) {
                return Err(Error::FencedProducer { partition: log.id.clone(), producer, current, given });
            }
            log.seal(accept, &log.topic.current());
        }
        Ok(())
    }

    pub(crate) fn take(&self, locked: &mut LockedPartitions<'_>, order: u64) {
        for log in &self.logs {
            if let Some(accept) = locked.get_mut(&log.key()) {
                log.accept_marker(accept, &self.marker, order);
            }
        }
    }
}

fn check_numbers(end: &EndTransaction<'_>) -> Result<(), Error> {
    if end.producer_id < 0 || end.producer_epoch < 0 {
        return Err(Error::InvalidTransaction {
            producer: end.producer_id,
            epoch: end.producer_epoch,
            place: "the end of its transaction".to_owned(),
            rule: "producer ids and epochs are zero or more",
        });
    }
    Ok(())
}
