//! DescribeTopicPartitions: topics and their partitions, a page at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::{BrokerId, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use millstream_log::Topic;
use uuid::Uuid;

use crate::api_error::ApiError;
use crate::authorized_operations::NOT_ASKED;
use crate::broker::NODE_ID;
use crate::request_context::RequestContext;

/// Largest number of partitions in one response, whatever the client allows.
const PARTITIONS_MAX: usize = 2_000;

pub(crate) async fn describe(
    request: DescribeTopicPartitionsRequest,
    context: RequestContext,
) -> DescribeTopicPartitionsResponse {
    let broker = &context.broker;
    let mut asked: BTreeMap<String, Result<Arc<Topic>, ApiError>> = BTreeMap::new();
    if request.topics.is_empty() {
        asked.extend(broker.topics().into_iter().map(|topic| (broker.namespace.render(&topic.name), Ok(topic))));
    } else {
        asked.extend(request.topics.iter().map(|topic| (topic.name.to_string(), broker.topic(&topic.name))));
    }
    let (from, mut first) = match &request.cursor {
        Some(cursor) => (cursor.topic_name.to_string(), u32::try_from(cursor.partition_index).unwrap_or(0)),
        None => (String::new(), 0),
    };
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(0).clamp(1, PARTITIONS_MAX);
    let mut left = limit as u32;
    let mut topics = Vec::new();
    let mut next = None;
    for (name, topic) in asked.range(from.clone()..) {
        let begins = if *name == from { std::mem::take(&mut first) } else { 0 };
        if left == 0 {
            next = Some(cursor(name, begins));
            break;
        }
        let topic = match topic {
            Ok(topic) => topic,
            Err(refusal) => {
                topics.push(described(name).with_error_code(refusal.code()));
                continue;
            }
        };
        let total = topic.config.partitions;
        let end = total.min(begins.saturating_add(left));
        left -= end.saturating_sub(begins);
        let partitions = (begins..end).map(partition).collect();
        // Kafka tells them here without being asked.
        let described = described(name).with_topic_authorized_operations(context.topic_operations(topic));
        topics.push(described.with_topic_id(Uuid::from_u128(topic.id.0)).with_partitions(partitions));
        if end < total {
            next = Some(cursor(name, end));
            break;
        }
    }
    DescribeTopicPartitionsResponse::default().with_topics(topics).with_next_cursor(next)
}

fn described(name: &str) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic::default()
        .with_name(Some(wire(name)))
        .with_topic_authorized_operations(NOT_ASKED)
}

fn partition(number: u32) -> DescribeTopicPartitionsResponsePartition {
    let here = vec![BrokerId(NODE_ID)];
    DescribeTopicPartitionsResponsePartition::default()
        .with_partition_index(number.cast_signed())
        .with_leader_id(BrokerId(NODE_ID))
        .with_leader_epoch(-1)
        .with_replica_nodes(here.clone())
        .with_isr_nodes(here)
        // Kafka's own client accepts no null here.
        .with_eligible_leader_replicas(Some(Vec::new()))
        .with_last_known_elr(Some(Vec::new()))
}

fn cursor(name: &str, partition: u32) -> Cursor {
    Cursor::default().with_topic_name(wire(name)).with_partition_index(partition.cast_signed())
}

fn wire(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}
