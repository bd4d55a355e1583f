//! The partitions that have something to send, and the requests that their leaders have not answered.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::partition_state::PartitionState;
use crate::queue::ProducerId;

/// Requests that a leader has not answered.
const REQUESTS_MAX: usize = 5;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    ready: Mutex<Vec<Arc<PartitionState>>>,
    wake: Notify,
    /// Unanswered requests by leader.
    requests: Mutex<HashMap<i32, usize>>,
    producer: Mutex<Option<ProducerId>>,
}

impl Outbox {
    /// Notes that `partition` has something to send.
    pub(crate) fn ready(&self, partition: Arc<PartitionState>) {
        self.ready.lock().push(partition);
        self.wake.notify_one();
    }

    /// Keeps partitions whose leader is busy until one of its answers comes.
    pub(crate) fn keep(&self, partitions: impl Iterator<Item = Arc<PartitionState>>) {
        self.ready.lock().extend(partitions);
    }

    /// Waits for partitions that are ready, and takes them.
    pub(crate) async fn take(&self) -> Vec<Arc<PartitionState>> {
        loop {
            self.wake.notified().await;
            let ready = std::mem::take(&mut *self.ready.lock());
            if !ready.is_empty() {
                return ready;
            }
        }
    }

    /// The producer of the engine, if it has one.
    pub(crate) fn producer(&self) -> Option<ProducerId> {
        *self.producer.lock()
    }

    pub(crate) fn set_producer(&self, producer: ProducerId) {
        *self.producer.lock() = Some(producer);
    }

    /// Takes another producer id before the next batch of a partition that has none in flight.
    pub(crate) fn renew_producer(&self) {
        *self.producer.lock() = None;
    }

    pub(crate) fn is_busy(&self, leader: i32) -> bool {
        self.requests.lock().get(&leader).is_some_and(|requests| *requests >= REQUESTS_MAX)
    }

    /// Counts a request to a leader.
    pub(crate) fn began(&self, leader: i32) {
        *self.requests.lock().entry(leader).or_default() += 1;
    }

    /// Notes that a request to a leader has ended.
    pub(crate) fn ended(&self, leader: i32) {
        if let Some(requests) = self.requests.lock().get_mut(&leader) {
            *requests -= 1;
        }
        self.wake.notify_one();
    }
}
