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
    lanes: HashMap<Lane, LaneQueue>,
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
    /// Signals a change of target, and that the queue was cleared.
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

/// A notification in a lane.
#[derive(Debug, Clone)]
pub(crate) struct QueuedNotification {
    pub(crate) notification: Arc<Notification>,
    /// It is counted as failed.
    pub(crate) has_failed: bool,
}

#[derive(Debug, Default)]
struct LaneQueue {
    waiting: VecDeque<QueuedNotification>,
    /// The lane has a task. Between two notifications, and before its first one, it delivers none.
    is_running: bool,
    /// The first of the waiting notifications is being delivered.
    is_under_way: bool,
    /// Notifications that joined after the last attempt began; they are the last ones.
    untried: usize,
    /// Signals that a notification has joined.
    arrived: Arc<Notify>,
}

impl LaneQueue {
    fn is_first(&self, notification: &Arc<Notification>) -> bool {
        self.waiting.front().is_some_and(|first| Arc::ptr_eq(&first.notification, notification))
    }

    fn remove(&mut self, at: usize) -> Option<Arc<Notification>> {
        let gone = self.waiting.remove(at)?;
        self.untried = self.untried.min(self.waiting.len() - usize::from(self.is_under_way && at > 0));
        Some(gone.notification)
    }
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
    pub(crate) fn push(&mut self, notification: Arc<Notification>, has_failed: bool) -> bool {
        self.count += 1;
        self.bytes += notification.size_bytes();
        let lane = self.lanes.entry(notification.lane).or_default();
        lane.waiting.push_back(QueuedNotification { notification, has_failed });
        lane.untried += 1;
        lane.arrived.notify_waiters();
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
            Some((lane.waiting.get(at)?.notification.made_ms, *number, at))
        });
        let (_, number, at) = oldest.min()?;
        let gone = self.lanes.get_mut(&number)?.remove(at)?;
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

    /// The notification is still the first of its lane: the queue was not cleared.
    pub(crate) fn has_first(&self, notification: &Arc<Notification>) -> bool {
        self.lanes.get(&notification.lane).is_some_and(|lane| lane.is_first(notification))
    }

    /// Counts a retry of `notification` if it is still the first of its lane, otherwise a drop.
    pub(crate) fn retries(&mut self, notification: &Arc<Notification>) -> bool {
        let is_first = self.has_first(notification);
        match is_first {
            true => self.retried += 1,
            false => self.dropped += u64::from(!self.is_forgotten),
        }
        is_first
    }

    /// The first notification of a lane; `None` stops the lane.
    pub(crate) fn first(&mut self, lane: Lane) -> Option<QueuedNotification> {
        let lane = self.lanes.get_mut(&lane)?;
        let first = lane.waiting.front().cloned();
        lane.is_running = first.is_some();
        lane.is_under_way = first.is_some();
        first
    }

    /// Notes that an attempt for the whole lane begins with its first notification.
    pub(crate) fn try_all(&mut self, first: &Arc<Notification>) {
        if let Some(lane) = self.lanes.get_mut(&first.lane).filter(|lane| lane.is_first(first)) {
            lane.untried = 0;
        }
    }

    /// Notes that the last attempt has failed for all that wait behind `first`; returns those that had not failed yet.
    pub(crate) fn fail_behind(&mut self, first: &Arc<Notification>) -> Vec<Arc<Notification>> {
        let Some(lane) = self.lanes.get_mut(&first.lane).filter(|lane| lane.is_first(first)) else { return Vec::new() };
        let tried = lane.waiting.len() - lane.untried;
        // Those that have failed stand before all that have not.
        let mut new: Vec<_> = lane.waiting.range_mut(1..tried).rev().take_while(|one| !one.has_failed).collect();
        new.iter_mut().for_each(|one| one.has_failed = true);
        new.iter().rev().map(|one| one.notification.clone()).collect()
    }

    /// Some of a lane's notifications joined after its last attempt began.
    pub(crate) fn has_untried(&self, lane: Lane) -> bool {
        self.lanes.get(&lane).is_some_and(|lane| lane.untried > 0)
    }

    /// The signal that a notification has joined a lane.
    pub(crate) fn arrived(&self, lane: Lane) -> Option<Arc<Notify>> {
        self.lanes.get(&lane).map(|lane| lane.arrived.clone())
    }

    /// Removes a notification that was delivered or given up.
    pub(crate) fn done(&mut self, notification: &Arc<Notification>) {
        let Some(lane) = self.lanes.get_mut(&notification.lane) else { return };
        if lane.is_first(notification) {
            lane.remove(0);
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
            lane.untried = 0;
            lane.waiting.iter().for_each(|gone| gone.notification.token.end());
            dropped.extend(lane.waiting.drain(..).skip(under_way).map(|gone| gone.notification));
        }
        self.dropped += dropped.len() as u64;
        (self.count, self.bytes) = (0, 0);
        self.moved.notify_waiters();
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
        assert!(queue.push(one.clone(), false), "its lane begins");
        assert_eq!(cleared(&mut queue), 1, "the lane has not taken it yet");
        assert!(queue.first(one.lane).is_none());
        queue.push(one.clone(), false);
        queue.push(two.clone(), false);
        queue.first(one.lane).unwrap();
        queue.done(&one);
        assert_eq!(cleared(&mut queue), 1, "the lane is between two");
        queue.push(one.clone(), false);
        queue.push(two.clone(), false);
        queue.first(one.lane).unwrap();
        assert_eq!(cleared(&mut queue), 1, "the first ends by its attempt");
        queue.push(three.clone(), false);
        assert_eq!(cleared(&mut queue), 1, "the one under way is no longer in the queue");
        assert!(!queue.retries(&one), "its failed attempt is its end");
        assert_eq!((queue.count, queue.bytes, queue.dropped), (0, 0, 5));
    }

    #[test]
    fn a_failed_attempt_counts_for_all_that_joined_before_it_and_once() {
        let (mut queue, all) = (queue(), [(); 5].map(|()| notification()));
        let lane = all[0].lane;
        let join = |queue: &mut DeliveryQueue, at: usize, has_failed| queue.push(all[at].clone(), has_failed);
        let behind = |queue: &mut DeliveryQueue| -> Vec<usize> {
            let failed = queue.fail_behind(&all[0]);
            failed.iter().filter_map(|one| all.iter().position(|known| Arc::ptr_eq(known, one))).collect()
        };
        for (at, has_failed) in [(0, false), (1, true), (2, false)] {
            join(&mut queue, at, has_failed);
        }
        queue.first(lane).unwrap();
        queue.try_all(&all[0]);
        join(&mut queue, 3, false);
        assert_eq!(behind(&mut queue), [2], "the second was counted before, the fourth came later");
        assert!(queue.has_untried(lane));
        queue.try_all(&all[0]);
        assert!(!queue.has_untried(lane));
        assert_eq!(behind(&mut queue), [3]);
        join(&mut queue, 4, false);
        while queue.overflow(QueueLimits { count: 1, bytes: usize::MAX }).is_some() {}
        assert!(!queue.has_untried(lane), "it was dropped");
        assert_eq!(behind(&mut queue), [0; 0]);
        queue.clear();
        assert_eq!(behind(&mut queue), [0; 0], "the first is no longer in the queue");
    }

    #[test]
    fn a_full_queue_is_reported_at_once_and_then_once_a_minute() {
        let mut queue = queue();
        let told = [0, 1, 59_999, 60_000, 60_001, 200_000, 200_001].map(|now_ms| queue.tells_full(now_ms));
        assert_eq!(told, [true, false, false, true, false, true, false]);
    }
}
