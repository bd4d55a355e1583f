//! Creates, alters and deletes topics, and learns those that exist.
//!
//! Kafka keeps a topic, its partitions and the settings that it knows. A record in the catalogue, a compacted topic of ours, keeps
//! the whole configuration under the topic's name in the cluster. It is written before the topic is created, and
//! deleted after it: a record without a topic means nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest,
    IncrementalAlterConfigsRequest, TopicName as WireName,
};
use kafka_protocol::protocol::StrBytes;
use millstream_log::{Cleanup, Error, Topic, TopicConfig, Writers, reply};
use millstream_types::{BatchLimits, Record, TOPICS, TopicId, TopicName};
use uuid::Uuid;

use crate::connection::CallError;
use crate::core::{Core, leader_of, said};
use crate::fetching::{self, Isolation};
use crate::names;
use crate::partition_state::PartitionState;
use crate::topic_settings;
use crate::topic_state::TopicState;

const CREATE_TOPICS_VERSION: i16 = 7;
const CREATE_PARTITIONS_VERSION: i16 = 3;
const DELETE_TOPICS_VERSION: i16 = 6;
const DESCRIBE_CONFIGS_VERSION: i16 = 4;
const ALTER_CONFIGS_VERSION: i16 = 1;
const TOPIC_RESOURCE: i8 = 2;
const SET: i8 = 0;
/// The topic of the catalogue.
const CATALOGUE: &str = TOPICS.name;
const CATALOGUE_READ_BYTES: i32 = 4 << 20;

