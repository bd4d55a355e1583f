//! How many groups there may be, and which of them gives way to a new one.

use std::collections::HashSet;
use std::sync::Arc;

use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::{
    ConsumerGroupHeartbeatRequest, DeleteGroupsRequest, GroupId, OffsetCommitRequest, OffsetDeleteRequest,
    OffsetFetchRequest, TopicName as WireTopic,
};
use millstream_log::KafkaLog;

use super::coordinator::{TestNode, caller, text};
use super::*;
use crate::group::GroupCoordinator;
use ResponseError as E;

impl TestNode {
    /// The same log with other limits.
    fn limited(self, groups_max: usize, groups_per_tenant_max: usize) -> Self {
        let config = GroupConfig { groups_max, groups_per_tenant_max, ..config() };
        let clock = self.clock.clone();
        Self { coordinator: GroupCoordinator::new(self.log.clone(), config, clock.clone(), clock), ..self }
    }

    fn restart_limited(self, groups_max: usize, groups_per_tenant_max: usize) -> Self {
        self.log.close().unwrap();
        Self::with(config(), self.files.clone(), self.clock.clone()).limited(groups_max, groups_per_tenant_max)
    }

    /// Commits as a client that is no member, a second later than the last one.
    async fn commit_alone(&self, tenant: &str, group: &str) -> i16 {
        self.commit_alone_in("orders", tenant, group).await
    }

    async fn commit_alone_in(&self, topic: &str, tenant: &str, group: &str) -> i16 {
        self.clock.advance(Duration::from_secs(1));
        let wanted = OffsetCommitRequestPartition::default().with_committed_offset(1);
        let topic = OffsetCommitRequestTopic::default().with_name(WireTopic(text(topic)));
        let request = OffsetCommitRequest::default()
            .with_group_id(GroupId(text(group)))
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic.with_partitions(vec![wanted])]);
        let response = self.coordinator.offset_commit(request, 9, &caller(tenant)).await;
        response.topics[0].partitions[0].error_code
    }

    /// The groups of `default` that have a position.
    fn stored(&self) -> Vec<String> {
        let groups = self.log.groups().into_iter();
        groups.map(|group| group.name.strip_prefix("default/").unwrap().to_owned()).collect()
    }

    async fn has_position(&self, group: &str) -> bool {
        let group = OffsetFetchRequestGroup::default().with_group_id(GroupId(text(group))).with_topics(None);
        let request = OffsetFetchRequest::default().with_groups(vec![group]);
        let answer = self.coordinator.offset_fetch(request, 8, &caller("default"), &|_| HashSet::new()).await;
        !answer.groups[0].topics.is_empty()
    }

    async fn delete_named(&self, group: &str) -> i16 {
        let request = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(text(group))]);
        self.coordinator.delete_groups(request, &caller("default")).await.results[0].error_code
    }
}

#[tokio::test]
async fn the_group_that_nobody_has_used_for_longest_gives_way_with_its_positions() {
    let node = TestNode::start().limited(100, 3);
    for group in ["a", "b", "c", "a"] {
        assert_eq!(node.commit_alone("default", group).await, 0);
    }
    let unknown = E::UnknownTopicOrPartition.code();
    assert_eq!(node.commit_alone_in("nowhere", "default", "d").await, unknown);
    assert_eq!(node.stored(), ["a", "b", "c"], "for a refused commit none gives way");
    assert_eq!(node.commit_alone("default", "d").await, 0);
    assert_eq!(node.stored(), ["a", "c", "d"], "a has committed since");
    assert!(!node.has_position("b").await && node.has_position("d").await);
    assert_eq!(node.commit_alone("default", "b").await, 0, "it begins anew");
    assert_eq!(node.stored(), ["a", "b", "d"]);
    let node = node.restart_limited(100, 3);
    assert_eq!(node.stored(), ["a", "b", "d"], "nothing comes back");
}

#[tokio::test]
async fn groups_from_before_a_start_count_and_give_way_by_their_last_commit() {
    let node = TestNode::start();
    for group in ["c", "b", "a"] {
        assert_eq!(node.commit_alone("default", group).await, 0);
    }
    let node = node.restart_limited(100, 3);
    assert_eq!(node.commit_alone("default", "new").await, 0);
    assert_eq!(node.stored(), ["a", "b", "new"]);
    assert_eq!(node.delete_named("a").await, 0);
    assert_eq!(node.delete_named("a").await, E::GroupIdNotFound.code());
    assert_eq!(node.commit_alone("default", "newer").await, 0);
    assert_eq!(node.stored(), ["b", "new", "newer"], "a deleted group leaves its place");
}

