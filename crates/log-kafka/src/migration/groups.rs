//! Positions of groups whose members speak Kafka: from now on they ask the brokers for them.

use std::collections::BTreeMap;
use std::time::Instant;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::{FindCoordinatorRequest, GroupId, OffsetCommitRequest, OffsetCommitResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use millstream_kafka_wire::CallError;
use millstream_log::{CommittedPosition, Error};
use millstream_types::TopicId;

use crate::cluster::Purpose;
use crate::core::{Core, said};
use crate::migrated::{MigratedTopic, MigratedTopics};

const FIND_COORDINATOR_VERSION: i16 = 6;
const OFFSET_COMMIT_VERSION: i16 = 8;
const GROUP_KEY: i8 = 0;

/// A group that has no positions in Kafka, as its coordinator has refused them.
#[derive(Debug)]
pub struct GroupRefusal {
    /// The id of the group in Kafka.
    pub group: String,
    /// The reason.
    pub why: Error,
}

/// Commits the positions of each group of `ids`, which gives a group of the log its id in Kafka. Returns the groups that were
/// refused.
///
/// # Errors
/// [`Error::Unreachable`], [`Error::InvalidConfig`].
pub(super) async fn commit(
    core: &Core,
    known: &[(String, CommittedPosition)],
    ids: fn(&str) -> Option<String>,
    topics: &MigratedTopics,
) -> Result<Vec<GroupRefusal>, Error> {
    let topics: BTreeMap<TopicId, &MigratedTopic> = topics.values().map(|topic| (topic.id, &**topic)).collect();
    let mut groups = BTreeMap::<String, BTreeMap<String, Vec<OffsetCommitRequestPartition>>>::new();
    for (group, known) in known {
        let origin =
            topics.get(&known.position.topic).and_then(|topic| topic.partitions.get(&known.partition.partition));
        let (Some(id), Some(origin)) = (ids(group), origin) else { continue };
        let position = OffsetCommitRequestPartition::default()
            .with_partition_index(known.partition.partition.0.cast_signed())
            .with_committed_offset(origin.map.kafka_offset(known.position.offset))
            .with_committed_leader_epoch(-1)
            .with_committed_metadata(Some(StrBytes::from_string(known.metadata.clone())));
        let kafka_name = core.names.in_kafka(&known.partition.topic)?;
        groups.entry(id).or_default().entry(kafka_name).or_default().push(position);
    }
    let mut refused = Vec::new();
    for (group, positions) in groups {
        match commit_one(core, &group, positions).await {
            Ok(()) => {}
            Err(why @ Error::Refused { .. }) => refused.push(GroupRefusal { group, why }),
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}

async fn commit_one(
    core: &Core,
    group: &str,
    positions: BTreeMap<String, Vec<OffsetCommitRequestPartition>>,
) -> Result<(), Error> {
    let topic = |(name, partitions)| {
        let name = TopicName(StrBytes::from_string(name));
        OffsetCommitRequestTopic::default().with_name(name).with_partitions(partitions)
    };
    // It is committed for a group that has no members.
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(StrBytes::from_string(group.to_owned())))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(positions.into_iter().map(topic).collect());
    let deadline = Instant::now() + core.config.delivery_timeout;
    loop {
        let why = match commit_once(core, group, &request).await {
            Ok(0) => return Ok(()),
            Ok(code) if ResponseError::try_from_code(code).is_some_and(|error| error.is_retriable()) => {
                CallError::Unsent(said(code, None))
            }
            Ok(code) => {
                return Err(Error::Refused { request: "to commit positions of a group", why: said(code, None) });
            }
            Err(why) => why,
        };
        if Instant::now() > deadline {
            return Err(core.unreachable(&why));
        }
        tokio::time::sleep(core.config.retry_backoff).await;
    }
}

/// Asks the coordinator of the group. Returns the first error code, 0 if there is none.
async fn commit_once(core: &Core, group: &str, request: &OffsetCommitRequest) -> Result<i16, CallError> {
    let who = FindCoordinatorRequest::default()
        .with_key_type(GROUP_KEY)
        .with_coordinator_keys(vec![StrBytes::from_string(group.to_owned())]);
    let found = core.cluster.ask(&who, FIND_COORDINATOR_VERSION, core.config.request_timeout).await?;
    let found = found.coordinators.into_iter().next();
    let found = found.ok_or_else(|| CallError::Unsent("the answer names no coordinator".to_owned()))?;
    if found.error_code != 0 {
        return Ok(found.error_code);
    }
    let coordinator = core.cluster.broker(found.node_id.0, Purpose::Control).await?;
    let answer: OffsetCommitResponse = coordinator.call(request, OFFSET_COMMIT_VERSION).await?;
    let codes = answer.topics.into_iter().flat_map(|topic| topic.partitions).map(|partition| partition.error_code);
    Ok(codes.into_iter().find(|code| *code != 0).unwrap_or(0))
}
