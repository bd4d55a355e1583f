//! The coordinator on the embedded engine, request by request.

use std::collections::HashSet;
use std::sync::Arc;

use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, ListGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
    SyncGroupRequest, TopicName as WireTopic,
};
use kafka_protocol::protocol::StrBytes;
use millstream_log::{AckLevel, Embedded, Log, LogConfig, LogFigures, TopicConfig};
use millstream_testkit::conformance::append_and_wait;
use millstream_testkit::sim::{PowerLoss, SimFiles};
use millstream_types::{ManualClock, Record, Roles, TenantId, TopicName, TopicPartition};

use super::*;
use crate::group::{Caller, GroupCoordinator};
use ResponseError as E;

pub(super) struct TestNode {
    pub(super) log: Arc<Embedded>,
    pub(super) coordinator: Arc<GroupCoordinator>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) files: SimFiles,
}

fn orders() -> TopicName {
    TopicName::user("orders", &TenantId::default()).unwrap()
}

pub(super) fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

pub(super) fn caller(tenant: &str) -> Caller {
    let (client_id, client_host) = ("client".to_owned(), "127.0.0.1".to_owned());
    Caller {
        namespace: crate::namespace::Namespace::new("").of(&TenantId::new(tenant).unwrap(), false),
        roles: Roles::APPLICATION,
        client_id,
        client_host,
    }
}

impl TestNode {
    fn on(files: SimFiles, clock: Arc<ManualClock>) -> Self {
        Self::with(config(), files, clock)
    }

    /// After a restart for so long members from before it may go on.
    fn restart_within(self, return_window: Duration) -> Self {
        self.log.close().unwrap();
        Self::with(GroupConfig { return_window, ..config() }, self.files.clone(), self.clock.clone())
    }

    pub(super) fn with(config: GroupConfig, files: SimFiles, clock: Arc<ManualClock>) -> Self {
        let log_config = LogConfig { dir: "/log".into(), ..LogConfig::default() };
        let log = Embedded::open(log_config, Arc::new(files.clone()), clock.clone(), clock.clone()).unwrap();
        let coordinator = GroupCoordinator::new(log.clone(), config, clock.clone(), clock.clone());
        Self { log, coordinator, clock, files }
    }

    /// With a topic `orders` of the default tenant that has three records in its partition 0.
    pub(super) fn start() -> Self {
        let node = Self::on(SimFiles::new(), Arc::new(ManualClock::at(1_700_000_000_000)));
        let name = TopicName::user("orders", &TenantId::default()).unwrap();
        node.log.create_topic(&name, &TopicConfig { partitions: 2, ..TopicConfig::default() }).unwrap();
        let partition = node.log.partition(&TopicPartition::new(name, 0)).unwrap();
        let record = Record { value: Some(b"x"), ..Record::default() };
        append_and_wait(&*partition, &[record; 3], AckLevel::Synced).unwrap();
        node
    }

    /// Appends to a partition of `orders`; the offset.
    fn append(&self, partition: u32) -> i64 {
        let partition = self.log.partition(&TopicPartition::new(orders(), partition)).unwrap();
        let record = Record { value: Some(b"x"), ..Record::default() };
        append_and_wait(&*partition, &[record], AckLevel::Synced).unwrap().first.0.cast_signed()
    }

    fn crash(self) -> Self {
        let files = self.files.crash(1, PowerLoss::DropAll);
        drop(self.log.close());
        Self::on(files, self.clock.clone())
    }

    fn restart(self) -> Self {
        self.log.close().unwrap();
        Self::on(self.files.clone(), self.clock.clone())
    }

