//! Being a member with the protocol of KIP-848, and looking at such groups: ConsumerGroupHeartbeat, ConsumerGroupDescribe.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::consumer_group_describe_response::{
    Assignment as DescribedAssignment, DescribedGroup, Member, TopicPartitions as DescribedPartitions,
};
use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse, GroupId, TopicName as WireTopic,
};
use millstream_types::TopicId;
use regex::{Regex, RegexBuilder};
use uuid::Uuid;

use super::consumer_group::{
    AWAY_EPOCH, Assignor, ConsumerGroup, ConsumerHeartbeat, ConsumerMember, HeartbeatAnswer, JOINING_EPOCH,
    PartitionSet, Subscription, TopicSizes,
};
use super::coordinator::{Caller, GroupCoordinator, MEMBER_ID_MAX_BYTES};
use super::membership::text;
use super::protocol::Group;
use crate::api_error::ApiError;
use crate::authorized_operations::{self, NOT_ASKED};

/// Largest compiled pattern of a subscription, in bytes.
const REGEX_MAX_BYTES: usize = 256 << 10;
/// The member type of those that send ConsumerGroupHeartbeat.
const CONSUMER_MEMBER: i8 = 1;

impl GroupCoordinator {
    /// ConsumerGroupHeartbeat: answered at once, with what the member may read if that has changed.
    pub(crate) async fn consumer_group_heartbeat(
        self: &Arc<Self>,
        request: ConsumerGroupHeartbeatRequest,
        version: i16,
        caller: &Caller,
    ) -> ConsumerGroupHeartbeatResponse {
        // One that leaves sends no more.
        let interval_ms = match request.member_epoch {
            JOINING_EPOCH.. => self.config.consumer_heartbeat_interval.as_millis(),
            _ => 0,
        };
        match self.beat(request, version, caller).await {
            Ok((member_id, HeartbeatAnswer { epoch, assignment })) => ConsumerGroupHeartbeatResponse::default()
                .with_member_id(Some(text(member_id)))
                .with_member_epoch(epoch)
                .with_heartbeat_interval_ms(i32::try_from(interval_ms).unwrap_or(i32::MAX))
                .with_assignment(assignment.map(|assigned| {
                    let topics = by_topic(&assigned).into_iter().map(|(topic, partitions)| {
                        TopicPartitions::default().with_topic_id(Uuid::from_u128(topic.0)).with_partitions(partitions)
                    });
                    Assignment::default().with_topic_partitions(topics.collect())
                })),
            Err(refusal) => ConsumerGroupHeartbeatResponse::default()
                .with_error_code(refusal.code())
                .with_error_message(refusal.message()),
        }
    }

    async fn beat(
        self: &Arc<Self>,
        request: ConsumerGroupHeartbeatRequest,
        version: i16,
        caller: &Caller,
    ) -> Result<(String, HeartbeatAnswer), ApiError> {
        let id = request.group_id.to_string();
        if id.is_empty() {
            // The classic requests have an error of its own for it.
            return Err(ApiError::new(ResponseError::InvalidRequest, "a heartbeat without a group id; send one"));
        }
        let refused = |error| ApiError::new(error, why(error, &id, &request));
        let group = caller.group(&id).map_err(refused)?;
        let beat = to_heartbeat(&request, version, caller)?;
        if self.is_stopped() {
            return Err(refused(ResponseError::CoordinatorNotAvailable));
        }
        let find_topics = |subscription: &Subscription| self.find_topics(subscription, caller);
        let answer = match beat.epoch {
            JOINING_EPOCH => self
                .within_new(&group, |entry, _| {
                    let group = entry.group.become_consumer(&self.config, self.now())?;
                    group.heartbeat(self.now(), &beat, &find_topics)
                })
                .await
                .and_then(|answer| answer),
            _ => {
                let answer =
                    self.within(&group, |entry, _| entry.group.consumer()?.heartbeat(self.now(), &beat, &find_topics));
                // Members are in memory only. Kafka's error for a group that does not exist would end the client, which is to
                // join again after a restart of the server.
                answer.unwrap_or(Err(ResponseError::UnknownMemberId))
            }
        };
        answer.map(|answer| (beat.member_id, answer)).map_err(refused)
    }

