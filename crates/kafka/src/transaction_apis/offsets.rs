//! TxnOffsetCommit: positions of a group that become true when the transaction is committed.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::txn_offset_commit_request::TxnOffsetCommitRequestPartition;
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};
use kafka_protocol::protocol::StrBytes;
use millstream_log::PositionCommit;

use super::requests::{in_own_task, key, storing};
use crate::group::{MemberIdentity, is_fence};
use crate::request_context::RequestContext;
use crate::transaction::{ProducerIdAndEpoch, Transaction};

/// First version that adds the group to the transaction, which AddOffsetsToTxn did before.
const ADDS_GROUP_VERSION: i16 = 5;

/// TxnOffsetCommit: answered when the positions are stored with the transaction.
pub(crate) async fn commit_offsets(
    request: TxnOffsetCommitRequest,
    context: RequestContext,
) -> TxnOffsetCommitResponse {
    let (member, group) = (context.member(), context.member().group(&request.group_id));
    let (mut results, mut commits) = (Vec::new(), Vec::new());
    for topic in &request.topics {
        for wanted in &topic.partitions {
            let commit = group
                .clone()
                .and_then(|group| context.groups().to_commit(group, &topic.name, &as_plain(wanted), &member));
            results.push(commit.as_ref().map(|_| ()).map_err(|error| *error));
            commits.extend(commit);
        }
    }
    let stored = match group {
        Ok(group) => store(&request, &context, group, commits).await,
        Err(error) => Err(error),
    };
    if let Err(error) = stored {
        // A client that may not commit gets the same error for all partitions.
        let concerned = results.iter_mut().filter(|result| result.is_ok() || is_fence(error));
        concerned.for_each(|result| *result = Err(error));
    }
    let mut results = results.into_iter();
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().zip(results.by_ref()).map(|(wanted, result)| {
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(wanted.partition_index)
                .with_error_code(result.err().map_or(0, |error| error.code()))
        });
        TxnOffsetCommitResponseTopic::default().with_partitions(partitions.collect()).with_name(topic.name)
    });
    TxnOffsetCommitResponse::default().with_topics(topics.collect())
}

fn as_plain(wanted: &TxnOffsetCommitRequestPartition) -> OffsetCommitRequestPartition {
    OffsetCommitRequestPartition::default()
        .with_partition_index(wanted.partition_index)
        .with_committed_offset(wanted.committed_offset)
        .with_committed_leader_epoch(wanted.committed_leader_epoch)
        .with_committed_metadata(wanted.committed_metadata.clone())
}

async fn store(
    request: &TxnOffsetCommitRequest,
    context: &RequestContext,
    group: String,
    commits: Vec<PositionCommit>,
) -> Result<(), ResponseError> {
    let (transactions, groups) = (context.broker.transactions.clone(), context.groups().clone());
    let key = key(context, &request.transactional_id)?;
    let who = ProducerIdAndEpoch { id: request.producer_id.0, epoch: request.producer_epoch };
    let (member_id, instance) = (request.member_id.clone(), request.group_instance_id.clone());
    let generation = request.generation_id;
    let adds_group_ms = (context.version >= ADDS_GROUP_VERSION).then(|| transactions.now_ms());
    let stored = in_own_task(async move {
        let turn = transactions.turn(&key).await?;
        let instance = instance.as_ref().map(StrBytes::as_str);
        let speaker = MemberIdentity { member_id: &member_id, instance, generation };
        let add = |now: Option<&Transaction>, commits| {
            let now = now.ok_or(ResponseError::InvalidProducerIdMapping)?;
            now.add_positions(who, &group, commits, transactions.limits, adds_group_ms)
        };
        // A request that is refused begins no group.
        turn.begin(|now| add(now, Vec::new()).map(|_| None))?;
        let begun =
            groups.commit_in_transaction(&group, speaker, || turn.begin(|now| Ok(add(now, commits)?.map(storing))));
        let begun = begun.await;
        turn.finish(begun).await
    });
    match stored.await {
        // Kafka's group coordinators answer with this error.
        Err(ResponseError::ProducerFenced) => Err(ResponseError::InvalidProducerEpoch),
        stored => stored.map(drop),
    }
}
