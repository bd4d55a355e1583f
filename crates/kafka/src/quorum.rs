//! DescribeQuorum: the controllers of the cluster, of which this broker is the only one. It keeps no log of metadata, so all offsets
//! and times of that are unknown.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_quorum_response::{Listener, Node, PartitionData, ReplicaState, TopicData};
use kafka_protocol::messages::{BrokerId, DescribeQuorumRequest, DescribeQuorumResponse};
use kafka_protocol::protocol::StrBytes;

use crate::broker::NODE_ID;
use crate::request_context::RequestContext;

/// The topic that Kafka's controllers keep.
const METADATA_TOPIC: &str = "__cluster_metadata";
const LISTENER: &str = "CONTROLLER";
const UNKNOWN: i64 = -1;

pub(crate) async fn describe_quorum(request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let is_metadata = *topic.topic_name.0 == *METADATA_TOPIC;
        let partitions = topic.partitions.iter().map(|asked| describe(asked.partition_index, is_metadata));
        TopicData::default().with_partitions(partitions.collect()).with_topic_name(topic.topic_name)
    });
    let (host, port) = context.address();
    let listener = Listener::default()
        .with_name(StrBytes::from_static_str(LISTENER))
        .with_host(host)
        .with_port(u16::try_from(port).unwrap_or(0));
    let node = Node::default().with_node_id(BrokerId(NODE_ID)).with_listeners(vec![listener]);
    let answer = DescribeQuorumResponse::default().with_topics(topics.collect());
    if context.version < 2 { answer } else { answer.with_nodes(vec![node]) }
}

fn describe(partition: i32, is_metadata: bool) -> PartitionData {
    let answer = PartitionData::default().with_partition_index(partition);
    if !is_metadata || partition != 0 {
        return answer.with_error_code(ResponseError::UnknownTopicOrPartition.code());
    }
    let voter = ReplicaState::default()
        .with_replica_id(BrokerId(NODE_ID))
        .with_log_end_offset(UNKNOWN)
        .with_last_fetch_timestamp(UNKNOWN)
        .with_last_caught_up_timestamp(UNKNOWN);
    answer.with_leader_id(BrokerId(NODE_ID)).with_high_watermark(UNKNOWN).with_current_voters(vec![voter])
}
