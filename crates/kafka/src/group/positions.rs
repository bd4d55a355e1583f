//! Positions: OffsetCommit, OffsetFetch, OffsetDelete.

use std::collections::HashSet;
use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use kafka_protocol::messages::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    GroupId, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse, OffsetFetchRequest,
    OffsetFetchResponse, TopicName as WireTopic,
};
use kafka_protocol::protocol::StrBytes;
use millstream_log::{CommittedPosition, NO_EPOCH, POSITION_METADATA_MAX_BYTES, PositionCommit, Reply, reply};
use millstream_types::{Epoch, Offset, Position, TopicPartition};

use super::coordinator::{Caller, GroupCoordinator};
use super::entry::GroupEntry;
use super::errors::{is_fence, to_client};
use super::machine::{MemberIdentity, Subscriptions};
use super::membership::{code, text};
use super::protocol::Group;

/// First version of OffsetCommit and OffsetFetch in which a member names its epoch.
const MEMBER_EPOCH_VERSION: i16 = 9;

impl GroupCoordinator {
    /// OffsetCommit: answered when the positions are durable. A speaker of another generation commits nothing.
    pub async fn offset_commit(
        self: &Arc<Self>,
        request: OffsetCommitRequest,
        version: i16,
        caller: &Caller,
    ) -> OffsetCommitResponse {
        let mut results = Vec::new();
        let mut commits = Vec::new();
        let group = caller.group(&request.group_id);
        for topic in &request.topics {
            for partition in &topic.partitions {
                let commit = group.clone().and_then(|group| self.to_commit(group, &topic.name, partition, caller));
                results.push(commit.as_ref().map(|_| ()).map_err(|error| *error));
                commits.extend(commit);
            }
        }
        let stored = match group {
            Ok(group) => self.store(&group, &request, version, commits).await,
            Err(error) => Err(error),
        };
        if let Err(error) = stored {
            results.iter_mut().filter(|result| result.is_ok()).for_each(|result| *result = Err(error));
            // A client that may not commit gets the same error for all partitions.
            if is_fence(error) {
                results.iter_mut().for_each(|result| *result = Err(error));
            }
        }
        let mut results = results.into_iter();
        let topics = request.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().zip(results.by_ref()).map(|(partition, result)| {
                OffsetCommitResponsePartition::default()
                    .with_partition_index(partition.partition_index)
                    .with_error_code(code(result))
            });
            OffsetCommitResponseTopic::default().with_partitions(partitions.collect()).with_name(topic.name)
        });
        OffsetCommitResponse::default().with_topics(topics.collect())
    }

    /// The position that a client means, if it can be committed now.
    pub(crate) fn to_commit(
        &self,
        group: String,
        topic: &str,
        wanted: &OffsetCommitRequestPartition,
        caller: &Caller,
    ) -> Result<PositionCommit, ResponseError> {
        let id = to_partition(topic, wanted.partition_index, caller)?;
        let partition = self.log.partition(&id).map_err(|error| to_client(&error))?;
        let metadata = wanted.committed_metadata.as_deref().unwrap_or_default();
        if metadata.len() > POSITION_METADATA_MAX_BYTES {
            return Err(ResponseError::OffsetMetadataTooLarge);
        }
        let ends = partition.offsets();
        // Some clients store special numbers there, such as -2 for the beginning; they are stored unchanged.
        let offset = Offset(wanted.committed_offset.cast_unsigned());
        let named = u32::try_from(wanted.committed_leader_epoch).ok().map(Epoch);
        let epoch = match named.filter(|epoch| *epoch <= ends.epoch) {
            _ if offset > ends.tail => NO_EPOCH,
            _ if offset > ends.high => return Err(ResponseError::CoordinatorLoadInProgress),
            named => named.unwrap_or(ends.epoch),
        };
        let position = Position { topic: partition.topic().id, epoch, offset };
        Ok(PositionCommit { group, partition: id, position, metadata: metadata.to_owned() })
    }

    async fn store(
        self: &Arc<Self>,
        group: &str,
        request: &OffsetCommitRequest,
        version: i16,
        commits: Vec<PositionCommit>,
    ) -> Result<(), ResponseError> {
        let speaker = MemberIdentity {
            member_id: &request.member_id,
            instance: request.group_instance_id.as_deref(),
            generation: request.generation_id_or_member_epoch,
        };
        let is_outside = speaker.generation < 0;
        let may_return = !is_outside && self.may_be_from_before(speaker.member_id);
        // A request that commits nothing begins no group.
        let may_begin = (is_outside || may_return) && !commits.is_empty();
        // Handed to the log while the group is locked: nobody can begin a generation in between.
        let take = |entry: &mut GroupEntry| {
            if commits.is_empty() {
                return Ok(None);
            }
            entry.committed_ms = self.wall_ms();
            let (done, answer) = reply();
            self.log.commit_positions(commits, done).map_err(|error| to_client(&error))?;
            Ok::<Option<Reply<()>>, ResponseError>(Some(answer))
        };
        let commit = |entry: &mut GroupEntry, _: &mut Vec<_>| {
            // No client gets the partitions of a member that returns before the group has a generation again.
            if !may_return || entry.group.has_begun() {
                let may = entry.group.may_commit(self.now(), speaker);
                may.map_err(|error| match entry.group {
                    Group::Classic(_) => self.to_returning(speaker.member_id, error),
                    Group::Consumer(_) => error,
                })?;
            }
            if !is_outside && version < MEMBER_EPOCH_VERSION && matches!(entry.group, Group::Consumer(_)) {
                return Err(ResponseError::UnsupportedVersion);
            }
            take(entry)
        };
        let answer = match may_begin {
            true => self.within_new(group, commit).await?,
            false if is_outside || may_return => self.within(group, commit).unwrap_or(Ok(None)),
            false => self.within(group, commit).unwrap_or(Err(ResponseError::IllegalGeneration)),
        }?;
        match answer {
            Some(answer) => answer.await.map_err(|error| to_client(&error)),
            None => Ok(()),
        }
    }

    /// Runs `act` if the client may commit in a transaction. No other generation can begin meanwhile. The commit of a client
    /// outside the group may begin it.
    pub(crate) async fn commit_in_transaction<T>(
        self: &Arc<Self>,
        group: &str,
        speaker: MemberIdentity<'_>,
        act: impl FnOnce() -> Result<T, ResponseError>,
    ) -> Result<T, ResponseError> {
        let act = |entry: &mut GroupEntry, _: &mut Vec<_>| {
            entry.group.may_commit_in_transaction(self.now(), speaker)?;
            entry.committed_ms = self.wall_ms();
            act()
        };
        match speaker.generation < 0 {
            true => self.within_new(group, act).await?,
            false => self.within(group, act).unwrap_or(Err(ResponseError::IllegalGeneration)),
        }
    }

    /// OffsetFetch of one group, or (version 8 and later) of several; without partitions in the request, of all
    /// partitions. `pending` returns the positions of a group that an open transaction may change: a client that
    /// requires stable positions must ask again.
    pub async fn offset_fetch(
        &self,
        request: OffsetFetchRequest,
        version: i16,
        caller: &Caller,
        pending: &(dyn Fn(&str) -> HashSet<TopicPartition> + Sync),
    ) -> OffsetFetchResponse {
        let pending = |group: &str| if request.require_stable { pending(group) } else { HashSet::new() };
        if version >= 8 {
            let groups = request.groups.into_iter().map(|group| {
                let topics = group.topics.map(|topics| {
                    topics.into_iter().map(|topic| (topic.name.to_string(), topic.partition_indexes)).collect()
                });
                let reader = (group.member_id.as_deref(), group.member_epoch);
                match self.check_reader(&group.group_id, reader, caller) {
                    Ok(()) => self.fetched_group(group.group_id, topics, caller, &pending),
                    Err(error) => refused_group(group.group_id, error),
                }
            });
            return OffsetFetchResponse::default().with_groups(groups.collect());
        }
        let topics = request
            .topics
            .map(|topics| topics.into_iter().map(|topic| (topic.name.to_string(), topic.partition_indexes)).collect());
        let found = self.fetched_group(request.group_id, topics, caller, &pending);
        let topics = found.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.into_iter().map(|of| {
                OffsetFetchResponsePartition::default()
                    .with_partition_index(of.partition_index)
                    .with_committed_offset(of.committed_offset)
                    .with_committed_leader_epoch(of.committed_leader_epoch)
                    .with_metadata(of.metadata)
                    .with_error_code(of.error_code)
            });
            OffsetFetchResponseTopic::default().with_partitions(partitions.collect()).with_name(topic.name)
        });
        OffsetFetchResponse::default().with_topics(topics.collect()).with_error_code(found.error_code)
    }

    /// Checks that a member of a consumer group reads in its present epoch; everybody else may read.
    fn check_reader(&self, id: &GroupId, reader: (Option<&str>, i32), caller: &Caller) -> Result<(), ResponseError> {
        let (Some(member_id), generation @ 0..) = reader else { return Ok(()) };
        let speaker = MemberIdentity { member_id, instance: None, generation };
        let group = caller.group(id)?;
        let checked = self.within(&group, |entry, _| match &entry.group {
            Group::Consumer(group) => group.check(speaker),
            Group::Classic(_) => Ok(()),
        });
        checked.unwrap_or(Ok(()))
    }

    fn fetched_group(
        &self,
        id: GroupId,
        topics: Option<Vec<(String, Vec<i32>)>>,
        caller: &Caller,
        pending: &dyn Fn(&str) -> HashSet<TopicPartition>,
    ) -> OffsetFetchResponseGroup {
        let answer = OffsetFetchResponseGroup::default();
        let found = caller.group(&id).and_then(|group| {
            // Read first: a position that is no longer pending is then among the committed ones.
            let pending = pending(&group);
            Ok((pending, self.log.positions(&group).map_err(|error| to_client(&error))?))
        });
        let (pending, found) = match found {
            Ok(found) => found,
            Err(error) => return refused_group(id, error),
        };
        let topics = match topics {
            Some(topics) => topics,
            None => by_topic(&found, caller),
        };
        let topics = topics.into_iter().map(|(name, partitions)| {
            let partitions = partitions.into_iter().map(|number| {
                let id = to_partition(&name, number, caller).ok();
                if id.as_ref().is_some_and(|id| pending.contains(id)) {
                    return fetched(number, None).with_error_code(ResponseError::UnstableOffsetCommit.code());
                }
                let found = found.iter().find(|found| Some(&found.partition) == id.as_ref());
                fetched(number, found.map(|found| (found, self.next_position(found))))
            });
            let partitions = partitions.collect();
            OffsetFetchResponseTopics::default().with_name(WireTopic(text(name))).with_partitions(partitions)
        });
        let topics = topics.collect();
        answer.with_group_id(id).with_topics(topics)
    }

    /// The offset at which a group continues, and the epoch before it. It lies behind records that a start has skipped, which
    /// would otherwise look like lag; the epoch of the commit ends before these, so the present one is told with it.
    fn next_position(&self, found: &CommittedPosition) -> (Offset, Epoch) {
        let Position { offset: committed, epoch, .. } = found.position;
        let Ok(partition) = self.log.partition(&found.partition) else { return (committed, epoch) };
        match partition.behind_gap(committed) {
            behind if epoch != NO_EPOCH && behind != committed => (behind, partition.offsets().epoch),
            _ => (committed, epoch),
        }
    }

    /// OffsetDelete: of topics that no member has subscribed to.
    pub async fn offset_delete(
        self: &Arc<Self>,
        request: OffsetDeleteRequest,
        caller: &Caller,
    ) -> OffsetDeleteResponse {
        let refused = |error: ResponseError| OffsetDeleteResponse::default().with_error_code(error.code());
        let group = match caller.group_to_change(&request.group_id) {
            Ok(group) => group,
            Err(error) => return refused(error),
        };
        let subscribed = match self.within(&group, |entry, _| entry.group.subscriptions()) {
            Some(Subscriptions::NoConsumers) => return refused(ResponseError::NonEmptyGroup),
            Some(subscribed) => subscribed,
            None if self.has_positions(&group) => Subscriptions::Topics(HashSet::new()),
            None => return refused(ResponseError::GroupIdNotFound),
        };
        let mut topics = Vec::new();
        let mut wanted = Vec::new();
        for topic in request.topics {
            let is_subscribed = subscribed.has(&topic.name);
            let partitions = topic.partitions.iter().map(|partition| {
                let known = to_partition(&topic.name, partition.partition_index, caller)
                    .and_then(|id| if is_subscribed { Err(ResponseError::GroupSubscribedToTopic) } else { Ok(id) })
                    .and_then(|id| self.log.partition(&id).map(|_| id).map_err(|error| to_client(&error)));
                let answer = OffsetDeleteResponsePartition::default()
                    .with_partition_index(partition.partition_index)
                    .with_error_code(code(known.as_ref().map(|_| ()).map_err(|error| *error)));
                wanted.extend(known);
                answer
            });
            let partitions = partitions.collect();
            topics.push(OffsetDeleteResponseTopic::default().with_name(topic.name).with_partitions(partitions));
        }
        match self.forget(group, wanted).await {
            Ok(()) => OffsetDeleteResponse::default().with_topics(topics),
            Err(error) => OffsetDeleteResponse::default().with_error_code(error.code()),
        }
    }

    /// Deletes positions, away from the threads that serve connections.
    pub(crate) async fn forget(
        self: &Arc<Self>,
        group: String,
        partitions: Vec<TopicPartition>,
    ) -> Result<(), ResponseError> {
        let log = self.log.clone();
        match tokio::task::spawn_blocking(move || log.forget_positions(&group, &partitions)).await {
            Ok(result) => result.map_err(|error| to_client(&error)),
            Err(_) => Err(ResponseError::UnknownServerError),
        }
    }
}

