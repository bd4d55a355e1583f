//! Topics, their configuration, and ids of producers.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_configs_request as whole;
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic};
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    AlterConfigsRequest, BrokerId, CreateAclsRequest, CreatePartitionsRequest, CreateTopicsRequest, DeleteAclsRequest,
    DeleteRecordsRequest, DeleteTopicsRequest, DescribeAclsRequest, DescribeClusterRequest, DescribeConfigsRequest,
    DescribeTopicPartitionsRequest, FindCoordinatorRequest, IncrementalAlterConfigsRequest, InitProducerIdRequest,
    ListConfigResourcesRequest, MetadataRequest, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use millstream_kafka::{KafkaConfig, Listener};
use millstream_log::{Cleanup, KafkaLog, Log, LogConfig, TopicConfig};
use millstream_net::Metrics;
use millstream_types::{BatchLimits, Compression, RecordBatch, TenantId, TopicName};
use uuid::Uuid;

use crate::client::{Client, Fixture, batch, name, open, values};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const SET: i8 = 0;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

fn creatable(topic: &str, partitions: i32, replicas: i16) -> CreatableTopic {
    CreatableTopic::default().with_name(name(topic)).with_num_partitions(partitions).with_replication_factor(replicas)
}

async fn create(client: &mut Client, topic: CreatableTopic) -> i16 {
    let answer = client.ask(&CreateTopicsRequest::default().with_topics(vec![topic]), 7).await;
    answer.topics[0].error_code
}

async fn alter(client: &mut Client, topic: &str, setting: &str, value: &str) -> i16 {
    alter_by(client, SET, topic, setting, value).await
}

async fn alter_by(client: &mut Client, operation: i8, topic: &str, setting: &str, value: &str) -> i16 {
    let change = AlterableConfig::default()
        .with_name(text(setting))
        .with_config_operation(operation)
        .with_value(Some(text(value)));
    let resource = AlterConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(topic))
        .with_configs(vec![change]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    client.ask(&request, 1).await.responses[0].error_code
}

