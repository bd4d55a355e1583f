//! Creating topics, and adding partitions to them.

use std::collections::HashMap;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse, TopicName,
};
use millstream_log::{Topic, TopicConfig};
use millstream_types::{Role, TopicId, TopicKind};
use uuid::Uuid;

use crate::api_error::ApiError;
use crate::broker::Broker;
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
        results.push(describe(name, created));
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
    let config = wanted_config(asked, broker.config.request_max_bytes)?;
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

fn wanted_config(asked: &CreatableTopic, request_max_bytes: usize) -> Result<TopicConfig, ApiError> {
    if !asked.assignments.is_empty() {
        let why = "there is one broker, so partitions cannot be assigned by hand; give their number";
        return Err(ApiError::new(ResponseError::InvalidReplicaAssignment, why));
    }
    if i32::from(asked.replication_factor) != DEFAULT && asked.replication_factor != REPLICAS {
        let why = format!("replication factor {}: there is one broker; use 1 or -1", asked.replication_factor);
        return Err(ApiError::new(ResponseError::InvalidReplicationFactor, why));
    }
    let mut config = TopicConfig::default();
    if asked.num_partitions != DEFAULT {
        config.partitions = u32::try_from(asked.num_partitions).unwrap_or(0);
    }
    for setting in &asked.configs {
        configs::apply(&mut config, &setting.name, setting.value.as_deref(), request_max_bytes)?;
    }
    Ok(config)
}

fn describe(name: TopicName, created: Result<Topic, ApiError>) -> CreatableTopicResult {
    let result = CreatableTopicResult::default().with_name(name);
    match created {
        Ok(topic) => {
            let shown = configs::describe(&topic.config, None).into_iter().map(|setting| {
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
    if asked.assignments.is_some() {
        let why = "there is one broker, so partitions cannot be assigned by hand; give their number";
        return Err(ApiError::new(ResponseError::InvalidReplicaAssignment, why));
    }
    let total = u32::try_from(asked.count).unwrap_or(0);
    if total <= present {
        let why = format!("topic '{name}' has {present} partitions; {} are not more", asked.count);
        return Err(ApiError::new(ResponseError::InvalidPartitions, why));
    }
    if validate_only {
        let config = TopicConfig { partitions: total, ..topic.config.clone() };
        return config.validate(name).map_err(|e| ApiError::from(&e));
    }
    broker.log.add_partitions(name, total).map(drop).map_err(|e| ApiError::from(&e))
}
