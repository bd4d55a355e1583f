//! Epochs of partitions, and the quorum of the only broker.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_quorum_request::{PartitionData, TopicData};
use kafka_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use kafka_protocol::messages::{BrokerId, DescribeQuorumRequest, OffsetForLeaderEpochRequest};
use millstream_kafka::KafkaConfig;
use millstream_log::{Log as _, TopicConfig};
use millstream_types::{Compression, TenantId, TopicName, TopicPartition};

use crate::client::{Client, Fixture, batch, name};

/// Error, epoch and end for an epoch of partition 0 of a topic, asked for by a client that knows the epoch `current`.
async fn end_of(client: &mut Client, topic: &str, current: i32, epoch: i32, version: i16) -> (i16, i32, i64) {
    let mut partition = OffsetForLeaderPartition::default().with_leader_epoch(epoch);
    partition.current_leader_epoch = current;
    let topic = OffsetForLeaderTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
    let answer = client.ask(&OffsetForLeaderEpochRequest::default().with_topics(vec![topic]), version).await;
    let found = &answer.topics[0].partitions[0];
    (found.error_code, found.leader_epoch, found.end_offset)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_each_epoch_is_told_to_readers_that_look_for_lost_records() {
    let mut fixture = Fixture::start(KafkaConfig::default()).await;
    fixture.create("orders", &TopicConfig::default());
    let id = TopicPartition::new(TopicName::user("orders", &TenantId::default()).unwrap(), 0);
    let mut ends = Vec::new();
    for _ in 0..3 {
        let mut client = fixture.connect().await;
        let produced = client.produce("orders", -1, batch(&["a", "b"], Compression::None)).await;
        let present = fixture.log.partition(&id).unwrap().offsets().epoch.0 as i32;
        ends.push((present, produced.base_offset + 2));
        for version in 2..=4 {
            for (epoch, end) in &ends {
                for current in [-1, present] {
                    assert_eq!(end_of(&mut client, "orders", current, *epoch, version).await, (0, *epoch, *end));
                }
            }
            let unknown = (0, -1, -1);
            for epoch in [present + 1, -1, i32::MAX] {
                assert_eq!(end_of(&mut client, "orders", -1, epoch, version).await, unknown, "{epoch}");
            }
            let (old, new) = (ResponseError::FencedLeaderEpoch.code(), ResponseError::UnknownLeaderEpoch.code());
            assert_eq!(end_of(&mut client, "orders", present - 1, present, version).await.0, old);
            assert_eq!(end_of(&mut client, "orders", present + 1, present, version).await.0, new);
            let missing = ResponseError::UnknownTopicOrPartition.code();
            assert_eq!(end_of(&mut client, "nowhere", -1, present, version).await, (missing, -1, -1));
        }
        drop(client);
        fixture = fixture.restart(KafkaConfig::default()).await;
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_broker_is_the_whole_quorum() {
    let fixture = Fixture::start(KafkaConfig::default()).await;
    let mut client = fixture.connect().await;
    for version in 0..=2 {
        let asked = [("__cluster_metadata", 0), ("__cluster_metadata", 1), ("orders", 0)].map(|(topic, partition)| {
            let partition = PartitionData::default().with_partition_index(partition);
            TopicData::default().with_topic_name(name(topic)).with_partitions(vec![partition])
        });
        let answer = client.ask(&DescribeQuorumRequest::default().with_topics(asked.to_vec()), version).await;
        assert_eq!(answer.error_code, 0);
        let codes: Vec<_> = answer.topics.iter().map(|topic| topic.partitions[0].error_code).collect();
        let missing = ResponseError::UnknownTopicOrPartition.code();
        assert_eq!(codes, [0, missing, missing]);
        let quorum = &answer.topics[0].partitions[0];
        assert_eq!((quorum.leader_id, quorum.current_voters.len()), (BrokerId(1), 1));
        assert_eq!((quorum.current_voters[0].replica_id, quorum.observers.len()), (BrokerId(1), 0));
        let nodes: Vec<_> = answer.nodes.iter().map(|node| (node.node_id, node.listeners[0].port)).collect();
        let this = (BrokerId(1), fixture.serving.address().port());
        assert_eq!(nodes, if version < 2 { vec![] } else { vec![this] });
    }
    fixture.stop().await;
}
