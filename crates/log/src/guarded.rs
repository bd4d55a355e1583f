//! Users' topics whose records are more than data, such as requests for queries: only administrators append to them.
//!
//! They are told by their name, `<word>.<tenant>` with one of [`LogConfig::guarded_words`]. Each such topic is
//! [`Writers::OwnersOnly`] from its creation or the next start on, so that every append without a look at
//! [`Topic::takes_records_of`] is refused.

use std::sync::Arc;

use millstream_types::{Principal, TopicKind, TopicName};

use crate::{Embedded, Error, Log, LogConfig, Topic, TopicConfig, Writers};

impl LogConfig {
    /// The configuration with which a topic of this name is created.
    pub fn guarded(&self, name: &TopicName, config: &TopicConfig) -> TopicConfig {
        let writers = if self.guards(name) { Writers::OwnersOnly } else { config.writers };
        TopicConfig { writers, ..config.clone() }
    }

    /// Checks that a topic of this configuration fits beside the others of its tenant, which are among `topics`.
    ///
    /// # Errors
    /// [`Error::TooManyPartitions`].
    pub fn check_partitions(
        &self,
        name: &TopicName,
        config: &TopicConfig,
        topics: Vec<Arc<Topic>>,
    ) -> Result<(), Error> {
        if name.kind() != TopicKind::User {
            return Ok(());
        }
        let is_other = |topic: &Arc<Topic>| {
            topic.name.kind() == TopicKind::User && topic.name.tenant() == name.tenant() && topic.name != *name
        };
        let others = topics.into_iter().filter(is_other);
        let of_others = others.map(|topic| topic.config.partitions as usize).sum::<usize>();
        let (wanted, limit) = (config.partitions as usize, self.partitions_per_tenant_max);
        if of_others + wanted <= limit {
            return Ok(());
        }
        Err(Error::TooManyPartitions { topic: name.clone(), wanted, of_others, limit })
    }

    fn guards(&self, name: &TopicName) -> bool {
        self.guarded_words.iter().any(|word| name.is_called(word))
    }
}

impl Embedded {
    /// Guards topics that a former version, or other words, left open. One that cannot be guarded now stays open, and
    /// who gives its records a meaning has to ignore it.
    pub(crate) fn guard_existing(&self) {
        for topic in self.topics() {
            let guarded = self.shared.config.guarded(&topic.name, &topic.config);
            if guarded == topic.config {
                continue;
            }
            if let Err(error) = self.alter_topic(&topic.name, &guarded) {
                tracing::warn!(topic = %topic.name, %error, "a topic that administrators alone may write cannot be closed to others");
            }
        }
    }
}

impl Topic {
    /// `true` if `caller`, who may write records of the tenant, may append here. Users' topics of owners belong to the
    /// administrators of the tenant.
    pub fn takes_records_of(&self, caller: &Principal) -> bool {
        match self.config.writers {
            Writers::Anyone => true,
            Writers::OwnersOnly => self.name.kind() == TopicKind::User && caller.administers_tenant(),
        }
    }
}
