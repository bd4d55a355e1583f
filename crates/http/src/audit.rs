//! Requests that an audit trail keeps: those of administration, with their outcome.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use millstream_types::{AuditEvent, AuditTrail, TenantId};
use percent_encoding::percent_decode_str;

use crate::Identity;
use crate::api::MountedRoute;
use crate::head::RequestHead;

/// Longest object of an event; a longer path is cut.
const OBJECT_MAX_CHARS: usize = 256;

/// The name of what a request has made, for the audit trail; a handler adds it to its answer where the path does not say it.
#[derive(Debug, Clone)]
pub struct AuditedObject(pub String);

/// The tenant that a request concerned, for the audit trail, where it is neither the caller's nor named by the path; a handler
/// adds it to its answer.
#[derive(Debug, Clone)]
pub struct AuditedTenant(pub TenantId);

/// The trail of a listener, and the listener's name.
#[derive(Debug, Clone)]
pub(crate) struct ListenerAudit {
    pub(crate) trail: Arc<dyn AuditTrail>,
    pub(crate) listener: &'static str,
}

/// An event without its outcome. Dropping it records that the outcome is unknown.
pub(crate) struct AuditedRequest {
    trail: Arc<dyn AuditTrail>,
    event: Option<AuditEvent>,
}

impl ListenerAudit {
    /// Begins the event of a request, if its route is audited.
    pub(crate) fn begin(
        &self,
        route: &MountedRoute,
        identity: &Identity,
        head: RequestHead<'_>,
        peer: SocketAddr,
    ) -> Option<AuditedRequest> {
        if !route.is_audited || head.method.is_safe() {
            return None;
        }
        let principal = &identity.principal;
        let event = AuditEvent {
            tenant: Some(principal.tenant.clone()),
            caller: format!("{} ({})", principal.name, peer.ip()),
            listener: self.listener,
            action: format!("{} {}", head.method, route.path),
            object: percent_decode_str(head.path).decode_utf8_lossy().chars().take(OBJECT_MAX_CHARS).collect(),
            outcome: String::new(),
        };
        Some(AuditedRequest { trail: Arc::clone(&self.trail), event: Some(event) })
    }
}

impl AuditedRequest {
    /// Records the event with the outcome that the answer tells.
    pub(crate) fn end(mut self, response: &mut Response) {
        let Some(mut event) = self.event.take() else { return };
        if let Some(AuditedObject(object)) = response.extensions_mut().remove() {
            event.object = object.chars().take(OBJECT_MAX_CHARS).collect();
        }
        if let Some(AuditedTenant(tenant)) = response.extensions_mut().remove() {
            event.tenant = Some(tenant);
        }
        event.outcome = outcome(response.status());
        self.trail.record(event);
    }
}

impl Drop for AuditedRequest {
    fn drop(&mut self) {
        if let Some(mut event) = self.event.take() {
            event.outcome = "unknown: the client left before the answer".to_owned();
            self.trail.record(event);
        }
    }
}

fn outcome(status: StatusCode) -> String {
    let word = match status.as_u16() {
        ..400 => "done",
        400..500 => "refused",
        _ => "failed",
    };
    format!("{word} ({})", status.as_u16())
}
