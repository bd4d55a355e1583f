//! The idempotent producers that a partition remembers, and their open transactions.

use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::describe_producers_response::{PartitionResponse, ProducerState, TopicResponse};
use kafka_protocol::messages::{DescribeProducersRequest, DescribeProducersResponse, ProducerId, TopicName};
use millstream_log::KnownProducer;

use crate::request_context::RequestContext;

/// The value for *none* in a response.
const NONE: i32 = -1;

pub(crate) async fn describe_producers(
    request: DescribeProducersRequest,
    context: RequestContext,
) -> DescribeProducersResponse {
    let topics = request.topics.into_iter().map(|TopicRequest { name, partition_indexes, .. }| {
        let partitions = partition_indexes.into_iter().map(|number| one(&context, &name, number)).collect();
        TopicResponse::default().with_name(name).with_partitions(partitions)
    });
    DescribeProducersResponse::default().with_topics(topics.collect())
}

fn one(context: &RequestContext, topic: &TopicName, number: i32) -> PartitionResponse {
    let response = PartitionResponse::default().with_partition_index(number);
    match context.broker.partition(topic, number) {
        Ok(partition) => response.with_active_producers(partition.producers().iter().map(state).collect()),
        Err(refusal) => response.with_error_code(refusal.code()).with_error_message(refusal.message()),
    }
}

fn state(producer: &KnownProducer) -> ProducerState {
    ProducerState::default()
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(i32::from(producer.epoch))
        .with_last_sequence(producer.last_sequence.unwrap_or(NONE))
        .with_last_timestamp(producer.last_ms)
        .with_coordinator_epoch(if producer.transaction.is_some() { 0 } else { NONE })
        .with_current_txn_start_offset(producer.transaction.map_or(i64::from(NONE), |first| first.0.cast_signed()))
}
