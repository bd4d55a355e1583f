//! Ends a transaction: markers in all its partitions, the group positions, and the coordinator's records, in one
//! atomic append. An atomic append is all or nothing over a crash, so there is no prepare phase.

use std::sync::Arc;

use millstream_types::Marker;

use crate::accept::APPEND_OVERHEAD_BYTES;
use crate::partition::{LockedPartitions, PartitionLog};
use crate::{AckLevel, Appended, AtomicAppend, Done, Embedded, EndTransaction, Error, PositionCommit};

/// Most bytes that a marker adds to an append: its batch and the journal's headers.
pub(crate) const MARKER_MAX_BYTES: usize = APPEND_OVERHEAD_BYTES;

/// The markers of one transaction's end.
pub(crate) struct TransactionMarkers {
    pub(crate) logs: Vec<Arc<PartitionLog>>,
    marker: Marker,
}

impl Embedded {
    pub(crate) fn accept_end(
        &self,
        end: &EndTransaction<'_>,
        level: AckLevel,
        done: Done<Vec<Appended>>,
    ) -> Result<(), Error> {
        check_numbers(end)?;
        let marker = Marker {
            producer_id: end.producer_id,
            producer_epoch: end.producer_epoch,
            committed: end.commit,
            coordinator_epoch: self.shared.epoch.0,
            timestamp_ms: self.shared.wall.now_ms(),
        };
        let markers = TransactionMarkers { logs: self.ended(end), marker };
        let positions = end.positions.iter().filter(|commit| end.commit && self.is_there(commit));
        let append = AtomicAppend { records: end.records.clone(), positions: positions.cloned().collect() };
        self.accept_atomic(&append, Some(&markers), level, done)
    }

    /// The partitions that get a marker, each once. Deleted topics are skipped: their part
    /// of the transaction is gone.
    fn ended(&self, end: &EndTransaction<'_>) -> Vec<Arc<PartitionLog>> {
        let found = end.partitions.iter().filter_map(|partition| self.catalog.partition(partition).ok());
        let mut logs: Vec<_> = found.filter(|log| !log.topic.is_memory).collect();
        logs.sort_by_key(|log| log.key());
        logs.dedup_by_key(|log| log.key());
        logs
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
