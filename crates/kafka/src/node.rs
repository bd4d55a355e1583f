//! What all connections share: the log, the limits, who this node is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kafka_protocol::ResponseError;
use millstream_log::{Error as LogError, Log, Partition, Topic};
use millstream_types::{
    Epoch, Kind, MemoryBudget, QuotaConfig, Quotas, SystemClock, TenantId, TopicId, TopicName, TopicPartition,
};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use crate::KafkaConfig;
use crate::dispatch::Table;
use crate::group::{Coordinator, GroupConfig};
use crate::login::Logins;
use crate::refusal::Refusal;
use crate::transaction;

/// The number of the only broker there is.
pub(crate) const NODE_ID: i32 = 1;
/// What clients are told that the cluster is called.
pub(crate) const CLUSTER_ID: &str = "millstream";
/// The unit in which room for requests is counted.
pub(crate) const ROOM_UNIT_BYTES: usize = 1024;

/// What all connections share. A clone is the same node.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) config: KafkaConfig,
    pub(crate) table: Arc<Table>,
    /// Room for requests, in units of [`ROOM_UNIT_BYTES`].
    pub(crate) room: Arc<Semaphore>,
    /// True once the listener is being shut down.
    pub(crate) stopping: watch::Receiver<bool>,
    /// One creation of a topic at a time, so that *exists already* is told to all but one.
    pub(crate) creating: Arc<Mutex<()>>,
    pub(crate) groups: Arc<Coordinator>,
    pub(crate) transactions: Arc<transaction::Coordinator>,
    epoch: Epoch,
    producers: Arc<AtomicU32>,
    /// Who may log in; `None` where everybody may do everything.
    pub(crate) logins: Option<Arc<dyn Logins>>,
    pub(crate) quotas: Arc<Quotas>,
    /// What connections and fetched records draw on.
    pub(crate) memory: MemoryBudget,
    /// The tenant that is served: `default` until somebody of another one has logged in.
    pub(crate) tenant: TenantId,
}

/// What this listener has in common with the others.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) logins: Option<Arc<dyn Logins>>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) memory: MemoryBudget,
}

impl Default for Shared {
    /// No logins, and no limits.
    fn default() -> Self {
        let quotas = Quotas::new(QuotaConfig::default(), Arc::new(SystemClock::default()));
        Self { logins: None, quotas, memory: MemoryBudget::new("memory.budget_bytes", u64::MAX) }
    }
}

impl Node {
    pub(crate) fn new(
        log: Arc<dyn Log>,
        epoch: Epoch,
        config: KafkaConfig,
        Shared { logins, quotas, memory }: Shared,
        stopping: watch::Receiver<bool>,
    ) -> Arc<Self> {
        let clock = Arc::new(SystemClock::default());
        let groups = Coordinator::new(log.clone(), GroupConfig::default(), clock.clone(), clock.clone());
        let transactions = transaction::Coordinator::new(log.clone(), &config, clock);
        let room = Arc::new(Semaphore::new(config.requests_max_bytes / ROOM_UNIT_BYTES));
        Arc::new(Self {
            log,
            config,
            table: Arc::new(Table::new()),
            room,
            stopping,
            creating: Arc::default(),
            groups,
            transactions,
            epoch,
            producers: Arc::default(),
            logins,
            quotas,
            memory,
            tenant: TenantId::default(),
        })
    }

    /// Whether less than a quarter of the room for requests is left.
    pub(crate) fn room_is_short(&self) -> bool {
        self.room.available_permits() < self.config.requests_max_bytes / ROOM_UNIT_BYTES / 4
    }

    /// The same node, as clients of `tenant` see it.
    pub(crate) fn of(&self, tenant: &TenantId) -> Arc<Self> {
        Arc::new(Self { tenant: tenant.clone(), ..self.clone() })
    }

    /// The topic that a client means by `name`, whether it exists or not.
    pub(crate) fn name(&self, name: &str) -> Result<TopicName, Refusal> {
        let topic = TopicName::parse(name, &self.tenant)
            .map_err(|e| Refusal::new(ResponseError::InvalidTopicException, e.to_string()))?;
        if topic.kind() == Kind::Internal {
            let why = format!("topic '{name}' is internal: names that begin with '_' are not for clients");
            return Err(Refusal::new(ResponseError::TopicAuthorizationFailed, why));
        }
        if *topic.tenant() != self.tenant {
            return Err(Refusal::unknown_topic(name));
        }
        Ok(topic)
    }

    /// The topic of that name, if the client may see it.
    pub(crate) fn topic(&self, name: &str) -> Result<Arc<Topic>, Refusal> {
        let topic = self.name(name)?;
        self.log.topic(&topic).ok_or_else(|| Refusal::unknown_topic(name))
    }

    /// The topic of that id, if the client may see it.
    pub(crate) fn topic_by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.topics().into_iter().find(|topic| topic.id == id)
    }

    /// All topics that the client may see, by name.
    pub(crate) fn topics(&self) -> Vec<Arc<Topic>> {
        let mut topics = self.log.topics();
        topics.retain(|topic| topic.name.kind() != Kind::Internal && *topic.name.tenant() == self.tenant);
        topics
    }

    /// One partition of a topic that the client may see.
    pub(crate) fn partition(&self, name: &str, partition: i32) -> Result<Arc<dyn Partition>, Refusal> {
        let topic = self.name(name)?;
        let Ok(number) = u32::try_from(partition) else {
            let why = format!("partition {partition} of '{name}' cannot be; the first is 0");
            return Err(Refusal::new(ResponseError::UnknownTopicOrPartition, why));
        };
        self.log.partition(&TopicPartition::new(topic, number)).map_err(|e: LogError| Refusal::from(&e))
    }

    /// A producer id that nobody has had and nobody will get: the log's epoch, which each start makes larger, and a
    /// counter within it. `None` once the counter is used up.
    pub(crate) fn next_producer_id(&self) -> Option<i64> {
        let counted = self.producers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_add(1)).ok()?;
        Some(i64::from(self.epoch.0) << 32 | i64::from(counted))
    }
}