#[tokio::test]
async fn a_group_with_members_never_gives_way() {
    let node = TestNode::start().limited(100, 1);
    let (member, generation) = node.member("default").await;
    assert_eq!(node.commit_alone("default", "late").await, E::PolicyViolation.code());
    assert_eq!(node.stored(), [] as [&str; 0]);
    let beat = kafka_protocol::messages::HeartbeatRequest::default()
        .with_group_id(GroupId(text("readers")))
        .with_member_id(member.clone())
        .with_generation_id(generation);
    assert_eq!(node.coordinator.heartbeat(beat, &caller("default")).await.error_code, 0);
    assert_eq!(node.leave(&member).await, 0);
    assert_eq!(node.commit_alone("default", "late").await, 0);
    assert_eq!(node.join("", "default").await.error_code, E::MemberIdRequired.code());
    assert_eq!(node.stored(), [] as [&str; 0], "the one that joins has taken its place");
    assert_eq!(node.commit_alone("default", "later").await, E::PolicyViolation.code(), "it is about to join");
}

#[tokio::test]
async fn no_tenant_takes_all_groups_of_the_server() {
    let node = TestNode::start().limited(4, 4);
    for group in ["a", "b", "c"] {
        assert_eq!(node.commit_alone("default", group).await, 0);
    }
    assert_eq!(node.stored(), ["b", "c"], "alone it has half");
    let asked = E::MemberIdRequired.code();
    assert_eq!(node.join("", "acme").await.error_code, asked);
    assert_eq!(node.join("", "third").await.error_code, asked);
    assert_eq!(node.join("", "fourth").await.error_code, E::PolicyViolation.code(), "there are four");
    assert_eq!(node.stored(), ["b", "c"], "no other tenant's group gives way");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_groups_that_begin_at_once_never_exceed_the_limit() {
    const LIMIT: usize = 8;
    let node = Arc::new(TestNode::start().limited(100, LIMIT));
    let mut begun = tokio::task::JoinSet::new();
    for number in 0..200 {
        let node = node.clone();
        begun.spawn(async move {
            let code = node.commit_alone("default", &format!("group-{number}")).await;
            (code, node.log.groups().len())
        });
    }
    while let Some(answer) = begun.join_next().await {
        let (code, groups) = answer.unwrap();
        assert!([0, E::CoordinatorLoadInProgress.code()].contains(&code), "{code}");
        assert!(groups <= LIMIT, "{groups}");
    }
    assert_eq!(node.commit_alone("default", "last").await, 0);
    assert!(node.stored().contains(&"last".to_owned()));
}

#[tokio::test]
async fn positions_that_cannot_be_forgotten_stay_with_their_group() {
    let node = TestNode::start().limited(100, 1);
    assert_eq!(node.commit_alone("default", "a").await, 0);
    node.log.close().unwrap();
    assert_eq!(node.commit_alone("default", "b").await, E::CoordinatorNotAvailable.code());
    let node = node.restart_limited(100, 1);
    assert_eq!(node.stored(), ["a"]);
    assert!(node.has_position("a").await);
}

#[tokio::test]
async fn a_group_with_the_consumer_protocol_counts_and_gives_way_when_it_is_empty() {
    let node = TestNode::start().limited(100, 2);
    let beat = async |group: &str, epoch: i32, pattern: Option<&str>| {
        let request = ConsumerGroupHeartbeatRequest::default()
            .with_group_id(GroupId(text(group)))
            .with_member_id(text("member"))
            .with_member_epoch(epoch)
            .with_rebalance_timeout_ms(10_000)
            .with_subscribed_topic_names(Some(vec![WireTopic(text("orders"))]))
            .with_subscribed_topic_regex(pattern.map(text))
            .with_topic_partitions(Some(Vec::new()));
        node.coordinator.consumer_group_heartbeat(request, 1, &caller("default")).await.error_code
    };
    let delete = async |group: &str, topic: &str| {
        let partition = OffsetDeleteRequestPartition::default();
        let topic = OffsetDeleteRequestTopic::default().with_name(WireTopic(text(topic)));
        let request = OffsetDeleteRequest::default()
            .with_group_id(GroupId(text(group)))
            .with_topics(vec![topic.with_partitions(vec![partition])]);
        node.coordinator.offset_delete(request, &caller("default")).await.topics[0].partitions[0].error_code
    };
    assert_eq!(node.commit_alone("default", "a").await, 0);
    assert_eq!((beat("a", 0, None).await, beat("b", 0, None).await), (0, 0));
    assert_eq!(beat("c", 0, None).await, E::PolicyViolation.code(), "both have members");
    assert_eq!(delete("a", "orders").await, E::GroupSubscribedToTopic.code());
    assert_eq!(delete("a", "elsewhere").await, E::UnknownTopicOrPartition.code(), "nobody reads it");
    assert_eq!(beat("a", 1, Some("x.*")).await, 0);
    assert_eq!(delete("a", "elsewhere").await, E::GroupSubscribedToTopic.code(), "a pattern may mean any");
    assert_eq!(node.stored(), ["a"]);
    assert_eq!(beat("a", -1, None).await, 0);
    assert_eq!(beat("c", 0, None).await, 0);
    assert_eq!(node.stored(), [] as [&str; 0], "its positions have gone with it");
    assert_eq!(beat("a", 1, None).await, E::UnknownMemberId.code());
}
