//! Ending a transaction: markers in all its partitions, the group positions that it commits, and what its coordinator
//! notes, in one atomic append. That is all or nothing over a crash by itself: nothing has to be prepared before.

use std::sync::Arc;

use millstream_types::Marker;

use crate::accept::APPEND_OVERHEAD_BYTES;
use crate::atomic::{Locked, key};
use crate::partition::PartitionLog;
use crate::{AckLevel, Appended, AtomicAppend, Done, Embedded, EndTransaction, Error, PositionCommit};

/// What a marker adds to an append: its batch, and what the journal puts around it.
pub(crate) const MARKER_MAX_BYTES: usize = APPEND_OVERHEAD_BYTES;

/// Markers that are to be appended.
pub(crate) struct Ending {
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
        let ending = Ending { logs: self.ended(end), marker };
        let positions = end.positions.iter().filter(|commit| end.commit && self.is_there(commit));
        let append = AtomicAppend { records: end.records.clone(), positions: positions.cloned().collect() };
        self.accept_atomic(&append, Some(&ending), level, done)
    }

    /// The partitions that get a marker, each once: a topic that is gone has taken its part of the transaction along.
    fn ended(&self, end: &EndTransaction<'_>) -> Vec<Arc<PartitionLog>> {
        let found = end.partitions.iter().filter_map(|partition| self.catalog.partition(partition).ok());
        let mut logs: Vec<_> = found.filter(|log| !log.topic.is_memory).collect();
        logs.sort_by_key(|log| key(log));
        logs.dedup_by_key(|log| key(log));
        logs
    }

    fn is_there(&self, commit: &PositionCommit) -> bool {
        self.catalog.partition(&commit.partition).is_ok_and(|log| log.topic.id == commit.position.topic)
    }
}

impl Ending {
    /// Whether every partition takes its marker.
    pub(crate) fn check(&self, locked: &mut Locked<'_>) -> Result<(), Error> {
        let Marker { producer_id: producer, producer_epoch: given, .. } = self.marker;
        for log in &self.logs {
            let Some(accept) = locked.get_mut(&key(log)) else { continue };
            log.check_room(accept, 1)?;
            if let Some(current) = accept.producers.epoch_of(producer).filter(|current| *current > given) {
                return Err(Error::FencedProducer { partition: log.id.clone(), producer, current, given });
            }
            log.seal(accept, &log.topic.current());
        }
        Ok(())
    }

    pub(crate) fn take(&self, locked: &mut Locked<'_>, order: u64) {
        for log in &self.logs {
            if let Some(accept) = locked.get_mut(&key(log)) {
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
