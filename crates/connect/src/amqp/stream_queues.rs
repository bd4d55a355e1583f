//! The queues of all tenants' streams that have receivers.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use millstream_log::Partition;
use millstream_types::Grant;
use parking_lot::Mutex;

use super::address::StreamAddress;
use super::stream_queue::StreamQueue;

/// The name of a queue: the stream, and the name under which its receivers share it, if they have one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct QueueName {
    pub(super) address: StreamAddress,
    pub(super) subscription: Option<Box<str>>,
}

/// The queues that have receivers.
#[derive(Default)]
pub(super) struct StreamQueues(Mutex<HashMap<QueueName, Weak<StreamQueue>>>);

impl StreamQueues {
    /// Returns the queue of this name, or opens one of what comes from now on; `None` if `take_room` has no memory for it.
    pub(super) fn of(
        &self,
        name: QueueName,
        partitions: &[Arc<dyn Partition>],
        take_room: impl FnOnce(u64) -> Option<Grant>,
    ) -> Option<Arc<StreamQueue>> {
        let mut queues = self.0.lock();
        if let Some(known) = queues.get(&name).and_then(Weak::upgrade).filter(|known| !known.is_broken()) {
            return Some(known);
        }
        queues.retain(|_, queue| queue.strong_count() > 0);
        let queue = StreamQueue::from_now_on(partitions, take_room(StreamQueue::memory_bytes(partitions.len()))?);
        queues.insert(name, Arc::downgrade(&queue));
        Some(queue)
    }
}
