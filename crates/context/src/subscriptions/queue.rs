//! The delivery queue of one subscription.
//!
//! Notifications of one lane are delivered one after the other. Lanes are independent.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::Notify;

use super::notification::{Lane, Notification};
use super::subscription::Subscription;

#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// Interval between log lines while a queue is full.
const FULL_TOLD_EVERY_MS: i64 = 60_000;

/// A count of a queue.
pub(crate) type Count = fn(&DeliveryQueue) -> u64;

/// The queue of one subscription.
#[derive(Debug)]
pub(crate) struct DeliveryQueue {
    pub(crate) subscription: Arc<Subscription>,
    lanes: HashMap<Lane, QueuedNotification>,
    pub(crate) count: usize,
    pub(crate) bytes: usize,
    /// Dropped notifications since the start of the process: the queue was full, or the subscription became inactive.
    pub(crate) dropped: u64,
    pub(crate) retried: u64,
    full_told_ms: Option<i64>,
    /// The subscription is deleted, and its counters are gone.
    is_forgotten: bool,
    /// Time of the last change of target. Waiting notifications start anew then.
    moved_ms: i64,
    /// Signals a change of target.
    moved: Arc<Notify>,
}

/// The target of a queue's notifications.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    pub(crate) subscription: Arc<Subscription>,
    /// Time of the last change of target; the minimum if there was none.
    pub(crate) moved_ms: i64,
    pub(crate) moved: Arc<Notify>,
}

#[derive(Debug, Default)]
struct QueuedNotification {
    waiting: VecDeque<Arc<Notification>>,
    /// The lane has a task. Between two notifications, and before its first one, it delivers none.
    is_running: bool,
    /// The first of the waiting notifications is being delivered.
    is_under_way: bool,
}

impl DeliveryQueue {
    pub(crate) fn new(subscription: Arc<Subscription>) -> Self {
        Self {
            subscription,
            lanes: HashMap::new(),
            count: 0,
            bytes: 0,
            dropped: 0,
            retried: 0,
            full_told_ms: None,
            is_forgotten: false,
            moved_ms: i64::MIN,
            moved: Arc::default(),
        }
    }

    /// Appends to the notification's lane; returns true if the caller must start the lane.
    pub(crate) fn push(&mut self, notification: Arc<Notification>) -> bool {
        self.count += 1;
        self.bytes += notification.size_bytes();
        let lane = self.lanes.entry(notification.lane).or_default();
        lane.waiting.push_back(notification);
        !std::mem::replace(&mut lane.is_running, true)
    }

    /// Replaces the subscription; waiting notifications go to its target.
    pub(crate) fn renew(&mut self, subscription: &Arc<Subscription>, now_ms: i64) {
        let is_moved = !self.subscription.target.is_where(&subscription.target);
        self.subscription = subscription.clone();
        if is_moved {
            self.moved_ms = now_ms;
            self.moved.notify_waiters();
        }
    }

    /// The current target, and the signal of its change.
    pub(crate) fn destination(&self) -> Destination {
        Destination { subscription: self.subscription.clone(), moved_ms: self.moved_ms, moved: self.moved.clone() }
    }

    /// Removes the oldest notification that is not being delivered, while the queue exceeds its limits.
    pub(crate) fn overflow(&mut self, limits: QueueLimits) -> Option<Arc<Notification>> {
        if self.count <= limits.count && self.bytes <= limits.bytes {
            return None;
        }
        let oldest = self.lanes.iter().filter_map(|(number, lane)| {
            let at = usize::from(lane.is_under_way);
            Some((lane.waiting.get(at)?.made_ms, *number, at))
        });
        let (_, number, at) = oldest.min()?;
        let gone = self.lanes.get_mut(&number)?.waiting.remove(at)?;
        self.count -= 1;
        self.bytes -= gone.size_bytes();
        self.dropped += 1;
        Some(gone)
    }

    /// The full queue is to be logged: the first time, and once a minute.
    pub(crate) fn tells_full(&mut self, now_ms: i64) -> bool {
        let is_due = self.full_told_ms.is_none_or(|told_ms| now_ms.saturating_sub(told_ms) >= FULL_TOLD_EVERY_MS);
        if is_due {
            self.full_told_ms = Some(now_ms);
        }
        is_due
    }

