//! The response to an unsupported kind or version of request: `UNSUPPORTED_VERSION`, if the kind's response has a field for
//! it. The connection stays open.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::*;

use crate::response::{Response, encode};

/// The response to an unsupported request; `None` if the broker must close the connection instead, as Kafka does.
pub(crate) fn response(key: i16, version: i16, correlation_id: i32) -> Option<Response> {
    let code = ResponseError::UnsupportedVersion.code();
    macro_rules! refuse {
        ($($api:ident => $response:ident,)*) => {
            match ApiKey::try_from(key).ok()? {
                $(ApiKey::$api => {
                    encode(&$response::default().with_error_code(code), key, version, correlation_id).ok()
                })*
                _ => None,
            }
        };
    }
    refuse! {
        AddOffsetsToTxn => AddOffsetsToTxnResponse,
        AddPartitionsToTxn => AddPartitionsToTxnResponse,
        AddRaftVoter => AddRaftVoterResponse,
        AlterPartitionReassignments => AlterPartitionReassignmentsResponse,
        ConsumerGroupHeartbeat => ConsumerGroupHeartbeatResponse,
        CreateDelegationToken => CreateDelegationTokenResponse,
        DescribeClientQuotas => DescribeClientQuotasResponse,
        DescribeCluster => DescribeClusterResponse,
        DescribeDelegationToken => DescribeDelegationTokenResponse,
        DescribeLogDirs => DescribeLogDirsResponse,
        DescribeQuorum => DescribeQuorumResponse,
        DescribeUserScramCredentials => DescribeUserScramCredentialsResponse,
        ElectLeaders => ElectLeadersResponse,
        EndTxn => EndTxnResponse,
        ExpireDelegationToken => ExpireDelegationTokenResponse,
        Fetch => FetchResponse,
        FindCoordinator => FindCoordinatorResponse,
        GetTelemetrySubscriptions => GetTelemetrySubscriptionsResponse,
        Heartbeat => HeartbeatResponse,
        InitProducerId => InitProducerIdResponse,
        JoinGroup => JoinGroupResponse,
        LeaveGroup => LeaveGroupResponse,
        ListConfigResources => ListConfigResourcesResponse,
        ListGroups => ListGroupsResponse,
        ListPartitionReassignments => ListPartitionReassignmentsResponse,
        ListTransactions => ListTransactionsResponse,
        OffsetDelete => OffsetDeleteResponse,
        PushTelemetry => PushTelemetryResponse,
        RemoveRaftVoter => RemoveRaftVoterResponse,
        RenewDelegationToken => RenewDelegationTokenResponse,
        ShareAcknowledge => ShareAcknowledgeResponse,
        ShareFetch => ShareFetchResponse,
        ShareGroupHeartbeat => ShareGroupHeartbeatResponse,
        SyncGroup => SyncGroupResponse,
        UnregisterBroker => UnregisterBrokerResponse,
        UpdateFeatures => UpdateFeaturesResponse,
    }
}
