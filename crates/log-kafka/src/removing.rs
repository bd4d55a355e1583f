//! Removes records from a partition.

use std::sync::Arc;

use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::{DeleteRecordsRequest, TopicName as WireName};
use kafka_protocol::protocol::StrBytes;
use millstream_log::Error;
use millstream_types::Offset;

use crate::cluster::Purpose;
use crate::core::Core;
use crate::fetching::{Question, ask_leader};
use crate::partition_state::PartitionState;

const DELETE_RECORDS_VERSION: i16 = 2;

/// Removes the records below `before`. Returns the new first offset.
pub(crate) async fn trim(core: &Core, partition: &Arc<PartitionState>, before: Offset) -> Result<Offset, Error> {
    let timeout_ms = i32::try_from(core.config.request_timeout.as_millis()).unwrap_or(i32::MAX);
    let wanted = DeleteRecordsPartition::default()
        .with_partition_index(partition.index())
        .with_offset(partition.kafka_offset(before));
    let name = WireName(StrBytes::from_string(partition.topic.kafka_name.clone()));
    let topic = DeleteRecordsTopic::default().with_name(name).with_partitions(vec![wanted]);
    let question = Question {
        name: "a removal of records",
        purpose: Purpose::Control,
        version: DELETE_RECORDS_VERSION,
        request: DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(timeout_ms),
        answer: |response| {
            let answer = response.topics.into_iter().flat_map(|topic| topic.partitions).next()?;
            Some(match answer.error_code {
                0 => Ok(answer.low_watermark),
                code => Err(code),
            })
        },
    };
    let first = partition.origin.map.first(ask_leader(core, partition, &question).await?);
    partition.trimmed(first);
    Ok(first)
}
