//! Consumer groups over a socket, in every version that is served.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DescribeConfigsRequest, DescribeGroupsRequest, GroupId, HeartbeatRequest, IncrementalAlterConfigsRequest,
    JoinGroupRequest, LeaveGroupRequest, ListGroupsRequest, OffsetCommitRequest, OffsetFetchRequest, SyncGroupRequest,
    TopicName,
};
use kafka_protocol::protocol::StrBytes;
use millstream_kafka::KafkaConfig;
use millstream_log::TopicConfig;
use millstream_types::Compression;

use crate::client::{Fixture, batch};

/// MEMBER_ID_REQUIRED of the protocol.
const COME_BACK: i16 = 79;
/// ILLEGAL_GENERATION of the protocol.
const STALE: i16 = 22;

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

#[tokio::test]
async fn a_member_joins_commits_and_leaves_in_every_version() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut client = fixture.connect().await;
    client.produce("orders", -1, batch(&["a", "b"], Compression::None)).await;
    for version in 0..=9 {
        let group = GroupId(text(&format!("readers-{version}")));
        let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
        let mut join = JoinGroupRequest::default()
            .with_group_id(group.clone())
            .with_session_timeout_ms(60_000)
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol]);
        if version > 0 {
            join.rebalance_timeout_ms = 30_000;
        }
        let mut joined = client.ask(&join, version).await;
        if joined.error_code == COME_BACK {
            join.member_id = joined.member_id;
            joined = client.ask(&join, version).await;
        }
        assert_eq!((joined.error_code, &joined.leader), (0, &joined.member_id), "version {version}");
        let (member, generation) = (joined.member_id, joined.generation_id);

        let plan = SyncGroupRequestAssignment::default()
            .with_member_id(member.clone())
            .with_assignment(Bytes::from_static(b"orders"));
        let mut sync = SyncGroupRequest::default()
            .with_group_id(group.clone())
            .with_generation_id(generation)
            .with_member_id(member.clone())
            .with_assignments(vec![plan]);
        let sync_version = version.min(5);
        if sync_version == 5 {
            sync.protocol_type = Some(text("consumer"));
            sync.protocol_name = Some(text("range"));
        }
        assert_eq!(&client.ask(&sync, sync_version).await.assignment[..], b"orders");
        let beat = HeartbeatRequest::default().with_group_id(group.clone()).with_generation_id(generation);
        assert_eq!(client.ask(&beat.with_member_id(member.clone()), version.min(4)).await.error_code, 0);

        for (of, offset, code) in [(generation, 1, 0), (generation - 1, 2, STALE)] {
            let partition = OffsetCommitRequestPartition::default().with_committed_offset(offset);
            let topic = OffsetCommitRequestTopic::default().with_name(TopicName(text("orders")));
            let commit = OffsetCommitRequest::default()
                .with_group_id(group.clone())
                .with_generation_id_or_member_epoch(of)
                .with_member_id(member.clone())
                .with_topics(vec![topic.with_partitions(vec![partition])]);
            let answer = client.ask(&commit, version.max(2)).await;
            assert_eq!(answer.topics[0].partitions[0].error_code, code);
        }
        let wanted = OffsetFetchRequestTopic::default().with_name(TopicName(text("orders")));
        let fetch = OffsetFetchRequest::default()
            .with_group_id(group.clone())
            .with_topics(Some(vec![wanted.with_partition_indexes(vec![0])]));
        let fetched = client.ask(&fetch, version.clamp(1, 7)).await;
        assert_eq!(fetched.topics[0].partitions[0].committed_offset, 1);

        let describe = DescribeGroupsRequest::default().with_groups(vec![group.clone()]);
        let described = client.ask(&describe, version.min(6)).await;
        assert_eq!((&*described.groups[0].group_state, described.groups[0].members.len()), ("Stable", 1));
        let listed = client.ask(&ListGroupsRequest::default(), version.min(5)).await;
        assert_eq!(listed.groups.len(), version as usize + 1);
        let leave = LeaveGroupRequest::default().with_group_id(group).with_member_id(member);
        assert_eq!(client.ask(&leave, version.min(2)).await.error_code, 0);
    }
    drop(client);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_wait_for_a_rebalance_are_answered_when_the_listener_stops() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    let (mut first, mut second) = (fixture.connect().await, fixture.connect().await);
    let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
    let join = JoinGroupRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_session_timeout_ms(600_000)
        .with_rebalance_timeout_ms(600_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol]);
    assert_eq!(first.ask(&join, 3).await.error_code, 0);
    // The second one waits for the first, which does not join again.
    let waiting = second.send(&join, 3).await;
    let describe = DescribeGroupsRequest::default().with_groups(vec![GroupId(text("g"))]);
    while first.ask(&describe, 5).await.groups[0].group_state.as_str() != "PreparingRebalance" {}
    let stopping = tokio::spawn(fixture.serving.shut_down(Duration::from_secs(3600)));
    let told = second.receive::<JoinGroupRequest>(waiting, 3).await;
    assert_eq!(told.error_code, ResponseError::CoordinatorNotAvailable.code());
    assert_eq!(stopping.await.unwrap(), 0, "nobody had to be cut off");
    fixture.log.close().unwrap();
}