fn wire(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn timeout_ms(core: &Core) -> i32 {
    i32::try_from(core.config.request_timeout.as_millis()).unwrap_or(i32::MAX)
}

/// Learns the topics of the cluster. Creates the catalogue if there is none.
///
/// # Errors
/// [`Error::Unreachable`], [`Error::Refused`].
pub(crate) async fn learn(core: &Arc<Core>) -> Result<(), Error> {
    let catalogue = catalogue(core).await?;
    let mut kept = read_catalogue(core, &catalogue).await?;
    let deadline = Instant::now() + core.config.delivery_timeout;
    let metadata = loop {
        match core.cluster.metadata(None).await {
            Ok(metadata) => break metadata,
            Err(error) if Instant::now() > deadline => return Err(core.unreachable(&error)),
            Err(_) => tokio::time::sleep(core.config.retry_backoff).await,
        }
    };
    for found in metadata.topics {
        let Some(kafka_name) = found.name.as_ref().map(|name| name.to_string()) else { continue };
        let Some(name) = names::from_kafka(&kafka_name) else { continue };
        if found.is_internal || kafka_name == CATALOGUE || found.error_code != 0 {
            continue;
        }
        let partitions = found.partitions.len() as u32;
        let config = match kept.remove(&kafka_name) {
            Some(config) => TopicConfig { partitions, ..config },
            None => foreign(core, &kafka_name, partitions).await?,
        };
        let topic = TopicState::new(kafka_name, found.topic_id, name, config);
        lead(&topic, &found);
        core.topics.insert(topic);
    }
    Ok(())
}

/// The partition of the catalogue.
async fn catalogue(core: &Arc<Core>) -> Result<Arc<PartitionState>, Error> {
    let name = TopicName::internal(CATALOGUE);
    if let Some(known) = core.topics.find(&name) {
        return Ok(Arc::clone(&known.partitions()[0]));
    }
    let config = TopicConfig {
        partitions: 1,
        cleanup: Cleanup::Compact,
        writers: Writers::OwnersOnly,
        ..TopicConfig::default()
    };
    match create(core, CATALOGUE, &config).await {
        Ok(_) | Err(Refusal::Exists) => {}
        Err(Refusal::Error(error)) => return Err(error),
    }
    let found = settled(core, CATALOGUE, 1).await?;
    let topic = TopicState::new(CATALOGUE.to_owned(), found.topic_id, name, config);
    lead(&topic, &found);
    core.topics.insert(Arc::clone(&topic));
    Ok(Arc::clone(&topic.partitions()[0]))
}

async fn read_catalogue(core: &Core, catalogue: &Arc<PartitionState>) -> Result<HashMap<String, TopicConfig>, Error> {
    let undecodable = |source| Error::Batch { partition: catalogue.id.clone(), source };
    let ends = fetching::ends(core, catalogue).await?;
    let (mut kept, mut next) = (HashMap::new(), ends.first);
    while next < ends.stable {
        let Some(fetched) = fetching::fetch(core, catalogue, next, CATALOGUE_READ_BYTES, Isolation::Committed).await?
        else {
            break;
        };
        let Some(after) = fetched.visible.next else { break };
        for batch in fetched.visible.batches {
            let batch = batch.inflated(&BatchLimits::default()).map_err(undecodable)?;
            for record in batch.records() {
                let record = record.map_err(undecodable)?;
                let key = String::from_utf8_lossy(record.key.unwrap_or_default()).into_owned();
                match record.value.and_then(Topic::decode) {
                    Some(topic) => kept.insert(key, topic.config),
                    None => kept.remove(&key),
                };
            }
        }
        next = after;
    }
    Ok(kept)
}

/// Writes the record of a topic, or deletes it.
async fn catalogued(core: &Arc<Core>, kafka_name: &str, topic: Option<&Topic>) -> Result<(), Error> {
    let catalogue = catalogue(core).await?;
    let value = topic.map(Topic::encode);
    let record = Record { key: Some(kafka_name.as_bytes()), value: value.as_deref(), ..Record::default() };
    let (done, answer) = reply();
    catalogue.queue.lock().push(&[record], core.config.batch_max_bytes, 0, done);
    core.outbox.ready(catalogue);
    answer.await.map(drop)
}

/// The configuration of a topic that others have created.
async fn foreign(core: &Core, kafka_name: &str, partitions: u32) -> Result<TopicConfig, Error> {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(TOPIC_RESOURCE)
        .with_resource_name(wire(kafka_name))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let answer = core.cluster.ask(&request, DESCRIBE_CONFIGS_VERSION, core.config.delivery_timeout).await;
    let answer = answer.map_err(|error| core.unreachable(&error))?;
    let settings: HashMap<String, String> = answer
        .results
        .into_iter()
        .flat_map(|result| result.configs)
        .filter_map(|setting| Some((setting.name.to_string(), setting.value?.to_string())))
        .collect();
    Ok(topic_settings::from_kafka(partitions, |name| settings.get(name).cloned()))
}

/// Creates a topic, or returns it if it exists with this configuration.
///
/// # Errors
/// Those of [`millstream_log::Log::create_topic`].
pub(crate) async fn create_topic(core: Arc<Core>, name: TopicName, config: TopicConfig) -> Result<Arc<Topic>, Error> {
    topic_settings::check(&name, &config)?;
    if let Some(known) = core.topics.find(&name) {
        return same(&known, &config);
    }
    let kafka_name = names::to_kafka(&name)?;
    let topic = Topic { id: TopicId(0), name: name.clone(), config: config.clone() };
    catalogued(&core, &kafka_name, Some(&topic)).await?;
    match create(&core, &kafka_name, &config).await {
        Ok(()) => {}
        Err(Refusal::Error(error)) => return Err(error),
        Err(Refusal::Exists) => {
            let found = settled(&core, &kafka_name, 0).await?;
            if found.partitions.len() as u32 != config.partitions {
                return Err(Error::TopicExists { topic: name, differs: "partitions" });
            }
        }
    }
    let found = settled(&core, &kafka_name, config.partitions).await?;
    let topic = TopicState::new(kafka_name, found.topic_id, name, config);
    lead(&topic, &found);
    core.topics.insert(Arc::clone(&topic));
    Ok(topic.topic())
}

fn same(known: &TopicState, config: &TopicConfig) -> Result<Arc<Topic>, Error> {
    let topic = known.topic();
    match topic.config.difference(config) {
        Some(differs) => Err(Error::TopicExists { topic: topic.name.clone(), differs }),
        None => Ok(topic),
    }
}

enum Refusal {
    Exists,
    Error(Error),
}

/// Creates a topic in the cluster.
async fn create(core: &Core, kafka_name: &str, config: &TopicConfig) -> Result<(), Refusal> {
    let setting = |(name, value): (&str, String)| {
        CreatableTopicConfig::default().with_name(wire(name)).with_value(Some(StrBytes::from_string(value)))
    };
    let settings = topic_settings::to_kafka(config, core.config.min_insync_replicas, core.config.batch_max_bytes);
    let topic = CreatableTopic::default()
        .with_name(WireName(wire(kafka_name)))
        .with_num_partitions(config.partitions.cast_signed())
        .with_replication_factor(core.config.replication_factor)
        .with_configs(settings.into_iter().map(setting).collect());
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(timeout_ms(core));
    let answer = core.cluster.ask(&request, CREATE_TOPICS_VERSION, core.config.delivery_timeout).await;
    let answer = answer.map_err(|error| Refusal::Error(core.unreachable(&error)))?;
    let Some(answer) = answer.topics.into_iter().next() else { return Ok(()) };
    match ResponseError::try_from_code(answer.error_code) {
        None => Ok(()),
        Some(ResponseError::TopicAlreadyExists) => Err(Refusal::Exists),
        Some(_) => {
            Err(Refusal::Error(refused("to create a topic", answer.error_code, answer.error_message.as_deref())))
        }
    }
}

fn refused(request: &'static str, code: i16, message: Option<&str>) -> Error {
    Error::Refused { request, why: said(code, message) }
}

/// The topic once all of its partitions, at least `partitions`, have a leader.
async fn settled(core: &Core, kafka_name: &str, partitions: u32) -> Result<MetadataResponseTopic, Error> {
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

/// Tells the partitions of a topic who leads them.
fn lead(topic: &TopicState, found: &MetadataResponseTopic) {
    for partition in topic.partitions() {
        leader_of(found, partition.index()).into_iter().for_each(|leader| partition.led_by(leader));
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
    topic_settings::check(&name, &config)?;
    catalogued(&core, &known.info.kafka_name, Some(&Topic { config: config.clone(), ..(*known.topic()).clone() }))
        .await?;
    let setting = |(name, value): (&str, String)| {
        AlterableConfig::default()
            .with_name(wire(name))
            .with_config_operation(SET)
            .with_value(Some(StrBytes::from_string(value)))
    };
    let settings = topic_settings::to_kafka(&config, core.config.min_insync_replicas, core.config.batch_max_bytes);
    let resource = AlterConfigsResource::default()
        .with_resource_type(TOPIC_RESOURCE)
        .with_resource_name(wire(&known.info.kafka_name))
        .with_configs(settings.into_iter().map(setting).collect());
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let answer = core.cluster.ask(&request, ALTER_CONFIGS_VERSION, core.config.delivery_timeout).await;
    let answer = answer.map_err(|error| core.unreachable(&error))?;
    if let Some(no) = answer.responses.iter().find(|answer| answer.error_code != 0) {
        return Err(refused("to alter a topic", no.error_code, no.error_message.as_deref()));
    }
    let topic = known.reconfigure(config);
    core.topics.watchers.ring();
    Ok(topic)
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
    catalogued(&core, &known.info.kafka_name, Some(&Topic { config: config.clone(), ..(*topic).clone() })).await?;
    let topic = known.reconfigure(config);
    lead(&known, &found);
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
    core.topics.remove(&name);
    gone(&core, known.info.id).await;
    catalogued(&core, &known.info.kafka_name, None).await
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
