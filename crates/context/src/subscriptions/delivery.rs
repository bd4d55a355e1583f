//! Delivers notifications in order, with retries. Subscriptions are independent of each other.
//!
//! Each lane of a queue with notifications is a task that ends when the lane is empty. Lanes share only the few
//! connections to their receiver: a receiver that does not answer delays its own queue and these.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use millstream_outgoing::{Address, Failed, FailureKind, Outgoing};
use millstream_types::{TenantId, WallClock, url_without_secrets};
use millstream_view::Views;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use super::notification::{Lane, Notification, NotificationMessage};
use super::outcomes::Outcomes;
use super::queue::{Count, DeliveryQueue, Destination, QueueLimits, QueuedNotification};
use super::receivers::Receivers;
use super::reports::{Flushed, Reports};
use super::retry::{Pause, judged, may_retry};
use super::stats::NotificationCounters;
use super::subscription::Subscription;
use super::target::NotificationTarget;
use super::view::{DeliveryOutcome, DeliveryReport, SubscriptionCommand, SubscriptionView};
use crate::config::NotificationsConfig;
use crate::statistics::alarms::Alarm;
use crate::statistics::observers::Observers;
use crate::statistics::traffic::RequestOutcome;

/// Notifications that a subscription keeps when all queues together exceed their limit.
const KEPT_MIN: usize = 16;

type Owner = (TenantId, Arc<str>);
/// The status of the reply and the bytes of its body, if there is a reply.
type Attempt = Result<Option<(u16, u64)>, Failed>;

pub(crate) struct NotificationDelivery {
    shared: Arc<DeliveryState>,
    runtime: Mutex<Option<Runtime>>,
}

/// State that all lanes share.
pub(crate) struct DeliveryState {
    config: NotificationsConfig,
    wall: Arc<dyn WallClock>,
    counters: Arc<NotificationCounters>,
    outcomes: Outcomes,
    observers: Observers,
    queues: Mutex<HashMap<Owner, DeliveryQueue>>,
    total_bytes: AtomicUsize,
    receivers: Receivers,
    /// Subscriptions with a timer for the end of throttling.
    timers: Mutex<HashSet<Owner>>,
    reports: Reports,
    views: OnceLock<Weak<Views<SubscriptionView>>>,
    is_stopping: AtomicBool,
    stopping: Notify,
    lanes: AtomicUsize,
}

impl NotificationDelivery {
    pub(crate) fn start(
        config: NotificationsConfig,
        outgoing: Arc<Outgoing>,
        wall: Arc<dyn WallClock>,
        counters: Arc<NotificationCounters>,
        observers: Observers,
    ) -> std::io::Result<Self> {
        // Yielding before a wait gathers more replies, which cost less together than one by one.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("notify")
            .on_thread_park(std::thread::yield_now)
            .enable_all()
            .build()?;
        let shared = Arc::new(DeliveryState {
            receivers: Receivers::new(&config, outgoing),
            config,
            wall,
            counters,
            outcomes: Outcomes::default(),
            observers,
            queues: Mutex::default(),
            total_bytes: AtomicUsize::new(0),
            timers: Mutex::default(),
            reports: Reports::default(),
            views: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
            stopping: Notify::new(),
            lanes: AtomicUsize::new(0),
        });
        Ok(Self { shared, runtime: Mutex::new(Some(runtime)) })
    }

    /// Sets the receiver of outcome reports and starts to report.
    pub(crate) fn report_to(&self, views: &Arc<Views<SubscriptionView>>) {
        let _ = self.shared.views.set(Arc::downgrade(views));
        let shared = self.shared.clone();
        self.spawn(async move { shared.reports.run(&shared.views, &shared.counters).await });
        let shared = self.shared.clone();
        self.spawn(async move { shared.receivers.sweep().await });
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &*self.runtime.lock() {
            runtime.spawn(task);
        }
    }

    /// Puts a notification into its subscription's queue. Does not wait. `has_failed` if its failure was counted before
    /// a restart.
    pub(crate) fn push(&self, subscription: &Arc<Subscription>, notification: &Arc<Notification>, has_failed: bool) {
        let shared = &self.shared;
        let owner: Owner = (subscription.tenant.clone(), subscription.id.clone());
        let lane = notification.lane;
        let begins = {
            let mut queues = shared.queues.lock();
            let others = queues.len();
            let queue = queues.entry(owner.clone()).or_insert_with(|| DeliveryQueue::new(subscription.clone()));
            queue.subscription = subscription.clone();
            let before = queue.bytes;
            let begins = queue.push(notification.clone(), has_failed);
            shared.outcomes.queued.fetch_add(1, Ordering::Relaxed);
            shared.total_bytes.fetch_add(queue.bytes - before, Ordering::Relaxed);
            shared.shorten(queue, others);
            begins
        };
        if begins {
            shared.lanes.fetch_add(1, Ordering::AcqRel);
            let shared = shared.clone();
            self.spawn(async move { shared.run_lane(owner, lane).await });
        }
    }

