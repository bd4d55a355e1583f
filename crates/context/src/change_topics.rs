//! The topics `context.<tenant>`: every change of an entity, kept by time, appended by the owners of entities only.
//!
//! | part | content |
//! | --- | --- |
//! | key | the entity's id |
//! | timestamp | when the change was made; for a measurement, when it was measured |
//! | value | the entity after the change (before it, for `entityDelete`), normalized JSON |
//! | header `alteration-type` | `entityCreate`, `entityChange`, `entityUpdate` (nothing differs), `entityDelete` |
//! | header `changed-attributes` | names of the attributes that differ, separated by commas |
//! | header `fiware-servicepath` | the entity's service path |

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_log::{AckLevel, Log, TopicConfig, Writers};
use millstream_types::{Kind, TenantId, TopicName, TopicPartition, partition_of_key};
use parking_lot::Mutex;

use crate::RECORD_MAX_BYTES;

/// Header that says what has happened to the entity.
pub const ALTERATION_TYPE: &str = "alteration-type";
/// Header that names the attributes that differ.
pub const CHANGED_ATTRIBUTES: &str = "changed-attributes";
/// Header with the entity's service path.
pub const SERVICE_PATH: &str = "fiware-servicepath";

const PARTITIONS: u32 = 4;
const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

/// Finds a tenant's change topic, creating it on first use. Never called on a shard thread.
pub(crate) struct ChangeTopics {
    log: Arc<dyn Log>,
    known: Mutex<HashMap<TenantId, (TopicName, u32)>>,
}

impl ChangeTopics {
    pub(crate) fn new(log: Arc<dyn Log>) -> Self {
        Self { log, known: Mutex::new(HashMap::new()) }
    }

    /// Where changes of the entity `id` go, if the tenant's topic has been used before.
    pub(crate) fn known_partition(&self, tenant: &TenantId, id: &str) -> Option<TopicPartition> {
        self.known.lock().get(tenant).map(|topic| partition_of(topic, id))
    }

    /// Where changes of the entity `id` go. Waits for the disk on a tenant's first use.
    pub(crate) fn partition(&self, tenant: &TenantId, id: &str) -> Result<TopicPartition, millstream_log::Error> {
        if let Some(known) = self.known_partition(tenant, id) {
            return Ok(known);
        }
        let topic = self.open(tenant)?;
        let partition = partition_of(&topic, id);
        self.known.lock().insert(tenant.clone(), topic);
        Ok(partition)
    }

    fn open(&self, tenant: &TenantId) -> Result<(TopicName, u32), millstream_log::Error> {
        let name = TopicName::reserved(Kind::Context, tenant);
        let topic = match self.log.topic(&name) {
            Some(topic) => topic,
            None => {
                let config = TopicConfig {
                    partitions: PARTITIONS,
                    level: AckLevel::Synced,
                    writers: Writers::OwnersOnly,
                    retention: Some(RETENTION),
                    record_max_bytes: RECORD_MAX_BYTES,
                    ..TopicConfig::default()
                };
                self.log.create_topic(&name, &config)?
            }
        };
        Ok((name, topic.config.partitions))
    }
}

fn partition_of((name, partitions): &(TopicName, u32), id: &str) -> TopicPartition {
    TopicPartition::new(name.clone(), partition_of_key(id.as_bytes(), *partitions).0)
}
