//! The request pipeline: the steps that every request takes, whichever head has read it.
//!
//! Two heads read requests: `fast_head` those that arrive whole, from the connection's buffer, and `hyper_head` all
//! others. Both take the same steps: match the route, check the sizes, authenticate, account for memory, call the
//! handler, await the answer within the deadline, and conclude the [`Exchange`](crate::exchange::Exchange).
//!
//! Routes, metrics and styles are resolved at start, so a request looks up nothing by name.

use std::sync::Arc;

use axum::body::HttpBody;
use axum::http::Version;
use axum::response::Response;
use millstream_net::{ListenerFull, PendingLogin};
use millstream_types::{ErrorCode, Grant, MemoryBudget, Principal, Role, Roles, TenantId};
use tokio::time::Instant;

use crate::api::{Api, MountedRoute};
use crate::audit::ListenerAudit;
use crate::authenticator::{Authenticator, Claim, Verdict};
use crate::context::{ConnectionPeer, REQUEST_TIMEOUT_HEADER, RequestTime, Shutdown};
use crate::exchange::RequestOrigin;
use crate::extract::body_too_large;
use crate::head::RequestHead;
use crate::memory::{ANSWER_FREE_BYTES, ResponseMemory, no_memory};
use crate::observer::{Begun, ObservedRequest};
use crate::path_params::PathParams;
use crate::{Access, Identity, ListenerLimits, Problem, Reach, Reason};

/// The state that all connections of a listener share.
pub(crate) struct Pipeline {
    pub(crate) api: Arc<Api>,
    pub(crate) authenticator: Arc<dyn Authenticator>,
    pub(crate) limits: ListenerLimits,
    pub(crate) memory: Option<MemoryBudget>,
    pub(crate) audit: Option<ListenerAudit>,
    pub(crate) shutdown: Shutdown,
}

impl Pipeline {
    /// Makes all checks that need no waiting, and returns the time that the request may take. `announced` is the length
    /// of the body, if it is known.
    pub(crate) fn check(
        &self,
        route: &MountedRoute,
        head: RequestHead<'_>,
        announced: Option<u64>,
        started: Instant,
    ) -> Result<RequestTime, Problem> {
        check_head(head, &self.limits)?;
        if let Some(size) = announced.filter(|size| *size > route.limits.body_max_bytes) {
            return Err(body_too_large(Some(size), &route.limits));
        }
        RequestTime::new(started, route.limits.timeout, head.headers.get(REQUEST_TIMEOUT_HEADER))
    }

    pub(crate) fn authenticate<'a>(
        &'a self,
        route: &'a MountedRoute,
        head: RequestHead<'a>,
        params: &'a PathParams,
        client: &'a ConnectionPeer,
    ) -> Verdict<'a> {
        self.authenticator.authenticate(Claim {
            method: head.method,
            path: head.path,
            query: head.target.get(head.path.len() + 1..),
            headers: head.headers,
            peer: client.peer,
            client_certificate: client.tls.client_certificate.as_ref(),
            cors: route.group.cors.as_ref(),
            params,
            tenant_param: route.tenant_param,
        })
    }

    /// Charges the answer to the memory of the caller's tenant until it is sent, unless its handler has done so. An answer to
    /// a request that may have changed something is sent even without memory.
    pub(crate) fn with_memory(
        &self,
        route: &MountedRoute,
        caller: Option<&Principal>,
        is_read: bool,
        mut response: Response,
    ) -> Result<Response, Problem> {
        let size = response.body().size_hint().exact().unwrap_or(0);
        let counts = size > ANSWER_FREE_BYTES && response.extensions().get::<ResponseMemory>().is_none();
        let Some(memory) = self.memory.as_ref().filter(|_| counts) else { return Ok(response) };
        let taken = match caller {
            Some(Principal { tenant, .. }) => {
                memory.take_for(tenant, size).ok_or_else(|| no_memory("an answer", size, &memory.for_tenant(tenant)))
            }
            None => memory.take(size).ok_or_else(|| no_memory("an answer", size, memory)),
        };
        match taken {
            Ok(grant) => drop(response.extensions_mut().insert::<ResponseMemory>(Arc::new(grant))),
            Err(problem) if is_read && route.access != Access::Public => return Err(problem),
            Err(_) => {}
        }
        Ok(response)
    }

    /// Takes the memory of a body of this size for the caller's tenant; `None` without a body or a budget.
    pub(crate) fn memory_for(&self, identity: Option<&Identity>, size: u64) -> Result<Option<Grant>, Problem> {
        let Some(memory) = self.memory.as_ref().filter(|_| size > 0) else { return Ok(None) };
        let nobody = TenantId::default();
        let tenant = identity.map_or(&nobody, |identity| &identity.principal.tenant);
        let taken = memory.take_for(tenant, size);
        taken.map(Some).ok_or_else(|| no_memory("a body", size, &memory.for_tenant(tenant)))
    }
}

