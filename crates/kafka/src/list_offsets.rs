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
use crate::refusal::Refusal;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
/// The record with the latest time, and the first version that asks for it.
const LATEST_TIME: i64 = -3;
const LATEST_TIME_SINCE: i16 = 7;
/// The first offset of what lies on the broker itself: here, all.
const EARLIEST_LOCAL: i64 = -4;
const EARLIEST_LOCAL_SINCE: i16 = 8;
/// The last offset of what a broker has moved elsewhere: here, none.
const LATEST_TIERED: i64 = -5;
const LATEST_TIERED_SINCE: i16 = 9;
/// What stands for *none* in an answer.
const NONE: i64 = -1;

/// ListOffsets.
pub(crate) async fn list_offsets(request: ListOffsetsRequest, caller: Caller) -> ListOffsetsResponse {
    let isolation = Isolation::from(request.isolation_level);
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            partitions.push(one(&caller, &topic.name, &asked, isolation).await);
        }
        topics.push(ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(partitions));
    }
    ListOffsetsResponse::default().with_topics(topics)
}

async fn one(
    caller: &Caller,
    topic: &TopicName,
    asked: &ListOffsetsPartition,
    isolation: Isolation,
) -> ListOffsetsPartitionResponse {
    let response = ListOffsetsPartitionResponse::default()
        .with_partition_index(asked.partition_index)
        .with_offset(NONE)
        .with_timestamp(NONE)
        .with_leader_epoch(-1);
    match find(caller, topic, asked, isolation).await {
        Ok((offset, timestamp_ms)) => response.with_offset(offset).with_timestamp(timestamp_ms),
        Err(refusal) => response.with_error_code(refusal.code()),
    }
}

/// An offset, and the time of its record if a time was asked for.
async fn find(
    caller: &Caller,
    topic: &TopicName,
    asked: &ListOffsetsPartition,
    isolation: Isolation,
) -> Result<(i64, i64), Refusal> {
    let partition = caller.node.partition(topic, asked.partition_index)?;
    let ends = partition.offsets();
    match asked.timestamp {
        LATEST => Ok((isolation.end(&ends).0.cast_signed(), NONE)),
        EARLIEST => Ok((ends.first.0.cast_signed(), NONE)),
        EARLIEST_LOCAL if caller.version >= EARLIEST_LOCAL_SINCE => Ok((ends.first.0.cast_signed(), NONE)),
        LATEST_TIERED if caller.version >= LATEST_TIERED_SINCE => Ok((NONE, NONE)),
        LATEST_TIME if caller.version >= LATEST_TIME_SINCE => {
            looked_up(move || latest_time(&partition, isolation.up_to())).await
        }
        time if time >= 0 => looked_up(move || at_time(&partition, time, isolation.up_to())).await,
        other => {
            let why = format!("{other} is no time that version {} of this request looks for", caller.version);
            Err(Refusal::new(ResponseError::UnsupportedVersion, why))
        }
    }
}

/// What a look into stored records finds, which may wait for the disk.
async fn looked_up(
    look: impl FnOnce() -> Result<Option<(Offset, i64)>, LogError> + Send + 'static,
) -> Result<(i64, i64), Refusal> {
    let found = tokio::task::spawn_blocking(look).await;
    let found = found.unwrap_or(Err(LogError::Stopped)).map_err(|e| Refusal::from(&e))?;
    Ok(found.map_or((NONE, NONE), |(offset, timestamp_ms)| (offset.0.cast_signed(), timestamp_ms)))
}

/// The first record with the latest time. Whether there is one at or after a time falls from yes to no once: so it is
/// found in as many steps as a time has bits.
fn latest_time(partition: &Arc<dyn Partition>, up_to: UpTo) -> Result<Option<(Offset, i64)>, LogError> {
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