    pub(super) async fn join(&self, member_id: &str, tenant: &str) -> JoinGroupResponse {
        let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
        let request = JoinGroupRequest::default()
            .with_group_id(GroupId(text("readers")))
            .with_session_timeout_ms(10_000)
            .with_rebalance_timeout_ms(30_000)
            .with_member_id(text(member_id))
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol]);
        self.coordinator.join_group(request, 9, &caller(tenant)).await
    }

    /// The only member of the group `readers`, with an assignment.
    pub(super) async fn member(&self, tenant: &str) -> (StrBytes, i32) {
        let first = self.join("", tenant).await;
        assert_eq!(first.error_code, E::MemberIdRequired.code());
        let joined = self.join(&first.member_id, tenant).await;
        assert_eq!((joined.error_code, &joined.leader), (0, &joined.member_id));
        let assignment = SyncGroupRequestAssignment::default()
            .with_member_id(joined.member_id.clone())
            .with_assignment(Bytes::from_static(b"orders 0"));
        let request = SyncGroupRequest::default()
            .with_group_id(GroupId(text("readers")))
            .with_generation_id(joined.generation_id)
            .with_member_id(joined.member_id.clone())
            .with_assignments(vec![assignment]);
        let synced = self.coordinator.sync_group(request, &caller(tenant)).await;
        assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"orders 0"[..]));
        (joined.member_id, joined.generation_id)
    }

    async fn commit(&self, member: (&str, i32), partition: i32, offset: i64, metadata: &str) -> i16 {
        let wanted = OffsetCommitRequestPartition::default()
            .with_partition_index(partition)
            .with_committed_offset(offset)
            .with_committed_metadata(Some(text(metadata)));
        self.commit_position(member, wanted).await
    }

    async fn commit_position(&self, member: (&str, i32), wanted: OffsetCommitRequestPartition) -> i16 {
        let topic =
            OffsetCommitRequestTopic::default().with_name(WireTopic(text("orders"))).with_partitions(vec![wanted]);
        let request = OffsetCommitRequest::default()
            .with_group_id(GroupId(text("readers")))
            .with_member_id(text(member.0))
            .with_generation_id_or_member_epoch(member.1)
            .with_topics(vec![topic]);
        let response = self.coordinator.offset_commit(request, 9, &caller("default")).await;
        response.topics[0].partitions[0].error_code
    }

    /// Offset and metadata by partition; of all partitions that have any, or of those named.
    async fn fetch(&self, tenant: &str, partitions: Option<Vec<i32>>) -> Vec<(i32, i64, String)> {
        let topics = partitions.map(|numbers| {
            vec![
                OffsetFetchRequestTopics::default()
                    .with_name(WireTopic(text("orders")))
                    .with_partition_indexes(numbers),
            ]
        });
        let group = OffsetFetchRequestGroup::default().with_group_id(GroupId(text("readers"))).with_topics(topics);
        let request = OffsetFetchRequest::default().with_groups(vec![group]);
        let response = self.coordinator.offset_fetch(request, 8, &caller(tenant), &|_| HashSet::new()).await;
        assert_eq!(response.groups[0].error_code, 0);
        let partitions = response.groups[0].topics.iter().flat_map(|topic| &topic.partitions);
        let found = partitions.map(|of| {
            assert_eq!(of.error_code, 0);
            let is_record = (0..1 << 32).contains(&of.committed_offset) && of.committed_offset != 99;
            assert_eq!(of.committed_leader_epoch >= 0, is_record, "{of:?}");
            (of.partition_index, of.committed_offset, of.metadata.as_deref().unwrap_or("none").to_owned())
        });
        found.collect()
    }

    /// The offset and epoch that `readers` get for partition 0.
    async fn epoch(&self) -> (i64, i32) {
        let group = OffsetFetchRequestGroup::default().with_group_id(GroupId(text("readers"))).with_topics(None);
        let request = OffsetFetchRequest::default().with_groups(vec![group]);
        let response = self.coordinator.offset_fetch(request, 8, &caller("default"), &|_| HashSet::new()).await;
        let found = &response.groups[0].topics[0].partitions[0];
        (found.committed_offset, found.committed_leader_epoch)
    }

    fn present_epoch(&self) -> i32 {
        let partition = self.log.partition(&TopicPartition::new(orders(), 0)).unwrap();
        partition.offsets().epoch.0 as i32
    }

    async fn heartbeat(&self, member: (&str, i32)) -> i16 {
        let request = HeartbeatRequest::default()
            .with_group_id(GroupId(text("readers")))
            .with_member_id(text(member.0))
            .with_generation_id(member.1);
        self.coordinator.heartbeat(request, &caller("default")).await.error_code
    }

    pub(super) async fn leave(&self, member_id: &str) -> i16 {
        let request =
            LeaveGroupRequest::default().with_group_id(GroupId(text("readers"))).with_member_id(text(member_id));
        self.coordinator.leave_group(request, 2, &caller("default")).await.error_code
    }

    async fn state(&self, version: i16) -> (i16, String) {
        let request = DescribeGroupsRequest::default().with_groups(vec![GroupId(text("readers"))]);
        let response = self.coordinator.describe_groups(request, version, &caller("default")).await;
        (response.groups[0].error_code, response.groups[0].group_state.to_string())
    }

    async fn delete(&self) -> i16 {
        let request = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(text("readers"))]);
        self.coordinator.delete_groups(request, &caller("default")).await.results[0].error_code
    }
}

