//! Groups with the protocol of KIP-848 over a socket.

use kafka_protocol::ResponseError as E;
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, DeleteGroupsRequest,
    DescribeConfigsRequest, DescribeGroupsRequest, GroupId, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest,
    ListGroupsRequest, OffsetCommitRequest, OffsetFetchRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use millstream_kafka::KafkaConfig;
use millstream_log::TopicConfig;

use crate::client::{Client, Fixture};
use crate::login::Guarded;

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

fn group() -> GroupId {
    GroupId(text("readers"))
}

/// The first heartbeat of a member that reads `orders`.
fn first(id: &str) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group())
        .with_member_id(text(id))
        .with_rebalance_timeout_ms(60_000)
        .with_subscribed_topic_names(Some(vec![TopicName(text("orders"))]))
        .with_topic_partitions(Some(Vec::new()))
}

fn beat(id: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default().with_group_id(group()).with_member_id(text(id)).with_member_epoch(epoch)
}

/// The assigned partitions, as a request names those that a member has.
fn assigned(answer: &ConsumerGroupHeartbeatResponse) -> Vec<TopicPartitions> {
    let topics = &answer.assignment.as_ref().unwrap().topic_partitions;
    let own = topics.iter().map(|topic| {
        TopicPartitions::default().with_topic_id(topic.topic_id).with_partitions(topic.partitions.clone())
    });
    own.collect()
}

fn count(owned: &[TopicPartitions]) -> usize {
    owned.iter().map(|topic| topic.partitions.len()).sum()
}

