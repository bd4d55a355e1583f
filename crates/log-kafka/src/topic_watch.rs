//! Learns the topics of the cluster, also those that other processes and other programs create, alter and delete.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use kafka_protocol::messages::DescribeConfigsRequest;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::protocol::StrBytes;
use millstream_log::{Cleanup, Error, Topic, TopicConfig, Writers};
use millstream_types::{TOPICS, TopicId, TopicName};
use tracing::warn;

use crate::catalogue::{self, Catalogue};
use crate::core::Core;
use crate::topic_admin::{self, CreationRefusal, DESCRIBE_CONFIGS_VERSION};
use crate::topic_settings;
use crate::topic_state::TopicState;
use crate::{fitness, following, replicas};

const TOPIC_RESOURCE: i8 = 2;
/// Time between two looks at the cluster. What other processes of ours do is seen earlier, by the catalogue.
const PERIOD: Duration = Duration::from_secs(5);

/// The topics as they were at the last look.
#[derive(Debug, Default)]
pub(crate) struct TopicWatch {
    catalogue: Catalogue,
    /// Known topics that the last look has not found. A broker may be behind the others, so one look is not enough.
    missing: HashSet<TopicName>,
}

/// Looks again and again, until the log is closed.
pub(crate) async fn run(mut watch: TopicWatch, core: Weak<Core>) {
    loop {
        let Some(core) = core.upgrade() else { return };
        let followed = match watch.wait(&core).await {
            Ok(()) => watch.keep_catalogue(&core).await,
            ended => ended,
        };
        match followed {
            Ok(()) => {}
            Err(Error::Stopped) => return,
            Err(error) => {
                warn!(%error, "the catalogue of topics is not followed");
                tokio::time::sleep(core.config.request_timeout).await;
            }
        }
        if let Err(error) = watch.look(&core).await {
            warn!(%error, "the topics of the cluster are not known");
        }
    }
}

/// Creates the catalogue if the cluster has none, and learns the topics.
///
/// # Errors
/// Those of a creation and of a look.
pub(crate) async fn begin(core: &Arc<Core>) -> Result<TopicWatch, Error> {
    create_catalogue(core).await?;
    let mut watch = TopicWatch::default();
    let found = watch.look(core).await?;
    fitness::check_partition_counts(core, &found, &watch.catalogue)?;
    Ok(watch)
}

/// Creates the catalogue if the cluster has none.
///
/// # Errors
/// Those of a creation.
pub(crate) async fn create_catalogue(core: &Arc<Core>) -> Result<(), Error> {
    let config = TopicConfig {
        partitions: 1,
        cleanup: Cleanup::Compact,
        writers: Writers::OwnersOnly,
        ..TopicConfig::default()
    };
    let kafka_name = core.names.internal(TOPICS.name);
    match topic_admin::create(core, &kafka_name, &config).await {
        Ok(()) | Err(CreationRefusal::Exists) => {}
        Err(CreationRefusal::Error(error)) => return Err(error),
    }
    let found = topic_admin::settled(core, &kafka_name, 1).await?;
    let name = TopicName::internal(TOPICS.name);
    let topic = core.topics.insert(TopicState::new(kafka_name, found.topic_id, name, config));
    topic.lead(&found);
    Ok(())
}

impl TopicWatch {
    /// Waits until the catalogue has changed, or it is time for a look.
    async fn wait(&self, core: &Arc<Core>) -> Result<(), Error> {
        let partition = catalogue::partition(core)?;
        following::begin(core, &partition).await?;
        let changed = partition.until_stable(self.catalogue.next().next());
        let _ = tokio::time::timeout(PERIOD, changed).await;
        Ok(())
    }

    /// Makes the catalogue anew if somebody has deleted it: the topics that it described would lose their configurations with the next
    /// start, and deletions would not be seen.
    ///
    /// # Errors
    /// [`Error::Unreachable`]; those of a creation, a read and an append.
    async fn keep_catalogue(&mut self, core: &Arc<Core>) -> Result<(), Error> {
        let kafka_name = core.names.internal(TOPICS.name);
        let metadata = core.cluster.metadata_of(&kafka_name).await.map_err(|error| core.unreachable(&error))?;
        let found = metadata.topics.iter().find(|topic| topic.error_code == 0).map(|topic| topic.topic_id);
        if found.is_some() && found == self.catalogue.topic() {
            return Ok(());
        }
        // It is there if only this broker does not know it yet, or if another process has made it.
        create_catalogue(core).await?;
        let mut anew = Catalogue::default();
        anew.catch_up(core).await?;
        if anew.topic() == self.catalogue.topic() {
            return Ok(());
        }
        warn!(topic = kafka_name, "somebody has deleted the topic that describes all others; it is made anew");
        for topic in core.topics.all() {
            let kafka_name = &topic.info.kafka_name;
            if let (None, Some(config)) = (anew.config(kafka_name), self.catalogue.config(kafka_name)) {
                let described = Topic { id: TopicId(0), name: topic.info.name(), config: config.clone() };
                catalogue::write(core, kafka_name, Some(&described)).await?;
            }
        }
        anew.catch_up(core).await?;
        self.catalogue = anew;
        Ok(())
    }

