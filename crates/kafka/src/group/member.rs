//! One member of a group.

use std::time::Duration;

use bytes::Bytes;

/// Names the call that waits for an answer; the machine hands it back with the answer.
pub(crate) type CallId = u64;

/// A member's request to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JoinRequest {
    /// Empty if it has none yet.
    pub(crate) member_id: String,
    /// The id it gets if it has none: unique for ever.
    pub(crate) new_id: String,
    /// The instance id of a static member, which keeps its place when it restarts.
    pub(crate) instance: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) session_timeout: Duration,
    pub(crate) rebalance_timeout: Duration,
    pub(crate) protocol_type: String,
    /// The supported protocols, the preferred one first, each with its metadata for the leader.
    pub(crate) protocols: Vec<(String, Bytes)>,
    /// The member must join again with the id that it gets (JoinGroup v4 and later).
    pub(crate) must_come_back: bool,
    /// The member understands a leader's response that tells it to assign nothing (JoinGroup v9 and later).
    pub(crate) may_skip_assignment: bool,
}

/// The state of a member.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) instance: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) session_timeout: Duration,
    pub(crate) rebalance_timeout: Duration,
    pub(crate) protocols: Vec<(String, Bytes)>,
    pub(crate) assignment: Bytes,
    /// When it counts as dead, unless it is heard of before, or waits for an answer itself.
    pub(crate) expires: Duration,
    /// It has joined the rebalance that is going on, and waits for its end.
    pub(crate) joining: Option<CallId>,
    /// It waits for what the leader assigns.
    pub(crate) syncing: Option<CallId>,
    /// It has asked for its assignment in this generation.
    pub(crate) has_synced: bool,
}

impl Member {
    pub(crate) fn new(join: JoinRequest, now: Duration) -> Self {
        Self {
            expires: now + join.session_timeout,
            instance: join.instance,
            client_id: join.client_id,
            client_host: join.client_host,
            session_timeout: join.session_timeout,
            rebalance_timeout: join.rebalance_timeout,
            protocols: join.protocols,
            assignment: Bytes::new(),
            joining: None,
            syncing: None,
            has_synced: false,
        }
    }

    /// Replaces the member's settings with those of `join`; its place and its assignment stay.
    pub(crate) fn update(&mut self, join: JoinRequest, now: Duration) {
        self.client_id = join.client_id;
        self.client_host = join.client_host;
        self.session_timeout = join.session_timeout;
        self.rebalance_timeout = join.rebalance_timeout;
        self.protocols = join.protocols;
        self.heard_of(now);
    }

    pub(crate) fn heard_of(&mut self, now: Duration) {
        self.expires = now + self.session_timeout;
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.joining.is_some() || self.syncing.is_some()
    }

    pub(crate) fn speaks(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|(name, _)| name == protocol)
    }

    /// The member's metadata for the leader under `protocol`.
    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        let spoken = self.protocols.iter().find(|(name, _)| name == protocol);
        spoken.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
    }
}
