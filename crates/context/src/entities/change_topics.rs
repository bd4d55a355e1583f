//! The topics `context.<tenant>`: every change of an entity, appended by the owners of
//! entities only, with time-based retention.
//!
//! | part | content |
//! | --- | --- |
//! | key | the entity's id |
//! | timestamp | when the change was made; for a measurement, when it was measured |
//! | value | the entity after the change (before it, for `entityDelete`), normalized JSON |
//! | header `alteration-type` | `entityCreate`, `entityChange`, `entityUpdate` (nothing differs), `entityDelete`, `entityExpire` (by itself; nobody is notified) |
//! | header `changed-attributes` | names of the attributes that differ, separated by commas; a comma in a name is `%2C`, a percent sign `%25` |
//! | header `kept-observation-times` | if there are any: names of the attributes whose value differs while the `TimeInstant` or `observedAt` is that of the value before, as the request gave none |
//! | header `fiware-servicepath` | the entity's service path |
//! | header `change-details` | JSON: type and times of the entity, what differs in each attribute, whose request it was |

use std::sync::Arc;
use std::time::Duration;

use millstream_http::Problem;
use millstream_log::{AckLevel, Log, Topic, TopicConfig, Writers};
use millstream_types::{Compression, TenantId, TopicKind, TopicName, TopicPartition, partition_of_key};
use parking_lot::Mutex;

use crate::refusal::{ErrorName, Refusal, RequestFailure};
use crate::state_topic::RECORD_MAX_BYTES;

pub(crate) use millstream_types::header::KEPT_OBSERVATION_TIMES;
pub use millstream_types::header::{ALTERATION_TYPE, CHANGED_ATTRIBUTES, SERVICE_PATH};

/// Header with the details of a change, as a JSON object.
pub const CHANGE_DETAILS: &str = "change-details";

const PARTITIONS: u32 = 4;
const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

/// The header value that names the attributes in `changed`.
pub(crate) fn listed(changed: &[Arc<str>]) -> String {
    let mut listed = String::with_capacity(changed.iter().map(|name| name.len() + 1).sum());
    for (number, name) in changed.iter().enumerate() {
        if number > 0 {
            listed.push(',');
        }
        if name.contains([',', '%']) {
            listed.push_str(&name.replace('%', "%25").replace(',', "%2C"));
        } else {
            listed.push_str(name);
        }
    }
    listed
}

/// Finds a tenant's change topic and creates it on first use. Caches nothing: a deleted topic is created anew.
pub(crate) struct ChangeTopics {
    log: Arc<dyn Log>,
    tenants_max: usize,
    compression: Compression,
    /// Held while a topic is created, so that the count stays right.
    creating: Mutex<()>,
}

/// The reason why a tenant has no change topic.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoTopic {
    /// The tenant limit is reached.
    #[error(
        "tenant '{tenant}' cannot have entities: {known} tenants have; context.tenants_max = {limit}; delete a topic \
         'context.<tenant>' that nobody needs, or raise the limit"
    )]
    TooManyTenants { tenant: TenantId, known: usize, limit: usize },
    #[error(transparent)]
    Log(#[from] millstream_log::Error),
}

impl From<NoTopic> for RequestFailure {
    fn from(error: NoTopic) -> Self {
        match error {
            NoTopic::TooManyTenants { .. } => {
                Self::Refused(Refusal::new(ErrorName::NoResourcesAvailable, error.to_string()))
            }
            NoTopic::Log(error) => Self::Problem(Problem::from_error(error.code(), &error)),
        }
    }
}

impl ChangeTopics {
    /// # Errors
    /// That of the log, where topics that are there cannot be given the `compression`.
    pub(crate) fn open(
        log: Arc<dyn Log>,
        tenants_max: usize,
        compression: Compression,
    ) -> Result<Self, millstream_log::Error> {
        for topic in log.topics().iter().filter(|topic| topic.name.kind() == TopicKind::Context) {
            if topic.config.compression != compression {
                log.alter_topic(&topic.name, &TopicConfig { compression, ..topic.config.clone() })?;
            }
        }
        Ok(Self { log, tenants_max, compression, creating: Mutex::new(()) })
    }

    /// The change partition of the entity `id`; `None` if the tenant has no topic.
    pub(crate) fn known_partition(&self, tenant: &TenantId, id: &str) -> Option<TopicPartition> {
        self.log.topic(&name(tenant)).map(|topic| partition_of(&topic, id))
    }

    /// The tenant has a change topic, now if not before. Without one the records that make entities wait.
    pub(crate) fn is_ready(&self, tenant: &TenantId) -> bool {
        let ready = self.partition(tenant, "");
        if let Err(error) = &ready {
            tracing::error!(%tenant, %error, "no topic for changes of entities; telemetry and updates wait for it");
        }
        ready.is_ok()
    }

    /// The change partition of the entity `id`. Waits for the disk on a tenant's first use.
    pub(crate) fn partition(&self, tenant: &TenantId, id: &str) -> Result<TopicPartition, NoTopic> {
        if let Some(known) = self.known_partition(tenant, id) {
            return Ok(known);
        }
        let _one_at_a_time = self.creating.lock();
        if let Some(known) = self.known_partition(tenant, id) {
            return Ok(known);
        }
        let known = self.log.topics().iter().filter(|topic| topic.name.kind() == TopicKind::Context).count();
        let limit = self.tenants_max;
        if known >= limit {
            return Err(NoTopic::TooManyTenants { tenant: tenant.clone(), known, limit });
        }
        let config = TopicConfig {
            partitions: PARTITIONS,
            level: AckLevel::Synced,
            writers: Writers::OwnersOnly,
            retention: Some(RETENTION),
            record_max_bytes: RECORD_MAX_BYTES,
            compression: self.compression,
            ..TopicConfig::default()
        };
        Ok(partition_of(&*self.log.create_topic(&name(tenant), &config)?, id))
    }
}

fn name(tenant: &TenantId) -> TopicName {
    TopicName::reserved(TopicKind::Context, tenant)
}

fn partition_of(topic: &Topic, id: &str) -> TopicPartition {
    TopicPartition::new(topic.name.clone(), partition_of_key(id.as_bytes(), topic.config.partitions).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_commas_are_told_apart() {
        let names: Vec<Arc<str>> = ["t", "a,b", "50%", "Größe"].map(Arc::from).into();
        assert_eq!(listed(&names), "t,a%2Cb,50%25,Größe");
    }
}
