//! Metadata: the topics, all of which this broker leads.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use millstream_log::{Topic, TopicConfig};
use millstream_types::{Role, TopicId, TopicKind};
use uuid::Uuid;

use crate::api_error::ApiError;
use crate::authorized_operations::{self, NOT_ASKED};
use crate::broker::{Broker, CLUSTER_ID, NODE_ID};
use crate::request_context::RequestContext;

pub(crate) async fn metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse {
    let broker = &context.broker;
    let describe = |topic: &Topic| describe(&context, topic, request.include_topic_authorized_operations);
    let topics = match request.topics {
        // In version 0 an empty list means all.
        Some(topics) if !topics.is_empty() || context.version > 0 => {
            let mut found = Vec::with_capacity(topics.len());
            for topic in topics {
                let topic = find(&context, &topic, request.allow_auto_topic_creation).await;
                found.push(topic.map_or_else(|missing| missing, |topic| describe(&topic)));
            }
            found
        }
        _ => broker.topics().iter().map(|topic| describe(topic)).collect(),
    };
    let (host, port) = context.address();
    let broker = MetadataResponseBroker::default().with_node_id(BrokerId(NODE_ID)).with_host(host).with_port(port);
    let operations = match request.include_cluster_authorized_operations {
        true => authorized_operations::of_cluster(context.roles()),
        false => NOT_ASKED,
    };
    MetadataResponse::default()
        .with_cluster_authorized_operations(operations)
        .with_brokers(vec![broker])
        .with_cluster_id(Some(StrBytes::from_static_str(CLUSTER_ID)))
        .with_controller_id(BrokerId(NODE_ID))
        .with_topics(topics)
}

/// The topic that the client asks for, or the answer that there is none.
async fn find(
    context: &RequestContext,
    asked: &MetadataRequestTopic,
    create_is_allowed: bool,
) -> Result<Arc<Topic>, MetadataResponseTopic> {
    let broker = &context.broker;
    let id = asked.topic_id;
    // Java sends an empty name along with an id.
    let Some(name) = asked.name.clone().filter(|name| id.is_nil() || !name.is_empty()) else {
        let unknown = ResponseError::UnknownTopicId.code();
        let missing = || MetadataResponseTopic::default().with_topic_id(id).with_error_code(unknown);
        return broker.topic_by_id(TopicId(id.as_u128())).ok_or_else(missing);
    };
    let mut found = broker.topic(&name);
    if create_is_allowed
        && found.as_ref().is_err_and(is_missing)
        && let Ok(topic) = broker.name(&name)
        && may_create(context, topic.kind())
    {
        found = create(broker, topic).await;
    }
    found.map_err(|refusal| MetadataResponseTopic::default().with_name(Some(name)).with_error_code(refusal.code()))
}

fn is_missing(refusal: &ApiError) -> bool {
    refusal.error == ResponseError::UnknownTopicOrPartition
}

/// A topic of this kind is created when the client asks for it.
fn may_create(context: &RequestContext, kind: TopicKind) -> bool {
    match kind {
        TopicKind::User => context.broker.config.auto_create_topics && context.has(Role::Admin),
        // A tenant has one; it comes with its first writer.
        TopicKind::ContextUpdate => context.has(Role::Writer),
        _ => false,
    }
}

/// Creates a topic that a client asked for and that does not exist.
async fn create(broker: &Arc<Broker>, topic: millstream_types::TopicName) -> Result<Arc<Topic>, ApiError> {
    let broker = Arc::clone(broker);
    let created = tokio::task::spawn_blocking(move || {
        let _one = broker.creating.lock();
        match broker.log.topic(&topic) {
            Some(topic) => Ok(topic),
            None => broker.log.create_topic(&topic, &TopicConfig::default()).map_err(|e| ApiError::from(&e)),
        }
    });
    created.await.unwrap_or_else(|e| Err(ApiError::failed(&e)))
}

fn describe(context: &RequestContext, topic: &Topic, with_operations: bool) -> MetadataResponseTopic {
    let operations = if with_operations { context.topic_operations(topic) } else { NOT_ASKED };
    let here = vec![BrokerId(NODE_ID)];
    let partitions = (0..topic.config.partitions).map(|partition| {
        MetadataResponsePartition::default()
            .with_partition_index(partition.cast_signed())
            .with_leader_id(BrokerId(NODE_ID))
            .with_leader_epoch(-1)
            .with_replica_nodes(here.clone())
            .with_isr_nodes(here.clone())
    });
    MetadataResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_string(context.broker.namespace.render(&topic.name)))))
        .with_topic_authorized_operations(operations)
        .with_topic_id(Uuid::from_u128(topic.id.0))
        .with_partitions(partitions.collect())
}
