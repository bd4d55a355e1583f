//! The bounded queue in front of a chain's instance.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::batch::Batch;
use crate::connector::Waker;
use crate::document::NodeId;

/// Batches that may wait for one instance.
pub(super) const BATCHES_MAX: usize = 8;

/// Batches for the nodes of one instance, in the order of their arrival.
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// Wakes the instance that reads.
    reader: Waker,
}

#[derive(Default)]
struct State {
    batches: VecDeque<(NodeId, Batch)>,
    /// Senders that wait for room.
    waiting: Vec<Waker>,
}

impl Inbox {
    pub(crate) fn new(reader: Waker) -> Self {
        Self { state: Mutex::default(), reader }
    }

    /// Queues a batch, or returns it if the queue is full; `sender` is woken once there is room.
    pub(crate) fn offer(&self, node: NodeId, batch: Batch, sender: &Waker) -> Result<(), Batch> {
        let mut state = self.state.lock();
        if state.batches.len() >= BATCHES_MAX {
            if !state.waiting.iter().any(|waiting| std::sync::Arc::ptr_eq(waiting, sender)) {
                state.waiting.push(std::sync::Arc::clone(sender));
            }
            return Err(batch);
        }
        let was_empty = state.batches.is_empty();
        state.batches.push_back((node, batch));
        drop(state);
        if was_empty {
            (self.reader)();
        }
        Ok(())
    }

    /// Queues a batch that goes back to its source, whatever the room: waiting for it could wait for its own sender. Their
    /// number is bounded by the source's `max_in_flight`.
    pub(crate) fn put_back(&self, node: NodeId, batch: Batch) {
        self.state.lock().batches.push_back((node, batch));
        (self.reader)();
    }

    pub(crate) fn take(&self) -> Option<(NodeId, Batch)> {
        let mut state = self.state.lock();
        let next = state.batches.pop_front();
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.iter().for_each(|sender| sender());
        next
    }

    /// The number of waiting batches.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().batches.len()
    }
}