    /// The topics that a subscription means, among those that the caller may read.
    fn find_topics(&self, subscription: &Subscription, caller: &Caller) -> TopicSizes {
        let names = &caller.namespace;
        let named = subscription.names.iter().filter_map(|name| names.parse(name).ok());
        let mut found: TopicSizes = named
            .filter(|name| names.shows(name))
            .filter_map(|name| self.log.topic(&name))
            .map(|topic| (topic.id, topic.config.partitions))
            .collect();
        // It compiled when it came.
        if let Some(Ok(regex)) = subscription.regex.as_deref().map(whole_name) {
            let topics = self.log.topics();
            let matching = topics.iter().filter(|topic| names.shows(&topic.name));
            let matching = matching.filter(|topic| regex.is_match(&names.render(&topic.name)));
            found.extend(matching.map(|topic| (topic.id, topic.config.partitions)));
        }
        found
    }

    /// ConsumerGroupDescribe: groups whose members send ConsumerGroupHeartbeat.
    pub(crate) async fn describe_consumer_groups(
        &self,
        request: ConsumerGroupDescribeRequest,
        caller: &Caller,
    ) -> ConsumerGroupDescribeResponse {
        let operations = match request.include_authorized_operations {
            true => authorized_operations::of_group(caller.roles),
            false => NOT_ASKED,
        };
        let groups = request.group_ids.into_iter().map(|id| {
            let described = self.describe_consumer_group(&id, caller);
            let described = described.map(|described| described.with_authorized_operations(operations));
            let described = described.unwrap_or_else(|refusal| {
                DescribedGroup::default().with_error_code(refusal.code()).with_error_message(refusal.message())
            });
            described.with_group_id(id)
        });
        ConsumerGroupDescribeResponse::default().with_groups(groups.collect())
    }

    fn describe_consumer_group(&self, id: &GroupId, caller: &Caller) -> Result<DescribedGroup, ApiError> {
        let refused = |error| ApiError::new(error, format!("group '{}' cannot be described: {error}", id.as_str()));
        let name = caller.group(id).map_err(refused)?;
        // A copy: names are looked for outside the group's lock.
        let found = self.within(&name, |entry, _| match &entry.group {
            Group::Consumer(group) => Some(group.clone()),
            Group::Classic(_) => None,
        });
        let group = found.flatten().ok_or_else(|| {
            let why = format!("group '{}' has no members with the consumer protocol (KIP-848)", id.as_str());
            ApiError::new(ResponseError::GroupIdNotFound, why)
        })?;
        self.describe(&group, caller)
    }

    fn describe(&self, group: &ConsumerGroup, caller: &Caller) -> Result<DescribedGroup, ApiError> {
        let members: Result<Vec<_>, ApiError> =
            group.members().iter().map(|(id, member)| self.describe_member(id, member, caller)).collect();
        Ok(DescribedGroup::default()
            .with_group_state(text(group.state().name().to_owned()))
            .with_group_epoch(group.epoch())
            .with_assignment_epoch(group.assignment_epoch())
            .with_assignor_name(text(group.assignor().name().to_owned()))
            .with_members(members?))
    }

    fn describe_member(&self, id: &str, member: &ConsumerMember, caller: &Caller) -> Result<Member, ApiError> {
        let names = member.subscription.names.iter();
        names.clone().try_for_each(|name| check_name(name, caller))?;
        Ok(Member::default()
            .with_member_id(text(id.to_owned()))
            .with_instance_id(member.instance.clone().map(text))
            .with_rack_id(member.rack.clone().map(text))
            .with_member_epoch(member.epoch)
            .with_client_id(text(member.client_id.clone()))
            .with_client_host(text(member.client_host.clone()))
            .with_subscribed_topic_names(names.map(|name| WireTopic(text(name.clone()))).collect())
            .with_subscribed_topic_regex(member.subscription.regex.clone().map(text))
            .with_assignment(self.describe_partitions(&member.assigned, caller)?)
            .with_target_assignment(self.describe_partitions(&member.target, caller)?)
            .with_member_type(CONSUMER_MEMBER))
    }

