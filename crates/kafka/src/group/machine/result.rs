//! The results of the calls that wait in a group.

use bytes::Bytes;
use kafka_protocol::error::ResponseError;

use crate::group::member::CallId;

/// An answer to a join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JoinResult {
    pub(crate) generation: i32,
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) leader: String,
    pub(crate) member_id: String,
    pub(crate) skip_assignment: bool,
    /// For the leader: all members with their instance and metadata.
    pub(crate) members: Vec<(String, Option<String>, Bytes)>,
}

/// A refused join, with the id that the member has, or gets with [`ResponseError::MemberIdRequired`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JoinError {
    pub(crate) error: ResponseError,
    pub(crate) member_id: String,
}

/// An answer to a sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyncResult {
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) assignment: Bytes,
}

/// An answer to a call that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallResult {
    Join(CallId, Result<JoinResult, JoinError>),
    Sync(CallId, Result<SyncResult, ResponseError>),
}
