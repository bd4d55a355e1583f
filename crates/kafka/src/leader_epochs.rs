//! OffsetForLeaderEpoch: where the records of an epoch end. A reader whose position lies behind that has read records that
//! were lost.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use kafka_protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use kafka_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, TopicName};
use millstream_types::{Epoch, Offset};

use crate::api_error::ApiError;
use crate::request_context::RequestContext;

/// The number for an epoch or an offset that is not known.
const NONE: i32 = -1;

pub(crate) async fn offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest,
    context: RequestContext,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| one(&context, &topic.topic, asked)).collect();
        OffsetForLeaderTopicResult::default().with_topic(topic.topic).with_partitions(partitions)
    });
    OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
}

fn one(context: &RequestContext, topic: &TopicName, asked: &OffsetForLeaderPartition) -> EpochEndOffset {
    let answer = EpochEndOffset::default()
        .with_partition(asked.partition)
        .with_leader_epoch(NONE)
        .with_end_offset(i64::from(NONE));
    match find(context, topic, asked) {
        Ok(Some((epoch, end))) => {
            answer.with_leader_epoch(i32::try_from(epoch.0).unwrap_or(NONE)).with_end_offset(end.0.cast_signed())
        }
        Ok(None) => answer,
        Err(refusal) => answer.with_error_code(refusal.code()),
    }
}

fn find(
    context: &RequestContext,
    topic: &TopicName,
    asked: &OffsetForLeaderPartition,
) -> Result<Option<(Epoch, Offset)>, ApiError> {
    let partition = context.broker.partition(topic, asked.partition)?;
    let (named, present) = (i64::from(asked.current_leader_epoch), i64::from(partition.offsets().epoch.0));
    if named != i64::from(NONE) && named != present {
        let error = if named < present { ResponseError::FencedLeaderEpoch } else { ResponseError::UnknownLeaderEpoch };
        return Err(ApiError::new(
            error,
            format!("the leader's epoch is {present}, not {named}; look the topic up again"),
        ));
    }
    Ok(u32::try_from(asked.leader_epoch).ok().and_then(|epoch| partition.end_of_epoch(Epoch(epoch))))
}
