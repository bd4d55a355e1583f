//! ApiVersions: the served kinds of requests and their versions.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::StrBytes;

use crate::broker::Broker;
use crate::request_context::RequestContext;

/// The features by which clients choose their protocol, and the version of each: groups with the consumer protocol (KIP-848),
/// and transactions that have an epoch each (KIP-890).
const FEATURES: [(&str, i16); 2] = [("group.version", 1), ("transaction.version", 2)];
/// The features never change while the server runs.
const FEATURES_EPOCH: i64 = 0;

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
    // From 1, as older clients refuse 0.
    let supported = FEATURES.map(|(name, version)| {
        let key = SupportedFeatureKey::default().with_name(StrBytes::from_static_str(name));
        key.with_min_version(1).with_max_version(version)
    });
    let finalized = FEATURES.map(|(name, version)| {
        let key = FinalizedFeatureKey::default().with_name(StrBytes::from_static_str(name));
        key.with_min_version_level(version).with_max_version_level(version)
    });
    ApiVersionsResponse::default()
        .with_api_keys(api_keys.collect())
        .with_supported_features(supported.to_vec())
        .with_finalized_features_epoch(FEATURES_EPOCH)
        .with_finalized_features(finalized.to_vec())
}
