//! Who calls: the part of a listener that turns what a request claims into a [`Principal`].
//!
//! Each listener has one authenticator. Those for applications are here; the one for devices is `connect`'s, which
//! knows their credentials. What a caller may then do is the route's [`Access`](crate::Access).

use std::borrow::Cow;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use millstream_types::{Principal, Roles, TenantId};

use crate::route::PathParams;
use crate::{PlainClaim, Problem, Reason};

/// Headers that name the tenant of a request, if its route's path does not.
pub const TENANT_HEADERS: [&str; 3] = [FIWARE_SERVICE, "x-tenant", NGSILD_TENANT];
/// NGSI's names of the tenant, which do not tell capitals from small letters.
const FIWARE_SERVICE: &str = "fiware-service";
const NGSILD_TENANT: &str = "ngsild-tenant";

/// What a request says about itself before anybody believes it.
#[derive(Clone, Copy)]
pub struct Claim<'a> {
    /// The method.
    pub method: &'a Method,
    /// The request target.
    pub uri: &'a Uri,
    /// All headers.
    pub headers: &'a HeaderMap,
    /// The other end of the connection.
    pub peer: SocketAddr,
    pub(crate) params: &'a PathParams,
    pub(crate) tenant_param: Option<&'a str>,
}

impl Claim<'_> {
    /// The tenant in which the caller wants to act: the path's, if the route says which parameter names it; else the
    /// value of `Fiware-Service` or `NGSILD-Tenant`, folded to small letters, or of `X-Tenant`; `None` if nothing names one
    /// (which means `default`).
    ///
    /// # Errors
    /// A [`Problem`] if it is no tenant id, or if several headers are there and differ.
    pub fn tenant(&self) -> Result<Option<TenantId>, Problem> {
        if let Some(name) = self.tenant_param {
            let named = self.param(name)?.map(|value| TenantId::new(&value)).transpose()?;
            return Ok(named);
        }
        tenant_of(|header| self.headers.get(header).map(HeaderValue::as_bytes))
    }

    /// The decoded value of a parameter of the path.
    ///
    /// # Errors
    /// A [`Problem`] if it does not decode to UTF-8.
    pub fn param(&self, name: &str) -> Result<Option<Cow<'_, str>>, Problem> {
        self.params.get(self.uri.path(), name)
    }
}

/// The tenant that a request's headers name.
pub(crate) fn tenant_of<'h>(get: impl Fn(&str) -> Option<&'h [u8]>) -> Result<Option<TenantId>, Problem> {
    let mut named: Option<Cow<'_, str>> = None;
    for header in TENANT_HEADERS {
        let Some(bytes) = get(header) else { continue };
        let Some(value) = std::str::from_utf8(bytes).ok().filter(|value| !value.contains(|c: char| !is_text(c))) else {
            return Err(Problem::new(Reason::MalformedParameter, format!("header {header} is not ASCII text"))
                .value(String::from_utf8_lossy(bytes)));
        };
        // Here and not in a handler: what a caller may do is judged by the tenant that it gets.
        let value = match header {
            FIWARE_SERVICE | NGSILD_TENANT => Cow::from(value.to_ascii_lowercase()),
            _ => Cow::from(value),
        };
        if named.is_some_and(|other| other != value) {
            return Err(Problem::invalid("two headers name different tenants")
                .value(value)
                .rule("Fiware-Service, X-Tenant and NGSILD-Tenant mean the same")
                .remedy("send one of them"));
        }
        named = Some(value);
    }
    Ok(named.filter(|value| !value.is_empty()).map(|value| TenantId::new(&value)).transpose()?)
}

/// What the value of a header may have.
const fn is_text(c: char) -> bool {
    matches!(c, ' '..='~' | '\t')
}

/// In how many tenants the caller has its roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// In the principal's own.
    OneTenant,
    /// In all of them: an operator.
    EveryTenant,
}

/// A caller that proved who it is, or whose word is taken.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Who, in the tenant of this request.
    pub principal: Arc<Principal>,
    /// Where else it has the same roles.
    pub reach: Reach,
}

/// A verdict that has to be waited for.
pub type LaterVerdict<'a> = Pin<Box<dyn Future<Output = Result<Identity, Problem>> + Send + 'a>>;

/// An authenticator's answer. What is known at once costs no allocation.
pub enum Verdict<'a> {
    /// Known at once.
    Now(Result<Identity, Problem>),
    /// To be awaited, within the request's deadline.
    Later(LaterVerdict<'a>),
}

/// Decides who calls.
pub trait Authenticator: Send + Sync + 'static {
    /// Judges what a request claims. Refusals for missing or wrong credentials are [`Problem::unauthenticated`], which
    /// carries `WWW-Authenticate`. Not called for routes that are public.
    fn authenticate<'a>(&'a self, claim: Claim<'a>) -> Verdict<'a>;

    /// The caller, if what he claims is right and that costs little to tell; `None` leaves the verdict to
    /// [`Authenticator::authenticate`], and nothing has been counted.
    fn authenticate_plain(&self, claim: PlainClaim<'_>) -> Option<Identity> {
        let _ = claim;
        None
    }

    /// `None` if callers must prove who they are. Else what to configure so that they must: then the listener starts
    /// on loopback only, and the refusal to start elsewhere carries this text.
    fn open_remedy(&self) -> Option<&'static str>;
}

/// Applications on this machine: no password, any tenant, every role but that of a device.
#[derive(Debug)]
pub struct LoopbackApplications {
    default: Identity,
}

impl Default for LoopbackApplications {
    fn default() -> Self {
        Self { default: anonymous(TenantId::default()) }
    }
}

impl LoopbackApplications {
    fn identity(&self, tenant: Option<TenantId>) -> Identity {
        tenant.map_or_else(|| self.default.clone(), anonymous)
    }
}

fn anonymous(tenant: TenantId) -> Identity {
    let principal = Principal { tenant, name: "anonymous".to_owned(), roles: Roles::APPLICATION };
    Identity { principal: Arc::new(principal), reach: Reach::EveryTenant }
}

impl Authenticator for LoopbackApplications {
    fn authenticate<'a>(&'a self, claim: Claim<'a>) -> Verdict<'a> {
        Verdict::Now(claim.tenant().map(|tenant| self.identity(tenant)))
    }

    fn authenticate_plain(&self, claim: PlainClaim<'_>) -> Option<Identity> {
        claim.tenant().ok().map(|tenant| self.identity(tenant))
    }

    fn open_remedy(&self) -> Option<&'static str> {
        Some("configure API tokens for it")
    }
}
