//! The cluster, which is this broker.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{
    BrokerId, DescribeClusterRequest, DescribeClusterResponse, FindCoordinatorRequest, FindCoordinatorResponse,
};
use kafka_protocol::protocol::StrBytes;

use crate::api_error::ApiError;
use crate::authorized_operations::{self, NOT_ASKED};
use crate::broker::{CLUSTER_ID, NODE_ID};
use crate::request_context::RequestContext;

/// The first version in which several coordinators are asked for at once.
const MANY_COORDINATORS: i16 = 4;
/// The types of keys.
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
/// The number of a broker where there is none.
const NO_NODE: BrokerId = BrokerId(-1);

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
    let kind = request.key_type;
    if context.version < MANY_COORDINATORS {
        let answer = FindCoordinatorResponse::default();
        return match check_key(&context, kind, &request.key) {
            Ok(()) => answer.with_node_id(BrokerId(NODE_ID)).with_host(host).with_port(port),
            Err(refusal) => answer
                .with_error_code(refusal.code())
                .with_error_message(refusal.message())
                .with_node_id(NO_NODE)
                .with_port(-1),
        };
    }
    let coordinators = request.coordinator_keys.into_iter().map(|key| {
        let checked = check_key(&context, kind, &key);
        let answer = Coordinator::default().with_key(key);
        match checked {
            Ok(()) => answer.with_node_id(BrokerId(NODE_ID)).with_host(host.clone()).with_port(port),
            Err(refusal) => answer
                .with_error_code(refusal.code())
                .with_error_message(refusal.message())
                .with_node_id(NO_NODE)
                .with_port(-1),
        }
    });
    FindCoordinatorResponse::default().with_coordinators(coordinators.collect())
}

/// Refuses a group or transactional id that the client may not use.
fn check_key(context: &RequestContext, kind: i8, key: &str) -> Result<(), ApiError> {
    let namespace = &context.broker.namespace;
    let (noun, error) = match kind {
        GROUP if !namespace.has_group(key) => ("group", ResponseError::GroupAuthorizationFailed),
        TRANSACTION if !namespace.has_transactional_id(key) => {
            ("transactional id", ResponseError::TransactionalIdAuthorizationFailed)
        }
        _ => return Ok(()),
    };
    let why =
        format!("{noun} '{key}' is not among those that the API token is limited to; use another, or another token");
    Err(ApiError::new(error, why))
}
