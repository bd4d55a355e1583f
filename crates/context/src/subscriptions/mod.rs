//! Subscriptions: storage, matching and delivery of notifications.
//!
//! ```text
//!  /v2/subscriptions ──► owner of the tenant ──► _subscriptions ──► index
//!                                                                     │ candidates
//!  context.<tenant> ──► matcher: which fire, what they are told ◄─────┘
//!                          └──► owner: throttling, one shot, counters, durable queue ──► _subscriptions
//!                                   └──► queue of the subscription ──► lane by lane ──► receiver (HTTP, MQTT)
//!                                          what became of it ──► owner ◄──┘
//! ```
//!
//! The state is a view over the compacted topic `_subscriptions`, partitioned by tenant. A definition is
//! active when its request is answered. The notifications of a change are stored together with the change's
//! position, in one append, and sent once that is durable: a restart never sends one twice, and loses none if
//! the subscription's queue is durable.

mod body;
mod built_ins;
mod change;
mod delivery;
mod details;
mod effect;
mod expression_work;
mod hub;
mod index;
mod kafka_receiver;
mod kafka_target;
mod matcher;
mod matching;
mod mqtt_receiver;
mod notification;
mod outcomes;
mod patch;
mod payload_template;
mod progress;
mod queue;
mod receivers;
mod record;
mod render;
mod reports;
mod retry;
mod routes;
mod scope;
mod shape;
mod shown;
mod state;
mod stats;
mod subscription;
mod target;
mod target_members;
mod template;
mod view;

use std::sync::Arc;
use std::time::Duration;

use millstream_http::{Metrics, Routes};
use millstream_log::Log;
use millstream_outgoing::Outgoing;
use millstream_types::{RemoteCallers, StateTopic, TenantId, TopicName};
use millstream_view::{Follower, FollowerConfig, ViewRuntime, Views, ViewsConfig};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;

use crate::ContextConfig;
use crate::Error;
use crate::flow_control::{FlowControl, Flows};
use crate::model::object_ids::ObjectIds;
use crate::state_topic::create_state_topic;
use crate::statistics::observers::Observers;
use crate::tokens::Tokens;
use delivery::NotificationDelivery;
use effect::{Effect, EffectSink};
use hub::Hub;
use index::SubscriptionCounts;
use matcher::Matcher;
use queue::Count;
use stats::NotificationCounters;
use view::SubscriptionView;

/// Limit of an append: a definition of the largest body, or a large notification, fits.
const APPEND_MAX_BYTES: usize = 4 << 20;
/// Changes in one command: each may add as much as `matcher` sends at once.
const COMMAND_MAX_CHANGES: usize = 64;
/// Queues with their own metrics.
const QUEUES_SHOWN_MAX: usize = 100;

/// The subscriptions of all tenants, with matching and delivery.
pub(crate) struct Subscriptions {
    views: Arc<Views<SubscriptionView>>,
    hub: Arc<Hub>,
    log: Arc<dyn Log>,
    ground: ViewRuntime,
    follower: Follower,
    outgoing: Arc<Outgoing>,
    ids: ObjectIds,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) flows: Arc<Flows>,
    observers: Observers,
}

impl Subscriptions {
    /// The rules for connections to other servers.
    pub(crate) fn outgoing(&self) -> &Arc<Outgoing> {
        &self.outgoing
    }

    /// The ids of the tenant's active subscriptions, and the counts.
    pub(crate) fn at_work(&self, tenant: &TenantId) -> (Vec<Arc<str>>, SubscriptionCounts) {
        self.hub.index.read().of(tenant)
    }

    /// Resets the counts of the tenant's subscriptions.
    pub(crate) fn count_anew(&self, tenant: &TenantId) {
        self.hub.index.write().count_anew(tenant);
    }

    /// The block `notifQueue` of `/statistics`.
    pub(crate) fn outcomes(&self) -> Value {
        self.hub.delivery.outcomes().shown(self.hub.delivery.total().0)
    }

    /// The number of delivered notifications.
    pub(crate) fn sent(&self) -> u64 {
        self.hub.delivery.outcomes().sent()
    }

    /// Resets the outcomes of notifications.
    pub(crate) fn count_outcomes_anew(&self) {
        self.hub.delivery.outcomes().reset();
    }

