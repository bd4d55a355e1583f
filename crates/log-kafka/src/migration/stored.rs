//! The records of an earlier run that are in Kafka.

use std::sync::Arc;
use std::time::Instant;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use kafka_protocol::messages::{BrokerId, OffsetForLeaderEpochRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use millstream_kafka_wire::CallError;
use millstream_log::Error;

use crate::cluster::Purpose;
use crate::core::Core;
use crate::fetching::{self, Isolation, LATEST, Question};
use crate::partition_state::PartitionState;

const OFFSET_FOR_LEADER_EPOCH_VERSION: i16 = 4;

/// The number of records that a partition has. Waits until readers see all that its leader has: a run that was killed may have
/// left some that are not replicated yet, and those would be copied again.
///
/// # Errors
/// Those of look-ups; [`Error::Unreachable`] if replicas stay behind for long.
pub(super) async fn records(core: &Core, partition: &Arc<PartitionState>) -> Result<u64, Error> {
    let deadline = Instant::now() + core.config.delivery_timeout;
    loop {
        let stored = end_of_leader(core, partition).await?;
        let seen = fetching::kafka_offset_at(core, partition, LATEST, Isolation::Uncommitted).await?;
        if let (Some(stored), Some(seen)) = (stored, seen)
            && seen >= stored
        {
            return Ok(seen.unsigned_abs());
        }
        if Instant::now() > deadline {
            let name = &partition.topic.kafka_name;
            let why = format!("replicas of {name}/{} lack records that its leader has", partition.index());
            return Err(core.unreachable(&CallError::Unsent(why)));
        }
        tokio::time::sleep(core.config.retry_backoff).await;
        core.find_leaders(std::slice::from_ref(partition)).await?;
    }
}

/// The end of the records that the leader has, replicated or not. `None` if another broker leads the partition by now.
async fn end_of_leader(core: &Core, partition: &Arc<PartitionState>) -> Result<Option<i64>, Error> {
    let epoch = partition.leader().map_or(-1, |leader| leader.epoch);
    let asked = OffsetForLeaderPartition::default()
        .with_partition(partition.index())
        .with_current_leader_epoch(epoch)
        .with_leader_epoch(epoch);
    let name = TopicName(StrBytes::from_string(partition.topic.kafka_name.clone()));
    let topic = OffsetForLeaderTopic::default().with_topic(name).with_partitions(vec![asked]);
    let question = Question {
        name: "a look-up of the end of a leader",
        purpose: Purpose::Control,
        version: OFFSET_FOR_LEADER_EPOCH_VERSION,
        request: OffsetForLeaderEpochRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]),
        answer: |response| {
            let found = response.topics.into_iter().flat_map(|topic| topic.partitions).next()?;
            let is_of_another = [ResponseError::FencedLeaderEpoch, ResponseError::UnknownLeaderEpoch];
            Some(match found.error_code {
                0 => Ok(Some(found.end_offset).filter(|end| *end >= 0)),
                code if is_of_another.iter().any(|error| error.code() == code) => Ok(None),
                code => Err(code),
            })
        },
    };
    fetching::ask_leader(core, partition, &question).await
}
