//! Delivers notifications: in order, again and again where that may be, each subscription by itself.
//!
//! A lane of a queue that has something to deliver is a task; it ends when the lane is empty. Lanes share nothing but
//! the connections to their receiver, which are few: whoever does not answer costs its own queue and these.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use millstream_types::{TenantId, WallClock};
use millstream_view::Views;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use super::attempt::Failed;
use super::config::NotificationsConfig;
use super::http_receiver::HttpReceiver;
use super::mqtt_receiver::MqttReceiver;
use super::notification::{Lane, Message, Notification};
use super::outcomes::Outcomes;
use super::outgoing::Outgoing;
use super::queue::{Count, Queue, QueueLimits};
use super::reports::Reports;
use super::socket::Address;
use super::stats::NotificationCounters;
use super::subscription::{Retry, Subscription};
use super::target::{Broker, Target};
use super::view::{Command, End, Settled, SubscriptionView};
use crate::alarms::Alarm;
use crate::traffic::Exchange;
use crate::watch::Watch;

/// What a subscription may keep when all together have too much waiting.
const KEPT_MIN: usize = 16;
/// How long the end waits for attempts that are under way.
const LAST_ATTEMPTS: Duration = Duration::from_secs(5);
/// How often connections and receivers that nobody uses are let go.
const SWEEP: Duration = Duration::from_secs(30);

type Owner = (TenantId, Arc<str>);
/// The status of the answer and the bytes of its body, where there are such.
type Attempt = Result<Option<(u16, u64)>, Failed>;

/// See the module.
pub(crate) struct Delivery {
    shared: Arc<Shared>,
    runtime: Mutex<Option<Runtime>>,
}

/// What all lanes share.
pub(crate) struct Shared {
    config: NotificationsConfig,
    outgoing: Arc<Outgoing>,
    wall: Arc<dyn WallClock>,
    counters: Arc<NotificationCounters>,
    outcomes: Outcomes,
    watch: Watch,
    queues: Mutex<HashMap<Owner, Queue>>,
    total_bytes: AtomicUsize,
    http: Mutex<HashMap<Arc<Address>, Arc<HttpReceiver>>>,
    mqtt: Mutex<HashMap<Broker, Arc<MqttReceiver>>>,
    /// Subscriptions for which somebody waits until throttling is over.
    timers: Mutex<HashSet<Owner>>,
    reports: Reports,
    views: OnceLock<Weak<Views<SubscriptionView>>>,
    is_stopping: AtomicBool,
    stopping: Notify,
    lanes: AtomicUsize,
}