async fn ok(client: &mut Client, request: &ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse {
    let answer = client.ask(request, 1).await;
    assert_eq!(answer.error_code, 0, "{:?} to {request:?}", answer.error_message);
    let is_member = request.member_epoch >= 0;
    assert_eq!(answer.heartbeat_interval_ms, if is_member { 5_000 } else { 0 });
    answer
}

async fn refused(client: &mut Client, request: &ConsumerGroupHeartbeatRequest) -> E {
    let answer = client.ask(request, 1).await;
    assert!(answer.error_message.is_some_and(|why| !why.is_empty()));
    E::try_from_code(answer.error_code).unwrap()
}

async fn commit(client: &mut Client, member: (&str, i32), offset: i64, version: i16) -> i16 {
    let partition = OffsetCommitRequestPartition::default().with_committed_offset(offset);
    let topic =
        OffsetCommitRequestTopic::default().with_name(TopicName(text("orders"))).with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(group())
        .with_member_id(text(member.0))
        .with_generation_id_or_member_epoch(member.1)
        .with_topics(vec![topic]);
    client.ask(&request, version).await.topics[0].partitions[0].error_code
}

/// The error code of the group, or the position of partition 0.
async fn position(client: &mut Client, member: Option<(&str, i32)>) -> Result<i64, i16> {
    let topic =
        OffsetFetchRequestTopics::default().with_name(TopicName(text("orders"))).with_partition_indexes(vec![0]);
    let mut wanted = OffsetFetchRequestGroup::default().with_group_id(group()).with_topics(Some(vec![topic]));
    if let Some((id, epoch)) = member {
        wanted = wanted.with_member_id(Some(text(id))).with_member_epoch(epoch);
    }
    let answer = client.ask(&OffsetFetchRequest::default().with_groups(vec![wanted]), 9).await;
    let group = &answer.groups[0];
    match group.error_code {
        0 => Ok(group.topics[0].partitions[0].committed_offset),
        code => Err(code),
    }
}

async fn with_orders(config: KafkaConfig) -> Fixture {
    let fixture = Fixture::start(config).await;
    fixture.create("orders", &TopicConfig { partitions: 4, ..TopicConfig::default() });
    fixture
}

#[tokio::test]
async fn members_join_share_commit_and_leave() {
    let fixture = with_orders(KafkaConfig::default()).await;
    let (mut a, mut b) = (fixture.connect().await, fixture.connect().await);
    let joined = ok(&mut a, &first("a")).await;
    assert_eq!((joined.member_id.as_deref(), joined.member_epoch), (Some("a"), 1));
    let all = assigned(&joined);
    assert_eq!((all.len(), count(&all)), (1, 4));
    assert_eq!(ok(&mut a, &beat("a", 1)).await.assignment, None);

    assert_eq!(count(&assigned(&ok(&mut b, &first("b")).await)), 0);
    let told = ok(&mut a, &beat("a", 1)).await;
    assert_eq!((told.member_epoch, count(&assigned(&told))), (1, 2));
    assert_eq!(ok(&mut b, &beat("b", 2)).await.assignment, None, "they have not been given up");
    let given_up = beat("a", 1).with_topic_partitions(Some(assigned(&told)));
    assert_eq!(ok(&mut a, &given_up).await.member_epoch, 2);
    let got = assigned(&ok(&mut b, &beat("b", 2)).await);
    assert_eq!(count(&got), 2);
    assert!(got[0].partitions.iter().all(|partition| !assigned(&told)[0].partitions.contains(partition)));

    assert_eq!(commit(&mut a, ("a", 2), 0, 9).await, 0);
    assert_eq!(commit(&mut a, ("a", 1), 0, 9).await, E::StaleMemberEpoch.code());
    assert_eq!(commit(&mut a, ("c", 2), 0, 9).await, E::UnknownMemberId.code());
    assert_eq!(commit(&mut a, ("", -1), 0, 9).await, E::UnknownMemberId.code(), "the group has members");
    assert_eq!(commit(&mut a, ("a", 2), 0, 8).await, E::UnsupportedVersion.code(), "it knows no epochs");
    assert_eq!(position(&mut a, Some(("a", 2))).await, Ok(0));
    assert_eq!(position(&mut a, None).await, Ok(0), "everybody may ask");
    assert_eq!(position(&mut a, Some(("a", 1))).await, Err(E::StaleMemberEpoch.code()));
    assert_eq!(position(&mut a, Some(("c", 2))).await, Err(E::UnknownMemberId.code()));

    assert_eq!(ok(&mut b, &beat("b", -1)).await.member_epoch, -1);
    assert_eq!(count(&assigned(&ok(&mut a, &beat("a", 2)).await)), 4);
    assert_eq!(refused(&mut b, &beat("b", 2)).await, E::UnknownMemberId);
    drop((a, b));
    fixture.stop().await;
}

#[tokio::test]
async fn a_static_member_keeps_its_place_and_fences_others() {
    let fixture = with_orders(KafkaConfig::default()).await;
    let mut client = fixture.connect().await;
    let named = |beat: ConsumerGroupHeartbeatRequest| beat.with_instance_id(Some(text("one")));
    let joined = ok(&mut client, &named(first("a"))).await;
    assert_eq!(refused(&mut client, &named(first("b"))).await, E::UnreleasedInstanceId);
    assert_eq!(refused(&mut client, &named(beat("b", 1))).await, E::FencedInstanceId);
    assert_eq!(refused(&mut client, &beat("a", -2)).await, E::InvalidRequest, "it is away without a name");
    assert_eq!(refused(&mut client, &beat("a", 7)).await, E::FencedMemberEpoch);
    assert_eq!(ok(&mut client, &named(beat("a", -2))).await.member_epoch, -2);
    ok(&mut client, &first("c")).await;
    assert_eq!(ok(&mut client, &beat("c", 2)).await.assignment, None, "they are kept for it");
    let back = ok(&mut client, &named(first("b"))).await;
    assert_eq!(count(&assigned(&back)), 2, "it has its part of what it had");
    assert_eq!(count(&assigned(&joined)), 4);
    assert_eq!(refused(&mut client, &beat("a", 1)).await, E::UnknownMemberId);
    drop(client);
    fixture.stop().await;
}

#[tokio::test]
async fn topics_are_found_by_pattern_and_mistakes_are_named() {
    let fixture = with_orders(KafkaConfig::default()).await;
    fixture.create("orders-eu", &TopicConfig { partitions: 1, ..TopicConfig::default() });
    let mut client = fixture.connect().await;
    let by =
        |pattern: &str| first("a").with_subscribed_topic_names(None).with_subscribed_topic_regex(Some(text(pattern)));
    assert_eq!(count(&assigned(&ok(&mut client, &by("orders|x.*")).await)), 4, "the whole name has to match");
    assert_eq!(count(&assigned(&ok(&mut client, &by("orders.*")).await)), 5);
    assert_eq!(refused(&mut client, &by("orders(")).await, E::InvalidRegularExpression);
    assert_eq!(refused(&mut client, &by("a)|(b")).await, E::InvalidRegularExpression);
    assert_eq!(refused(&mut client, &by("(a{500}){500}")).await, E::InvalidRegularExpression, "too large");
    let strange = first("a").with_server_assignor(Some(text("sticky")));
    assert_eq!(refused(&mut client, &strange).await, E::UnsupportedAssignor);
    ok(&mut client, &first("a").with_server_assignor(Some(text("range")))).await;
    for wrong in [
        first(""),
        first(&"m".repeat(513)),
        first("a").with_topic_partitions(None),
        first("a").with_rebalance_timeout_ms(-1),
        first("a").with_subscribed_topic_names(None),
        first("a").with_instance_id(Some(text(""))),
        first("a").with_rack_id(Some(text(""))),
        beat("a", -3),
    ] {
        assert_eq!(refused(&mut client, &wrong).await, E::InvalidRequest, "{wrong:?}");
    }
    assert_eq!(refused(&mut client, &first("a").with_group_id(GroupId::default())).await, E::InvalidRequest);
    let long = GroupId(text(&"g".repeat(256)));
    assert_eq!(refused(&mut client, &first("a").with_group_id(long)).await, E::InvalidGroupId);
    let given = client.ask(&first("").with_group_id(GroupId(text("other"))), 0).await;
    assert_eq!((given.error_code, given.member_id.map(|id| id.len())), (0, Some(36)), "version 0 may ask for an id");
    drop(client);
    fixture.stop().await;
}

#[tokio::test]
async fn a_group_has_one_protocol_and_takes_another_when_it_is_empty() {
    let fixture = with_orders(KafkaConfig::default()).await;
    let mut client = fixture.connect().await;
    let classic = JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(60_000)
        .with_rebalance_timeout_ms(60_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![JoinGroupRequestProtocol::default().with_name(text("range"))]);
    let described = async |client: &mut Client| {
        let request = DescribeGroupsRequest::default().with_groups(vec![group()]);
        let plain = client.ask(&request, 6).await.groups.remove(0);
        let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group()]);
        let consumer = client.ask(&request, 1).await.groups.remove(0);
        let listed = client.ask(&ListGroupsRequest::default(), 5).await.groups.remove(0);
        let types = [text("consumer")];
        let of_type = ListGroupsRequest::default().with_types_filter(types.to_vec());
        let is_found = !client.ask(&of_type, 5).await.groups.is_empty();
        assert_eq!(is_found, *listed.group_type == *"consumer");
        (plain, consumer, (listed.group_type.to_string(), listed.group_state.to_string()))
    };
    let named = |(group_type, state): (&str, &str)| (group_type.to_owned(), state.to_owned());
    let missing = E::GroupIdNotFound.code();

    ok(&mut client, &first("a")).await;
    assert_eq!(client.ask(&classic, 3).await.error_code, E::InconsistentGroupProtocol.code());
    let classic_beat = HeartbeatRequest::default().with_group_id(group()).with_member_id(text("a"));
    // It may be from before the start, and is to join again.
    assert_eq!(client.ask(&classic_beat, 4).await.error_code, E::RebalanceInProgress.code());
    let (plain, consumer, listed) = described(&mut client).await;
    assert_eq!((plain.error_code, &*plain.group_state), (missing, "Dead"));
    assert_eq!((consumer.error_code, &*consumer.group_state, consumer.group_epoch), (0, "Stable", 1));
    let member = &consumer.members[0];
    assert_eq!((&*member.member_id, member.member_epoch, member.member_type), ("a", 1, 1));
    assert_eq!(member.assignment.topic_partitions[0].topic_name, TopicName(text("orders")));
    assert_eq!(member.assignment.topic_partitions[0].partitions, [0, 1, 2, 3]);
    assert_eq!(member.assignment, member.target_assignment);
    assert_eq!((&*consumer.assignor_name, &*member.client_host), ("uniform", "127.0.0.1"));
    assert_eq!(listed, named(("consumer", "Stable")));
    let delete = DeleteGroupsRequest::default().with_groups_names(vec![group()]);
    assert_eq!(client.ask(&delete, 2).await.results[0].error_code, E::NonEmptyGroup.code());

    ok(&mut client, &beat("a", -1)).await;
    assert_eq!(described(&mut client).await.2, named(("consumer", "Empty")));
    assert_eq!(commit(&mut client, ("", -1), 0, 8).await, 0, "nobody is a member");
    let joined = client.ask(&classic, 3).await;
    assert_eq!(joined.error_code, 0);
    assert_eq!(refused(&mut client, &first("a")).await, E::GroupIdNotFound);
    assert_eq!(refused(&mut client, &beat("a", 1)).await, E::GroupIdNotFound);
    let (plain, consumer, listed) = described(&mut client).await;
    assert_eq!((plain.error_code, consumer.error_code), (0, missing));
    assert_eq!(listed, named(("classic", "CompletingRebalance")));

    let leave = LeaveGroupRequest::default().with_group_id(group()).with_member_id(joined.member_id);
    assert_eq!(client.ask(&leave, 2).await.error_code, 0);
    ok(&mut client, &first("a")).await;
    assert_eq!(position(&mut client, None).await, Ok(0), "its positions are those of the group");
    ok(&mut client, &beat("a", -1)).await;
    assert_eq!(client.ask(&delete, 2).await.results[0].error_code, 0);
    assert_eq!(refused(&mut client, &beat("a", 1)).await, E::UnknownMemberId);
    drop(client);
    fixture.stop().await;
}