fn to_partition(topic: &str, partition: i32, caller: &Caller) -> Result<TopicPartition, ResponseError> {
    let topic = caller.namespace.parse(topic).map_err(|_| ResponseError::UnknownTopicOrPartition)?;
    if !caller.namespace.sees(&topic) {
        return Err(ResponseError::UnknownTopicOrPartition);
    }
    if !caller.namespace.admits(&topic) {
        return Err(ResponseError::TopicAuthorizationFailed);
    }
    let partition = u32::try_from(partition).map_err(|_| ResponseError::UnknownTopicOrPartition)?;
    Ok(TopicPartition::new(topic, partition))
}

fn refused_group(id: GroupId, error: ResponseError) -> OffsetFetchResponseGroup {
    OffsetFetchResponseGroup::default().with_group_id(id).with_error_code(error.code())
}

/// The committed position of a partition, and where the group continues.
fn fetched(number: i32, found: Option<(&CommittedPosition, (Offset, Epoch))>) -> OffsetFetchResponsePartitions {
    let answer = OffsetFetchResponsePartitions::default().with_partition_index(number);
    match found {
        Some((found, (offset, epoch))) => answer
            .with_committed_offset(offset.0.cast_signed())
            .with_committed_leader_epoch(i32::try_from(epoch.0).unwrap_or(-1))
            .with_metadata(Some(text(found.metadata.clone()))),
        None => {
            answer.with_committed_offset(-1).with_committed_leader_epoch(-1).with_metadata(Some(StrBytes::default()))
        }
    }
}

fn by_topic(found: &[CommittedPosition], caller: &Caller) -> Vec<(String, Vec<i32>)> {
    let mut topics: Vec<(String, Vec<i32>)> = Vec::new();
    for found in found.iter().filter(|found| caller.namespace.admits(&found.partition.topic)) {
        let (name, number) = (caller.namespace.render(&found.partition.topic), found.partition.partition.0 as i32);
        match topics.last_mut() {
            Some((last, numbers)) if *last == name => numbers.push(number),
            _ => topics.push((name, vec![number])),
        }
    }
    topics
}
