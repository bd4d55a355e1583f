//! Creating topics, and adding partitions to them.

use std::collections::HashMap;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use kafka_protocol::messages::{
    BrokerId, CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse, TopicName,
};
use millstream_log::{Topic, TopicConfig};
use millstream_types::{Role, TopicId, TopicKind};
use uuid::Uuid;

use crate::KafkaConfig;
use crate::api_error::ApiError;
use crate::broker::{Broker, NODE_ID};
use crate::configs;
use crate::request_context::RequestContext;

/// The number that leaves the choice to the broker.
const DEFAULT: i32 = -1;
const REPLICAS: i16 = 1;

pub(crate) async fn create_topics(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse {
    let mut named: HashMap<TopicName, u32> = HashMap::new();
    request.topics.iter().for_each(|topic| *named.entry(topic.name.clone()).or_default() += 1);
    let mut results = Vec::with_capacity(named.len());
    for topic in request.topics {
        let name = topic.name.clone();
        // Clients cannot read an answer that names a topic twice.
        if results.iter().any(|known: &CreatableTopicResult| known.name == name) {
            continue;
        }
        let created = if let Err(refusal) = context.check(Role::Admin) {
            Err(refusal)
        } else if named[&name] > 1 {
            let why = format!("topic '{}' is named more than once in this request", name.as_str());
            Err(ApiError::new(ResponseError::InvalidRequest, why))
        } else {
            let broker = Arc::clone(&context.broker);
            let created = tokio::task::spawn_blocking(move || create(&broker, &topic, request.validate_only)).await;
            created.unwrap_or_else(|e| Err(ApiError::failed(&e)))
        };
        context.audit("CreateTopics", &name, &created);
        results.push(describe(name, created, &context.broker.config));
    }
    CreateTopicsResponse::default().with_topics(results)
}

fn create(broker: &Broker, asked: &CreatableTopic, validate_only: bool) -> Result<Topic, ApiError> {
    // Checked before the tenant in the name: such a topic cannot be created for any tenant.
    if broker.namespace.parse(&asked.name)?.kind().prefix().is_some() {
        let name = asked.name.as_str();
        let why = format!("topic '{name}' is of a kind that Millstream creates itself; choose another first word");
        return Err(ApiError::new(ResponseError::InvalidTopicException, why));
    }
    let name = broker.name(&asked.name)?;
    let config = wanted_config(asked, &broker.config)?;
    config.validate(&name).map_err(|e| ApiError::from(&e))?;
    let _one = broker.creating.lock();
    if broker.log.topic(&name).is_some() {
        let why = format!("topic '{name}' exists already");
        return Err(ApiError::new(ResponseError::TopicAlreadyExists, why));
    }
    if validate_only {
        return Ok(Topic { id: TopicId(0), name, config });
    }
    let topic = broker.log.create_topic(&name, &config).map_err(|e| ApiError::from(&e))?;
    Ok(Topic::clone(&topic))
}

fn wanted_config(asked: &CreatableTopic, server: &KafkaConfig) -> Result<TopicConfig, ApiError> {
    let mut config = TopicConfig::default();
    if asked.assignments.is_empty() {
        check_replicas(&asked.name, asked.replication_factor, server)?;
        if asked.num_partitions != DEFAULT {
            config.partitions = u32::try_from(asked.num_partitions).unwrap_or(0);
        }
    } else {
        config.partitions = assigned_partitions(asked)?;
    }
    for setting in &asked.configs {
        let Some(value) = setting.value.as_deref() else {
            let why = format!("{} has no value; give it one, or leave it out for the default", setting.name);
            return Err(ApiError::new(ResponseError::InvalidConfig, why));
        };
        configs::apply(&mut config, &setting.name, Some(value), server)?;
    }
    Ok(config)
}

/// Takes any number of replicas up to a limit; there is one.
fn check_replicas(topic: &str, replicas: i16, server: &KafkaConfig) -> Result<(), ApiError> {
    let limit = server.replication_factor_max;
    match u16::try_from(replicas) {
        _ if i32::from(replicas) == DEFAULT || replicas == REPLICAS => Ok(()),
        Ok(count) if (1..=limit).contains(&count) => {
            tracing::info!(
                topic,
                replicas,
                "a topic with {replicas} replicas was asked for; there is one broker, so it has one"
            );
            Ok(())
        }
        _ => {
            let why = format!(
                "replication factor {replicas}: there is one broker; use 1 or -1, or up to kafka.replication_factor_max = {limit}, which counts as 1"
            );
            Err(ApiError::new(ResponseError::InvalidReplicationFactor, why))
        }
    }
}

/// The number of partitions that a topic gets whose partitions the client has assigned to brokers.
fn assigned_partitions(asked: &CreatableTopic) -> Result<u32, ApiError> {
    let counts = [("replication factor", i32::from(asked.replication_factor)), ("partitions", asked.num_partitions)];
    if let Some((what, count)) = counts.into_iter().find(|(_, count)| *count != DEFAULT) {
        let why = format!("{what} {count} beside an assignment of partitions, which says it already; use -1");
        return Err(ApiError::new(ResponseError::InvalidRequest, why));
    }
    let mut numbers: Vec<_> = asked.assignments.iter().map(|assignment| assignment.partition_index).collect();
    numbers.sort_unstable();
    if let Some((expected, number)) = (0..).zip(&numbers).find(|(expected, number)| expected != *number) {
        let why = format!("partition {number} is assigned where {expected} is next; assign 0 to n - 1, each once");
        return Err(ApiError::new(ResponseError::InvalidReplicaAssignment, why));
    }
    asked.assignments.iter().try_for_each(|assignment| check_assigned(&assignment.broker_ids))?;
    Ok(u32::try_from(numbers.len()).unwrap_or(u32::MAX))
}

/// Checks that a partition is assigned to this broker.
fn check_assigned(brokers: &[BrokerId]) -> Result<(), ApiError> {
    if brokers == [BrokerId(NODE_ID)] {
        return Ok(());
    }
    let brokers: Vec<_> = brokers.iter().map(|broker| broker.0).collect();
    let why = format!("replicas {brokers:?} of a partition: the only broker is {NODE_ID}; assign [{NODE_ID}]");
    Err(ApiError::new(ResponseError::InvalidReplicaAssignment, why))
}

fn describe(name: TopicName, created: Result<Topic, ApiError>, server: &KafkaConfig) -> CreatableTopicResult {
    let result = CreatableTopicResult::default().with_name(name);
    match created {
        Ok(topic) => {
            let shown = configs::describe(&topic.config, server, None).into_iter().map(|setting| {
                CreatableTopicConfigs::default()
                    .with_name(setting.name)
                    .with_value(setting.value)
                    .with_read_only(setting.read_only)
                    .with_config_source(setting.config_source)
            });
            result
                .with_topic_id(Uuid::from_u128(topic.id.0))
                .with_num_partitions(topic.config.partitions.cast_signed())
                .with_replication_factor(REPLICAS)
                .with_configs(Some(shown.collect()))
        }
        Err(refusal) => result
            .with_error_code(refusal.code())
            .with_error_message(refusal.message())
            .with_num_partitions(DEFAULT)
            .with_replication_factor(-1)
            .with_configs(Some(Vec::new())),
    }
}

/// CreatePartitions. Keys may belong to other partitions from then on.
pub(crate) async fn create_partitions(
    request: CreatePartitionsRequest,
    context: RequestContext,
) -> CreatePartitionsResponse {
    let mut results = Vec::with_capacity(request.topics.len());
    for asked in request.topics {
        let broker = Arc::clone(&context.broker);
        let result = CreatePartitionsTopicResult::default().with_name(asked.name.clone());
        let name = asked.name.clone();
        let grown = match context.check(Role::Admin) {
            Ok(()) => tokio::task::spawn_blocking(move || grow(&broker, &asked, request.validate_only)).await,
            Err(refusal) => Ok(Err(refusal)),
        };
        let grown = grown.unwrap_or_else(|e| Err(ApiError::failed(&e)));
        context.audit("CreatePartitions", &name, &grown);
        results.push(match grown {
            Ok(()) => result,
            Err(refusal) => result.with_error_code(refusal.code()).with_error_message(refusal.message()),
        });
    }
    CreatePartitionsResponse::default().with_results(results)
}

fn grow(broker: &Broker, asked: &CreatePartitionsTopic, validate_only: bool) -> Result<(), ApiError> {
    let topic = broker.topic(&asked.name)?;
    let (name, present) = (&topic.name, topic.config.partitions);
    if name.kind() != TopicKind::User {
        let why = format!("topic '{}' is Millstream's own and keeps its partitions", asked.name.as_str());
        return Err(ApiError::new(ResponseError::TopicAuthorizationFailed, why));
    }
    let total = u32::try_from(asked.count).unwrap_or(0);
    if total <= present {
        let why = format!("topic '{name}' has {present} partitions; {} are not more", asked.count);
        return Err(ApiError::new(ResponseError::InvalidPartitions, why));
    }
    if let Some(assignments) = &asked.assignments {
        let (added, assigned) = (total - present, assignments.len());
        if assigned != added as usize {
            let why = format!("{assigned} partitions are assigned, and {added} are added; assign each of these");
            return Err(ApiError::new(ResponseError::InvalidReplicaAssignment, why));
        }
        assignments.iter().try_for_each(|assignment| check_assigned(&assignment.broker_ids))?;
    }
    if validate_only {
        let config = TopicConfig { partitions: total, ..topic.config.clone() };
        return config.validate(name).map_err(|e| ApiError::from(&e));
    }
    broker.log.add_partitions(name, total).map(drop).map_err(|e| ApiError::from(&e))
}