#[tokio::test]
async fn a_member_commits_and_finds_its_position_again_after_a_restart() {
    let node = TestNode::start();
    let (member, generation) = node.member("default").await;
    let member = (&*member, generation);
    assert_eq!(node.commit(member, 0, 2, "page 7").await, 0);
    let expected = [(0, 2, "page 7".to_owned()), (1, -1, String::new())];
    assert_eq!(node.fetch("default", Some(vec![0, 1])).await, expected);
    let node = node.restart();
    assert_eq!(node.fetch("default", None).await, expected[..1]);
    assert_eq!(node.heartbeat(member).await, E::UnknownMemberId.code(), "members join anew");
    assert_eq!(node.commit(member, 0, 3, "").await, E::IllegalGeneration.code());
    assert_eq!(node.fetch("default", None).await, expected[..1]);
    assert_eq!(node.join(member.0, "default").await.error_code, E::UnknownMemberId.code());
    node.member("default").await;
}

#[tokio::test]
async fn members_go_on_under_their_ids_after_a_restart() {
    let node = TestNode::start();
    let (member, generation) = node.member("default").await;
    let member = (&*member, generation);
    assert_eq!(node.commit(member, 0, 1, "").await, 0);
    let node = node.restart_within(Duration::from_secs(60));
    assert_eq!(node.heartbeat(member).await, E::RebalanceInProgress.code(), "it is told to join again");
    assert_eq!(node.commit(member, 0, 2, "").await, 0, "nobody else has its partitions yet");
    assert_eq!(node.heartbeat(("", -1)).await, E::UnknownMemberId.code());
    let joined = node.join(member.0, "default").await;
    assert_eq!((joined.error_code, &*joined.member_id, &*joined.leader), (0, member.0, member.0));
    assert_eq!(node.commit(("another-from-before", generation), 0, 3, "").await, E::RebalanceInProgress.code());
    assert_eq!(node.fetch("default", None).await, [(0, 2, String::new())]);
    node.clock.advance(Duration::from_secs(61));
    assert_eq!(node.heartbeat(("another-from-before", generation)).await, E::UnknownMemberId.code());
    assert_eq!(node.join("another-from-before", "default").await.error_code, E::UnknownMemberId.code());
}

#[tokio::test]
async fn a_stale_member_stores_nothing() {
    let node = TestNode::start();
    let (member, generation) = node.member("default").await;
    assert_eq!(node.commit((&member, generation), 0, 1, "").await, 0);
    assert_eq!(node.join(&member, "default").await.generation_id, generation + 1);
    assert_eq!(node.commit((&member, generation), 0, 3, "").await, E::IllegalGeneration.code());
    assert_eq!(node.commit(("somebody", generation + 1), 0, 3, "").await, E::UnknownMemberId.code());
    assert_eq!(node.commit(("", -1), 0, 3, "").await, E::UnknownMemberId.code());
    assert_eq!(node.fetch("default", None).await, [(0, 1, String::new())]);
}

#[tokio::test]
async fn invalid_positions_are_refused_with_codes_that_clients_know() {
    let node = TestNode::start();
    let nobody = ("", -1);
    assert_eq!(node.commit(nobody, 2, 0, "").await, E::UnknownTopicOrPartition.code());
    assert_eq!(node.commit(nobody, 0, 1, &"x".repeat(4097)).await, E::OffsetMetadataTooLarge.code());
    assert_eq!(node.fetch("default", None).await, []);
    assert_eq!(node.commit(nobody, 0, 3, &"x".repeat(4096)).await, 0);
}

#[tokio::test]
async fn the_leader_epoch_of_a_commit_is_given_back_and_fits_its_offset() {
    let mut node = TestNode::start();
    let first = node.present_epoch();
    node = node.restart();
    assert!(node.present_epoch() > first);
    for named in [first, -1, i32::MAX] {
        // None, or one that the log has not reached, stands for the present one.
        let told = if named == first { first } else { node.present_epoch() };
        let wanted =
            OffsetCommitRequestPartition::default().with_committed_offset(3).with_committed_leader_epoch(named);
        assert_eq!(node.commit_position(("", -1), wanted).await, 0);
        assert_eq!(node.epoch().await, (3, told));
        node = node.restart();
        assert_eq!(node.epoch().await, (3, told), "also after a restart");
    }
    // Offsets that a start has skipped: the epoch of the commit ends before where the group continues.
    let node = node.crash().crash();
    let appended = node.append(0);
    assert_eq!(node.epoch().await, (appended, node.present_epoch()));
}

