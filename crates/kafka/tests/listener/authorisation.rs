//! Every kind of request by role: it is refused without its role. A new kind needs a row here.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::alter_client_quotas_request::{EntityData, EntryData};
use kafka_protocol::messages::alter_configs_request::AlterConfigsResource as WholeResource;
use kafka_protocol::messages::alter_user_scram_credentials_request::ScramCredentialDeletion;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::incremental_alter_configs_request::AlterConfigsResource;
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, AlterClientQuotasRequest, AlterConfigsRequest,
    AlterUserScramCredentialsRequest, ApiKey, ApiVersionsRequest, ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest, CreatePartitionsRequest, CreateTopicsRequest, DeleteGroupsRequest,
    DeleteRecordsRequest, DeleteTopicsRequest, DescribeClientQuotasRequest, DescribeClusterRequest,
    DescribeGroupsRequest, DescribeTopicPartitionsRequest, DescribeUserScramCredentialsRequest, EndTxnRequest, GroupId,
    HeartbeatRequest, IncrementalAlterConfigsRequest, InitProducerIdRequest, JoinGroupRequest, LeaveGroupRequest,
    ListGroupsRequest, MetadataRequest, OffsetDeleteRequest, OffsetFetchRequest, SyncGroupRequest, TransactionalId,
    TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::StrBytes;
use millstream_types::{AuditEvent, AuditTrail, Compression};
use parking_lot::Mutex;

use crate::client::{Client, batch, name};
use crate::login::{Guarded, commit};

/// The roles that a kind of request takes.
#[derive(Clone, Copy, PartialEq)]
enum Needs {
    Nothing,
    Reader,
    Writer,
    Admin,
    ReaderAndWriter,
}

const TABLE: [(ApiKey, Needs); 48] = [
    (ApiKey::ApiVersions, Needs::Nothing),
    (ApiKey::SaslHandshake, Needs::Nothing),
    (ApiKey::SaslAuthenticate, Needs::Nothing),
    (ApiKey::Metadata, Needs::Nothing),
    (ApiKey::ListOffsets, Needs::Nothing),
    (ApiKey::DescribeConfigs, Needs::Nothing),
    (ApiKey::DescribeCluster, Needs::Nothing),
    (ApiKey::FindCoordinator, Needs::Nothing),
    (ApiKey::ListTransactions, Needs::Nothing),
    (ApiKey::DescribeTransactions, Needs::Nothing),
    (ApiKey::DescribeProducers, Needs::Nothing),
    (ApiKey::DescribeLogDirs, Needs::Nothing),
    (ApiKey::DescribeTopicPartitions, Needs::Nothing),
    (ApiKey::ListConfigResources, Needs::Nothing),
    (ApiKey::OffsetForLeaderEpoch, Needs::Nothing),
    (ApiKey::DescribeQuorum, Needs::Nothing),
    (ApiKey::DescribeAcls, Needs::Nothing),
    (ApiKey::CreateAcls, Needs::Nothing),
    (ApiKey::DeleteAcls, Needs::Nothing),
    (ApiKey::Produce, Needs::Writer),
    (ApiKey::InitProducerId, Needs::Writer),
    (ApiKey::AddPartitionsToTxn, Needs::Writer),
    (ApiKey::EndTxn, Needs::Writer),
    (ApiKey::AddOffsetsToTxn, Needs::ReaderAndWriter),
    (ApiKey::TxnOffsetCommit, Needs::ReaderAndWriter),
    (ApiKey::Fetch, Needs::Reader),
    (ApiKey::JoinGroup, Needs::Reader),
    (ApiKey::SyncGroup, Needs::Reader),
    (ApiKey::Heartbeat, Needs::Reader),
    (ApiKey::LeaveGroup, Needs::Reader),
    (ApiKey::OffsetCommit, Needs::Reader),
    (ApiKey::OffsetFetch, Needs::Reader),
    (ApiKey::ListGroups, Needs::Reader),
    (ApiKey::DescribeGroups, Needs::Reader),
    (ApiKey::ConsumerGroupHeartbeat, Needs::Reader),
    (ApiKey::ConsumerGroupDescribe, Needs::Reader),
    (ApiKey::OffsetDelete, Needs::Admin),
    (ApiKey::DeleteGroups, Needs::Admin),
    (ApiKey::CreateTopics, Needs::Admin),
    (ApiKey::CreatePartitions, Needs::Admin),
    (ApiKey::DeleteTopics, Needs::Admin),
    (ApiKey::DeleteRecords, Needs::Admin),
    (ApiKey::AlterConfigs, Needs::Admin),
    (ApiKey::IncrementalAlterConfigs, Needs::Admin),
    (ApiKey::DescribeUserScramCredentials, Needs::Admin),
    (ApiKey::AlterUserScramCredentials, Needs::Admin),
    (ApiKey::DescribeClientQuotas, Needs::Admin),
    (ApiKey::AlterClientQuotas, Needs::Admin),
];

