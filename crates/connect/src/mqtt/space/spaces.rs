//! The private spaces of all tenants that have connected since the start.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, Bell, Error, Log, TopicConfig, Writers};
use millstream_types::{Kind, MemoryBudget, TenantId, TopicName, TopicPartition};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::dispatch::dispatch;
use super::{BrokerConfig, Counts, Space, State};

/// The spaces, and the tasks that dispatch their messages; these end when it is dropped.
pub(crate) struct Spaces {
    log: Arc<dyn Log>,
    config: BrokerConfig,
    room: MemoryBudget,
    pub(crate) counts: Arc<Counts>,
    known: Mutex<HashMap<TenantId, Known>>,
    /// Held while a tenant's topic is resolved, so that each is resolved once.
    resolving: tokio::sync::Mutex<()>,
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
    pub(crate) fn new(log: Arc<dyn Log>, config: &BrokerConfig, memory: &MemoryBudget, counts: &Arc<Counts>) -> Self {
        let room = memory.share("connect.mqtt.broker.live_max_bytes", config.live_max_bytes);
        let (config, counts) = (config.clone(), Arc::clone(counts));
        Self { log, config, room, counts, known: Mutex::default(), resolving: tokio::sync::Mutex::default() }
    }

    /// That of `tenant`; begins with it if need be.
    pub(crate) async fn of(&self, tenant: &TenantId) -> Result<Arc<Space>, Error> {
        if let Some(known) = self.known(tenant) {
            return Ok(known);
        }
        let _turn = self.resolving.lock().await;
        if let Some(known) = self.known(tenant) {
            return Ok(known);
        }
        let begun = self.begin(tenant).await?;
        let space = Arc::clone(&begun.space);
        self.known.lock().insert(tenant.clone(), begun);
        Ok(space)
    }

    fn known(&self, tenant: &TenantId) -> Option<Arc<Space>> {
        let known = self.known.lock().get(tenant).map(|known| Arc::clone(&known.space))?;
        Some(known).filter(|space| !space.is_gone())
    }

    async fn begin(&self, tenant: &TenantId) -> Result<Known, Error> {
        let (log, name) = (Arc::clone(&self.log), TopicName::reserved(Kind::Mqtt, tenant));
        let config = TopicConfig {
            partitions: 1,
            level: if self.config.synced { AckLevel::Synced } else { AckLevel::Written },
            writers: Writers::OwnersOnly,
            retention: Some(Duration::from_secs(self.config.retention_s)),
            retention_bytes: Some(self.config.retention_max_bytes),
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
        let from = partition.offsets().stable;
        let space = Arc::new(Space {
            level: partition.topic().config.level,
            partition,
            config: self.config.clone(),
            room: self.room.clone(),
            counts: Arc::clone(&self.counts),
            state: Mutex::new(State { next: from.0, ..State::default() }),
        });
        let dispatching = tokio::spawn(dispatch(Arc::downgrade(&space), Arc::clone(&bell), from)).abort_handle();
        Ok(Known { space, dispatching, _bell: bell })
    }
}