    /// Directs the waiting notifications of a subscription to its new target.
    pub(crate) fn renew(&self, subscription: &Arc<Subscription>) {
        let owner: Owner = (subscription.tenant.clone(), subscription.id.clone());
        if let Some(queue) = self.shared.queues.lock().get_mut(&owner) {
            queue.renew(subscription, self.shared.wall.now_ms());
        }
    }

    /// Drops the waiting notifications of a subscription.
    pub(crate) fn drop_all(&self, tenant: &TenantId, id: &Arc<str>) {
        if let Some(queue) = self.shared.queues.lock().get_mut(&(tenant.clone(), id.clone())) {
            self.shared.clear(queue);
        }
    }

    /// Drops the waiting notifications and the counters of a subscription. A running lane ends its attempt first.
    pub(crate) fn forget(&self, tenant: &TenantId, id: &Arc<str>) {
        if let Entry::Occupied(mut known) = self.shared.queues.lock().entry((tenant.clone(), id.clone())) {
            self.shared.clear(known.get_mut());
            known.get_mut().forget();
            if known.get().is_over() {
                known.remove();
            }
        }
    }

    /// Requests the held notification at the end of throttling.
    pub(crate) fn wait(&self, tenant: &TenantId, id: &Arc<str>, due_ms: i64) {
        let owner: Owner = (tenant.clone(), id.clone());
        if self.shared.timers.lock().insert(owner.clone()) {
            let shared = self.shared.clone();
            self.spawn(async move { shared.release(owner, due_ms).await });
        }
    }

