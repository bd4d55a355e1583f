//! The brokers of all tenants that have connected since the start.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, Bell, Error, Log, TopicConfig, Writers};
use millstream_types::{MemoryBudget, MonotonicClock, TenantId, TopicKind, TopicName, TopicPartition, WallClock};
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::task::AbortHandle;

use super::dispatch::{dispatch, recover};
use super::state::State;
use super::{Broker, BrokerConfig, Counts};
use crate::mqtt::session_store::SessionStore;
use crate::mqtt::unknown_devices::UnknownDevices;
use crate::registry::Version;

/// The brokers and their dispatch tasks; the tasks end when it is dropped.
pub(crate) struct Brokers {
    pub(super) parts: BrokersParts,
    room: MemoryBudget,
    queues_room: MemoryBudget,
    subscriptions_room: MemoryBudget,
    /// Brokers by tenant; the first client starts its tenant's broker.
    known: Mutex<HashMap<TenantId, Arc<OnceCell<RunningBroker>>>>,
}

/// Dependencies that all brokers share.
#[derive(Clone)]
pub(crate) struct BrokersParts {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) store: SessionStore,
    pub(crate) config: BrokerConfig,
    pub(crate) counts: Arc<Counts>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) monotonic: Arc<dyn MonotonicClock>,
}

struct RunningBroker {
    broker: Arc<Broker>,
    dispatching: AbortHandle,
    /// Rung by the log as long as it lives.
    _bell: Arc<Bell>,
}

impl Drop for RunningBroker {
    fn drop(&mut self) {
        self.dispatching.abort();
    }
}

impl Brokers {
    pub(crate) fn new(parts: BrokersParts, memory: &MemoryBudget) -> Self {
        let room = memory.share("connect.mqtt.broker.live_max_bytes", parts.config.live_max_bytes);
        let queues_room = memory.share("connect.mqtt.broker.queues_max_bytes", parts.config.queues_max_bytes);
        let subscriptions_room =
            memory.share("connect.mqtt.broker.subscriptions_max_bytes", parts.config.subscriptions_max_bytes);
        Self { parts, room, queues_room, subscriptions_room, known: Mutex::default() }
    }

    /// That of `tenant`, which was created with the version `born`; begins with it if need be.
    pub(crate) async fn of(&self, tenant: &TenantId, born: Version) -> Result<Arc<Broker>, Error> {
        let (cell, former) = {
            let mut known = self.known.lock();
            let cell = known.entry(tenant.clone()).or_default();
            let former = cell.get().map(|known| &known.broker).filter(|broker| broker.born != born).map(Arc::clone);
            if former.is_some() || cell.get().is_some_and(|known| known.broker.is_gone()) {
                *cell = Arc::default();
            }
            (Arc::clone(cell), former)
        };
        // Somebody else had the name.
        former.iter().for_each(|broker| broker.abandon(|_| true));
        cell.get_or_try_init(|| self.begin(tenant, born)).await.map(|known| Arc::clone(&known.broker))
    }

    /// That of `tenant`, if somebody has begun with it.
    pub(crate) fn running(&self, tenant: &TenantId) -> Option<Arc<Broker>> {
        let known = self.known.lock();
        known.get(tenant).and_then(|cell| cell.get()).map(|known| Arc::clone(&known.broker))
    }

    async fn begin(&self, tenant: &TenantId, born: Version) -> Result<RunningBroker, Error> {
        self.own(tenant, born).await.map_err(|error| {
            tracing::warn!(%error, %tenant, "a private space cannot be opened");
            Error::Stopped
        })?;
        let BrokersParts { log, store, config: settings, counts, wall, monotonic } = self.parts.clone();
        let name = TopicName::reserved(TopicKind::Mqtt, tenant);
        let config = TopicConfig {
            partitions: 1,
            level: if settings.synced { AckLevel::Synced } else { AckLevel::Written },
            writers: Writers::OwnersOnly,
            retention: Some(Duration::from_secs(settings.retention_s)),
            retention_bytes: Some(settings.retention_max_bytes),
            ..TopicConfig::default()
        };
        // Creating a topic waits for the disk.
        let resolved = tokio::task::spawn_blocking(move || {
            if log.topic(&name).is_none() {
                log.create_topic(&name, &config)?;
            }
            log.partition(&TopicPartition::new(name, 0))
        });
        let partition = resolved.await.unwrap_or(Err(Error::Stopped))?;
        let bell = Arc::new(Bell::default());
        partition.watch(&bell);
        let began = partition.offsets().stable;
        let tenant_store = store.of(tenant, partition.id());
        let snapshot = tenant_store.snapshot();
        let subscriptions_room = self.subscriptions_room.for_tenant(tenant);
        let (state, from) = State::restored(snapshot.state.tenant(tenant), &subscriptions_room, wall.now_ms(), began.0);
        let broker = Arc::new(Broker {
            born,
            level: partition.topic().config.level,
            partition,
            config: settings,
            room: self.room.for_tenant(tenant),
            queues_room: self.queues_room.for_tenant(tenant),
            subscriptions_room,
            counts,
            unknown_devices: UnknownDevices::default(),
            tenant_store,
            began,
            wall,
            monotonic,
            state: Mutex::new(state),
        });
        let next = recover(&broker, from).await?;
        let dispatching = tokio::spawn(dispatch(Arc::downgrade(&broker), Arc::clone(&bell), next)).abort_handle();
        Ok(RunningBroker { broker, dispatching, _bell: bell })
    }
}
