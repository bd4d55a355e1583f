//! Which topics there are, and who leads them: this node.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use millstream_log::{Topic, TopicConfig};
use millstream_types::{Kind, Role, TopicId};
use uuid::Uuid;

use crate::caller::Caller;
use crate::node::{CLUSTER_ID, NODE_ID, Node};
use crate::refusal::Refusal;

/// Metadata.
pub(crate) async fn metadata(request: MetadataRequest, caller: Caller) -> MetadataResponse {
    let node = &caller.node;
    let topics = match request.topics {
        // In version 0 an empty list means all.
        Some(topics) if !topics.is_empty() || caller.version > 0 => {
            let mut found = Vec::with_capacity(topics.len());
            let may_create = request.allow_auto_topic_creation && caller.has(Role::Admin);
            for topic in topics {
                found.push(one(node, topic, may_create).await);
            }
            found
        }
        _ => node.topics().iter().map(describe).collect(),
    };
    let (host, port) = caller.address();
    let broker = MetadataResponseBroker::default().with_node_id(BrokerId(NODE_ID)).with_host(host).with_port(port);
    MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_cluster_id(Some(StrBytes::from_static_str(CLUSTER_ID)))
        .with_controller_id(BrokerId(NODE_ID))
        .with_topics(topics)
}

async fn one(node: &Arc<Node>, asked: MetadataRequestTopic, may_create: bool) -> MetadataResponseTopic {
    let Some(name) = asked.name else {
        let id = asked.topic_id;
        return match node.topic_by_id(TopicId(id.as_u128())) {
            Some(topic) => describe(&topic),
            None => {
                MetadataResponseTopic::default().with_topic_id(id).with_error_code(ResponseError::UnknownTopicId.code())
            }
        };
    };
    let mut found = node.topic(&name);
    if may_create && node.config.auto_create_topics && found.as_ref().is_err_and(is_missing) {
        found = create(node, name.clone()).await;
    }
    match found {
        Ok(topic) => describe(&topic),
        Err(refusal) => MetadataResponseTopic::default().with_name(Some(name)).with_error_code(refusal.code()),
    }
}

fn is_missing(refusal: &Refusal) -> bool {
    refusal.error == ResponseError::UnknownTopicOrPartition
}

/// A user's topic that a client has asked for and that was not there.
async fn create(node: &Arc<Node>, name: TopicName) -> Result<Arc<Topic>, Refusal> {
    let topic = node.name(&name)?;
    if topic.kind() != Kind::User {
        return Err(Refusal::unknown_topic(&name));
    }
    let node = Arc::clone(node);
    let created = tokio::task::spawn_blocking(move || {
        let _one = node.creating.lock();
        match node.log.topic(&topic) {
            Some(topic) => Ok(topic),
            None => node.log.create_topic(&topic, &TopicConfig::default()).map_err(|e| Refusal::from(&e)),
        }
    });
    created.await.unwrap_or_else(|e| Err(Refusal::failed(&e)))
}

fn describe(topic: &Arc<Topic>) -> MetadataResponseTopic {
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
        .with_name(Some(TopicName(StrBytes::from_string(topic.name.to_string()))))
        .with_topic_id(Uuid::from_u128(topic.id.0))
        .with_partitions(partitions.collect())
}