#[tokio::test]
async fn a_committed_offset_is_kept_even_if_it_is_out_of_range() {
    let mut node = TestNode::start();
    let lag = |node: &TestNode| node.log.lags(&orders()).first().map(|found| (found.position.0, found.lag));
    for (offset, lag_records) in [(-1, None), (-2, None), (99, Some((99, 0))), (i64::MAX, Some((i64::MAX as u64, 0)))] {
        assert_eq!(node.commit(("", -1), 0, offset, "").await, 0, "{offset}");
        assert_eq!(node.fetch("default", Some(vec![0])).await, [(0, offset, String::new())]);
        assert_eq!(lag(&node), lag_records);
        node = node.restart();
        assert_eq!(node.fetch("default", None).await, [(0, offset, String::new())]);
    }
}

#[tokio::test]
async fn offsets_that_a_start_after_a_crash_has_skipped_are_no_lag() {
    let node = TestNode::start();
    assert_eq!(node.commit(("", -1), 0, 3, "").await, 0);
    assert_eq!(node.commit(("", -1), 1, 0, "").await, 0);
    let node = node.crash().crash();
    assert_eq!(node.fetch("default", None).await[0].1, 3, "nothing has come behind it");
    let appended = node.append(0);
    assert!(appended > 1000, "a start has skipped offsets");
    assert_eq!(node.fetch("default", None).await[0].1, appended, "that is what comes next");
    let lags: Vec<_> = node.log.lags(&orders()).iter().map(|found| found.lag).collect();
    assert_eq!(lags, [1, 0]);
    assert_eq!(node.commit(("", -1), 0, 1, "").await, 0);
    assert_eq!(node.log.lags(&orders())[0].lag, 3, "two from before, and one");
}

#[tokio::test]
async fn the_same_group_of_another_tenant_is_another_group() {
    let node = TestNode::start();
    let (member, generation) = node.member("default").await;
    node.commit((&member, generation), 0, 2, "").await;
    assert_eq!(node.fetch("acme", None).await, []);
    let (other, _) = node.member("acme").await;
    assert_eq!(node.heartbeat((&member, generation)).await, 0, "no rebalance here");
    assert_eq!(node.heartbeat((&other, generation)).await, E::UnknownMemberId.code());
    let listed = node.coordinator.list_groups(ListGroupsRequest::default(), 5, &caller("acme")).await;
    assert_eq!(listed.groups.len(), 1);
    assert_eq!((&*listed.groups[0].group_id.0, &*listed.groups[0].group_state), ("readers", "Stable"));
    let listed = node.coordinator.list_groups(ListGroupsRequest::default(), 5, &caller("third")).await;
    assert!(listed.groups.is_empty());
}

#[tokio::test]
async fn groups_are_listed_by_state_described_and_deleted_when_they_are_empty() {
    let node = TestNode::start();
    assert_eq!(node.state(5).await, (0, "Dead".to_owned()));
    assert_eq!(node.state(6).await.0, E::GroupIdNotFound.code());
    assert_eq!(node.delete().await, E::GroupIdNotFound.code());
    let (member, generation) = node.member("default").await;
    node.commit((&member, generation), 0, 2, "").await;
    assert_eq!(node.state(5).await, (0, "Stable".to_owned()));
    assert_eq!(node.delete().await, E::NonEmptyGroup.code());
    for (filter, found) in [("Stable", 1), ("Empty", 0)] {
        let request = ListGroupsRequest::default().with_states_filter(vec![text(filter)]);
        assert_eq!(node.coordinator.list_groups(request, 4, &caller("default")).await.groups.len(), found);
    }
    assert_eq!(node.leave(&member).await, 0);
    assert_eq!(node.state(5).await, (0, "Empty".to_owned()));
    let node = node.restart();
    assert_eq!(node.state(6).await, (0, "Empty".to_owned()), "it is known by its positions");
    assert_eq!(node.delete().await, 0);
    assert_eq!(node.fetch("default", None).await, []);
    assert_eq!(node.state(5).await, (0, "Dead".to_owned()));
}

/// A subscription as Java's consumer writes it.
fn subscription(topics: &[&str]) -> Bytes {
    let mut metadata = vec![0, 3];
    metadata.extend((topics.len() as i32).to_be_bytes());
    for topic in topics {
        metadata.extend((topic.len() as i16).to_be_bytes());
        metadata.extend(topic.as_bytes());
    }
    metadata.extend([0xff; 4]);
    metadata.into()
}

