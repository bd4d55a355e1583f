//! The topics `context.<tenant>`: every change of an entity, kept by time, appended by the owners of entities only.
//!
//! | part | content |
//! | --- | --- |
//! | key | the entity's id |
//! | timestamp | when the change was made; for a measurement, when it was measured |
//! | value | the entity after the change (before it, for `entityDelete`), normalized JSON |
//! | header `alteration-type` | `entityCreate`, `entityChange`, `entityUpdate` (nothing differs), `entityDelete`, `entityExpire` (by itself; nobody is notified) |
//! | header `changed-attributes` | names of the attributes that differ, separated by commas; a comma in a name is `%2C`, a percent sign `%25` |
//! | header `fiware-servicepath` | the entity's service path |
//! | header `change-details` | JSON: type and times of the entity, what differs in each attribute, whose request it was |

use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, Log, Topic, TopicConfig, Writers};
use millstream_types::{Kind, TenantId, TopicName, TopicPartition, partition_of_key};
use parking_lot::Mutex;

use crate::RECORD_MAX_BYTES;

pub use millstream_types::header::{ALTERATION_TYPE, CHANGED_ATTRIBUTES, SERVICE_PATH};

/// Header that says more of the change, as a JSON object.
pub const CHANGE_DETAILS: &str = "change-details";

const PARTITIONS: u32 = 4;
const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

/// The header that names `changed`.
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

/// Finds a tenant's change topic, creating it on first use. Keeps nothing of it: one that was deleted is made anew.
pub(crate) struct ChangeTopics {
    log: Arc<dyn Log>,
    tenants_max: usize,
    /// One at a time creates, so that the count is right.
    creating: Mutex<()>,
}

/// Why a tenant has no change topic.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoTopic {
    /// Another tenant cannot have entities.
    #[error(
        "tenant '{tenant}' cannot have entities: {known} tenants have; context.tenants_max = {limit}; delete a topic \
         'context.<tenant>' that nobody needs, or raise the limit"
    )]
    TooManyTenants { tenant: TenantId, known: usize, limit: usize },
    #[error(transparent)]
    Log(#[from] millstream_log::Error),
}

impl ChangeTopics {
    pub(crate) fn new(log: Arc<dyn Log>, tenants_max: usize) -> Self {
        Self { log, tenants_max, creating: Mutex::new(()) }
    }

    /// Where changes of the entity `id` go, if the tenant has a topic for them.
    pub(crate) fn known_partition(&self, tenant: &TenantId, id: &str) -> Option<TopicPartition> {
        self.log.topic(&name(tenant)).map(|topic| partition_of(&topic, id))
    }

    /// Where changes of the entity `id` go. Waits for the disk on a tenant's first use.
    pub(crate) fn partition(&self, tenant: &TenantId, id: &str) -> Result<TopicPartition, NoTopic> {
        if let Some(known) = self.known_partition(tenant, id) {
            return Ok(known);
        }
        let _one_at_a_time = self.creating.lock();
        if let Some(known) = self.known_partition(tenant, id) {
            return Ok(known);
        }
        let known = self.log.topics().iter().filter(|topic| topic.name.kind() == Kind::Context).count();
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
            ..TopicConfig::default()
        };
        Ok(partition_of(&*self.log.create_topic(&name(tenant), &config)?, id))
    }
}

fn name(tenant: &TenantId) -> TopicName {
    TopicName::reserved(Kind::Context, tenant)
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
