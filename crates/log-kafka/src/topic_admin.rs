//! Creates, alters and deletes topics.
//!
//! Kafka keeps a topic, its partitions and the settings that it knows; the catalogue keeps the whole configuration.

use std::sync::Arc;
use std::time::Instant;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, IncrementalAlterConfigsRequest,
    TopicName as WireName,
};
use kafka_protocol::protocol::StrBytes;
use millstream_kafka_wire::CallError;
use millstream_log::{Error, Topic, TopicConfig};
use millstream_types::{TopicId, TopicName};
use uuid::Uuid;

use crate::catalogue;
use crate::core::{Core, said};
use crate::topic_settings;
use crate::topic_state::TopicState;

const CREATE_TOPICS_VERSION: i16 = 7;
const CREATE_PARTITIONS_VERSION: i16 = 3;
const DELETE_TOPICS_VERSION: i16 = 6;
pub(crate) const DESCRIBE_CONFIGS_VERSION: i16 = 4;
const ALTER_CONFIGS_VERSION: i16 = 1;
const TOPIC_RESOURCE: i8 = 2;
const SET: i8 = 0;
const DELETE: i8 = 1;

fn wire(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn timeout_ms(core: &Core) -> i32 {
    i32::try_from(core.config.request_timeout.as_millis()).unwrap_or(i32::MAX)
}

/// Creates a topic, or returns it if it exists with this configuration.
///
/// # Errors
/// Those of [`millstream_log::Log::create_topic`].
pub(crate) async fn create_topic(core: Arc<Core>, name: TopicName, config: TopicConfig) -> Result<Arc<Topic>, Error> {
    let config = core.config.of_log.guarded(&name, &config);
    config.validate(&name)?;
    if let Some(known) = core.topics.find(&name) {
        return same(&known, &config);
    }
    core.config.of_log.check_partitions(&name, &config, core.topics())?;
    let kafka_name = core.names.in_kafka(&name)?;
    let topic = Topic { id: TopicId(0), name: name.clone(), config: config.clone() };
    catalogue::write(&core, &kafka_name, Some(&topic)).await?;
    match create(&core, &kafka_name, &config).await {
        Ok(()) => {}
        Err(CreationRefusal::Error(error)) => return Err(error),
        Err(CreationRefusal::Exists) => {
            let found = settled(&core, &kafka_name, 0).await?;
            if found.partitions.len() as u32 != config.partitions {
                return Err(Error::TopicExists { topic: name, differs: "partitions" });
            }
        }
    }
    let found = settled(&core, &kafka_name, config.partitions).await?;
    let migrated = core.migrated(found.topic_id);
    let topic = core.topics.insert(TopicState::migrated(kafka_name, found.topic_id, name, config, migrated));
    topic.lead(&found);
    Ok(topic.topic())
}

fn same(known: &TopicState, config: &TopicConfig) -> Result<Arc<Topic>, Error> {
    let topic = known.topic();
    match topic.config.difference(config) {
        Some(differs) => Err(Error::TopicExists { topic: topic.name.clone(), differs }),
        None => Ok(topic),
    }
}

/// The reason why a topic was not created.
pub(crate) enum CreationRefusal {
    Exists,
    Error(Error),
}

/// Creates a topic in the cluster.
pub(crate) async fn create(core: &Core, kafka_name: &str, config: &TopicConfig) -> Result<(), CreationRefusal> {
    let settings = topic_settings::to_kafka(config, core.config.min_insync_replicas, core.config.batch_max_bytes);
    create_with(core, kafka_name, config.partitions, settings).await
}

/// As [`create`], with settings as Kafka names them.
pub(crate) async fn create_with(
    core: &Core,
    kafka_name: &str,
    partitions: u32,
    settings: Vec<(&'static str, String)>,
) -> Result<(), CreationRefusal> {
    let setting = |(name, value): (&str, String)| {
        CreatableTopicConfig::default().with_name(wire(name)).with_value(Some(StrBytes::from_string(value)))
    };
    let topic = CreatableTopic::default()
        .with_name(WireName(wire(kafka_name)))
        .with_num_partitions(partitions.cast_signed())
        .with_replication_factor(core.config.replication_factor)
        .with_configs(settings.into_iter().map(setting).collect());
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(timeout_ms(core));
    let answer = core.cluster.ask(&request, CREATE_TOPICS_VERSION, core.config.delivery_timeout).await;
    let answer = answer.map_err(|error| CreationRefusal::Error(core.unreachable(&error)))?;
    let Some(answer) = answer.topics.into_iter().next() else { return Ok(()) };
    match ResponseError::try_from_code(answer.error_code) {
        None => Ok(()),
        Some(ResponseError::TopicAlreadyExists) => Err(CreationRefusal::Exists),
        Some(ResponseError::InvalidReplicationFactor) => Err(CreationRefusal::Error(Error::Unfit {
            broker: core.config.brokers.join(", "),
            setting: "too few brokers, and the replicas of a topic".to_owned(),
            value: core.config.replication_factor.to_string(),
            rule: "each needs a broker of its own; start further ones, or ask for fewer replicas".to_owned(),
        })),
        Some(_) => Err(CreationRefusal::Error(refused(
            "to create a topic",
            answer.error_code,
            answer.error_message.as_deref(),
        ))),
    }
}

fn refused(request: &'static str, code: i16, message: Option<&str>) -> Error {
    Error::Refused { request, why: said(code, message) }
}

/// The topic once all of its partitions, at least `partitions`, have a leader.
pub(crate) async fn settled(core: &Core, kafka_name: &str, partitions: u32) -> Result<MetadataResponseTopic, Error> {
    let deadline = Instant::now() + core.config.delivery_timeout;
    loop {
        let why = match core.cluster.metadata_of(kafka_name).await {
            Ok(metadata) => {
                let found = metadata.topics.into_iter().find(|topic| {
                    topic.error_code == 0
                        && topic.partitions.len() >= partitions.max(1) as usize
                        && topic.partitions.iter().all(|partition| partition.leader_id.0 >= 0)
                });
                match found {
                    Some(found) => return Ok(found),
                    None => CallError::Unsent(format!("the partitions of {kafka_name} have no leader")),
                }
            }
            Err(why) => why,
        };
        if Instant::now() > deadline {
            return Err(core.unreachable(&why));
        }
        tokio::time::sleep(core.config.retry_backoff).await;
    }
}

/// Alters the configuration of a topic.
///
/// # Errors
/// Those of [`millstream_log::Log::alter_topic`].
pub(crate) async fn alter_topic(core: Arc<Core>, name: TopicName, config: TopicConfig) -> Result<Arc<Topic>, Error> {
    let known = core.topics.get(&name)?;
    config.validate(&name)?;
    config.check_change(&name, &known.topic().config)?;
    catalogue::write(
        &core,
        &known.info.kafka_name,
        Some(&Topic { config: config.clone(), ..(*known.topic()).clone() }),
    )
    .await?;
    let settings = topic_settings::to_kafka(&config, core.config.min_insync_replicas, core.config.batch_max_bytes);
    change(&core, &known.info.kafka_name, settings.iter().map(TopicChange::set).collect()).await?;
    let topic = known.reconfigure(config);
    core.topics.watchers.ring();
    Ok(topic)
}

/// A change of one setting of a topic, as Kafka names it.
pub(crate) enum TopicChange<'a> {
    Set(&'static str, &'a str),
    /// It has no value of its own any more.
    Reset(&'static str),
}

impl<'a> TopicChange<'a> {
    pub(crate) fn set(setting: &'a (&'static str, String)) -> Self {
        Self::Set(setting.0, &setting.1)
    }
}

/// Changes settings of a topic in the cluster.
pub(crate) async fn change(core: &Core, kafka_name: &str, changes: Vec<TopicChange<'_>>) -> Result<(), Error> {
    let setting = |change| {
        let (name, operation, value) = match change {
            TopicChange::Set(name, value) => (name, SET, Some(wire(value))),
            TopicChange::Reset(name) => (name, DELETE, None),
        };
        AlterableConfig::default().with_name(wire(name)).with_config_operation(operation).with_value(value)
    };
    let resource = AlterConfigsResource::default()
        .with_resource_type(TOPIC_RESOURCE)
        .with_resource_name(wire(kafka_name))
        .with_configs(changes.into_iter().map(setting).collect());
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let answer = core.cluster.ask(&request, ALTER_CONFIGS_VERSION, core.config.delivery_timeout).await;
    let answer = answer.map_err(|error| core.unreachable(&error))?;
    match answer.responses.iter().find(|answer| answer.error_code != 0) {
        Some(no) => Err(refused("to alter a topic", no.error_code, no.error_message.as_deref())),
        None => Ok(()),
    }
}

/// Adds partitions to a topic.
///
/// # Errors
/// Those of [`millstream_log::Log::add_partitions`].
pub(crate) async fn add_partitions(core: Arc<Core>, name: TopicName, total: u32) -> Result<Arc<Topic>, Error> {
    let known = core.topics.get(&name)?;
    let topic = known.topic();
    if topic.config.partitions == total {
        return Ok(topic);
    }
    let config = topic.config.grown(&name, total)?;
    core.config.of_log.check_partitions(&name, &config, core.topics())?;
    let wanted = CreatePartitionsTopic::default()
        .with_name(WireName(wire(&known.info.kafka_name)))
        .with_count(total.cast_signed())
        .with_assignments(None);
    let request = CreatePartitionsRequest::default().with_topics(vec![wanted]).with_timeout_ms(timeout_ms(&core));
    let answer = core.cluster.ask(&request, CREATE_PARTITIONS_VERSION, core.config.delivery_timeout).await;
    let answer = answer.map_err(|error| core.unreachable(&error))?;
    if let Some(no) = answer.results.iter().find(|answer| answer.error_code != 0) {
        return Err(refused("to add partitions", no.error_code, no.error_message.as_deref()));
    }
    let found = settled(&core, &known.info.kafka_name, total).await?;
    catalogue::write(&core, &known.info.kafka_name, Some(&Topic { config: config.clone(), ..(*topic).clone() }))
        .await?;
    let topic = known.reconfigure(config);
    known.lead(&found);
    core.topics.watchers.ring();
    Ok(topic)
}

/// Deletes a topic.
///
/// # Errors
/// Those of [`millstream_log::Log::delete_topic`].
pub(crate) async fn delete_topic(core: Arc<Core>, name: TopicName) -> Result<(), Error> {
    let known = core.topics.get(&name)?;
    let wanted = DeleteTopicState::default().with_name(None).with_topic_id(known.info.id);
    let request = DeleteTopicsRequest::default().with_topics(vec![wanted]).with_timeout_ms(timeout_ms(&core));
    let answer = core.cluster.ask(&request, DELETE_TOPICS_VERSION, core.config.delivery_timeout).await;
    let answer = answer.map_err(|error| core.unreachable(&error))?;
    let no = answer.responses.iter().find(|answer| answer.error_code != 0);
    if let Some(no) = no.filter(|no| no.error_code != ResponseError::UnknownTopicId.code()) {
        return Err(refused("to delete a topic", no.error_code, no.error_message.as_deref()));
    }
    core.topics.delete(&known);
    gone(&core, known.info.id).await;
    catalogue::write(&core, &known.info.kafka_name, None).await
}

/// Waits until the brokers say that a topic is gone, so that another one may take its name.
async fn gone(core: &Core, id: Uuid) {
    let deadline = Instant::now() + core.config.request_timeout;
    while Instant::now() < deadline {
        match core.cluster.metadata(Some(&[id])).await {
            Ok(metadata) if metadata.topics.iter().any(|topic| topic.error_code == 0) => {}
            _ => return,
        }
        tokio::time::sleep(core.config.retry_backoff).await;
    }
}
