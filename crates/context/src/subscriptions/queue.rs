//! What waits to be delivered for one subscription.
//!
//! Notifications of one lane are delivered one after the other. Lanes are independent.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::notification::{Lane, Notification};
use super::subscription::Subscription;

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// How often it is told that a queue is full, for as long as it is.
const FULL_TOLD_EVERY_MS: i64 = 60_000;

/// What is counted of a queue.
pub(crate) type Count = fn(&Queue) -> u64;

/// The queue of one subscription.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) subscription: Arc<Subscription>,
    lanes: HashMap<Lane, Waiting>,
    pub(crate) count: usize,
    pub(crate) bytes: usize,
    /// How many had to go because the queue was full.
    pub(crate) dropped: u64,
    /// Attempts after a failed one.
    pub(crate) retried: u64,
    full_told_ms: Option<i64>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The first is being delivered, if the lane is running.
    waiting: VecDeque<Arc<Notification>>,
    is_running: bool,
}

impl Queue {
    pub(crate) fn new(subscription: Arc<Subscription>) -> Self {
        Self { subscription, lanes: HashMap::new(), count: 0, bytes: 0, dropped: 0, retried: 0, full_told_ms: None }
    }

    /// Appends to the notification's lane; whether somebody has to begin to deliver from it.
    pub(crate) fn push(&mut self, notification: Arc<Notification>) -> bool {
        self.count += 1;
        self.bytes += notification.size_bytes();
        let lane = self.lanes.entry(notification.lane).or_default();
        lane.waiting.push_back(notification);
        !std::mem::replace(&mut lane.is_running, true)
    }

    /// Takes out the oldest that is not being delivered, while there is more than may wait.
    pub(crate) fn overflow(&mut self, limits: QueueLimits) -> Option<Arc<Notification>> {
        if self.count <= limits.count && self.bytes <= limits.bytes {
            return None;
        }
        let oldest = self.lanes.iter().filter_map(|(number, lane)| {
            let at = usize::from(lane.is_running);
            Some((lane.waiting.get(at)?.made_ms, *number, at))
        });
        let (_, number, at) = oldest.min()?;
        let gone = self.lanes.get_mut(&number)?.waiting.remove(at)?;
        self.count -= 1;
        self.bytes -= gone.size_bytes();
        self.dropped += 1;
        Some(gone)
    }

    /// Whether to tell now that it is full: the first time, and once a minute.
    pub(crate) fn tells_full(&mut self, now_ms: i64) -> bool {
        let is_due = self.full_told_ms.is_none_or(|told_ms| now_ms.saturating_sub(told_ms) >= FULL_TOLD_EVERY_MS);
        if is_due {
            self.full_told_ms = Some(now_ms);
        }
        is_due
    }

    /// Counts another attempt at `notification`, if it is still the first of its lane.
    pub(crate) fn retries(&mut self, notification: &Arc<Notification>) -> bool {
        let lane = self.lanes.get(&notification.lane);
        let first = lane.and_then(|lane| lane.waiting.front());
        let is_first = first.is_some_and(|first| Arc::ptr_eq(first, notification));
        self.retried += u64::from(is_first);
        is_first
    }

    /// The first of a lane; none ends its delivery.
    pub(crate) fn first(&mut self, lane: Lane) -> Option<Arc<Notification>> {
        let lane = self.lanes.get_mut(&lane)?;
        let first = lane.waiting.front().cloned();
        lane.is_running = first.is_some();
        first
    }

    /// Takes out what was delivered or given up.
    pub(crate) fn done(&mut self, notification: &Arc<Notification>) {
        let Some(lane) = self.lanes.get_mut(&notification.lane) else { return };
        if lane.waiting.front().is_some_and(|first| Arc::ptr_eq(first, notification)) {
            lane.waiting.pop_front();
            self.count -= 1;
            self.bytes -= notification.size_bytes();
        }
    }

    /// Whether nothing waits, nothing runs, and there is nothing to tell.
    pub(crate) fn is_over(&self) -> bool {
        self.count == 0 && self.dropped == 0 && self.retried == 0 && self.lanes.values().all(|lane| !lane.is_running)
    }

    /// Forgets everything; what is being delivered finds its place empty.
    pub(crate) fn clear(&mut self) {
        let waiting = self.lanes.values_mut().flat_map(|lane| lane.waiting.drain(..));
        waiting.for_each(|gone| gone.token.end());
        (self.count, self.bytes) = (0, 0);
    }

    /// Has nothing to tell any more.
    pub(crate) fn count_anew(&mut self) {
        (self.dropped, self.retried) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::subscriptions::compile_any;

    #[test]
    fn that_it_is_full_is_told_at_once_and_then_once_a_minute() {
        let document =
            json!({"subject": {"entities": [{"id": "a"}]}, "notification": {"http": {"url": "http://localhost"}}});
        let subscription = compile_any(document.as_object().unwrap().clone()).unwrap();
        let mut queue = Queue::new(Arc::new(subscription));
        let told = [0, 1, 59_999, 60_000, 60_001, 200_000, 200_001].map(|now_ms| queue.tells_full(now_ms));
        assert_eq!(told, [true, false, false, true, false, true, false]);
    }
}