/// The connection has logged in by its first request, for the tenant of that.
pub(crate) fn log_in(login: &PendingLogin, identity: &Identity) -> Result<(), Problem> {
    login.succeeded(&identity.principal.tenant).map_err(|ListenerFull { setting, max, of_tenant }| {
        let why = format!("this listener has no room for another connection; {of_tenant} are of this tenant");
        Problem::new(Reason::Code(ErrorCode::Overloaded), why)
            .value(max)
            .rule(format!("{setting} = {max}"))
            .remedy("close some, or raise the limit")
    })
}

/// Tells the observer of the route's group, if there is one, that a request begins.
pub(crate) fn observe(
    route: &MountedRoute,
    identity: &Identity,
    head: RequestHead<'_>,
    origin: RequestOrigin,
    request_bytes: u64,
) -> Option<ObservedRequest> {
    let observer = route.group.observer.as_ref()?;
    let begun = Begun {
        tenant: &identity.principal.tenant,
        method: head.method,
        target: head.target,
        peer: origin.peer,
        trace: origin.trace,
        headers: head.headers,
    };
    Some(ObservedRequest { observer: observer.clone(), mark: observer.begun(&begun), request_bytes })
}

fn check_head(head: RequestHead<'_>, limits: &ListenerLimits) -> Result<(), Problem> {
    let uri_bytes = head.target.len();
    if uri_bytes > limits.uri_max_bytes {
        return Err(Problem::new(Reason::UriTooLong, format!("a request target of {uri_bytes} bytes is too long"))
            .value(uri_bytes)
            .rule(format!("http.uri_max_bytes = {}", limits.uri_max_bytes))
            .remedy("move long parameters to the body, or raise the limit"));
    }
    let (mut hosts, mut head_bytes) = (0, 0);
    for (name, value) in head.headers.iter() {
        head_bytes += name.len() + value.len();
        hosts += usize::from(name.eq_ignore_ascii_case("host"));
    }
    check_host(hosts, head.version)?;
    if let Some(coding) = head.headers.get("transfer-encoding").filter(|coding| !is_chunked(coding)) {
        return Err(Problem::new(Reason::UnsupportedTransferCoding, "this transfer coding is not served")
            .value(String::from_utf8_lossy(coding))
            .rule("Transfer-Encoding is chunked and nothing else")
            .remedy("send the body without this transfer coding"));
    }
    if head_bytes > limits.head_max_bytes {
        return Err(Problem::new(Reason::HeadTooLarge, format!("headers of {head_bytes} bytes are too large"))
            .value(head_bytes)
            .rule(format!("http.head_max_bytes = {}", limits.head_max_bytes))
            .remedy("send fewer or shorter headers, or raise the limit"));
    }
    Ok(())
}

/// An HTTP/1.1 request names its host once (RFC 9112 section 3.2).
fn check_host(count: usize, version: Version) -> Result<(), Problem> {
    if count == 1 || (count == 0 && version < Version::HTTP_11) {
        return Ok(());
    }
    Err(Problem::new(Reason::MalformedParameter, format!("a request with {count} Host headers is not HTTP/1.1"))
        .value(count)
        .rule("RFC 9112 section 3.2: each request has exactly one Host header")
        .remedy("send one"))
}

fn is_chunked(coding: &[u8]) -> bool {
    coding.trim_ascii().eq_ignore_ascii_case(b"chunked")
}

/// Refuses a caller without the role that the route wants, or limited to a part of its tenant that the route does not
/// keep to.
pub(crate) fn authorize(route: &MountedRoute, identity: &Identity) -> Result<(), Problem> {
    let Some(role) = route.access.role() else { return Ok(()) };
    let principal = &identity.principal;
    if !principal.roles.has(role) {
        let wanted = format!("{role:?}").to_lowercase();
        return Err(Problem::forbidden(format!("'{}' lacks a role in tenant '{}'", principal.name, principal.tenant))
            .value(role_names(principal.roles))
            .rule(format!("this route is for callers with role '{wanted}'"))
            .remedy("use credentials that have it"));
    }
    if matches!(route.access, Access::Operator(_)) && identity.reach == Reach::OneTenant {
        return Err(Problem::forbidden(format!("'{}' acts in tenant '{}' only", principal.name, principal.tenant))
            .value(&principal.tenant)
            .rule("this route concerns every tenant")
            .remedy("use a token that is good for tenant '*'"));
    }
    if principal.scope.is_limited() && !route.keeps_to_scope {
        return Err(Problem::forbidden(format!(
            "'{}' is limited to a part of tenant '{}'",
            principal.name, principal.tenant
        ))
        .value(&route.path)
        .rule("a token with limits is good for the routes of its topics, entities and keys only")
        .remedy("use a token without such limits"));
    }
    Ok(())
}

fn role_names(roles: Roles) -> String {
    let all = [Role::Reader, Role::Writer, Role::Admin, Role::Device];
    let names: Vec<String> =
        all.into_iter().filter(|role| roles.has(*role)).map(|role| format!("{role:?}").to_lowercase()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