fn text(value: &'static str) -> StrBytes {
    StrBytes::from_static_str(value)
}

/// Sends a request of that kind; the first error code of its answer.
async fn code(client: &mut Client, key: ApiKey) -> i16 {
    let group = GroupId(text("g"));
    let id = TransactionalId(text("t"));
    match key {
        ApiKey::Produce => client.produce("orders", -1, batch(&["x"], Compression::None)).await.error_code,
        ApiKey::Fetch => client.fetch("orders", 0).await.error_code,
        ApiKey::OffsetCommit => commit(client, "orders", 0).await,
        ApiKey::InitProducerId => {
            client.ask(&InitProducerIdRequest::default().with_transactional_id(None), 4).await.error_code
        }
        ApiKey::AddPartitionsToTxn => {
            let topic = AddPartitionsToTxnTopic::default().with_name(name("orders")).with_partitions(vec![0]);
            let request = AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(id)
                .with_v3_and_below_topics(vec![topic]);
            let answer = client.ask(&request, 3).await;
            answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        }
        ApiKey::EndTxn => client.ask(&EndTxnRequest::default().with_transactional_id(id), 3).await.error_code,
        ApiKey::AddOffsetsToTxn => {
            let request = AddOffsetsToTxnRequest::default().with_transactional_id(id).with_group_id(group);
            client.ask(&request, 3).await.error_code
        }
        ApiKey::TxnOffsetCommit => {
            let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(0);
            let topic =
                TxnOffsetCommitRequestTopic::default().with_name(name("orders")).with_partitions(vec![partition]);
            let request = TxnOffsetCommitRequest::default()
                .with_transactional_id(id)
                .with_group_id(group)
                .with_topics(vec![topic]);
            client.ask(&request, 3).await.topics[0].partitions[0].error_code
        }
        ApiKey::JoinGroup => {
            let request = JoinGroupRequest::default()
                .with_group_id(group)
                .with_session_timeout_ms(10_000)
                .with_protocol_type(text("consumer"));
            client.ask(&request, 9).await.error_code
        }
        ApiKey::SyncGroup => client.ask(&SyncGroupRequest::default().with_group_id(group), 5).await.error_code,
        ApiKey::Heartbeat => client.ask(&HeartbeatRequest::default().with_group_id(group), 4).await.error_code,
        ApiKey::LeaveGroup => client.ask(&LeaveGroupRequest::default().with_group_id(group), 4).await.error_code,
        ApiKey::OffsetFetch => {
            let topic = OffsetFetchRequestTopic::default().with_name(name("orders")).with_partition_indexes(vec![0]);
            let request = OffsetFetchRequest::default().with_group_id(group).with_topics(Some(vec![topic]));
            client.ask(&request, 7).await.error_code
        }
        ApiKey::ListGroups => client.ask(&ListGroupsRequest::default(), 4).await.error_code,
        ApiKey::DescribeGroups => {
            client.ask(&DescribeGroupsRequest::default().with_groups(vec![group]), 5).await.groups[0].error_code
        }
        ApiKey::ConsumerGroupHeartbeat => {
            let request = ConsumerGroupHeartbeatRequest::default().with_group_id(group).with_member_id(text("m"));
            client.ask(&request, 1).await.error_code
        }
        ApiKey::ConsumerGroupDescribe => {
            let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group]);
            client.ask(&request, 1).await.groups[0].error_code
        }
        ApiKey::OffsetDelete => {
            let partition = OffsetDeleteRequestPartition::default().with_partition_index(0);
            let topic = OffsetDeleteRequestTopic::default().with_name(name("orders")).with_partitions(vec![partition]);
            client
                .ask(&OffsetDeleteRequest::default().with_group_id(group).with_topics(vec![topic]), 0)
                .await
                .error_code
        }
        ApiKey::DeleteGroups => {
            client.ask(&DeleteGroupsRequest::default().with_groups_names(vec![group]), 2).await.results[0].error_code
        }
        ApiKey::CreateTopics => {
            let topic =
                CreatableTopic::default().with_name(name("made")).with_num_partitions(1).with_replication_factor(1);
            client.ask(&CreateTopicsRequest::default().with_topics(vec![topic]), 7).await.topics[0].error_code
        }
        ApiKey::CreatePartitions => {
            let topic = CreatePartitionsTopic::default().with_name(name("orders")).with_count(1).with_assignments(None);
            client.ask(&CreatePartitionsRequest::default().with_topics(vec![topic]), 2).await.results[0].error_code
        }
        ApiKey::DeleteTopics => {
            let request = DeleteTopicsRequest::default().with_topic_names(vec![name("made")]);
            client.ask(&request, 5).await.responses[0].error_code
        }
        ApiKey::DeleteRecords => {
            let partition = DeleteRecordsPartition::default().with_offset(0);
            let topic = DeleteRecordsTopic::default().with_name(name("orders")).with_partitions(vec![partition]);
            let answer = client.ask(&DeleteRecordsRequest::default().with_topics(vec![topic]), 2).await;
            answer.topics[0].partitions[0].error_code
        }
        ApiKey::AlterConfigs => {
            let resource = WholeResource::default().with_resource_type(2).with_resource_name(text("orders"));
            let request = AlterConfigsRequest::default().with_resources(vec![resource]);
            client.ask(&request, 2).await.responses[0].error_code
        }
        ApiKey::IncrementalAlterConfigs => {
            let resource = AlterConfigsResource::default().with_resource_type(2).with_resource_name(text("orders"));
            let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
            client.ask(&request, 1).await.responses[0].error_code
        }
        ApiKey::DescribeUserScramCredentials => {
            client.ask(&DescribeUserScramCredentialsRequest::default(), 0).await.error_code
        }
        ApiKey::AlterUserScramCredentials => {
            let deletion = ScramCredentialDeletion::default().with_name(text("nobody")).with_mechanism(1);
            let request = AlterUserScramCredentialsRequest::default().with_deletions(vec![deletion]);
            client.ask(&request, 0).await.results[0].error_code
        }
        ApiKey::DescribeClientQuotas => client.ask(&DescribeClientQuotasRequest::default(), 1).await.error_code,
        ApiKey::AlterClientQuotas => {
            let entity = EntityData::default().with_entity_type(text("user")).with_entity_name(None);
            let entry = EntryData::default().with_entity(vec![entity]);
            let request = AlterClientQuotasRequest::default().with_entries(vec![entry]);
            client.ask(&request, 1).await.entries[0].error_code
        }
        other => panic!("no request of kind {other:?} is written here"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_request_is_refused_without_its_role_and_not_with_it() {
    let guarded = Guarded::start().await;
    let offered = guarded.log_in("reader").await.ask(&ApiVersionsRequest::default(), 3).await;
    for api in &offered.api_keys {
        assert!(TABLE.iter().any(|(key, _)| *key as i16 == api.api_key), "api key {} has no row", api.api_key);
    }
    assert_eq!(offered.api_keys.len(), TABLE.len());
    let denied = [
        ResponseError::TopicAuthorizationFailed,
        ResponseError::GroupAuthorizationFailed,
        ResponseError::ClusterAuthorizationFailed,
        ResponseError::TransactionalIdAuthorizationFailed,
    ]
    .map(|error| error.code());
    for (user, roles) in [
        ("reader", &[Needs::Reader][..]),
        ("writer", &[Needs::Writer]),
        ("admin", &[Needs::Admin]),
        ("operator", &[Needs::Reader, Needs::Writer, Needs::Admin, Needs::ReaderAndWriter]),
    ] {
        let mut client = guarded.log_in(user).await;
        for (key, needs) in TABLE.into_iter().filter(|(_, needs)| *needs != Needs::Nothing) {
            let code = code(&mut client, key).await;
            assert_eq!(denied.contains(&code), !roles.contains(&needs), "{key:?} by {user}: {code}");
        }
    }
    guarded.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_kind_of_request_reaches_a_topic_or_group_of_another_tenant() {
    let guarded = Guarded::start().await;
    let mut operator = guarded.log_in("operator").await;
    assert_eq!(code(&mut operator, ApiKey::CreateTopics).await, 0, "'made'");
    assert_eq!(code(&mut operator, ApiKey::Produce).await, 0, "'orders'");
    assert_eq!(code(&mut operator, ApiKey::OffsetCommit).await, 0, "a group");
    // Has every role.
    let mut acme = guarded.log_in("acme").await;
    assert_eq!(acme.ask(&ListGroupsRequest::default(), 4).await.groups, []);
    assert_eq!(code(&mut acme, ApiKey::DeleteGroups).await, ResponseError::GroupIdNotFound.code());
    for key in [
        ApiKey::Produce,
        ApiKey::Fetch,
        ApiKey::OffsetCommit,
        ApiKey::CreatePartitions,
        ApiKey::DeleteTopics,
        ApiKey::DeleteRecords,
        ApiKey::AlterConfigs,
        ApiKey::IncrementalAlterConfigs,
    ] {
        let refusal = code(&mut acme, key).await;
        assert_eq!(refusal, ResponseError::UnknownTopicOrPartition.code(), "{key:?}");
    }
    assert_eq!(operator.ask(&ListGroupsRequest::default(), 4).await.groups.len(), 1);
    assert_eq!(code(&mut operator, ApiKey::DeleteTopics).await, 0, "'made' is still there");
    guarded.stop().await;
}

/// The operations of Kafka's access control lists, by the bits that clients read.
const OPERATIONS: [(u8, &str); 9] = [
    (3, "read"),
    (4, "write"),
    (5, "create"),
    (6, "delete"),
    (7, "alter"),
    (8, "describe"),
    (10, "describe_configs"),
    (11, "alter_configs"),
    (12, "idempotent_write"),
];

fn operations(bits: i32) -> Vec<&'static str> {
    let known: i32 = OPERATIONS.iter().map(|(bit, _)| 1 << bit).sum();
    assert_eq!(bits & !known, 0, "{bits:b}");
    OPERATIONS.iter().filter(|(bit, _)| bits & 1 << bit != 0).map(|(_, name)| *name).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authorized_operations_are_those_that_the_roles_allow() {
    const NOT_ASKED: i32 = i32::MIN;
    let guarded = Guarded::start().await;
    let mut operator = guarded.log_in("operator").await;
    assert_eq!(code(&mut operator, ApiKey::OffsetCommit).await, 0, "a group");
    let group = operator.ask(&ListGroupsRequest::default(), 4).await.groups[0].group_id.clone();
    let every = ["describe", "describe_configs"];
    for (user, topic, cluster, in_group) in [
        ("reader", &["read"][..], &[][..], &["read", "describe"][..]),
        ("writer", &["write"], &["idempotent_write"], &[]),
        ("admin", &["create", "delete", "alter", "alter_configs"], &["create"], &[]),
        (
            "operator",
            &["read", "write", "create", "delete", "alter", "alter_configs"],
            &["create", "idempotent_write"],
            &["read", "delete", "describe"],
        ),
    ] {
        let sorted = |mut names: Vec<&'static str>| {
            names.sort_unstable();
            names
        };
        let with_every = |names: &[&'static str]| sorted([names, &every].concat());
        let mut client = guarded.log_in(user).await;
        for asks in [true, false] {
            let told = |bits: i32, expected: Vec<&'static str>| match asks {
                true => assert_eq!(sorted(operations(bits)), expected, "{user}"),
                false => assert_eq!(bits, NOT_ASKED, "{user}"),
            };
            let metadata = MetadataRequest::default()
                .with_topics(None)
                .with_include_topic_authorized_operations(asks)
                .with_include_cluster_authorized_operations(asks);
            let answer = client.ask(&metadata, 8).await;
            told(answer.cluster_authorized_operations, with_every(cluster));
            let orders = answer.topics.iter().find(|topic| topic.name == Some(name("orders"))).unwrap();
            told(orders.topic_authorized_operations, with_every(topic));
            let request = DescribeClusterRequest::default().with_include_cluster_authorized_operations(asks);
            told(client.ask(&request, 1).await.cluster_authorized_operations, with_every(cluster));
            let request = DescribeGroupsRequest::default().with_groups(vec![group.clone()]);
            let answer = client.ask(&request.with_include_authorized_operations(asks), 5).await;
            match (answer.groups[0].error_code, asks) {
                (0, _) => told(answer.groups[0].authorized_operations, sorted(in_group.to_vec())),
                (denied, _) => {
                    assert_eq!(denied, ResponseError::GroupAuthorizationFailed.code());
                    assert_eq!((answer.groups[0].authorized_operations, in_group.len()), (NOT_ASKED, 0), "{user}");
                }
            }
        }
        let paged = client.ask(&DescribeTopicPartitionsRequest::default(), 0).await;
        let orders = paged.topics.iter().find(|topic| topic.name == Some(name("orders"))).unwrap();
        assert_eq!(sorted(operations(orders.topic_authorized_operations)), with_every(topic));
    }
    guarded.stop().await;
}

/// Keeps the events in memory.
#[derive(Default)]
struct Events(Mutex<Vec<AuditEvent>>);

impl AuditTrail for Events {
    fn record(&self, event: AuditEvent) {
        self.0.lock().push(event);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_topics_and_refused_attempts_are_told_to_the_audit_trail() {
    let events = Arc::new(Events::default());
    let guarded = Guarded::start_audited(events.clone()).await;
    let changes = [
        (ApiKey::CreateTopics, "made"),
        (ApiKey::DeleteTopics, "made"),
        (ApiKey::CreatePartitions, "orders"),
        (ApiKey::DeleteRecords, "orders-0 before 0"),
        (ApiKey::AlterConfigs, "orders"),
        (ApiKey::IncrementalAlterConfigs, "orders"),
    ];
    for user in ["reader", "admin"] {
        let mut client = guarded.log_in(user).await;
        code(&mut client, ApiKey::Fetch).await;
        for (key, _) in changes {
            code(&mut client, key).await;
        }
    }
    let told = events.0.lock().clone();
    assert_eq!(told.len(), 2 * changes.len());
    for (event, (key, object)) in told.iter().zip(changes.iter().chain(&changes)) {
        assert_eq!((&*event.action, &*event.object, event.listener), (&*format!("{key:?}"), *object, "kafka"));
        assert_eq!(event.tenant.as_ref().unwrap().as_str(), "default");
    }
    let (of_reader, of_admin) = told.split_at(changes.len());
    assert!(of_reader.iter().all(|event| event.caller == "reader (127.0.0.1)"));
    assert!(of_reader.iter().all(|event| event.outcome == "refused (TopicAuthorizationFailed)"), "{of_reader:?}");
    let outcomes: Vec<&str> = of_admin.iter().map(|event| &*event.outcome).collect();
    assert_eq!(outcomes, ["done", "done", "refused (InvalidPartitions)", "done", "done", "done"]);
    guarded.stop().await;
}