#[tokio::test]
async fn a_silent_member_is_removed_and_after_a_restart_all_join_again() {
    let config = KafkaConfig {
        group_consumer_session_timeout_ms: 300,
        group_consumer_heartbeat_interval_ms: 100,
        ..KafkaConfig::default()
    };
    let fixture = with_orders(config.clone()).await;
    let mut client = fixture.connect().await;
    assert_eq!(client.ask(&first("a"), 1).await.heartbeat_interval_ms, 100);
    let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group()]);
    while *client.ask(&request, 1).await.groups[0].group_state != *"Empty" {
        tokio::task::yield_now().await;
    }
    assert_eq!(client.ask(&beat("a", 1), 1).await.error_code, E::UnknownMemberId.code());
    let broker = DescribeConfigsResource::default().with_resource_type(4).with_resource_name(text("1"));
    let told = client.ask(&DescribeConfigsRequest::default().with_resources(vec![broker]), 4).await;
    let value = |name: &str| {
        let found = told.results[0].configs.iter().find(|config| *config.name == *name).unwrap();
        found.value.as_deref().unwrap().to_owned()
    };
    assert_eq!(value("group.consumer.session.timeout.ms"), "300");
    assert_eq!(value("group.consumer.heartbeat.interval.ms"), "100");
    assert_eq!(value("group.consumer.assignors"), "uniform,range");
    drop(client);

    let fixture = fixture.restart(KafkaConfig::default()).await;
    let mut client = fixture.connect().await;
    let joined = ok(&mut client, &first("a")).await;
    drop(client);
    let fixture = fixture.restart(KafkaConfig::default()).await;
    let mut client = fixture.connect().await;
    assert_eq!(commit(&mut client, ("a", joined.member_epoch), 0, 9).await, 0, "what it has read counts");
    assert_eq!(refused(&mut client, &beat("a", joined.member_epoch)).await, E::UnknownMemberId);
    assert_eq!(count(&assigned(&ok(&mut client, &first("a")).await)), 4);
    assert_eq!(position(&mut client, Some(("a", 1))).await, Ok(0));
    assert_eq!(commit(&mut client, ("b", 1), 0, 9).await, E::UnknownMemberId.code());
    drop(client);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_assigned_a_topic_that_it_may_not_use() {
    let guarded = Guarded::start().await;
    let mut limited = guarded.log_in("limited").await;
    let elsewhere = || Some(vec![TopicName(text("elsewhere"))]);
    let named = first("a").with_subscribed_topic_names(elsewhere());
    assert_eq!(refused(&mut limited, &named).await, E::TopicAuthorizationFailed);
    let all = first("a").with_subscribed_topic_names(None).with_subscribed_topic_regex(Some(text(".*")));
    assert_eq!(assigned(&ok(&mut limited, &all).await).len(), 1, "it sees one topic");
    let mut operator = guarded.log_in("operator").await;
    let other = first("b").with_subscribed_topic_names(elsewhere());
    assert_eq!(assigned(&ok(&mut operator, &other).await).len(), 1);
    assert_eq!(ok(&mut limited, &beat("a", 1)).await.assignment, None);
    let describe = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group()]);
    let hidden = limited.ask(&describe, 1).await.groups.remove(0);
    assert_eq!((hidden.error_code, hidden.members.len()), (E::TopicAuthorizationFailed.code(), 0));
    assert_eq!(operator.ask(&describe, 1).await.groups[0].members.len(), 2);
    let mut acme = guarded.log_in("acme").await;
    assert_eq!(acme.ask(&describe, 1).await.groups[0].error_code, E::GroupIdNotFound.code());
    assert_eq!(refused(&mut acme, &beat("a", 1)).await, E::UnknownMemberId);
    guarded.stop().await;
}