async fn shown(client: &mut Client, topic: &str, setting: &str) -> String {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(topic))
        .with_configuration_keys(Some(vec![text(setting)]));
    let answer = client.ask(&DescribeConfigsRequest::default().with_resources(vec![resource]), 4).await;
    answer.results[0].configs[0].value.clone().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_created_described_altered_and_deleted() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    let mut client = fixture.connect().await;
    let retention = CreatableTopicConfig::default().with_name(text("retention.ms")).with_value(Some(text("60000")));
    assert_eq!(create(&mut client, creatable("orders", 3, 1).with_configs(vec![retention])).await, 0);
    assert_eq!(shown(&mut client, "orders", "retention.ms").await, "60000");
    assert_eq!(alter(&mut client, "orders", "retention.ms", "-1").await, 0);
    assert_eq!(shown(&mut client, "orders", "retention.ms").await, "-1");
    for (setting, value) in [("retention.ms", "soon"), ("cleanup.policy", "compress"), ("replicas.max", "1")] {
        let refused = alter(&mut client, "orders", setting, value).await;
        assert_eq!(refused, ResponseError::InvalidConfig.code(), "{setting}");
    }
    let partitions = |count: i32, validate_only: bool| {
        let more = CreatePartitionsTopic::default().with_name(name("orders")).with_count(count).with_assignments(None);
        CreatePartitionsRequest::default().with_topics(vec![more]).with_validate_only(validate_only)
    };
    let refused = client.ask(&partitions(3, false), 3).await;
    assert_eq!(refused.results[0].error_code, ResponseError::InvalidPartitions.code());
    assert!(refused.results[0].error_message.as_ref().unwrap().contains("3 partitions"));
    assert_eq!(client.ask(&partitions(9, true), 3).await.results[0].error_code, 0);
    assert_eq!(fixture.log.topics()[0].config.partitions, 3, "only looked at");
    assert_eq!(client.ask(&partitions(5, false), 3).await.results[0].error_code, 0);
    let asked = MetadataRequestTopic::default().with_name(Some(name("orders")));
    let described = client.ask(&MetadataRequest::default().with_topics(Some(vec![asked])), 12).await;
    assert_eq!((described.topics[0].error_code, described.topics[0].partitions.len()), (0, 5));
    assert_eq!(i32::from(fixture.serving.address().port()), described.brokers[0].port);
    let deleted = client.ask(&DeleteTopicsRequest::default().with_topic_names(vec![name("orders")]), 5).await;
    assert_eq!(deleted.responses[0].error_code, 0);
    assert!(fixture.log.topics().is_empty());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cleanup_policy_and_the_timestamp_type_can_be_altered() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut client = fixture.connect().await;
    for (setting, values) in [
        ("cleanup.policy", ["compact", "compact,delete", "delete"]),
        ("message.timestamp.type", ["LogAppendTime", "CreateTime", "LogAppendTime"]),
    ] {
        for value in values {
            assert_eq!(alter(&mut client, "orders", setting, value).await, 0, "{setting}={value}");
            assert_eq!(shown(&mut client, "orders", setting).await, value);
        }
    }
    let produced = client.produce("orders", -1, batch(&["a", "b"], Compression::Lz4)).await;
    assert_eq!(produced.error_code, 0);
    assert!(produced.log_append_time_ms > 1_700_000_000_000, "{}", produced.log_append_time_ms);
    let fetched = client.fetch("orders", 0).await.records.unwrap();
    let fetched = RecordBatch::parse(fetched, &BatchLimits::default()).unwrap();
    assert!(fetched.has_append_time());
    for record in fetched.inflated(&BatchLimits::default()).unwrap().records() {
        assert_eq!(record.unwrap().timestamp_ms, produced.log_append_time_ms);
    }
    let fixture = fixture.restart(KafkaConfig::default()).await;
    let mut client = fixture.connect().await;
    assert_eq!(shown(&mut client, "orders", "message.timestamp.type").await, "LogAppendTime");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_takes_no_larger_records_than_a_request_of_the_listener_has() {
    let fixture = Fixture::start(KafkaConfig { request_max_bytes: 64 << 10, ..KafkaConfig::default() }).await;
    fixture.create("orders", &TopicConfig::default());
    let mut client = fixture.connect().await;
    assert_eq!(create(&mut client, creatable("more", 1, 1)).await, 0, "the default stays");
    for (value, code) in [("64512", 0), ("64513", ResponseError::InvalidConfig.code())] {
        assert_eq!(alter(&mut client, "orders", "max.message.bytes", value).await, code, "{value}");
        let setting =
            CreatableTopicConfig::default().with_name(text("max.message.bytes")).with_value(Some(text(value)));
        let topic = creatable(&format!("t{value}"), 1, 1).with_configs(vec![setting]);
        assert_eq!(create(&mut client, topic).await, code, "{value}");
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_and_the_broker_are_described_with_all_that_tools_look_for() {
    let fixture = Fixture::start(KafkaConfig { idle_timeout_ms: 12_345, ..KafkaConfig::default() }).await;
    fixture.create("orders", &TopicConfig::default());
    let mut client = fixture.connect().await;
    for (kind, resource, settings) in [
        (
            TOPIC,
            "orders",
            [("min.insync.replicas", "1"), ("flush.ms", "9223372036854775807"), ("retention.ms", "604800000")],
        ),
        (BROKER, "1", [("num.partitions", "4"), ("connections.max.idle.ms", "12345"), ("broker.id", "1")]),
    ] {
        let asked = DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(resource))
            .with_configuration_keys(None);
        let answer = client.ask(&DescribeConfigsRequest::default().with_resources(vec![asked]), 4).await;
        let found = &answer.results[0].configs;
        assert!(found.len() > 20, "{resource}");
        for (name, value) in settings {
            let found = found.iter().find(|found| found.name.as_str() == name);
            assert_eq!(found.and_then(|found| found.value.as_deref()), Some(value), "{name}");
            assert_eq!(found.map(|found| found.read_only), Some(name != "retention.ms"), "{name}");
        }
    }
    for (broker, code) in [("", 0), ("7", ResponseError::InvalidRequest.code())] {
        let asked = DescribeConfigsResource::default().with_resource_type(BROKER).with_resource_name(text(broker));
        let answer = client.ask(&DescribeConfigsRequest::default().with_resources(vec![asked]), 4).await;
        assert_eq!((answer.results[0].error_code, answer.results[0].configs.len()), (code, 0), "{broker:?}");
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn altering_a_whole_configuration_resets_unnamed_settings_to_their_defaults() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut client = fixture.connect().await;
    let default = shown(&mut client, "orders", "segment.ms").await;
    for (setting, value) in [("retention.ms", "60000"), ("segment.ms", "5000")] {
        assert_eq!(alter(&mut client, "orders", setting, value).await, 0);
    }
    for version in 0..=2 {
        for (value, code) in [("90000", 0), ("soon", ResponseError::InvalidConfig.code())] {
            let setting =
                whole::AlterableConfig::default().with_name(text("retention.ms")).with_value(Some(text(value)));
            let resource = whole::AlterConfigsResource::default()
                .with_resource_type(TOPIC)
                .with_resource_name(text("orders"))
                .with_configs(vec![setting]);
            let request = AlterConfigsRequest::default().with_resources(vec![resource]);
            assert_eq!(client.ask(&request, version).await.responses[0].error_code, code, "{value}");
        }
        assert_eq!(shown(&mut client, "orders", "retention.ms").await, "90000");
        assert_eq!(shown(&mut client, "orders", "segment.ms").await, default);
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_topics_are_refused_and_those_of_millstream_stay_unchanged() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("telemetry.default", &TopicConfig::default());
    let mut client = fixture.connect().await;
    assert_eq!(create(&mut client, creatable("orders", -1, -1)).await, 0);
    let table = [
        (creatable("orders", 4, 1), ResponseError::TopicAlreadyExists),
        (creatable("more", 0, 1), ResponseError::InvalidPartitions),
        (creatable("more", 1_000_000, 1), ResponseError::InvalidPartitions),
        (creatable("more", 1, 4), ResponseError::InvalidReplicationFactor),
        (creatable("more", 1, 0), ResponseError::InvalidReplicationFactor),
        (creatable("more", 1, -2), ResponseError::InvalidReplicationFactor),
        (creatable("a b", 1, 1), ResponseError::InvalidTopicException),
        (creatable("event.default", 1, 1), ResponseError::InvalidTopicException),
        (creatable("_registry", 1, 1), ResponseError::TopicAuthorizationFailed),
        (creatable("_millstream", 1, 1), ResponseError::TopicAuthorizationFailed),
    ];
    for (topic, error) in table {
        let what = format!("{topic:?}");
        assert_eq!(create(&mut client, topic).await, error.code(), "{what}");
    }
    let own = DeleteTopicsRequest::default().with_topic_names(vec![name("telemetry.default")]);
    let refused = client.ask(&own, 5).await.responses[0].error_code;
    assert_eq!(refused, ResponseError::TopicAuthorizationFailed.code());
    let refused = alter(&mut client, "telemetry.default", "retention.ms", "1").await;
    assert_eq!(refused, ResponseError::TopicAuthorizationFailed.code());
    assert_eq!(fixture.log.topics().len(), 2);
    for of_others in ["_schemas", "_confluent-ksql-default__command_topic", "kv.photos"] {
        assert_eq!(create(&mut client, creatable(of_others, 1, 1)).await, 0, "{of_others}");
        assert_eq!(client.produce(of_others, -1, batch(&["x"], Compression::None)).await.error_code, 0);
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_named_twice_in_a_request_is_answered_once_and_not_created() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    let mut client = fixture.connect().await;
    let topics = vec![creatable("twice", 1, 1), creatable("once", 1, 1), creatable("twice", 2, 1)];
    let answer = client.ask(&CreateTopicsRequest::default().with_topics(topics), 7).await;
    let codes: Vec<_> = answer.topics.iter().map(|topic| (topic.name.to_string(), topic.error_code)).collect();
    let expected = [("twice", ResponseError::InvalidRequest.code()), ("once", 0)];
    assert_eq!(codes, expected.map(|(name, code)| (name.to_owned(), code)));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_a_client_asks_for_is_created_if_client_and_configuration_agree() {
    for (configured, asked, created) in [(true, true, true), (true, false, false), (false, true, false)] {
        let fixture = Fixture::start(KafkaConfig { auto_create_topics: configured, ..KafkaConfig::default() }).await;
        let mut client = fixture.connect().await;
        let topic = |topic: &str| MetadataRequestTopic::default().with_name(Some(name(topic)));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![topic("fresh"), topic("telemetry.default")]))
            .with_allow_auto_topic_creation(asked);
        let answer = client.ask(&request, 9).await;
        assert_eq!(answer.topics[0].error_code == 0, created);
        assert_eq!(answer.topics[1].error_code, ResponseError::UnknownTopicOrPartition.code());
        fixture.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_topics_of_a_tenant_have_no_more_partitions_than_it_may_have_however_they_come() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    let of_tenants = LogConfig::default().partitions_per_tenant_max as u32;
    fixture.create("many", &TopicConfig { partitions: of_tenants - 3, ..TopicConfig::default() });
    let mut client = fixture.connect().await;
    assert_eq!(create(&mut client, creatable("one", 1, 1)).await, 0);
    let answer = client.ask(&CreateTopicsRequest::default().with_topics(vec![creatable("two", 3, 1)]), 7).await;
    assert_eq!(answer.topics[0].error_code, ResponseError::PolicyViolation.code());
    let why = answer.topics[0].error_message.as_ref().unwrap();
    assert!(why.contains("'two' would have 3 partitions, and the other topics of tenant 'default' have 9998"), "{why}");
    assert!(why.contains("log.partitions_per_tenant_max = 10000; take fewer"), "{why}");
    let grow = |total| {
        let topic = CreatePartitionsTopic::default().with_name(name("one")).with_count(total).with_assignments(None);
        CreatePartitionsRequest::default().with_topics(vec![topic])
    };
    for (total, code) in [(4, ResponseError::PolicyViolation.code()), (3, 0)] {
        assert_eq!(client.ask(&grow(total), 3).await.results[0].error_code, code, "{total}");
    }
    let asked = MetadataRequestTopic::default().with_name(Some(name("fresh")));
    let request = MetadataRequest::default().with_topics(Some(vec![asked])).with_allow_auto_topic_creation(true);
    assert_ne!(client.ask(&request, 9).await.topics[0].error_code, 0, "created by itself");
    // Other tenants have their own, and topics of devices are no topics of users.
    let other = millstream_types::TenantId::new("other").unwrap();
    for rendered in ["two.other", "telemetry.default"] {
        let name = millstream_types::TopicName::parse(rendered, &other).unwrap();
        fixture.log.create_topic(&name, &TopicConfig::default()).unwrap();
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_topic_of_entity_updates_is_created_for_a_client_that_asks_for_it_whatever_the_configuration() {
    let fixture = Fixture::start(KafkaConfig { auto_create_topics: false, ..KafkaConfig::default() }).await;
    let mut client = fixture.connect().await;
    for (topic, asked, error) in [
        ("context_update.default", false, ResponseError::UnknownTopicOrPartition.code()),
        ("context_update.default", true, 0),
        ("context_update.default", false, 0),
        ("context.default", true, ResponseError::UnknownTopicOrPartition.code()),
    ] {
        let request = MetadataRequest::default()
            .with_topics(Some(vec![MetadataRequestTopic::default().with_name(Some(name(topic)))]))
            .with_allow_auto_topic_creation(asked);
        assert_eq!(client.ask(&request, 9).await.topics[0].error_code, error, "{topic}");
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producer_ids_are_never_handed_out_twice_not_even_by_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut ids = Vec::new();
    for _ in 0..3 {
        let log = open(dir.path());
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), KafkaConfig::default()).await.unwrap();
        let serving = listener.serve(Arc::clone(&log) as Arc<dyn KafkaLog>, &Metrics::default()).await;
        let mut client = Client::connect(serving.address()).await;
        for _ in 0..2 {
            let answer = client.ask(&InitProducerIdRequest::default().with_transactional_id(None), 4).await;
            assert_eq!((answer.error_code, answer.producer_epoch), (0, 0));
            ids.push(i64::from(answer.producer_id));
        }
        let transactional = TransactionalId(text("tx"));
        let refused = client.ask(&InitProducerIdRequest::default().with_transactional_id(Some(transactional)), 4).await;
        assert_ne!(refused.error_code, 0);
        serving.shut_down(Duration::from_secs(5)).await;
        log.close().unwrap();
    }
    let mut distinct = ids.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), ids.len(), "{ids:?}");
    assert!(ids.iter().all(|id| *id >= 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_is_this_node_under_the_address_that_is_advertised() {
    let config = KafkaConfig { advertised: "broker.example.org:19092".to_owned(), ..KafkaConfig::default() };
    let fixture = Fixture::start(config).await;
    let mut client = fixture.connect().await;
    let cluster = client.ask(&DescribeClusterRequest::default(), 1).await;
    assert_eq!((cluster.brokers[0].host.as_str(), cluster.brokers[0].port), ("broker.example.org", 19092));
    for version in [3, 4] {
        let request = FindCoordinatorRequest::default();
        let request = match version {
            3 => request.with_key(text("g")),
            _ => request.with_coordinator_keys(vec![text("g")]),
        };
        let found = client.ask(&request, version).await;
        let port = if version == 3 { found.port } else { found.coordinators[0].port };
        assert_eq!(port, 19092);
    }
    fixture.stop().await;
}

async fn delete_before(client: &mut Client, topic: &str, offset: i64) -> (i16, i64) {
    let partition = DeleteRecordsPartition::default().with_offset(offset);
    let topic = DeleteRecordsTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
    let answer = client.ask(&request, 2).await;
    let partition = &answer.topics[0].partitions[0];
    (partition.error_code, partition.low_watermark)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_deleted_below_an_offset_and_invalid_deletions_are_refused() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    fixture.create("state", &TopicConfig { cleanup: Cleanup::Compact, ..TopicConfig::default() });
    let mut client = fixture.connect().await;
    for value in ["a", "b", "c", "d"] {
        client.produce("orders", -1, batch(&[value], Compression::None)).await;
    }
    assert_eq!(delete_before(&mut client, "orders", 2).await, (0, 2));
    let gone = client.fetch("orders", 1).await;
    assert_eq!((gone.error_code, gone.log_start_offset), (ResponseError::OffsetOutOfRange.code(), 2));
    assert_eq!(values(&client.fetch("orders", 2).await), [(2, "c".to_owned()), (3, "d".to_owned())]);
    assert_eq!(delete_before(&mut client, "orders", 5).await, (ResponseError::OffsetOutOfRange.code(), -1));
    assert_eq!(delete_before(&mut client, "orders", -2).await, (ResponseError::OffsetOutOfRange.code(), -1));
    assert_eq!(delete_before(&mut client, "orders", -1).await, (0, 4), "all that there are");
    assert_eq!(delete_before(&mut client, "state", 0).await, (ResponseError::PolicyViolation.code(), -1));
    assert_eq!(delete_before(&mut client, "nowhere", 0).await.0, ResponseError::UnknownTopicOrPartition.code());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_described_page_by_page_and_listed_as_configuration_resources() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    for (topic, partitions) in [("a", 2), ("b", 3), ("c", 1)] {
        fixture.create(topic, &TopicConfig { partitions, ..TopicConfig::default() });
    }
    let mut client = fixture.connect().await;
    let mut request = DescribeTopicPartitionsRequest::default().with_response_partition_limit(2);
    let mut pages = Vec::new();
    loop {
        let answer = client.ask(&request, 0).await;
        let page = answer.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|partition| partition.partition_index);
            (topic.name.as_ref().unwrap().to_string(), partitions.collect::<Vec<_>>())
        });
        pages.push(page.collect::<Vec<_>>());
        let Some(next) = answer.next_cursor else { break };
        let cursor = Cursor::default().with_topic_name(next.topic_name).with_partition_index(next.partition_index);
        request.cursor = Some(cursor);
    }
    let topic = |name: &str, partitions: &[i32]| (name.to_owned(), partitions.to_vec());
    assert_eq!(pages, [vec![topic("a", &[0, 1])], vec![topic("b", &[0, 1])], vec![topic("b", &[2]), topic("c", &[0])]]);
    let named = ["c", "nowhere"].map(|topic| TopicRequest::default().with_name(name(topic)));
    let request =
        DescribeTopicPartitionsRequest::default().with_topics(named.to_vec()).with_response_partition_limit(9);
    let codes: Vec<_> = client.ask(&request, 0).await.topics.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [0, ResponseError::UnknownTopicOrPartition.code()]);

    let listed = client.ask(&ListConfigResourcesRequest::default(), 1).await.config_resources;
    let listed: Vec<_> = listed.iter().map(|found| (found.resource_type, found.resource_name.to_string())).collect();
    let expected = [(TOPIC, "a"), (TOPIC, "b"), (TOPIC, "c"), (BROKER, "1")];
    assert_eq!(listed, expected.map(|(kind, name)| (kind, name.to_owned())));
    assert_eq!(client.ask(&ListConfigResourcesRequest::default(), 0).await.config_resources, []);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acl_requests_are_refused_with_a_hint_to_the_roles_of_tokens() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    let mut client = fixture.connect().await;
    let disabled = ResponseError::SecurityDisabled.code();
    let described = client.ask(&DescribeAclsRequest::default(), 3).await;
    assert_eq!(described.error_code, disabled);
    assert!(described.error_message.unwrap().contains("applications.tokens"));
    let create = CreateAclsRequest::default().with_creations(vec![AclCreation::default(); 2]);
    let codes: Vec<_> = client.ask(&create, 3).await.results.iter().map(|result| result.error_code).collect();
    assert_eq!(codes, [disabled; 2]);
    let delete = DeleteAclsRequest::default().with_filters(vec![DeleteAclsFilter::default()]);
    assert_eq!(client.ask(&delete, 3).await.filter_results[0].error_code, disabled);
    fixture.stop().await;
}

/// Java's `describeTopics(ofTopicIds)` sends an id with an empty name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_is_answered_by_topic_id_also_where_the_name_is_empty() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let hidden = TopicName::parse("orders", &TenantId::new("acme").unwrap()).unwrap();
    fixture.log.create_topic(&hidden, &TopicConfig::default()).unwrap();
    let mut client = fixture.connect().await;
    let id_of = |own: bool| fixture.log.topics().iter().find(|topic| (topic.name != hidden) == own).unwrap().id.0;
    let unknown = ResponseError::UnknownTopicId.code();
    for (id, expected) in [(id_of(true), 0), (id_of(false), unknown), (7, unknown)] {
        let asked = MetadataRequestTopic::default().with_name(Some(name(""))).with_topic_id(Uuid::from_u128(id));
        let answer = client.ask(&MetadataRequest::default().with_topics(Some(vec![asked])), 12).await;
        assert_eq!((answer.topics[0].error_code, answer.topics[0].topic_id.as_u128()), (expected, id));
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elements_of_a_list_are_appended_and_subtracted() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut client = fixture.connect().await;
    let invalid = ResponseError::InvalidConfig.code();
    for (operation, value, code, policy) in [
        (APPEND, "compact", 0, "compact,delete"),
        (APPEND, "compact,delete", 0, "compact,delete"),
        (SUBTRACT, "delete", 0, "compact"),
        (SUBTRACT, "delete", 0, "compact"),
        (APPEND, "tiered", invalid, "compact"),
        (SUBTRACT, "compact", invalid, "compact"),
        (APPEND, "delete", 0, "compact,delete"),
        (SUBTRACT, "compact", 0, "delete"),
    ] {
        assert_eq!(alter_by(&mut client, operation, "orders", "cleanup.policy", value).await, code, "{value}");
        assert_eq!(shown(&mut client, "orders", "cleanup.policy").await, policy, "{value}");
    }
    assert_eq!(alter_by(&mut client, APPEND, "orders", "retention.ms", "1").await, invalid, "it is no list");
    fixture.stop().await;
}

fn assigned(topic: &str, partitions: &[(i32, &[i32])]) -> CreatableTopic {
    let assignments = partitions.iter().map(|(number, brokers)| {
        let brokers = brokers.iter().map(|broker| BrokerId(*broker)).collect();
        CreatableReplicaAssignment::default().with_partition_index(*number).with_broker_ids(brokers)
    });
    creatable(topic, -1, -1).with_assignments(assignments.collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_may_be_assigned_to_the_only_broker() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    let mut client = fixture.connect().await;
    let wrong = ResponseError::InvalidReplicaAssignment.code();
    for (partitions, code) in [
        (&[(0, &[2][..])][..], wrong),
        (&[(0, &[1, 2])], wrong),
        (&[(0, &[1, 1])], wrong),
        (&[(0, &[])], wrong),
        (&[(0, &[1]), (0, &[1])], wrong),
        (&[(0, &[1]), (2, &[1])], wrong),
        (&[(1, &[1])], wrong),
        (&[(2, &[1]), (0, &[1]), (1, &[1])], 0),
    ] {
        assert_eq!(create(&mut client, assigned("orders", partitions)).await, code, "{partitions:?}");
    }
    let topic = TopicName::user("orders", &TenantId::default()).unwrap();
    assert_eq!(fixture.log.topic(&topic).unwrap().config.partitions, 3);
    for (partitions, replicas) in [(1, -1), (-1, 1)] {
        let both = assigned("both", &[(0, &[1])]).with_num_partitions(partitions).with_replication_factor(replicas);
        assert_eq!(create(&mut client, both).await, ResponseError::InvalidRequest.code());
    }
    for (brokers, code) in [(&[1][..], wrong), (&[1, 1, 1], wrong), (&[1, 2], wrong), (&[1, 1], 0)] {
        let brokers =
            brokers.iter().map(|id| CreatePartitionsAssignment::default().with_broker_ids(vec![BrokerId(*id)]));
        let asked = CreatePartitionsTopic::default().with_name(name("orders")).with_count(5);
        let asked = asked.with_assignments(Some(brokers.collect()));
        let answer = client.ask(&CreatePartitionsRequest::default().with_topics(vec![asked]), 3).await;
        assert_eq!(answer.results[0].error_code, code);
    }
    assert_eq!(fixture.log.topic(&topic).unwrap().config.partitions, 5);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_of_a_cluster_are_taken_for_one_or_refused_as_configured() {
    let replicas = ResponseError::InvalidReplicationFactor.code();
    let config = ResponseError::InvalidConfig.code();
    for (limit, of_cluster) in [(3, (0, 0)), (1, (replicas, config))] {
        let server = KafkaConfig { replication_factor_max: limit, ..KafkaConfig::default() };
        let fixture = Fixture::start(server).await;
        let mut client = fixture.connect().await;
        let asked = CreateTopicsRequest::default().with_topics(vec![creatable("orders", 2, 3)]);
        let answer = client.ask(&asked, 7).await.topics[0].clone();
        assert_eq!(answer.error_code, of_cluster.0, "{limit}");
        if of_cluster.0 == 0 {
            assert_eq!(answer.replication_factor, 1, "it is told what it has");
        } else {
            assert_eq!(create(&mut client, creatable("orders", 2, 1)).await, 0);
        }
        let insync = CreatableTopicConfig::default().with_name(text("min.insync.replicas")).with_value(Some(text("2")));
        let asked = creatable("payments", 2, 1).with_configs(vec![insync]);
        assert_eq!(create(&mut client, asked).await, of_cluster.1, "{limit}");
        assert_eq!(alter(&mut client, "orders", "min.insync.replicas", "2").await, of_cluster.1);
        assert_eq!(alter(&mut client, "orders", "min.insync.replicas", "4").await, config);
        assert_eq!(shown(&mut client, "orders", "min.insync.replicas").await, "1");
        assert_eq!(client.produce("orders", -1, batch(&["x"], Compression::None)).await.error_code, 0);
        let topics = client.ask(&MetadataRequest::default().with_topics(None), 9).await.topics;
        assert!(topics.iter().flat_map(|topic| &topic.partitions).all(|of| of.replica_nodes.len() == 1));
        fixture.stop().await;
    }
}
