//! Topics, their configuration, and ids of producers.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_configs_request as whole;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    AlterConfigsRequest, CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
    DescribeClusterRequest, DescribeConfigsRequest, FindCoordinatorRequest, IncrementalAlterConfigsRequest,
    InitProducerIdRequest, MetadataRequest, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use millstream_kafka::{KafkaConfig, Listener};
use millstream_log::{Cleanup, Log, TopicConfig};
use millstream_types::Compression;

use crate::client::{Client, Fixture, batch, name, open, values};

const TOPIC: i8 = 2;

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
    let change = AlterableConfig::default().with_name(text(setting)).with_value(Some(text(value)));
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
    for (setting, value) in [("retention.ms", "soon"), ("cleanup.policy", "compact"), ("replicas.max", "1")] {
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
async fn a_configuration_that_is_altered_as_a_whole_has_the_defaults_of_what_is_not_named() {
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
async fn topics_that_cannot_be_are_refused_and_those_of_millstream_stay_as_they_are() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("telemetry.default", &TopicConfig::default());
    let mut client = fixture.connect().await;
    assert_eq!(create(&mut client, creatable("orders", -1, -1)).await, 0);
    let table = [
        (creatable("orders", 4, 1), ResponseError::TopicAlreadyExists),
        (creatable("more", 0, 1), ResponseError::InvalidPartitions),
        (creatable("more", 1_000_000, 1), ResponseError::InvalidPartitions),
        (creatable("more", 1, 3), ResponseError::InvalidReplicationFactor),
        (creatable("a b", 1, 1), ResponseError::InvalidTopicException),
        (creatable("event.default", 1, 1), ResponseError::InvalidTopicException),
        (creatable("_mine", 1, 1), ResponseError::TopicAuthorizationFailed),
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
async fn producer_ids_are_never_handed_out_twice_not_even_by_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut ids = Vec::new();
    for _ in 0..3 {
        let log = open(dir.path());
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), KafkaConfig::default()).await.unwrap();
        let serving = listener.serve(Arc::clone(&log) as Arc<dyn Log>, log.epoch());
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
async fn records_are_deleted_below_an_offset_and_what_cannot_be_is_refused() {
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
