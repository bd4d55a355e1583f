//! Names of devices' topics with a prefix, in each answer that names topics.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::{
    CreateTopicsRequest, DescribeLogDirsRequest, DescribeTopicPartitionsRequest, FetchRequest, GroupId,
    ListConfigResourcesRequest, MetadataRequest, MetadataResponse, OffsetCommitRequest, OffsetFetchRequest,
};
use kafka_protocol::protocol::StrBytes;
use millstream_kafka::KafkaConfig;
use millstream_log::{Log, TopicConfig};
use millstream_types::{Compression, TenantId, TopicName};

use crate::client::{Client, Fixture, batch, name, values};

const TOPICS: [&str; 5] = ["command.acme", "context.acme", "event.default", "hono.event.default", "orders"];
/// The same towards clients; the user's topic that is called like the devices' one is not there.
const CALLED: [&str; 4] = ["context.acme", "hono.command.acme", "hono.event.default", "orders"];

fn with_prefix(prefix: &str) -> KafkaConfig {
    KafkaConfig { device_topic_prefix: prefix.to_owned(), ..KafkaConfig::default() }
}

async fn prefixed() -> Fixture {
    let fixture = Fixture::start(with_prefix("hono.")).await;
    TOPICS.iter().for_each(|topic| fixture.create(topic, &TopicConfig::default()));
    fixture
}

async fn metadata(client: &mut Client, topic: &str) -> MetadataResponse {
    let topic = MetadataRequestTopic::default().with_name(Some(name(topic)));
    client.ask(&MetadataRequest::default().with_topics(Some(vec![topic])), 12).await
}

fn sorted(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn every_list_calls_device_topics_with_their_prefix() {
    let fixture = prefixed().await;
    let mut client = fixture.connect().await;
    let all = client.ask(&MetadataRequest::default().with_topics(None), 12).await;
    assert_eq!(sorted(all.topics.into_iter().map(|topic| topic.name.unwrap().to_string())), CALLED);
    let pages = DescribeTopicPartitionsRequest::default().with_response_partition_limit(100);
    let pages = client.ask(&pages, 0).await;
    assert_eq!(sorted(pages.topics.into_iter().map(|topic| topic.name.unwrap().to_string())), CALLED);
    let sizes = client.ask(&DescribeLogDirsRequest::default().with_topics(None), 4).await;
    let sizes = sizes.results.into_iter().flat_map(|dir| dir.topics);
    let sizes: Vec<_> = sizes.inspect(|topic| assert!(!topic.partitions.is_empty(), "{topic:?}")).collect();
    assert_eq!(sorted(sizes.into_iter().map(|topic| topic.name.to_string())), CALLED);
    let configs = client.ask(&ListConfigResourcesRequest::default().with_resource_types(vec![2]), 1).await;
    let configs = configs.config_resources.into_iter().map(|resource| resource.resource_name.to_string());
    assert_eq!(sorted(configs), CALLED);
    drop(client);
    fixture.stop().await;
}

#[tokio::test]
async fn a_device_topic_is_found_by_its_prefixed_name_and_its_id_and_not_by_its_plain_name() {
    let fixture = prefixed().await;
    let mut client = fixture.connect().await;
    let known = metadata(&mut client, "hono.event.default").await.topics.remove(0);
    let event = TopicName::parse("event.default", &TenantId::default()).unwrap();
    assert_eq!((known.error_code, known.topic_id.as_u128()), (0, fixture.log.topic(&event).unwrap().id.0));
    let by_id = MetadataRequestTopic::default().with_name(None).with_topic_id(known.topic_id);
    let by_id = client.ask(&MetadataRequest::default().with_topics(Some(vec![by_id])), 12).await;
    assert_eq!(by_id.topics[0].name, Some(name("hono.event.default")));

    let stored = client.produce("hono.event.default", -1, batch(&["a", "b"], Compression::None)).await;
    assert_eq!((stored.error_code, stored.base_offset), (0, 0));
    let expected = [(0, "a".to_owned()), (1, "b".to_owned())];
    assert_eq!(values(&client.fetch("hono.event.default", 0).await), expected);
    let partition = FetchPartition::default().with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic_id(known.topic_id).with_partitions(vec![partition]);
    let fetch = FetchRequest::default().with_max_bytes(1 << 20).with_topics(vec![topic]);
    assert_eq!(values(&client.ask(&fetch, 13).await.responses[0].partitions[0]), expected);

    let invalid = ResponseError::InvalidTopicException.code();
    assert_eq!(metadata(&mut client, "event.default").await.topics[0].error_code, invalid);
    assert_eq!(client.fetch("event.default", 0).await.error_code, invalid);
    for (asked, why) in [
        ("event.default", "is called 'hono.event.default' here, as kafka.device_topic_prefix = hono."),
        ("hono.event.other", "of a kind that Millstream creates itself"),
    ] {
        let topic = CreatableTopic::default().with_name(name(asked)).with_num_partitions(1).with_replication_factor(1);
        let created = client.ask(&CreateTopicsRequest::default().with_topics(vec![topic]), 7).await;
        assert_eq!(created.topics[0].error_code, invalid);
        let told = created.topics[0].error_message.as_deref().unwrap();
        assert!(told.contains(why), "{told}");
    }
    drop(client);
    fixture.stop().await;
}

#[tokio::test]
async fn a_group_s_positions_hold_when_the_prefix_of_device_topics_changes() {
    let mut fixture = prefixed().await;
    let group = GroupId(StrBytes::from_static_str("readers"));
    for (prefix, called) in [("hono.", "hono.event.default"), ("", "event.default"), ("x-", "x-event.default")] {
        fixture = fixture.restart(with_prefix(prefix)).await;
        let mut client = fixture.connect().await;
        if prefix == "hono." {
            client.produce(called, -1, batch(&["a", "b"], Compression::None)).await;
            let partition = OffsetCommitRequestPartition::default().with_committed_offset(1);
            let topic = OffsetCommitRequestTopic::default().with_name(name(called)).with_partitions(vec![partition]);
            let commit = OffsetCommitRequest::default().with_group_id(group.clone()).with_topics(vec![topic]);
            let committed = client.ask(&commit.with_generation_id_or_member_epoch(-1), 8).await;
            assert_eq!(committed.topics[0].partitions[0].error_code, 0);
        }
        let all = OffsetFetchRequest::default().with_group_id(group.clone()).with_topics(None);
        let fetched = client.ask(&all, 7).await.topics.remove(0);
        assert_eq!((fetched.name.as_str(), fetched.partitions[0].committed_offset), (called, 1));
    }
    fixture.stop().await;
}
