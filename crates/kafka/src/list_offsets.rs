//! Where a partition begins and ends, and which offset a time has.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse, TopicName};
use millstream_log::{Error as LogError, Partition, UpTo};
use millstream_types::{BatchLimits, Offset};

use crate::caller::Caller;
use crate::isolation::Isolation;
use crate::node::Node;
use crate::refusal::Refusal;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
/// What stands for *none* in an answer.
const NONE: i64 = -1;

/// ListOffsets.
pub(crate) async fn list_offsets(request: ListOffsetsRequest, caller: Caller) -> ListOffsetsResponse {
    let isolation = Isolation::from(request.isolation_level);
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            partitions.push(one(&caller.node, &topic.name, &asked, isolation).await);
        }
        topics.push(ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(partitions));
    }
    ListOffsetsResponse::default().with_topics(topics)
}

async fn one(
    node: &Node,
    topic: &TopicName,
    asked: &ListOffsetsPartition,
    isolation: Isolation,
) -> ListOffsetsPartitionResponse {
    let response = ListOffsetsPartitionResponse::default()
        .with_partition_index(asked.partition_index)
        .with_offset(NONE)
        .with_timestamp(NONE)
        .with_leader_epoch(-1);
    match find(node, topic, asked, isolation).await {
        Ok((offset, timestamp_ms)) => response.with_offset(offset).with_timestamp(timestamp_ms),
        Err(refusal) => response.with_error_code(refusal.code()),
    }
}

/// An offset, and the time of its record if a time was asked for.
async fn find(
    node: &Node,
    topic: &TopicName,
    asked: &ListOffsetsPartition,
    isolation: Isolation,
) -> Result<(i64, i64), Refusal> {
    let partition = node.partition(topic, asked.partition_index)?;
    let ends = partition.offsets();
    match asked.timestamp {
        LATEST => Ok((isolation.end(&ends).0.cast_signed(), NONE)),
        EARLIEST => Ok((ends.first.0.cast_signed(), NONE)),
        time if time >= 0 => {
            let found = tokio::task::spawn_blocking(move || at_time(&partition, time, isolation.up_to()));
            let found = found.await.unwrap_or(Err(LogError::Stopped)).map_err(|e| Refusal::from(&e))?;
            Ok(found.map_or((NONE, NONE), |(offset, timestamp_ms)| (offset.0.cast_signed(), timestamp_ms)))
        }
        other => Err(Refusal::new(ResponseError::InvalidRequest, format!("{other} is no time to look for"))),
    }
}

fn at_time(partition: &Arc<dyn Partition>, time_ms: i64, up_to: UpTo) -> Result<Option<(Offset, i64)>, LogError> {
    let Some(offset) = partition.offset_at(time_ms)? else { return Ok(None) };
    // What is not stable yet is nobody's business.
    let Some(batch) = partition.read(offset, 1, up_to)?.into_iter().next() else { return Ok(None) };
    let damaged = |source| LogError::Batch { partition: partition.id().clone(), source };
    let batch = batch.inflated(&BatchLimits::default()).map_err(damaged)?;
    for record in batch.records() {
        let record = record.map_err(damaged)?;
        if record.offset >= offset {
            return Ok(Some((record.offset, record.timestamp_ms)));
        }
    }
    Ok(None)
}
