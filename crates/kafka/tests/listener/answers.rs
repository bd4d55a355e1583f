//! Requests that Kafka answers in a way that one would not expect, as a real one does (`kafka_clients/rows.rs` compares them).

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::{
    CreateTopicsRequest, DescribeTransactionsRequest, IncrementalAlterConfigsRequest, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use millstream_kafka::KafkaConfig;
use millstream_log::{Log as _, TopicConfig};
use millstream_types::{TenantId, TopicName};

use crate::client::{Fixture, name};

const TOPIC: i8 = 2;
const SET: i8 = 0;
const DELETE: i8 = 1;

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_no_topic_of_no_value_or_changed_twice_are_refused_and_unknown_ones_deleted() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let mut client = fixture.connect().await;
    let change = |operation, setting: &str, value: Option<&str>| {
        let change = AlterableConfig::default().with_name(text(setting)).with_config_operation(operation);
        change.with_value(value.map(text))
    };
    let retention = |operation| change(operation, "retention.ms", Some("60000"));
    let invalid = ResponseError::InvalidRequest.code();
    for (topic, changes, code) in [
        ("", vec![retention(SET)], invalid),
        ("orders", vec![retention(SET), retention(DELETE)], invalid),
        ("orders", vec![retention(SET), retention(SET)], invalid),
        ("orders", vec![change(DELETE, "no.such", None)], 0),
        ("orders", vec![change(SET, "no.such", Some("1"))], ResponseError::InvalidConfig.code()),
    ] {
        let resource = AlterConfigsResource::default()
            .with_resource_type(TOPIC)
            .with_resource_name(text(topic))
            .with_configs(changes.clone());
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        assert_eq!(client.ask(&request, 1).await.responses[0].error_code, code, "{topic}: {changes:?}");
    }
    let orders = TopicName::parse("orders", &TenantId::default()).unwrap();
    assert_eq!(fixture.log.topic(&orders).unwrap().config, TopicConfig::default(), "nothing has changed");

    let unset = CreatableTopicConfig::default().with_name(text("retention.ms")).with_value(None);
    let topic = CreatableTopic::default().with_name(name("made")).with_num_partitions(1).with_replication_factor(1);
    let request = CreateTopicsRequest::default().with_topics(vec![topic.with_configs(vec![unset])]);
    assert_eq!(client.ask(&request, 7).await.topics[0].error_code, ResponseError::InvalidConfig.code());

    for (id, error) in [("", ResponseError::InvalidRequest), ("t", ResponseError::TransactionalIdNotFound)] {
        let request = DescribeTransactionsRequest::default().with_transactional_ids(vec![TransactionalId(text(id))]);
        assert_eq!(client.ask(&request, 0).await.transaction_states[0].error_code, error.code());
    }
    fixture.stop().await;
}