#[tokio::test]
async fn positions_are_deleted_one_by_one_of_topics_that_no_member_reads() {
    let node = TestNode::start();
    let delete = async |group: &str| {
        let partition = OffsetDeleteRequestPartition::default().with_partition_index(0);
        let topic =
            OffsetDeleteRequestTopic::default().with_name(WireTopic(text("orders"))).with_partitions(vec![partition]);
        let request = OffsetDeleteRequest::default().with_group_id(GroupId(text(group))).with_topics(vec![topic]);
        let answer = node.coordinator.offset_delete(request, &caller("default")).await;
        (answer.error_code, answer.topics.first().map(|topic| topic.partitions[0].error_code))
    };
    assert_eq!(delete("readers").await, (E::GroupIdNotFound.code(), None));
    let subscribed = (0, Some(E::GroupSubscribedToTopic.code()));
    for (protocol_type, metadata, expected) in [
        ("consumer", subscription(&["orders"]), subscribed),
        ("consumer", subscription(&["payments", "orders"]), subscribed),
        ("consumer", Bytes::from_static(b"unreadable"), subscribed),
        ("connect", subscription(&["payments"]), (E::NonEmptyGroup.code(), None)),
        ("consumer", subscription(&["payments"]), (0, Some(0))),
        ("consumer", subscription(&[]), (0, Some(0))),
    ] {
        let protocol = JoinGroupRequestProtocol::default().with_name(text("range")).with_metadata(metadata);
        let join = JoinGroupRequest::default()
            .with_group_id(GroupId(text("readers")))
            .with_session_timeout_ms(10_000)
            .with_rebalance_timeout_ms(30_000)
            .with_protocol_type(text(protocol_type))
            .with_protocols(vec![protocol]);
        let first = node.coordinator.join_group(join.clone(), 9, &caller("default")).await;
        let joined = node.coordinator.join_group(join.with_member_id(first.member_id), 9, &caller("default")).await;
        let sync = SyncGroupRequest::default()
            .with_group_id(GroupId(text("readers")))
            .with_generation_id(joined.generation_id)
            .with_member_id(joined.member_id.clone());
        assert_eq!(node.coordinator.sync_group(sync, &caller("default")).await.error_code, 0);
        let member = (&*joined.member_id, joined.generation_id);
        assert_eq!((node.commit(member, 0, 2, "").await, node.commit(member, 1, 0, "").await), (0, 0));
        assert_eq!(delete("readers").await, expected);
        let is_deleted = expected == (0, Some(0));
        assert_eq!(node.fetch("default", None).await.len(), if is_deleted { 1 } else { 2 });
        assert_eq!(node.heartbeat(member).await, 0, "members are not disturbed");
        node.leave(member.0).await;
    }
    assert_eq!(node.commit(("", -1), 0, 2, "").await, 0);
    assert_eq!(delete("readers").await, (0, Some(0)), "nobody is there");
    assert_eq!(node.fetch("default", None).await, [(1, 0, String::new())]);
}

#[tokio::test]
async fn positions_of_a_group_that_is_long_empty_expire() {
    let node = TestNode::start();
    let (member, generation) = node.member("default").await;
    node.commit((&member, generation), 0, 2, "").await;
    node.clock.advance(config().offsets_retention * 2);
    node.coordinator.drop_expired().unwrap();
    assert_eq!(node.fetch("default", None).await.len(), 1, "it has a member");
    node.leave(&member).await;
    node.clock.advance(config().offsets_retention - Duration::from_secs(1));
    node.coordinator.drop_expired().unwrap();
    assert_eq!(node.fetch("default", None).await.len(), 1, "it is not empty for that long");
    node.clock.advance(Duration::from_secs(1));
    node.coordinator.drop_expired().unwrap();
    assert_eq!(node.fetch("default", None).await, []);
    assert_eq!(node.state(5).await, (0, "Dead".to_owned()));
}

#[tokio::test]
async fn a_join_waits_without_a_thread_until_the_timer_removes_the_dead() {
    let node = Arc::new(TestNode::start());
    let (member, generation) = node.member("default").await;
    let first = node.join("", "default").await;
    let waits = tokio::spawn({
        let node = node.clone();
        async move { node.join(&first.member_id, "default").await }
    });
    while node.heartbeat((&member, generation)).await != E::RebalanceInProgress.code() {
        tokio::task::yield_now().await;
    }
    // The only other member falls silent; its session is over when the timer looks.
    node.clock.advance(SESSION);
    let timer = tokio::spawn(node.coordinator.clone().run());
    let joined = waits.await.unwrap();
    assert_eq!((joined.error_code, joined.generation_id), (0, generation + 1));
    assert_eq!(joined.leader, joined.member_id);
    timer.abort();
    assert_eq!(node.heartbeat((&member, generation)).await, E::UnknownMemberId.code());
}

#[tokio::test]
async fn a_group_without_a_name_is_refused() {
    let node = TestNode::start();
    let request = HeartbeatRequest::default();
    assert_eq!(node.coordinator.heartbeat(request, &caller("default")).await.error_code, E::InvalidGroupId.code());
}
