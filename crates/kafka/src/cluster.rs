//! The cluster, which is this broker.

use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{
    BrokerId, DescribeClusterRequest, DescribeClusterResponse, FindCoordinatorRequest, FindCoordinatorResponse,
};
use kafka_protocol::protocol::StrBytes;

use crate::authorized_operations::{self, NOT_ASKED};
use crate::broker::{CLUSTER_ID, NODE_ID};
use crate::request_context::RequestContext;

/// The first version in which several coordinators are asked for at once.
const MANY_COORDINATORS: i16 = 4;

pub(crate) async fn describe_cluster(
    request: DescribeClusterRequest,
    context: RequestContext,
) -> DescribeClusterResponse {
    let (host, port) = context.address();
    let broker = DescribeClusterBroker::default().with_broker_id(BrokerId(NODE_ID)).with_host(host).with_port(port);
    let operations = match request.include_cluster_authorized_operations {
        true => authorized_operations::of_cluster(context.roles()),
        false => NOT_ASKED,
    };
    DescribeClusterResponse::default()
        .with_cluster_authorized_operations(operations)
        .with_endpoint_type(request.endpoint_type)
        .with_cluster_id(StrBytes::from_static_str(CLUSTER_ID))
        .with_controller_id(BrokerId(NODE_ID))
        .with_brokers(vec![broker])
}

/// FindCoordinator: this broker coordinates all groups and transactions.
pub(crate) async fn find_coordinator(
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> FindCoordinatorResponse {
    let (host, port) = context.address();
    if context.version < MANY_COORDINATORS {
        return FindCoordinatorResponse::default().with_node_id(BrokerId(NODE_ID)).with_host(host).with_port(port);
    }
    let coordinators = request.coordinator_keys.into_iter().map(|key| {
        Coordinator::default().with_key(key).with_node_id(BrokerId(NODE_ID)).with_host(host.clone()).with_port(port)
    });
    FindCoordinatorResponse::default().with_coordinators(coordinators.collect())
}
