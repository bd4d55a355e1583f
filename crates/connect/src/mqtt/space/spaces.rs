//! The private spaces of all tenants that have connected since the start.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, Bell, Error, Log, TopicConfig, Writers};
use millstream_types::{Kind, MemoryBudget, MonotonicClock, TenantId, TopicName, TopicPartition, WallClock};
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::task::AbortHandle;

use super::dispatch::{dispatch, recover};
use super::{BrokerConfig, Counts, Space, State};
use crate::mqtt::kept::Kept;
use crate::registry::Version;

/// The spaces, and the tasks that dispatch their messages; these end when it is dropped.
pub(crate) struct Spaces {
    pub(super) parts: SpacesParts,
    room: MemoryBudget,
    queues_room: MemoryBudget,
    /// Each is begun once, whoever comes first.
    known: Mutex<HashMap<TenantId, Arc<OnceCell<Known>>>>,
}

/// What the spaces are made of.
#[derive(Clone)]
pub(crate) struct SpacesParts {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) kept: Kept,
    pub(crate) config: BrokerConfig,
    pub(crate) counts: Arc<Counts>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) monotonic: Arc<dyn MonotonicClock>,
}

struct Known {
    space: Arc<Space>,
    dispatching: AbortHandle,
    /// Rung by the log as long as it lives.
    _bell: Arc<Bell>,
}

impl Drop for Known {
    fn drop(&mut self) {
        self.dispatching.abort();
    }
}

impl Spaces {
    pub(crate) fn new(parts: SpacesParts, memory: &MemoryBudget) -> Self {
        let room = memory.share("connect.mqtt.broker.live_max_bytes", parts.config.live_max_bytes);
        let queues_room = memory.share("connect.mqtt.broker.queues_max_bytes", parts.config.queues_max_bytes);
        Self { parts, room, queues_room, known: Mutex::default() }
    }

    /// That of `tenant`, which was created with the version `born`; begins with it if need be.
    pub(crate) async fn of(&self, tenant: &TenantId, born: Version) -> Result<Arc<Space>, Error> {
        let (cell, former) = {
            let mut known = self.known.lock();
            let cell = known.entry(tenant.clone()).or_default();
            let former = cell.get().map(|known| &known.space).filter(|space| space.born != born).map(Arc::clone);
            if former.is_some() || cell.get().is_some_and(|known| known.space.is_gone()) {
                *cell = Arc::default();
            }
            (Arc::clone(cell), former)
        };
        // Somebody else had the name.
        former.iter().for_each(|space| space.abandon(|_| true));
        cell.get_or_try_init(|| self.begin(tenant, born)).await.map(|known| Arc::clone(&known.space))
    }

    /// That of `tenant`, if somebody has begun with it.
    pub(crate) fn running(&self, tenant: &TenantId) -> Option<Arc<Space>> {
        let known = self.known.lock();
        known.get(tenant).and_then(|cell| cell.get()).map(|known| Arc::clone(&known.space))
    }

    async fn begin(&self, tenant: &TenantId, born: Version) -> Result<Known, Error> {
        self.own(tenant, born).await.map_err(|error| {
            tracing::warn!(%error, %tenant, "a private space cannot be opened");
            Error::Stopped
        })?;
        let SpacesParts { log, kept, config: settings, counts, wall, monotonic } = self.parts.clone();
        let name = TopicName::reserved(Kind::Mqtt, tenant);
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
        let keeper = kept.of(tenant, partition.id());
        let snapshot = keeper.snapshot();
        let (state, from) = State::restored(snapshot.state.tenant(tenant), wall.now_ms(), began.0);
        let space = Arc::new(Space {
            born,
            level: partition.topic().config.level,
            partition,
            config: settings,
            room: self.room.clone(),
            queues_room: self.queues_room.clone(),
            counts,
            keeper,
            began,
            wall,
            monotonic,
            state: Mutex::new(state),
        });
        let next = recover(&space, from).await?;
        let dispatching = tokio::spawn(dispatch(Arc::downgrade(&space), Arc::clone(&bell), next)).abort_handle();
        Ok(Known { space, dispatching, _bell: bell })
    }
}
