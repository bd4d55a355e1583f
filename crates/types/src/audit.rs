//! Administrative changes and refused logins, as they are kept for audits.

use crate::TenantId;

/// Something that somebody did, or tried to do. It never has a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// The tenant in which it was done; `None` if no tenant is known, as of a failed login.
    pub tenant: Option<TenantId>,
    /// The caller's name, or its address if it has no login.
    pub caller: String,
    /// The listener over which it came.
    pub listener: &'static str,
    /// The operation, such as `DELETE /api/streams/{stream}` or `CreateTopics`.
    pub action: String,
    /// The object, such as a path or the name of a topic.
    pub object: String,
    /// `done`, `refused`, `failed` or `unknown`, with the protocol's own code where there is one.
    pub outcome: String,
}

/// Keeps events for audits. Many threads call it, so it must not block.
pub trait AuditTrail: Send + Sync + 'static {
    /// Keeps an event, or counts it as lost.
    fn record(&self, event: AuditEvent);
}

impl std::fmt::Debug for dyn AuditTrail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuditTrail")
    }
}