#[tokio::test]
async fn the_oldest_of_too_many_groups_gives_way_and_the_settings_are_told() {
    let config = KafkaConfig { groups_per_tenant_max: 3, offsets_retention_minutes: 90, ..KafkaConfig::default() };
    let fixture = Fixture::start(config).await;
    fixture.create("orders", &TopicConfig::default());
    let mut client = fixture.connect().await;
    for group in ["a", "b", "c", "d", "e"] {
        let partition = OffsetCommitRequestPartition::default();
        let topic = OffsetCommitRequestTopic::default().with_name(TopicName(text("orders")));
        let commit = OffsetCommitRequest::default()
            .with_group_id(GroupId(text(group)))
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic.with_partitions(vec![partition])]);
        assert_eq!(client.ask(&commit, 8).await.topics[0].partitions[0].error_code, 0, "{group}");
    }
    let listed = client.ask(&ListGroupsRequest::default(), 4).await.groups;
    assert_eq!(listed.len(), 3);
    assert!(listed.iter().any(|group| *group.group_id.0 == *"e"), "{listed:?}");
    let broker = DescribeConfigsResource::default().with_resource_type(4).with_resource_name(text("1"));
    let described = client.ask(&DescribeConfigsRequest::default().with_resources(vec![broker]), 4).await;
    let told = described.results[0].configs.iter().find(|config| *config.name == *"offsets.retention.minutes").unwrap();
    assert_eq!(told.value.as_deref(), Some("90"));
    drop(client);
    fixture.stop().await;
}

#[tokio::test]
async fn a_group_has_no_settings_and_those_of_the_broker_are_not_altered_by_clients() {
    const GROUP: i8 = 32;
    const BROKER: i8 = 4;
    let fixture = Fixture::start(KafkaConfig::default()).await;
    let mut client = fixture.connect().await;
    let group = DescribeConfigsResource::default().with_resource_type(GROUP).with_resource_name(text("readers"));
    let described = client.ask(&DescribeConfigsRequest::default().with_resources(vec![group]), 4).await;
    assert_eq!((described.results[0].error_code, described.results[0].configs.len()), (0, 0));
    for (kind, name, setting) in [(GROUP, "readers", "consumer.session.timeout.ms"), (BROKER, "1", "log.retention.ms")]
    {
        let change = AlterableConfig::default().with_name(text(setting)).with_value(Some(text("1")));
        let resource = AlterConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_configs(vec![change]);
        let answer = client.ask(&IncrementalAlterConfigsRequest::default().with_resources(vec![resource]), 1).await;
        assert_eq!(answer.responses[0].error_code, ResponseError::InvalidRequest.code());
        let why = answer.responses[0].error_message.as_deref().unwrap();
        assert!(why.contains("Millstream's configuration"), "{why}");
    }
    drop(client);
    fixture.stop().await;
}
