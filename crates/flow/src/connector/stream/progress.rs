//! The progress of a source: how far it has read its partitions.

use std::sync::Arc;

use millstream_log::Partition;
use millstream_types::{Offset, TopicPartition};
use parking_lot::Mutex;

use crate::connector::{ReadUpTo, SourceProgress};
use crate::delivery::SourcePosition;

/// The partitions of one instance; empty before it has started.
#[derive(Default)]
pub(crate) struct StreamProgress(Mutex<ProgressState>);

#[derive(Default)]
struct ProgressState {
    partitions: Vec<PartitionProgress>,
    trimmed: u64,
}

struct PartitionProgress {
    partition: Arc<dyn Partition>,
    /// The first offset that is not finished; all before it are.
    next: Offset,
    /// The place at which the source ends.
    end: Option<Offset>,
}

impl StreamProgress {
    /// Begins a partition, with the place from which it is read, and the end of the source.
    pub(super) fn begin(&self, partition: Arc<dyn Partition>, next: Offset, end: Option<Offset>) {
        self.0.lock().partitions.push(PartitionProgress { partition, next, end });
    }

    /// Forgets the partitions of a topic that is gone.
    pub(super) fn clear(&self) {
        self.0.lock().partitions.clear();
    }

    /// Retention has removed the records from `next` to `oldest` before they were read.
    pub(super) fn trimmed(&self, partition: &TopicPartition, next: Offset, oldest: Offset) {
        tracing::warn!(%partition, %next, %oldest, "records were removed before a job read them");
        self.0.lock().trimmed += oldest.0.saturating_sub(next.0);
    }

    /// Everything before these places is finished.
    pub(super) fn finished(&self, up_to: &[SourcePosition]) {
        if up_to.is_empty() {
            return;
        }
        let partitions = &mut self.0.lock().partitions;
        for position in up_to {
            let is_meant = |known: &&mut PartitionProgress| known.partition.id().partition.0 == position.partition;
            if let Some(known) = partitions.iter_mut().find(is_meant) {
                known.next = Offset(position.offset);
            }
        }
    }
}

impl SourceProgress for StreamProgress {
    fn read_up_to(&self) -> ReadUpTo {
        let state = self.0.lock();
        let mut total = ReadUpTo { trimmed: state.trimmed, ..ReadUpTo::default() };
        for known in &state.partitions {
            let lag = known.partition.lag(known.next);
            total.offset += known.next.0;
            total.lag += known.end.map_or(lag, |end| lag.min(end.0.saturating_sub(known.next.0)));
        }
        total
    }
}
