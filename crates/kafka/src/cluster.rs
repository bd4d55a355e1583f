//! The cluster, which is this node.

use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{
    BrokerId, DescribeClusterRequest, DescribeClusterResponse, FindCoordinatorRequest, FindCoordinatorResponse,
};
use kafka_protocol::protocol::StrBytes;

use crate::caller::Caller;
use crate::node::{CLUSTER_ID, NODE_ID};

/// The first version in which several coordinators are asked for at once.
const MANY_COORDINATORS: i16 = 4;

/// DescribeCluster.
pub(crate) async fn describe_cluster(request: DescribeClusterRequest, caller: Caller) -> DescribeClusterResponse {
    let (host, port) = caller.address();
    let broker = DescribeClusterBroker::default().with_broker_id(BrokerId(NODE_ID)).with_host(host).with_port(port);
    DescribeClusterResponse::default()
        .with_endpoint_type(request.endpoint_type)
        .with_cluster_id(StrBytes::from_static_str(CLUSTER_ID))
        .with_controller_id(BrokerId(NODE_ID))
        .with_brokers(vec![broker])
}

/// FindCoordinator: of everything, this node.
pub(crate) async fn find_coordinator(request: FindCoordinatorRequest, caller: Caller) -> FindCoordinatorResponse {
    let (host, port) = caller.address();
    if caller.version < MANY_COORDINATORS {
        return FindCoordinatorResponse::default().with_node_id(BrokerId(NODE_ID)).with_host(host).with_port(port);
    }
    let coordinators = request.coordinator_keys.into_iter().map(|key| {
        Coordinator::default().with_key(key).with_node_id(BrokerId(NODE_ID)).with_host(host.clone()).with_port(port)
    });
    FindCoordinatorResponse::default().with_coordinators(coordinators.collect())
}