    /// Learns the topics, and returns them as the cluster has told them.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Refused`].
    async fn look(&mut self, core: &Arc<Core>) -> Result<Vec<MetadataResponseTopic>, Error> {
        let mut missing: HashMap<TopicName, Arc<TopicState>> =
            core.topics.all().into_iter().map(|topic| (topic.info.name(), topic)).collect();
        missing.remove(&TopicName::internal(TOPICS.name));
        let all = all_topics(core).await?;
        // The record of a topic is written before the topic is created, so none that was found is without it from here on.
        self.catalogue.catch_up(core).await?;
        core.cluster.have_replicas(&replicas::holders(&all));
        let is_ours = |kafka_name: &str, _: &TopicName| self.catalogue.config(kafka_name).is_some();
        *core.replicas.lock() = replicas::report(core, &all, is_ours);
        for found in &all {
            let Some(kafka_name) = found.name.as_ref().map(|name| name.to_string()) else { continue };
            let Some(name) = core.names.topic(&kafka_name) else { continue };
            let is_catalogue = name == TopicName::internal(TOPICS.name);
            if is_catalogue || found.is_internal || found.error_code != 0 || core.topics.was_deleted(found.topic_id) {
                continue;
            }
            let known = missing.remove(&name);
            self.take(core, known, kafka_name, name, found).await?;
        }
        for name in missing.keys().filter(|name| self.missing.contains(*name)) {
            core.topics.remove(name);
        }
        self.missing = missing.into_keys().collect();
        Ok(all)
    }

    /// Takes a topic that the cluster has.
    async fn take(
        &self,
        core: &Arc<Core>,
        known: Option<Arc<TopicState>>,
        kafka_name: String,
        name: TopicName,
        found: &MetadataResponseTopic,
    ) -> Result<(), Error> {
        let partitions = found.partitions.len() as u32;
        let kept = self.catalogue.config(&kafka_name).map(|kept| TopicConfig { partitions, ..kept.clone() });
        match known.filter(|known| known.info.id == found.topic_id) {
            Some(known) => {
                let current = known.topic().config.clone();
                // A broker that is behind knows fewer partitions.
                let partitions = partitions.max(current.partitions);
                let config = TopicConfig { partitions, ..kept.unwrap_or_else(|| current.clone()) };
                if config != current {
                    known.reconfigure(config);
                    core.topics.watchers.ring();
                }
                known.lead(found);
            }
            None => {
                let config = match kept {
                    Some(config) => config,
                    None => foreign(core, &kafka_name, partitions).await?,
                };
                let migrated = core.migrated(found.topic_id);
                let topic = TopicState::migrated(kafka_name, found.topic_id, name, config, migrated);
                core.topics.insert(topic).lead(found);
            }
        }
        Ok(())
    }
}

/// The topics of the cluster.
///
/// # Errors
/// [`Error::Unreachable`].
pub(crate) async fn all_topics(core: &Core) -> Result<Vec<MetadataResponseTopic>, Error> {
    let deadline = Instant::now() + core.config.delivery_timeout;
    loop {
        match core.cluster.metadata(None).await {
            Ok(metadata) => return Ok(metadata.topics),
            Err(error) if Instant::now() > deadline => return Err(core.unreachable(&error)),
            Err(_) => tokio::time::sleep(core.config.retry_backoff).await,
        }
    }
}

/// The configuration of a topic that others have created.
async fn foreign(core: &Core, kafka_name: &str, partitions: u32) -> Result<TopicConfig, Error> {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(TOPIC_RESOURCE)
        .with_resource_name(StrBytes::from_string(kafka_name.to_owned()))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let answer = core.cluster.ask(&request, DESCRIBE_CONFIGS_VERSION, core.config.delivery_timeout).await;
    let answer = answer.map_err(|error| core.unreachable(&error))?;
    let settings = topic_settings::of_answer(answer);
    Ok(topic_settings::from_kafka(partitions, |name| settings.get(name).cloned()))
}
