//! The limits and times of consumer groups.

use std::time::Duration;

/// The operator's settings for consumer groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConfig {
    /// Time that the first rebalance of an empty group waits for further members; each new member extends it.
    pub initial_rebalance_delay: Duration,
    /// Shortest session timeout that a member may ask for.
    pub session_timeout_min: Duration,
    /// Longest session timeout that a member may ask for.
    pub session_timeout_max: Duration,
    /// Longest rebalance timeout; what a member asks for beyond it is cut to it.
    pub rebalance_timeout_max: Duration,
    /// Groups of all tenants, with members or with positions only. A tenant begins no more than it leaves free of them.
    pub groups_max: usize,
    /// Groups of one tenant.
    pub groups_per_tenant_max: usize,
    /// Members of one group, those included that have been given an id and have not joined with it yet.
    pub group_members_max: usize,
    /// Bytes that one member may send along when it joins: names and metadata of all its protocols, or its subscription.
    pub member_metadata_max_bytes: usize,
    /// Time after its last heartbeat at which a member that speaks the protocol of KIP-848 is removed.
    pub consumer_session_timeout: Duration,
    /// Interval at which such members send heartbeats, and at which new topics and partitions are noticed for them.
    pub consumer_heartbeat_interval: Duration,
    /// Time after a start within which members from before it may continue under their ids.
    pub return_window: Duration,
    /// Time that the first rebalance after a start waits for further members from before it: clients take that
    /// long to notice the restart.
    pub return_delay: Duration,
    /// Time that the positions of a group without members are kept, counted from its last member or its last commit.
    pub offsets_retention: Duration,
    /// Interval between two searches for expired positions.
    pub offsets_check_interval: Duration,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            initial_rebalance_delay: Duration::from_millis(100),
            session_timeout_min: Duration::from_secs(1),
            session_timeout_max: Duration::from_secs(30 * 60),
            rebalance_timeout_max: Duration::from_secs(30 * 60),
            groups_max: 20_000,
            groups_per_tenant_max: 10_000,
            group_members_max: 1_000,
            member_metadata_max_bytes: 256 << 10,
            consumer_session_timeout: Duration::from_secs(45),
            consumer_heartbeat_interval: Duration::from_secs(5),
            return_window: Duration::from_secs(60),
            return_delay: Duration::from_millis(3_500),
            offsets_retention: Duration::from_secs(7 * 24 * 60 * 60),
            offsets_check_interval: Duration::from_secs(10 * 60),
        }
    }
}
