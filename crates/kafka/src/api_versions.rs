//! What is served, in which versions.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};

use crate::caller::Caller;
use crate::node::Node;

/// ApiVersions.
pub(crate) async fn api_versions(_: ApiVersionsRequest, caller: Caller) -> ApiVersionsResponse {
    all(&caller.node)
}

/// The answer to a version that nobody knows, in version 0: by it the client learns which one to ask in.
pub(crate) fn unsupported(node: &Node) -> ApiVersionsResponse {
    all(node).with_error_code(ResponseError::UnsupportedVersion.code())
}

fn all(node: &Node) -> ApiVersionsResponse {
    let rows = node.table.rows().iter();
    let api_keys =
        rows.map(|row| ApiVersion::default().with_api_key(row.key).with_min_version(row.min).with_max_version(row.max));
    ApiVersionsResponse::default().with_api_keys(api_keys.collect())
}