    /// Count and bytes of the notifications that wait for a subscription.
    pub(crate) fn waiting(&self, tenant: &TenantId, id: &Arc<str>) -> (usize, usize) {
        let queues = self.shared.queues.lock();
        queues.get(&(tenant.clone(), id.clone())).map_or((0, 0), |queue| (queue.count, queue.bytes))
    }

    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.shared.outcomes
    }

    /// Count and bytes of all waiting notifications.
    pub(crate) fn total(&self) -> (usize, usize) {
        let queues = self.shared.queues.lock();
        (queues.values().map(|queue| queue.count).sum(), self.shared.total_bytes.load(Ordering::Relaxed))
    }

    /// The largest queues by `of`: tenant, subscription, count.
    pub(crate) fn foremost(&self, most: usize, of: Count) -> Vec<(String, String, u64)> {
        let queues = self.shared.queues.lock();
        let all = queues.iter().map(|(owner, queue)| (owner, of(queue))).filter(|(_, count)| *count > 0);
        let mut foremost: Vec<_> =
            all.map(|((tenant, id), count)| (tenant.to_string(), id.to_string(), count)).collect();
        foremost.sort_by_key(|(.., count)| std::cmp::Reverse(*count));
        foremost.truncate(most);
        foremost
    }

    /// Stops after the running attempts, which have `drain`; durable notifications continue at the next start.
    pub(crate) fn stop(&self, drain: Duration) {
        let Some(runtime) = self.runtime.lock().take() else { return };
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.stopping.notify_waiters();
        let shared = self.shared.clone();
        // On its own thread, because the caller may run where blocking is forbidden.
        let ending = std::thread::Builder::new().name("notify-stop".to_owned()).spawn(move || {
            runtime.block_on(async {
                let all = async {
                    while shared.lanes.load(Ordering::Acquire) > 0 {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                if tokio::time::timeout(drain, all).await.is_err() {
                    let attempts = shared.lanes.load(Ordering::Acquire);
                    tracing::info!(attempts, "unanswered notifications are cut off; durable ones are sent again");
                }
                let Flushed { refused, .. } = shared.reports.flush(&shared.views).await;
                if refused > 0 {
                    tracing::warn!(refused, "what became of notifications is not stored; counters fall behind");
                }
            });
            runtime.shutdown_background();
        });
        if ending.is_ok_and(|ending| ending.join().is_err()) {
            tracing::error!("the end of notifications panicked");
        }
    }
}

impl Drop for NotificationDelivery {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl DeliveryState {
    fn clear(&self, queue: &mut DeliveryQueue) {
        self.total_bytes.fetch_sub(queue.bytes, Ordering::Relaxed);
        for gone in queue.clear() {
            self.count_dropped(&queue.subscription, &gone);
        }
    }

    /// Drops the oldest notifications while the queue exceeds its limits, which are narrow where all queues together are too
    /// large: a few notifications, and its part of all bytes.
    fn shorten(&self, queue: &mut DeliveryQueue, others: usize) {
        let mut limits = QueueLimits { count: self.config.queue_max, bytes: self.config.queue_max_bytes };
        if self.total_bytes.load(Ordering::Relaxed) > self.config.total_max_bytes {
            let part = self.config.total_max_bytes / others.max(1);
            limits = QueueLimits { count: limits.count.min(KEPT_MIN), bytes: limits.bytes.min(part) };
        }
        while let Some(gone) = queue.overflow(limits) {
            self.total_bytes.fetch_sub(gone.size_bytes(), Ordering::Relaxed);
            gone.token.end();
            self.count_dropped(&queue.subscription, &gone);
            let is_told = queue.tells_full(self.wall.now_ms());
            if is_told {
                let subscription = &queue.subscription;
                tracing::warn!(tenant = %subscription.tenant, subscription = %subscription.id, dropped = queue.dropped,
                    "more notifications wait than may; the oldest go");
            }
        }
    }

    fn report(&self, subscription: &Subscription, notification: &Notification, end: DeliveryOutcome) {
        let (tenant, id, place) = (subscription.tenant.clone(), subscription.id.clone(), notification.place);
        self.reports.add(DeliveryReport { tenant, id, place, end });
    }

    async fn run_lane(self: Arc<Self>, owner: Owner, lane: Lane) {
        let mut pause = Pause::new(&self.config);
        while let Some((destination, first)) = self.first(&owner, lane) {
            self.deliver(destination, first, &mut pause).await;
            if self.is_stopping.load(Ordering::Acquire) {
                break;
            }
        }
        self.lanes.fetch_sub(1, Ordering::AcqRel);
    }

    /// The next notification of a lane. Removes a queue that is empty and has nothing to report.
    fn first(&self, owner: &Owner, lane: Lane) -> Option<(Destination, QueuedNotification)> {
        let mut queues = self.queues.lock();
        let queue = queues.get_mut(owner)?;
        if let Some(first) = queue.first(lane) {
            return Some((queue.destination(), first));
        }
        if queue.is_over() {
            queues.remove(owner);
        }
        None
    }

    /// The current target of the subscription, if its queue still exists.
    fn destination(&self, subscription: &Subscription) -> Option<Destination> {
        self.with_queue(subscription, |queue| queue.destination())
    }

    /// Uses the queue of a subscription, if it still exists.
    fn with_queue<T>(&self, subscription: &Subscription, work: impl FnOnce(&mut DeliveryQueue) -> T) -> Option<T> {
        let mut queues = self.queues.lock();
        queues.get_mut(&(subscription.tenant.clone(), subscription.id.clone())).map(work)
    }

    fn done(&self, subscription: &Subscription, notification: &Arc<Notification>) {
        notification.token.end();
        self.with_queue(subscription, |queue| {
            let before = queue.bytes;
            queue.done(notification);
            self.total_bytes.fetch_sub(before - queue.bytes, Ordering::Relaxed);
        });
    }

    fn is_queued(&self, subscription: &Subscription, notification: &Arc<Notification>) -> bool {
        self.with_queue(subscription, |queue| queue.has_first(notification)).unwrap_or_default()
    }

    /// Counts a retry, or a drop if the notification was removed meanwhile.
    fn retries(&self, subscription: &Subscription, notification: &Arc<Notification>) -> bool {
        self.with_queue(subscription, |queue| queue.retries(notification)).unwrap_or_default()
    }

    /// Tries until the notification is delivered, given up, or the process stops. Each attempt uses the current target.
    async fn deliver(&self, mut to: Destination, first: QueuedNotification, pause: &mut Pause) {
        let QueuedNotification { notification, mut has_failed } = first;
        while let Err(failed) = self.try_once(&to, &notification, &mut has_failed, pause).await {
            let Some(next) = self.before_next(to, &notification, &failed, pause).await else { return };
            to = next;
        }
    }

    /// Makes an attempt unless the notification is too old; `Ok` if the notification is finished.
    async fn try_once(
        &self,
        to: &Destination,
        notification: &Arc<Notification>,
        has_failed: &mut bool,
        pause: &mut Pause,
    ) -> Result<(), Failed> {
        let subscription = &to.subscription;
        // Earlier notifications of the lane may have taken long.
        let now_ms = self.wall.now_ms();
        if to.is_too_old(notification, now_ms) {
            if !*has_failed {
                let max_age_s = subscription.delivery.max_age_ms / 1_000;
                self.fail(subscription, notification, now_ms, || format!("not sent within maxAge = {max_age_s} s"));
            }
            self.give_up(subscription, notification);
            return Ok(());
        }
        self.with_queue(subscription, |queue| queue.try_all(notification));
        let attempt = self.attempt(subscription, notification).await;
        self.note(subscription, notification, &attempt);
        let at_ms = self.wall.now_ms();
        match judged(attempt.map(|answer| answer.map(|(code, _)| code)), subscription.delivery.retry) {
            Ok(code) => {
                pause.reset();
                self.counters.delivered(at_ms - notification.made_ms);
                self.outcomes.ended(true, at_ms - notification.made_ms);
                self.report(subscription, notification, DeliveryOutcome::Delivered { at_ms, code });
                self.done(subscription, notification);
                Ok(())
            }
            Err(failed) => {
                if !std::mem::replace(has_failed, true) {
                    self.fail(subscription, notification, at_ms, || failed.reason.clone());
                }
                Err(failed)
            }
        }
    }

    /// Waits for the retry after a failed attempt at `from`; returns its target, or `None` to stop.
    async fn before_next(
        &self,
        from: Destination,
        notification: &Arc<Notification>,
        failed: &Failed,
        pause: &mut Pause,
    ) -> Option<Destination> {
        // Registered before the queue is read: a later change wakes the pause below.
        let (moved, stopping) = (from.moved.notified(), self.stopping.notified());
        let to = self.destination(&from.subscription).unwrap_or_else(|| from.clone());
        if from.moved_ms != to.moved_ms {
            // The new target has not seen the notification, whatever happened at the old one.
            pause.reset();
        } else if !may_retry(failed, to.subscription.delivery.retry) || to.is_too_old(notification, self.wall.now_ms())
        {
            self.give_up(&to.subscription, notification);
            return None;
        } else if !self.is_stopping.load(Ordering::Acquire) && self.is_queued(&to.subscription, notification) {
            if failed.kind == FailureKind::Unreached {
                self.fail_behind(&to.subscription, notification, failed);
            }
            tokio::select! {
                () = pause.wait() => {}
                () = moved => pause.reset(),
                () = stopping => {}
                () = self.next_arrival(&to.subscription, notification, failed.kind) => {}
            }
        }
        // At shutdown it stays in the queue: a durable one continues at the next start.
        if self.is_stopping.load(Ordering::Acquire) {
            return None;
        }
        if !self.retries(&to.subscription, notification) {
            self.count_dropped(&to.subscription, notification);
            return None;
        }
        self.counters.retried.inc();
        Some(self.destination(&to.subscription).unwrap_or(to))
    }

    /// Counts a notification as failed: at its first failed attempt, or when it is given up without one.
    fn fail(
        &self,
        subscription: &Subscription,
        notification: &Notification,
        at_ms: i64,
        reason: impl FnOnce() -> String,
    ) {
        self.counters.failed.inc();
        let reason = matches!(subscription.target, NotificationTarget::Http(_)).then(reason);
        self.report(subscription, notification, DeliveryOutcome::Failed { at_ms, reason });
    }

    /// Counts those that wait behind a notification whose receiver was not reached: order keeps them there, and the
    /// attempt shows that each of them would fail, too.
    fn fail_behind(&self, subscription: &Subscription, first: &Arc<Notification>, failed: &Failed) {
        let at_ms = self.wall.now_ms();
        for behind in self.with_queue(subscription, |queue| queue.fail_behind(first)).unwrap_or_default() {
            self.fail(subscription, &behind, at_ms, || failed.reason.clone());
        }
    }

    /// Completes when a notification joins a lane whose receiver was not reached: a new attempt is made for it at once.
    async fn next_arrival(&self, subscription: &Subscription, first: &Arc<Notification>, failure: FailureKind) {
        let arrived = self.with_queue(subscription, |queue| queue.arrived(first.lane)).flatten();
        let Some(arrived) = arrived.filter(|_| failure == FailureKind::Unreached) else {
            return std::future::pending().await;
        };
        // Registered before the queue is read, so that no arrival is missed.
        let next = arrived.notified();
        if !self.with_queue(subscription, |queue| queue.has_untried(first.lane)).unwrap_or_default() {
            next.await;
        }
    }

    /// Counts a notification that was dropped from the queue.
    fn count_dropped(&self, subscription: &Subscription, notification: &Notification) {
        self.counters.dropped.inc();
        self.outcomes.dropped.fetch_add(1, Ordering::Relaxed);
        self.report(subscription, notification, DeliveryOutcome::Dropped);
    }

    /// Ends the retries of a notification.
    fn give_up(&self, subscription: &Subscription, notification: &Arc<Notification>) {
        self.counters.given_up.inc();
        self.outcomes.ended(false, self.wall.now_ms() - notification.made_ms);
        self.report(subscription, notification, DeliveryOutcome::GivenUp);
        self.done(subscription, notification);
    }

    /// Records an attempt in counters and alarms.
    fn note(&self, subscription: &Subscription, notification: &Notification, attempt: &Attempt) {
        let request_bytes = match &notification.message {
            NotificationMessage::Http(request) => request.body().len(),
            NotificationMessage::Mqtt { payload, .. } => payload.len(),
            NotificationMessage::Kafka(message) => message.value.len(),
            NotificationMessage::Impossible { .. } => return,
        };
        let alarm = match &subscription.target {
            NotificationTarget::Http(_) => Alarm::Notification,
            NotificationTarget::Mqtt(_) => Alarm::MqttConnection,
            NotificationTarget::Kafka(_) => Alarm::KafkaConnection,
        };
        let whom = || match &subscription.target {
            NotificationTarget::Http(http) => url_without_secrets(http.url.raw()),
            NotificationTarget::Mqtt(mqtt) => {
                let Address { host, port, .. } = &mqtt.broker.address;
                format!("{host}:{port}")
            }
            NotificationTarget::Kafka(kafka) => kafka.cluster.name(),
        };
        let alarms = &self.observers.alarms;
        match attempt {
            // Names nobody: nearly always there is no alarm.
            Ok(_) if !alarms.has_any(alarm) => false,
            Ok(_) => alarms.release(alarm, &whom()),
            Err(failed) => alarms.raise(alarm, &whom(), &failed.reason),
        };
        let answer_bytes = attempt.as_ref().ok().copied().flatten().map_or(0, |(_, bytes)| bytes);
        let exchange = RequestOutcome { request_bytes: request_bytes as u64, answer_bytes, is_error: attempt.is_err() };
        self.observers.traffic.went(&subscription.tenant, &subscription.path, exchange);
    }

    async fn attempt(&self, subscription: &Subscription, notification: &Notification) -> Attempt {
        let timeout_ms = |given: Option<u64>| Duration::from_millis(given.unwrap_or(self.config.timeout_ms));
        match (&*notification.message.to(&subscription.target), &subscription.target) {
            (NotificationMessage::Http(request), target) => {
                let timeout =
                    timeout_ms(if let NotificationTarget::Http(http) = target { http.timeout_ms } else { None });
                self.receivers.http(&request.address).send(request, timeout).await.map(Some)
            }
            (NotificationMessage::Mqtt { topic, payload }, NotificationTarget::Mqtt(target)) => {
                let receiver = self.receivers.mqtt(&target.broker);
                let sent = receiver.send(topic, payload, target.qos, target.retain, timeout_ms(None));
                sent.await.map(|()| None)
            }
            (NotificationMessage::Kafka(message), NotificationTarget::Kafka(target)) => {
                let receiver = self.receivers.kafka(&target.cluster);
                receiver.send(message, notification.made_ms, timeout_ms(None)).await.map(|()| None)
            }
            (NotificationMessage::Mqtt { .. } | NotificationMessage::Kafka(_), _) => {
                Err(Failed::unknown("the subscription has another target now"))
            }
            (NotificationMessage::Impossible { why }, _) => Err(Failed::unknown(why.clone())),
        }
    }

    async fn release(&self, owner: Owner, due_ms: i64) {
        let rest_ms = (due_ms - self.wall.now_ms()).max(0) as u64;
        tokio::time::sleep(Duration::from_millis(rest_ms)).await;
        self.timers.lock().remove(&owner);
        let Some(views) = self.views.get().and_then(Weak::upgrade) else { return };
        let (tenant, id) = owner;
        let partition = views.partition_of(tenant.as_str().as_bytes());
        if let Err(error) = views.ask(partition, SubscriptionCommand::Release { tenant, id }).await {
            tracing::warn!(%error, "what throttling held back cannot be released now; the next change does it");
        }
    }
}

impl Destination {
    /// The notification has exceeded its maximum age.
    fn is_too_old(&self, notification: &Notification, now_ms: i64) -> bool {
        let since_ms = notification.made_ms.max(self.moved_ms);
        now_ms - since_ms >= self.subscription.delivery.max_age_ms as i64
    }
}
