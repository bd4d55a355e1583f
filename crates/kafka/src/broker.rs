//! The broker: the log, the limits and the coordinators that all connections share.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use millstream_log::{Error as LogError, KafkaLog, KafkaPartition, Topic};
use millstream_net::{LoginThrottle, Logins, Shutdown, TenantRoom};
use millstream_types::{
    AuditTrail, MemoryBudget, Principal, QuotaConfig, Quotas, SystemClock, TopicId, TopicKind, TopicName,
    TopicPartition,
};
use parking_lot::Mutex;

use crate::KafkaConfig;
use crate::api_error::ApiError;
use crate::group::{GroupConfig, GroupCoordinator};
use crate::namespace::Namespace;
use crate::supported_apis::SupportedApis;
use crate::transaction;

/// The id of the only broker.
pub(crate) const NODE_ID: i32 = 1;
/// The cluster id that clients are told.
pub(crate) const CLUSTER_ID: &str = "millstream";

/// The state that all connections share. A clone is the same broker.
#[derive(Clone)]
pub(crate) struct Broker {
    pub(crate) log: Arc<dyn KafkaLog>,
    pub(crate) config: KafkaConfig,
    pub(crate) supported_apis: SupportedApis,
    /// Room for requests after a login.
    pub(crate) room: TenantRoom,
    /// Begins when the listener is shut down.
    pub(crate) shutdown: Shutdown,
    /// One creation of a topic at a time, so that all but one get *exists already*.
    pub(crate) creating: Arc<Mutex<()>>,
    pub(crate) groups: Arc<GroupCoordinator>,
    pub(crate) transactions: Arc<transaction::TransactionCoordinator>,
    /// The accepted logins; `None` if there never are any.
    pub(crate) logins: Option<Arc<dyn Logins>>,
    /// Limits the failed logins of each client address.
    pub(crate) throttle: Arc<LoginThrottle>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) audit: Option<Arc<dyn AuditTrail>>,
    /// The memory budget for connections and fetched records.
    pub(crate) memory: MemoryBudget,
    /// The topics that this view of the broker serves, and their names for clients.
    pub(crate) namespace: Namespace,
}

/// The resources that this listener shares with other listeners.
#[derive(Debug, Clone)]
pub(crate) struct SharedResources {
    pub(crate) logins: Option<Arc<dyn Logins>>,
    pub(crate) throttle: Arc<LoginThrottle>,
    pub(crate) quotas: Arc<Quotas>,
    /// Keeps changes of topics; `None` keeps none.
    pub(crate) audit: Option<Arc<dyn AuditTrail>>,
    pub(crate) memory: MemoryBudget,
}

impl Default for SharedResources {
    /// No logins, and no limits.
    fn default() -> Self {
        let quotas = Quotas::new(QuotaConfig::default(), Arc::new(SystemClock::default()));
        let memory = MemoryBudget::new("memory.budget_bytes", u64::MAX);
        Self { logins: None, throttle: Arc::default(), quotas, audit: None, memory }
    }
}

impl Broker {
    pub(crate) fn new(
        log: Arc<dyn KafkaLog>,
        config: KafkaConfig,
        SharedResources { logins, throttle, quotas, audit, memory }: SharedResources,
        supported_apis: SupportedApis,
        shutdown: Shutdown,
    ) -> Arc<Self> {
        let clock = Arc::new(SystemClock::default());
        let groups = GroupCoordinator::new(log.clone(), group_config(&config), clock.clone(), clock.clone());
        let transactions = transaction::TransactionCoordinator::new(log.clone(), &config, clock);
        let room = TenantRoom::new(config.requests_max_bytes);
        let namespace = Namespace::new(&config.device_topic_prefix);
        Arc::new(Self {
            log,
            config,
            supported_apis,
            room,
            shutdown,
            creating: Arc::default(),
            groups,
            transactions,
            logins,
            throttle,
            quotas,
            audit,
            memory,
            namespace,
        })
    }

    /// The same broker, as `principal` sees it.
    pub(crate) fn of(&self, principal: &Principal, in_every_tenant: bool) -> Arc<Self> {
        let namespace = self.namespace.of(&principal.tenant, in_every_tenant).limited_to(&principal.scope);
        Arc::new(Self { namespace, ..self.clone() })
    }

    /// `true` if clients must log in.
    pub(crate) fn requires_logins(&self) -> bool {
        self.logins.as_ref().is_some_and(|logins| logins.open_access().is_none())
    }

    /// The topic that a client means by `name`; it need not exist.
    pub(crate) fn name(&self, name: &str) -> Result<TopicName, ApiError> {
        let topic = self.namespace.parse(name)?;
        if topic.kind() == TopicKind::Internal {
            let why = format!("topic '{name}' is Millstream's own, of all tenants; it is not for clients");
            return Err(ApiError::new(ResponseError::TopicAuthorizationFailed, why));
        }
        if !self.namespace.sees(&topic) {
            return Err(ApiError::unknown_topic(name));
        }
        if !self.namespace.admits(&topic) {
            let why = format!("topic '{name}' is not among those that the API token is limited to");
            return Err(ApiError::new(ResponseError::TopicAuthorizationFailed, why));
        }
        Ok(topic)
    }

    /// The topic of that name, if the client may see it.
    pub(crate) fn topic(&self, name: &str) -> Result<Arc<Topic>, ApiError> {
        let topic = self.name(name)?;
        self.log.topic(&topic).ok_or_else(|| ApiError::unknown_topic(name))
    }

    /// The topic of that id, if the client may see it.
    pub(crate) fn topic_by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.log.topic_by_id(id).filter(|topic| self.namespace.shows(&topic.name))
    }

    /// All topics that the client may see, by name.
    pub(crate) fn topics(&self) -> Vec<Arc<Topic>> {
        let mut topics = self.log.topics();
        topics.retain(|topic| self.namespace.shows(&topic.name));
        topics
    }

    /// One partition of a topic that the client may see.
    pub(crate) fn partition(&self, name: &str, partition: i32) -> Result<Arc<dyn KafkaPartition>, ApiError> {
        let topic = self.name(name)?;
        let Ok(number) = u32::try_from(partition) else {
            let why = format!("partition {partition} of '{name}' cannot be; the first is 0");
            return Err(ApiError::new(ResponseError::UnknownTopicOrPartition, why));
        };
        self.log.kafka_partition(&TopicPartition::new(topic, number)).map_err(|e: LogError| ApiError::from(&e))
    }
}

fn group_config(config: &KafkaConfig) -> GroupConfig {
    GroupConfig {
        groups_max: config.groups_max,
        groups_per_tenant_max: config.groups_per_tenant_max,
        consumer_session_timeout: Duration::from_millis(config.group_consumer_session_timeout_ms.into()),
        consumer_heartbeat_interval: Duration::from_millis(config.group_consumer_heartbeat_interval_ms.into()),
        offsets_retention: Duration::from_secs(u64::from(config.offsets_retention_minutes) * 60),
        ..GroupConfig::default()
    }
}