    /// Counts a retry of `notification` if it is still the first of its lane, otherwise a drop.
    pub(crate) fn retries(&mut self, notification: &Arc<Notification>) -> bool {
        let lane = self.lanes.get(&notification.lane);
        let first = lane.and_then(|lane| lane.waiting.front());
        let is_first = first.is_some_and(|first| Arc::ptr_eq(first, notification));
        match is_first {
            true => self.retried += 1,
            false => self.dropped += u64::from(!self.is_forgotten),
        }
        is_first
    }

    /// The first notification of a lane; `None` stops the lane.
    pub(crate) fn first(&mut self, lane: Lane) -> Option<Arc<Notification>> {
        let lane = self.lanes.get_mut(&lane)?;
        let first = lane.waiting.front().cloned();
        lane.is_running = first.is_some();
        lane.is_under_way = first.is_some();
        first
    }

    /// Removes a notification that was delivered or given up.
    pub(crate) fn done(&mut self, notification: &Arc<Notification>) {
        let Some(lane) = self.lanes.get_mut(&notification.lane) else { return };
        if lane.waiting.front().is_some_and(|first| Arc::ptr_eq(first, notification)) {
            lane.waiting.pop_front();
            lane.is_under_way = false;
            self.count -= 1;
            self.bytes -= notification.size_bytes();
        }
    }

    /// The queue is empty, idle, and has nothing to report.
    pub(crate) fn is_over(&self) -> bool {
        self.count == 0 && self.dropped == 0 && self.retried == 0 && self.lanes.values().all(|lane| !lane.is_running)
    }

    /// Removes all notifications and returns those that are not being delivered.
    pub(crate) fn clear(&mut self) -> Vec<Arc<Notification>> {
        let mut dropped = Vec::new();
        for lane in self.lanes.values_mut() {
            let under_way = usize::from(std::mem::take(&mut lane.is_under_way));
            lane.waiting.iter().for_each(|gone| gone.token.end());
            dropped.extend(lane.waiting.drain(..).skip(under_way));
        }
        self.dropped += dropped.len() as u64;
        (self.count, self.bytes) = (0, 0);
        dropped
    }

    pub(crate) fn forget(&mut self) {
        (self.dropped, self.retried, self.is_forgotten) = (0, 0, true);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::subscriptions::change::ChangePosition;
    use crate::subscriptions::compile_any;
    use crate::subscriptions::notification::NotificationMessage;

    fn queue() -> DeliveryQueue {
        let document =
            json!({"subject": {"entities": [{"id": "a"}]}, "notification": {"http": {"url": "http://localhost"}}});
        DeliveryQueue::new(Arc::new(compile_any(document.as_object().unwrap().clone()).unwrap()))
    }

    fn notification() -> Arc<Notification> {
        let message = NotificationMessage::Impossible { why: String::new() };
        Arc::new(Notification {
            place: ChangePosition { topic: 0, partition: 0, offset: 0 },
            lane: Lane::default(),
            made_ms: 0,
            message,
            token: Default::default(),
        })
    }

    #[test]
    fn clearing_a_queue_drops_each_notification_that_is_not_being_delivered() {
        let (mut queue, [one, two, three]) = (queue(), [(); 3].map(|()| notification()));
        let cleared = |queue: &mut DeliveryQueue| queue.clear().len();
        assert!(queue.push(one.clone()), "its lane begins");
        assert_eq!(cleared(&mut queue), 1, "the lane has not taken it yet");
        assert!(queue.first(one.lane).is_none());
        queue.push(one.clone());
        queue.push(two.clone());
        queue.first(one.lane).unwrap();
        queue.done(&one);
        assert_eq!(cleared(&mut queue), 1, "the lane is between two");
        queue.push(one.clone());
        queue.push(two.clone());
        queue.first(one.lane).unwrap();
        assert_eq!(cleared(&mut queue), 1, "the first ends by its attempt");
        queue.push(three.clone());
        assert_eq!(cleared(&mut queue), 1, "the one under way is no longer in the queue");
        assert!(!queue.retries(&one), "its failed attempt is its end");
        assert_eq!((queue.count, queue.bytes, queue.dropped), (0, 0, 5));
    }

    #[test]
    fn a_full_queue_is_reported_at_once_and_then_once_a_minute() {
        let mut queue = queue();
        let told = [0, 1, 59_999, 60_000, 60_001, 200_000, 200_001].map(|now_ms| queue.tells_full(now_ms));
        assert_eq!(told, [true, false, false, true, false, true, false]);
    }
}
