//! ApiVersions: the served kinds of requests and their versions.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};

use crate::broker::Broker;
use crate::request_context::RequestContext;

pub(crate) async fn api_versions(_: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse {
    all(&context.broker)
}

/// The response to an unknown version of ApiVersions, encoded in version 0. The client learns from it which version to use.
pub(crate) fn unsupported(broker: &Broker) -> ApiVersionsResponse {
    all(broker).with_error_code(ResponseError::UnsupportedVersion.code())
}

fn all(broker: &Broker) -> ApiVersionsResponse {
    let apis = broker.supported_apis.iter();
    let api_keys =
        apis.map(|api| ApiVersion::default().with_api_key(api.key).with_min_version(api.min).with_max_version(api.max));
    ApiVersionsResponse::default().with_api_keys(api_keys.collect())
}
