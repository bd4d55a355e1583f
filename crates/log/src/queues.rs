//! The queues between the partitions and the engine's threads.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use millstream_types::Offset;

use crate::ack::{AckReply, AckWaiter};
use crate::catalog::CatalogChange;
use crate::compaction_queue::CompactionQueue;
use crate::flush_queue::FlushQueue;
use crate::frame::FramePart;
use crate::group_commit::{ControlEntry, JournalEntry, JournalItem};
use crate::partition::{PartitionLog, PartitionQueues};
use crate::sync_queue::SyncQueue;
use crate::work_queue::WorkQueue;
use crate::{AckLevel, Error};

/// One queue for each thread of the engine.
#[derive(Default)]
pub(crate) struct Queues {
    pub(crate) work: WorkQueue,
    pub(crate) sync: SyncQueue,
    pub(crate) flush: FlushQueue,
    pub(crate) compaction: CompactionQueue,
}

impl PartitionQueues for Queues {
    fn push_dirty(&self, partition: Arc<PartitionLog>) -> bool {
        self.work.push_dirty(partition)
    }

    fn push_trim(&self, partition: &PartitionLog, first: u64) -> Receiver<Result<(), Error>> {
        let (topic, number, first) = (partition.topic.id, partition.id.partition, Offset(first));
        let mut encoded = Vec::new();
        FramePart::Trimmed { topic, partition: number, first }.put(&mut encoded);
        let effects = vec![CatalogChange::Trimmed { topic, partition: number, first }];
        let (sender, receiver) = sync_channel(1);
        self.work.push_control(ControlEntry {
            entry: JournalEntry {
                order: partition.shared.next_order(),
                item: JournalItem::Parts { encoded, count: 1, effects },
            },
            waiter: Some(AckWaiter { level: AckLevel::Synced, answer: AckReply::Thread(sender) }),
            pending_bytes: 0,
        });
        receiver
    }

    fn wake_appender(&self) {
        self.work.wake();
    }

    fn urge_appender(&self) {
        self.work.urge();
    }

    fn prompt_writer(&self) -> bool {
        self.work.prompt()
    }

    fn demand_sync(&self) {
        self.sync.demand();
    }

    fn wake_writeback(&self) {
        self.flush.wake();
    }
}
