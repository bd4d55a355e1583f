//! ListOffsets: the first and last offset of a partition, and the offset at a time stamp.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse, TopicName};
use millstream_log::{Error as LogError, KafkaPartition, UpTo};
use millstream_types::{BatchLimits, Offset};

use crate::api_error::ApiError;
use crate::isolation::Isolation;
use crate::request_context::RequestContext;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
/// The record with the latest time, and the first version that asks for it.
const LATEST_TIME: i64 = -3;
const LATEST_TIME_SINCE: i16 = 7;
/// The first offset on local disk. All records are there.
const EARLIEST_LOCAL: i64 = -4;
const EARLIEST_LOCAL_SINCE: i16 = 8;
/// The last offset in tiered storage. There is none.
const LATEST_TIERED: i64 = -5;
const LATEST_TIERED_SINCE: i16 = 9;
/// The value for *none* in a response.
const NONE: i64 = -1;

pub(crate) async fn list_offsets(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse {
    let isolation = Isolation::from(request.isolation_level);
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            partitions.push(one(&context, &topic.name, &asked, isolation).await);
        }
        topics.push(ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(partitions));
    }
    ListOffsetsResponse::default().with_topics(topics)
}

async fn one(
    context: &RequestContext,
    topic: &TopicName,
    asked: &ListOffsetsPartition,
    isolation: Isolation,
) -> ListOffsetsPartitionResponse {
    let response = ListOffsetsPartitionResponse::default()
        .with_partition_index(asked.partition_index)
        .with_offset(NONE)
        .with_timestamp(NONE)
        .with_leader_epoch(-1);
    match find(context, topic, asked, isolation).await {
        Ok((offset, timestamp_ms)) => response.with_offset(offset).with_timestamp(timestamp_ms),
        Err(refusal) => response.with_error_code(refusal.code()),
    }
}

/// An offset, and the time of its record if a time was asked for.
async fn find(
    context: &RequestContext,
    topic: &TopicName,
    asked: &ListOffsetsPartition,
    isolation: Isolation,
) -> Result<(i64, i64), ApiError> {
    let partition = context.broker.partition(topic, asked.partition_index)?;
    let ends = partition.offsets();
    match asked.timestamp {
        LATEST => Ok((isolation.end(&ends).0.cast_signed(), NONE)),
        EARLIEST => Ok((ends.first.0.cast_signed(), NONE)),
        EARLIEST_LOCAL if context.version >= EARLIEST_LOCAL_SINCE => Ok((ends.first.0.cast_signed(), NONE)),
        LATEST_TIERED if context.version >= LATEST_TIERED_SINCE => Ok((NONE, NONE)),
        LATEST_TIME if context.version >= LATEST_TIME_SINCE => {
            looked_up(move || latest_time(&partition, isolation.up_to())).await
        }
        time if time >= 0 => looked_up(move || at_time(&partition, time, isolation.up_to())).await,
        other => {
            let why = format!("{other} is no time that version {} of this request looks for", context.version);
            Err(ApiError::new(ResponseError::UnsupportedVersion, why))
        }
    }
}

/// Runs a lookup in stored records, which may wait for the disk.
async fn looked_up(
    look: impl FnOnce() -> Result<Option<(Offset, i64)>, LogError> + Send + 'static,
) -> Result<(i64, i64), ApiError> {
    let found = tokio::task::spawn_blocking(look).await;
    let found = found.unwrap_or(Err(LogError::Stopped)).map_err(|e| ApiError::from(&e))?;
    Ok(found.map_or((NONE, NONE), |(offset, timestamp_ms)| (offset.0.cast_signed(), timestamp_ms)))
}

/// Finds the first record with the latest time by bisection: *a record exists at or after t* turns from true to false once
/// as t grows, so this takes as many steps as a time stamp has bits.
fn latest_time(partition: &Arc<dyn KafkaPartition>, up_to: UpTo) -> Result<Option<(Offset, i64)>, LogError> {
    let mut found = None;
    let mut time_ms = 0;
    for bit in (0..i64::BITS - 1).rev() {
        let later_ms = time_ms | 1 << bit;
        if let Some((offset, at_ms)) = at_time(partition, later_ms, up_to)? {
            found = Some((offset, at_ms));
            time_ms = later_ms;
        }
    }
    match found {
        Some(found) => Ok(Some(found)),
        None => at_time(partition, 0, up_to),
    }
}

fn at_time(partition: &Arc<dyn KafkaPartition>, time_ms: i64, up_to: UpTo) -> Result<Option<(Offset, i64)>, LogError> {
    let Some(offset) = partition.offset_at(time_ms)? else { return Ok(None) };
    // Records that are not stable yet are not visible.
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