    /// Topics that were deleted are left out.
    fn describe_partitions(&self, partitions: &PartitionSet, caller: &Caller) -> Result<DescribedAssignment, ApiError> {
        let mut topics = Vec::new();
        for (id, partitions) in by_topic(partitions) {
            let Some(topic) = self.log.topic_by_id(id) else { continue };
            let name = caller.namespace.render(&topic.name);
            if !caller.namespace.shows(&topic.name) {
                return Err(not_for(&name));
            }
            let described = DescribedPartitions::default()
                .with_topic_id(Uuid::from_u128(id.0))
                .with_topic_name(WireTopic(text(name)))
                .with_partitions(partitions);
            topics.push(described);
        }
        Ok(DescribedAssignment::default().with_topic_partitions(topics))
    }
}

/// Checks the request by itself, as Kafka does.
fn to_heartbeat(
    request: &ConsumerGroupHeartbeatRequest,
    version: i16,
    caller: &Caller,
) -> Result<ConsumerHeartbeat, ApiError> {
    let invalid = |why: String| Err(ApiError::new(ResponseError::InvalidRequest, why));
    let epoch = request.member_epoch;
    let is_joining = epoch == JOINING_EPOCH;
    let member_id = match request.member_id.as_str() {
        "" if version == 0 && is_joining => Uuid::new_v4().to_string(),
        id => id.to_owned(),
    };
    if member_id.is_empty() || member_id.len() > MEMBER_ID_MAX_BYTES {
        return invalid(format!("a member id of {} bytes; use 1 to {MEMBER_ID_MAX_BYTES}", member_id.len()));
    }
    if epoch < AWAY_EPOCH {
        return invalid(format!("member epoch {epoch}; the smallest is {AWAY_EPOCH}"));
    }
    if epoch == AWAY_EPOCH && request.instance_id.is_none() {
        return invalid(format!("member epoch {AWAY_EPOCH} without an instance id; use -1 to leave"));
    }
    let optional = [("instance id", &request.instance_id), ("rack id", &request.rack_id)];
    if let Some((what, _)) = optional.iter().find(|(_, value)| value.as_ref().is_some_and(|value| value.is_empty())) {
        return invalid(format!("an empty {what}; leave it out or give it a value"));
    }
    if is_joining && request.rebalance_timeout_ms < 0 {
        return invalid("a member that joins without a rebalance timeout; send one".to_owned());
    }
    if is_joining && request.topic_partitions.as_ref().is_none_or(|owned| !owned.is_empty()) {
        return invalid("a member that joins with partitions, or without saying that it has none".to_owned());
    }
    if is_joining && request.subscribed_topic_names.is_none() && request.subscribed_topic_regex.is_none() {
        return invalid("a member that joins without names of topics or a pattern; send one of them".to_owned());
    }
    let assignor = match request.server_assignor.as_deref() {
        None => None,
        Some(name) => Some(Assignor::named(name).ok_or_else(|| {
            let known = Assignor::ALL.map(Assignor::name).join(", ");
            let why = format!("assignor '{name}' does not exist; use one of {known}, or none");
            ApiError::new(ResponseError::UnsupportedAssignor, why)
        })?),
    };
    let names = request.subscribed_topic_names.as_ref();
    let names = names.map(|names| names.iter().map(|name| name.to_string()).collect::<BTreeSet<_>>());
    names.iter().flatten().try_for_each(|name| check_name(name, caller))?;
    let regex = request.subscribed_topic_regex.as_ref().map(|regex| regex.to_string());
    if let Some(regex) = &regex {
        whole_name(regex).map_err(|error| {
            ApiError::new(ResponseError::InvalidRegularExpression, format!("pattern '{regex}': {error}"))
        })?;
    }
    let owned = request.topic_partitions.as_ref().map(|owned| {
        let of_topic = |of: &kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions| {
            let topic = TopicId(of.topic_id.as_u128());
            let numbers: Vec<_> = of.partitions.iter().filter_map(|number| u32::try_from(*number).ok()).collect();
            numbers.into_iter().map(move |number| (topic, number))
        };
        owned.iter().flat_map(of_topic).collect()
    });
    Ok(ConsumerHeartbeat {
        member_id,
        epoch,
        instance: request.instance_id.as_ref().map(|instance| instance.to_string()),
        rack: request.rack_id.as_ref().map(|rack| rack.to_string()),
        client_id: caller.client_id.clone(),
        client_host: caller.client_host.clone(),
        rebalance_timeout: u64::try_from(request.rebalance_timeout_ms).ok().map(Duration::from_millis),
        names,
        regex,
        assignor,
        owned,
    })
}

