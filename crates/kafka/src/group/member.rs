//! One member of a group.

use std::time::Duration;

use bytes::Bytes;

/// Names the call that waits for an answer; the machine hands it back with the answer.
pub(crate) type Ticket = u64;

/// What a member says when it joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Join {
    /// Empty if it has none yet.
    pub(crate) member_id: String,
    /// The id it gets if it has none: unique for ever.
    pub(crate) new_id: String,
    /// Given by members that keep their place over a restart of their own.
    pub(crate) instance: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) session_timeout: Duration,
    pub(crate) rebalance_timeout: Duration,
    pub(crate) protocol_type: String,
    /// Protocols that it speaks, the preferred first, each with what it tells the leader.
    pub(crate) protocols: Vec<(String, Bytes)>,
    /// Whether it has to come back with the id it is given before it is taken (JoinGroup v4 and later).
    pub(crate) must_come_back: bool,
    /// Whether it understands a leader's answer that tells it to assign nothing (JoinGroup v9 and later).
    pub(crate) may_skip_assignment: bool,
}

/// What is kept of a member.
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
    pub(crate) joining: Option<Ticket>,
    /// It waits for what the leader assigns.
    pub(crate) syncing: Option<Ticket>,
    /// It has asked for its assignment in this generation.
    pub(crate) has_synced: bool,
}

impl Member {
    pub(crate) fn new(join: Join, now: Duration) -> Self {
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

    /// Takes over what it says now; its place and its assignment stay.
    pub(crate) fn update(&mut self, join: Join, now: Duration) {
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

    /// What it tells the leader under `protocol`.
    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        let spoken = self.protocols.iter().find(|(name, _)| name == protocol);
        spoken.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
    }
}