impl Delivery {
    /// Starts the thread that delivers.
    pub(crate) fn start(
        config: NotificationsConfig,
        outgoing: Arc<Outgoing>,
        wall: Arc<dyn WallClock>,
        counters: Arc<NotificationCounters>,
        watch: Watch,
    ) -> std::io::Result<Self> {
        // Before it waits it lets others on: then more answers have come, which together cost less than one by one.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("notify")
            .on_thread_park(std::thread::yield_now)
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared {
            config,
            outgoing,
            wall,
            counters,
            outcomes: Outcomes::default(),
            watch,
            queues: Mutex::default(),
            total_bytes: AtomicUsize::new(0),
            http: Mutex::default(),
            mqtt: Mutex::default(),
            timers: Mutex::default(),
            reports: Reports::default(),
            views: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
            stopping: Notify::new(),
            lanes: AtomicUsize::new(0),
        });
        Ok(Self { shared, runtime: Mutex::new(Some(runtime)) })
    }

    /// Says who is told what became of notifications, and begins to tell.
    pub(crate) fn report_to(&self, views: &Arc<Views<SubscriptionView>>) {
        let _ = self.shared.views.set(Arc::downgrade(views));
        let shared = self.shared.clone();
        self.spawn(async move { shared.reports.run(&shared.views, &shared.counters).await });
        let shared = self.shared.clone();
        self.spawn(async move { shared.sweep().await });
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &*self.runtime.lock() {
            runtime.spawn(task);
        }
    }

    /// Puts a notification into its subscription's queue. Waits for nothing.
    pub(crate) fn push(&self, subscription: &Arc<Subscription>, notification: &Arc<Notification>) {
        let shared = &self.shared;
        let owner: Owner = (subscription.tenant.clone(), subscription.id.clone());
        let lane = notification.lane;
        let begins = {
            let mut queues = shared.queues.lock();
            let queue = queues.entry(owner.clone()).or_insert_with(|| Queue::new(subscription.clone()));
            queue.subscription = subscription.clone();
            let before = queue.bytes;
            let begins = queue.push(notification.clone());
            shared.outcomes.queued.fetch_add(1, Ordering::Relaxed);
            shared.total_bytes.fetch_add(queue.bytes - before, Ordering::Relaxed);
            shared.shorten(queue);
            begins
        };
        if begins {
            shared.lanes.fetch_add(1, Ordering::AcqRel);
            let shared = shared.clone();
            self.spawn(async move { shared.run_lane(owner, lane).await });
        }
    }

    /// Forgets what waits for a subscription.
    pub(crate) fn drop_all(&self, tenant: &TenantId, id: &Arc<str>) {
        if let Some(queue) = self.shared.queues.lock().get_mut(&(tenant.clone(), id.clone())) {
            self.shared.clear(queue);
        }
    }

    /// Forgets what waits for a subscription and what was counted of it. A lane that is at work ends its attempt first.
    pub(crate) fn forget(&self, tenant: &TenantId, id: &Arc<str>) {
        if let Entry::Occupied(mut known) = self.shared.queues.lock().entry((tenant.clone(), id.clone())) {
            self.shared.clear(known.get_mut());
            known.get_mut().count_anew();
            if known.get().is_over() {
                known.remove();
            }
        }
    }

    /// Asks for what is held back once throttling is over.
    pub(crate) fn wait(&self, tenant: &TenantId, id: &Arc<str>, due_ms: i64) {
        let owner: Owner = (tenant.clone(), id.clone());
        if self.shared.timers.lock().insert(owner.clone()) {
            let shared = self.shared.clone();
            self.spawn(async move { shared.release(owner, due_ms).await });
        }
    }

    /// Count and bytes of what waits for a subscription, and how many had to go because there were too many.
    pub(crate) fn waiting(&self, tenant: &TenantId, id: &Arc<str>) -> (usize, usize, u64) {
        let queues = self.shared.queues.lock();
        queues.get(&(tenant.clone(), id.clone())).map_or((0, 0, 0), |queue| (queue.count, queue.bytes, queue.dropped))
    }

    /// What became of notifications.
    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.shared.outcomes
    }

    /// Count and bytes of all that waits.
    pub(crate) fn total(&self) -> (usize, usize) {
        let queues = self.shared.queues.lock();
        (queues.values().map(|queue| queue.count).sum(), self.shared.total_bytes.load(Ordering::Relaxed))
    }

    /// The queues of which there is most: tenant, subscription, how much.
    pub(crate) fn foremost(&self, most: usize, of: Count) -> Vec<(String, String, u64)> {
        let queues = self.shared.queues.lock();
        let all = queues.iter().map(|(owner, queue)| (owner, of(queue))).filter(|(_, count)| *count > 0);
        let mut foremost: Vec<_> =
            all.map(|((tenant, id), count)| (tenant.to_string(), id.to_string(), count)).collect();
        foremost.sort_by_key(|(.., count)| std::cmp::Reverse(*count));
        foremost.truncate(most);
        foremost
    }

    /// Ends after the attempts that are under way; what is durable goes on at the next start.
    pub(crate) fn stop(&self) {
        let Some(runtime) = self.runtime.lock().take() else { return };
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.stopping.notify_waiters();
        let shared = self.shared.clone();
        // On a thread of its own: the caller may be one on which blocking is forbidden.
        let ending = std::thread::Builder::new().name("notify-stop".to_owned()).spawn(move || {
            runtime.block_on(async {
                let all = async {
                    while shared.lanes.load(Ordering::Acquire) > 0 {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                let _ = tokio::time::timeout(LAST_ATTEMPTS, all).await;
                shared.reports.flush(&shared.views).await;
            });
            runtime.shutdown_background();
        });
        if ending.is_ok_and(|ending| ending.join().is_err()) {
            tracing::error!("the end of notifications panicked");
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn clear(&self, queue: &mut Queue) {
        self.total_bytes.fetch_sub(queue.bytes, Ordering::Relaxed);
        queue.clear();
    }

    /// Lets the oldest go while there is more than may wait.
    fn shorten(&self, queue: &mut Queue) {
        let mut limits = QueueLimits { count: self.config.queue_max, bytes: self.config.queue_max_bytes };
        if self.total_bytes.load(Ordering::Relaxed) > self.config.total_max_bytes {
            limits.count = limits.count.min(KEPT_MIN);
        }
        while let Some(gone) = queue.overflow(limits) {
            self.total_bytes.fetch_sub(gone.size_bytes(), Ordering::Relaxed);
            gone.token.end();
            self.counters.dropped.inc();
            self.outcomes.dropped.fetch_add(1, Ordering::Relaxed);
            let is_told = queue.tells_full(self.wall.now_ms());
            let subscription = &queue.subscription;
            if is_told {
                tracing::warn!(tenant = %subscription.tenant, subscription = %subscription.id, dropped = queue.dropped,
                    "more notifications wait than may; the oldest go");
            }
            self.report(subscription, &gone, End::GivenUp);
        }
    }

    fn report(&self, subscription: &Subscription, notification: &Notification, end: End) {
        let (tenant, id, place) = (subscription.tenant.clone(), subscription.id.clone(), notification.place);
        self.reports.add(Settled { tenant, id, place, end });
    }

    async fn run_lane(self: Arc<Self>, owner: Owner, lane: Lane) {
        let mut pause = Pause::new(&self.config);
        while let Some((subscription, notification)) = self.first(&owner, lane) {
            self.deliver(&subscription, &notification, &mut pause).await;
            if self.is_stopping.load(Ordering::Acquire) {
                break;
            }
        }
        self.lanes.fetch_sub(1, Ordering::AcqRel);
    }

    /// What is next; a queue with nothing more is forgotten, unless it has something to tell.
    fn first(&self, owner: &Owner, lane: Lane) -> Option<(Arc<Subscription>, Arc<Notification>)> {
        let mut queues = self.queues.lock();
        let queue = queues.get_mut(owner)?;
        if let Some(first) = queue.first(lane) {
            return Some((queue.subscription.clone(), first));
        }
        if queue.is_over() {
            queues.remove(owner);
        }
        None
    }

    fn done(&self, subscription: &Subscription, notification: &Arc<Notification>) {
        notification.token.end();
        if let Some(queue) = self.queues.lock().get_mut(&(subscription.tenant.clone(), subscription.id.clone())) {
            let before = queue.bytes;
            queue.done(notification);
            self.total_bytes.fetch_sub(before - queue.bytes, Ordering::Relaxed);
        }
    }

    /// Counts another attempt, unless the notification had to go meanwhile.
    fn retries(&self, subscription: &Subscription, notification: &Arc<Notification>) -> bool {
        let mut queues = self.queues.lock();
        let queue = queues.get_mut(&(subscription.tenant.clone(), subscription.id.clone()));
        queue.is_some_and(|queue| queue.retries(notification))
    }

    /// Tries until it is delivered, given up, or the end comes.
    async fn deliver(&self, subscription: &Subscription, notification: &Arc<Notification>, pause: &mut Pause) {
        let mut has_failed = false;
        let is_old = |at_ms: i64| at_ms - notification.made_ms >= subscription.delivery.max_age_ms as i64;
        loop {
            // Those before it in its lane may have taken long.
            if is_old(self.wall.now_ms()) {
                return self.give_up(subscription, notification);
            }
            let attempt = self.attempt(subscription, notification).await;
            self.note(subscription, notification, &attempt);
            let at_ms = self.wall.now_ms();
            let failed = match judged(attempt.map(|answer| answer.map(|(code, _)| code)), subscription.delivery.retry) {
                Ok(code) => {
                    pause.reset();
                    self.counters.delivered(at_ms - notification.made_ms);
                    self.outcomes.ended(true, at_ms - notification.made_ms);
                    self.report(subscription, notification, End::Delivered { at_ms, code });
                    return self.done(subscription, notification);
                }
                Err(failed) => failed,
            };
            if !std::mem::replace(&mut has_failed, true) {
                self.counters.failed.inc();
                let reason = matches!(subscription.target, Target::Http(_)).then(|| failed.reason.clone());
                self.report(subscription, notification, End::Failed { at_ms, reason });
            }
            if !may_retry(&failed, subscription.delivery.retry) || is_old(at_ms) {
                return self.give_up(subscription, notification);
            }
            let stopping = self.stopping.notified();
            if !self.is_stopping.load(Ordering::Acquire) {
                tokio::select! {
                    () = pause.wait() => {}
                    () = stopping => {}
                }
            }
            // At the end it stays where it is: what is durable goes on at the next start.
            if self.is_stopping.load(Ordering::Acquire) || !self.retries(subscription, notification) {
                return;
            }
            self.counters.retried.inc();
        }
    }

    /// Does not try it any more.
    fn give_up(&self, subscription: &Subscription, notification: &Arc<Notification>) {
        self.counters.given_up.inc();
        self.outcomes.ended(false, self.wall.now_ms() - notification.made_ms);
        self.report(subscription, notification, End::GivenUp);
        self.done(subscription, notification);
    }

    /// Notes an attempt: with whom it went well or wrong, and what it counts for.
    fn note(&self, subscription: &Subscription, notification: &Notification, attempt: &Attempt) {
        let request_bytes = match &notification.message {
            Message::Http(request) => request.body().len(),
            Message::Mqtt { payload, .. } => payload.len(),
            Message::Impossible { .. } => return,
        };
        let broker = |broker: &Broker| format!("{}:{}", broker.address.host, broker.address.port);
        let (alarm, whom): (_, Cow<'_, str>) = match &subscription.target {
            Target::Http(http) => (Alarm::Notification, http.url.raw().into()),
            Target::Mqtt(mqtt) => (Alarm::MqttConnection, broker(&mqtt.broker).into()),
        };
        match attempt {
            Ok(_) => self.watch.alarms.release(alarm, &whom),
            Err(failed) => self.watch.alarms.raise(alarm, &whom, &failed.reason),
        };
        let answer_bytes = attempt.as_ref().ok().copied().flatten().map_or(0, |(_, bytes)| bytes);
        let exchange = Exchange { request_bytes: request_bytes as u64, answer_bytes, is_error: attempt.is_err() };
        self.watch.traffic.went(&subscription.tenant, &subscription.path, exchange);
    }

    /// One attempt.
    async fn attempt(&self, subscription: &Subscription, notification: &Notification) -> Attempt {
        let timeout_ms = |given: Option<u64>| Duration::from_millis(given.unwrap_or(self.config.timeout_ms));
        match (&notification.message, &subscription.target) {
            (Message::Http(request), target) => {
                let timeout = timeout_ms(if let Target::Http(http) = target { http.timeout_ms } else { None });
                self.http_receiver(&request.address).send(request, timeout).await.map(Some)
            }
            (Message::Mqtt { topic, payload }, Target::Mqtt(target)) => {
                let receiver = self.mqtt_receiver(&target.broker);
                let sent = receiver.send((topic, payload), (target.qos, target.retain), timeout_ms(None));
                sent.await.map(|()| None)
            }
            (Message::Mqtt { .. }, Target::Http(_)) => Err(Failed::unknown("the subscription has another target now")),
            (Message::Impossible { why }, _) => Err(Failed { is_untaken: false, reason: why.clone() }),
        }
    }

    fn http_receiver(&self, address: &Arc<Address>) -> Arc<HttpReceiver> {
        let mut receivers = self.http.lock();
        if let Some(known) = receivers.get(address) {
            return known.clone();
        }
        let new =
            Arc::new(HttpReceiver::new(address.clone(), self.outgoing.clone(), self.config.connections_per_receiver));
        receivers.insert(address.clone(), new.clone());
        new
    }

    fn mqtt_receiver(&self, broker: &Broker) -> Arc<MqttReceiver> {
        let mut receivers = self.mqtt.lock();
        let new = || Arc::new(MqttReceiver::new(broker.clone(), self.outgoing.clone(), self.config.message_max_bytes));
        receivers.entry(broker.clone()).or_insert_with(new).clone()
    }

    async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            // Whoever is sending holds it, too.
            self.http.lock().retain(|_, receiver| Arc::strong_count(receiver) > 1 || !receiver.is_unused());
            let idle = Duration::from_secs(self.config.mqtt_idle_s);
            self.mqtt.lock().retain(|_, receiver| Arc::strong_count(receiver) > 1 || !receiver.close_if_idle(idle));
        }
    }

    async fn release(&self, owner: Owner, due_ms: i64) {
        let rest_ms = (due_ms - self.wall.now_ms()).max(0) as u64;
        tokio::time::sleep(Duration::from_millis(rest_ms)).await;
        self.timers.lock().remove(&owner);
        let Some(views) = self.views.get().and_then(Weak::upgrade) else { return };
        let (tenant, id) = owner;
        let partition = views.partition_of(tenant.as_str().as_bytes());
        if let Err(error) = views.ask(partition, Command::Release { tenant, id }).await {
            tracing::warn!(%error, "what throttling held back cannot be released now; the next change does it");
        }
    }
}

/// What an attempt counts as: a receiver that says "not now" has not taken it, and, if everything is to be tried again,
/// nor has one that has failed.
fn judged(attempt: Result<Option<u16>, Failed>, retry: Retry) -> Result<Option<u16>, Failed> {
    match attempt {
        Ok(Some(code @ (429 | 503))) if retry != Retry::Never => Err(Failed::unreached(format!("status {code}"))),
        Ok(Some(code @ 500..)) if retry == Retry::Always => Err(Failed::unknown(format!("status {code}"))),
        other => other,
    }
}

fn may_retry(failed: &Failed, retry: Retry) -> bool {
    match retry {
        Retry::Never => false,
        Retry::Safe => failed.is_untaken,
        Retry::Always => true,
    }
}

/// Growing pauses between attempts of one lane.
struct Pause {
    first_ms: u64,
    longest_ms: u64,
    next_ms: u64,
}

impl Pause {
    fn new(config: &NotificationsConfig) -> Self {
        let (first_ms, longest_ms) = (config.retry_first_ms, config.retry_longest_ms);
        Self { first_ms, longest_ms, next_ms: first_ms }
    }

    fn reset(&mut self) {
        self.next_ms = self.first_ms;
    }

    /// A part of it is chance, so that not all come back at once.
    async fn wait(&mut self) {
        let half_ms = self.next_ms / 2;
        self.next_ms = (self.next_ms * 2).min(self.longest_ms);
        tokio::time::sleep(Duration::from_millis(half_ms + fastrand::u64(..=half_ms.max(1)))).await;
    }
}
