//! Names of sessions and groups within the broker of a tenant.

/// Names a session within its tenant, as long as the process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SessionId(pub(super) u64);

/// Names a group within its tenant, as long as the process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupId(pub(super) u64);

/// The session or group that receives the messages of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SubscriberId {
    Session(SessionId),
    Group(GroupId),
}