    /// Opens the subscriptions in `ground`, resumes waiting deliveries and starts to follow changes.
    ///
    /// # Errors
    /// [`Error::View`], [`Error::Log`] or [`Error::Thread`], if a part cannot start.
    pub(crate) fn open(
        ground: &ViewRuntime,
        config: &ContextConfig,
        callers: RemoteCallers,
        observers: &Observers,
        metrics: &Metrics,
    ) -> Result<Arc<Self>, Error> {
        let notifications = config.notifications.clone();
        let counters = Arc::new(NotificationCounters::new(metrics));
        let outgoing = Arc::new(notifications.outgoing(callers)?);
        let (wall, shared) = (ground.wall.clone(), outgoing.clone());
        let delivery =
            NotificationDelivery::start(notifications.clone(), shared, wall, counters.clone(), observers.clone())
                .map_err(|source| Error::Thread(Arc::new(source)))?;
        let hub = Arc::new(Hub { index: RwLock::default(), delivery });
        show_queues(&hub, metrics);
        let name = TopicName::internal(StateTopic::Subscriptions);
        create_state_topic(&name, config.partitions, &*ground.log)?;
        let views_config = ViewsConfig {
            partitions: config.partitions,
            append_max_bytes: APPEND_MAX_BYTES,
            dirty_max_bytes: config.dirty_max_bytes,
            inbox_max_bytes: config.inbox_max_bytes,
            inbox_setting: "context.inbox_max_bytes",
            ..ViewsConfig::default()
        };
        let view = SubscriptionView { effects: hub.clone(), tenant_max: notifications.subscriptions_max };
        let views = Views::open(view, &name, &views_config, ground)?;
        hub.delivery.report_to(&views);
        for snapshot in views.snapshots() {
            take_up(&hub, &snapshot.state);
        }
        let tokens = Arc::new(Tokens::default());
        let flows = Arc::new(Flows::new(FlowControl::read(&notifications.flow_control, config.timeout_ms)?));
        let matcher = Matcher {
            hub: hub.clone(),
            views: views.clone(),
            wall: ground.wall.clone(),
            tokens: tokens.clone(),
            flows: flows.clone(),
            counters,
            custom: notifications.custom,
            message_max_bytes: notifications.message_max_bytes,
            roots: Mutex::default(),
            handed: Mutex::default(),
        };
        let follower_config =
            FollowerConfig { threads: 1, command_max_records: COMMAND_MAX_CHANGES, ..FollowerConfig::default() };
        let follower = Follower::start(Arc::new(matcher), &views, &ground.log, &follower_config)?;
        let (log, ground) = (ground.log.clone(), ground.clone());
        let observers = observers.clone();
        Ok(Arc::new(Self {
            views,
            hub,
            log,
            ground,
            follower,
            outgoing,
            ids: ObjectIds::default(),
            tokens,
            flows,
            observers,
        }))
    }

    /// Adds the routes under `/v2/subscriptions`.
    pub(crate) fn routes(self: &Arc<Self>, routes: Routes, config: &ContextConfig) -> Routes {
        routes::add(routes, self, config)
    }

    /// The permanent failures of views and followers.
    pub(crate) fn failures(&self) -> Vec<millstream_view::Failure> {
        self.views.failures()
    }

    /// Changes that were not matched: trimmed before they were read, or refused by an owner.
    pub(crate) fn records_passed_over(&self) -> u64 {
        self.views.records_passed_over()
    }

    /// Stops matching, waits for running attempts up to `drain`, stores their outcomes and writes the checkpoint.
    pub(crate) fn stop(&self, drain: Duration) {
        self.follower.stop();
        self.hub.delivery.stop(drain);
        self.views.stop();
    }
}

/// Activates the subscriptions of a stored state.
fn take_up(hub: &Hub, state: &state::State) {
    for (subscription, known) in state.all() {
        let (tenant, id) = (&subscription.tenant, &subscription.id);
        let mut effects = Vec::new();
        if known.progress.is_at_work() {
            effects.push(Effect::Begin(subscription.clone()));
        }
        effects.extend(known.waiting.values().map(|notification| Effect::Resume {
            subscription: subscription.clone(),
            notification: notification.clone(),
            has_failed: known.progress.has_failed(notification.place),
        }));
        if known.held.is_some() {
            let last_ms = known.progress.last_notification_ms.unwrap_or_default();
            let due_ms = last_ms.saturating_add(subscription.throttling_ms);
            effects.push(Effect::Wait { tenant: tenant.clone(), id: id.clone(), due_ms });
        }
        hub.take_effect(&effects);
    }
}

fn show_queues(hub: &Arc<Hub>, metrics: &Metrics) {
    let of = hub.clone();
    metrics.gauge_fn("millstream_notifications_waiting", "Notifications that wait to be delivered.", move || {
        of.delivery.total().0 as f64
    });
    let of = hub.clone();
    metrics.gauge_fn("millstream_notifications_waiting_bytes", "What waiting notifications take.", move || {
        of.delivery.total().1 as f64
    });
    let each: [(&str, &str, Count); 3] = [
        ("waiting", "Notifications that wait to be delivered.", |queue| queue.count as u64),
        ("dropped", "Notifications that had to go because too many waited.", |queue| queue.dropped),
        ("retried", "Attempts after a failed one.", |queue| queue.retried),
    ];
    for (name, help, count) in each {
        let of = hub.clone();
        let name = format!("millstream_subscription_{name}");
        let help = format!("{help} Of one subscription; the {QUEUES_SHOWN_MAX} of which there is most.");
        metrics.gauges_fn(&name, &help, &["tenant", "subscription"], move || {
            let foremost = of.delivery.foremost(QUEUES_SHOWN_MAX, count);
            foremost.into_iter().map(|(tenant, id, count)| (vec![tenant, id], count as f64)).collect()
        });
    }
}

/// Compiles a body with a placeholder identity.
#[cfg(test)]
pub(crate) fn compile_any(
    document: serde_json::Map<String, serde_json::Value>,
) -> Result<subscription::Subscription, crate::refusal::Refusal> {
    let since = subscription::Since { topic: 0, offsets: Vec::new() };
    let identity = subscription::Identity { tenant: TenantId::default(), id: "s".into(), path: "/#".to_owned(), since };
    subscription::Subscription::compile(identity, document)
}
