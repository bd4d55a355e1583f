//! Removing the oldest records of partitions.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_records_request::DeleteRecordsPartition;
use kafka_protocol::messages::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse, TopicName};
use millstream_log::Error as LogError;
use millstream_types::{Offset, Role, TopicKind};

use crate::api_error::ApiError;
use crate::request_context::RequestContext;

/// The offset that means *all records*.
const ALL: i64 = -1;

pub(crate) async fn delete_records(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse {
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let result = DeleteRecordsPartitionResult::default().with_partition_index(asked.partition_index);
            let deleted = delete(&context, &topic.name, asked).await;
            let object = format!("{}-{} before {}", topic.name.as_str(), asked.partition_index, asked.offset);
            context.audit("DeleteRecords", &object, &deleted);
            partitions.push(match deleted {
                Ok(first) => result.with_low_watermark(first.0.cast_signed()),
                Err(refusal) => {
                    let (topic, why) = (topic.name.as_str(), &refusal.why);
                    tracing::info!(topic, partition = asked.partition_index, why, "records were not deleted");
                    result.with_low_watermark(-1).with_error_code(refusal.code())
                }
            });
        }
        topics.push(DeleteRecordsTopicResult::default().with_name(topic.name).with_partitions(partitions));
    }
    DeleteRecordsResponse::default().with_topics(topics)
}

/// Deletes records and returns the first offset that remains.
async fn delete(
    context: &RequestContext,
    name: &TopicName,
    asked: &DeleteRecordsPartition,
) -> Result<Offset, ApiError> {
    context.check(Role::Admin)?;
    let partition = context.broker.partition(name, asked.partition_index)?;
    let topic = partition.topic();
    if topic.name.kind() != TopicKind::User {
        let why = format!("the records of topic '{}' are Millstream's own and go by its retention", name.as_str());
        return Err(ApiError::new(ResponseError::TopicAuthorizationFailed, why));
    }
    let before = match (asked.offset, u64::try_from(asked.offset)) {
        (ALL, _) => partition.offsets().stable,
        (_, Ok(offset)) => Offset(offset),
        (offset, _) => {
            let why = format!("offset {offset} cannot be; use -1 for all records");
            return Err(ApiError::new(ResponseError::OffsetOutOfRange, why));
        }
    };
    let trimmed = tokio::task::spawn_blocking(move || partition.trim(before)).await;
    trimmed.unwrap_or(Err(LogError::Stopped)).map_err(|e| ApiError::from(&e))
}