/// Checks that the caller may use the topic, if it sees it.
fn check_name(name: &str, caller: &Caller) -> Result<(), ApiError> {
    let topic = caller.namespace.parse(name).ok();
    match topic.is_some_and(|topic| caller.namespace.sees(&topic) && !caller.namespace.admits(&topic)) {
        true => Err(not_for(name)),
        false => Ok(()),
    }
}

fn not_for(name: &str) -> ApiError {
    let why = format!("topic '{name}' is not among those that the API token is limited to");
    ApiError::new(ResponseError::TopicAuthorizationFailed, why)
}

/// The pattern, which has to match the whole name of a topic.
fn whole_name(pattern: &str) -> Result<Regex, regex::Error> {
    let build = |pattern: &str| RegexBuilder::new(pattern).size_limit(REGEX_MAX_BYTES).build();
    // By itself first: with an unmatched parenthesis it would be another pattern inside the parentheses.
    build(pattern)?;
    build(&format!("^(?:{pattern})$"))
}

/// The partitions' numbers by topic, in order.
fn by_topic(partitions: &PartitionSet) -> BTreeMap<TopicId, Vec<i32>> {
    let mut topics: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in partitions {
        topics.entry(*topic).or_default().push(partition.cast_signed());
    }
    topics
}

/// The refusal and its remedy in words.
fn why(error: ResponseError, group: &str, request: &ConsumerGroupHeartbeatRequest) -> String {
    let (member, epoch) = (request.member_id.as_str(), request.member_epoch);
    let instance = request.instance_id.as_deref().unwrap_or_default();
    match error {
        ResponseError::UnknownMemberId => {
            format!("group '{group}' has no member '{member}'; give up its partitions and join with epoch 0")
        }
        ResponseError::FencedMemberEpoch => {
            format!(
                "member '{member}' of group '{group}' has another epoch than {epoch}; give up its partitions and join with epoch 0"
            )
        }
        ResponseError::FencedInstanceId => {
            format!("instance '{instance}' of group '{group}' is another member than '{member}'")
        }
        ResponseError::UnreleasedInstanceId => {
            format!(
                "instance '{instance}' of group '{group}' is another member, which has not left; stop that one or use another instance id"
            )
        }
        ResponseError::GroupIdNotFound => {
            format!("group '{group}' has members with the classic protocol; use that one, or another group")
        }
        ResponseError::GroupMaxSizeReached => format!("group '{group}' has as many members as it may have"),
        ResponseError::InvalidRequest => {
            format!("the subscription of member '{member}' is too large; use a pattern or fewer topics")
        }
        ResponseError::PolicyViolation => {
            format!(
                "group '{group}' is one more than the tenant may have, and all are in use; delete groups or raise kafka.groups_per_tenant_max"
            )
        }
        error => format!("heartbeat of member '{member}' in group '{group}': {error}"),
    }
}
