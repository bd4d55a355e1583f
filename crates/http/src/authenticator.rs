//! Authentication: turns the claims of a request into a [`Principal`].
//!
//! Each listener has one authenticator. This module contains those for applications; `connect` has the one for devices,
//! which knows their credentials. The route's [`Access`](crate::Access) then decides what the caller may do.

use std::borrow::Cow;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::http::Method;
use millstream_net::{ClientCertificate, Revocation};
use millstream_types::{AccessScope, Principal, Roles, TenantId};

use crate::browser_guard::AllowedHosts;
use crate::head::Headers;
use crate::path_params::PathParams;
use crate::tenant::tenant_of;
use crate::{Cors, Problem};

/// The unverified claims of a request.
#[derive(Clone, Copy)]
pub struct Claim<'a> {
    /// The HTTP method of the request.
    pub method: &'a Method,
    /// The path of the request's target.
    pub path: &'a str,
    /// The query of the target, if it has one.
    pub query: Option<&'a str>,
    /// All headers of the request.
    pub headers: Headers<'a>,
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// The certificate that the client has shown in its TLS handshake; the listener decides what it is worth.
    pub client_certificate: Option<&'a Arc<ClientCertificate>>,
    pub(crate) cors: Option<&'a Cors>,
    pub(crate) params: &'a PathParams,
    pub(crate) tenant_param: Option<&'a str>,
}

impl Claim<'_> {
    /// The tenant in which the caller wants to act: the path parameter that the route declares as tenant; else the
    /// value of `Fiware-Service` or `NGSILD-Tenant` in lower case, or of `X-Tenant`; `None` (which means `default`)
    /// if the request names none.
    ///
    /// # Errors
    /// A [`Problem`] if the value is no tenant id or if two headers differ.
    pub fn tenant(&self) -> Result<Option<TenantId>, Problem> {
        if let Some(name) = self.tenant_param {
            let named = self.param(name)?.map(|value| TenantId::new(&value)).transpose()?;
            return Ok(named);
        }
        tenant_of(|header| self.headers.get(header))
    }

    /// The decoded value of the path parameter `name`.
    ///
    /// # Errors
    /// A [`Problem`] if it is not UTF-8 once decoded.
    pub fn param(&self, name: &str) -> Result<Option<Cow<'_, str>>, Problem> {
        self.params.get(self.path, name)
    }
}

/// The tenants in which a caller has its roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The caller reaches only the principal's tenant.
    OneTenant,
    /// Every tenant; the caller is an operator.
    EveryTenant,
}

/// A caller whose credentials were accepted.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The caller in the tenant of this request.
    pub principal: Arc<Principal>,
    /// The tenants in which it has the same roles.
    pub reach: Reach,
    /// Ends the login before its connection ends; `None` for credentials that last as long as the process.
    pub revocation: Option<Revocation>,
    /// Wall time at which the credentials expire, milliseconds since 1970-01-01T00:00:00Z; `None` if they do not.
    pub expires_ms: Option<i64>,
}

/// A verdict that must be awaited.
pub type LaterVerdict<'a> = Pin<Box<dyn Future<Output = Result<Identity, Problem>> + Send + 'a>>;

/// An authenticator's answer. An immediate verdict needs no allocation.
pub enum Verdict<'a> {
    /// The verdict is known without a wait.
    Now(Result<Identity, Problem>),
    /// The verdict is awaited within the request's deadline. Nothing is checked or counted before the first poll, as the
    /// pipeline may drop the future and authenticate the request anew.
    Later(LaterVerdict<'a>),
}

/// Authenticates the callers of a listener.
pub trait Authenticator: Send + Sync + 'static {
    /// Checks the claims of a request; not called for public routes. Missing or wrong credentials are refused
    /// with [`Problem::unauthenticated`], which carries `WWW-Authenticate`.
    fn authenticate<'a>(&'a self, claim: Claim<'a>) -> Verdict<'a>;

    /// `None` if callers must authenticate. Otherwise the setting that makes them do so: the listener then starts only
    /// on loopback, and its refusal to start elsewhere contains this text.
    fn open_remedy(&self) -> Option<&'static str>;
}

/// Accepts applications on this machine without a password, in any tenant, with every role but that of a device. It
/// refuses web pages of other sites.
#[derive(Debug)]
pub struct LoopbackApplications {
    default: Identity,
    hosts: AllowedHosts,
}

impl Default for LoopbackApplications {
    fn default() -> Self {
        Self::called(&[])
    }
}

impl LoopbackApplications {
    /// Accepts requests whose `Host` is an IP address, `localhost`, or one of `hosts` (names without port).
    pub fn called(hosts: &[String]) -> Self {
        Self { default: anonymous(TenantId::default()), hosts: AllowedHosts::new(hosts) }
    }

    pub(crate) fn identify(&self, claim: &Claim<'_>) -> Result<Identity, Problem> {
        self.hosts.check(claim.method, claim.headers, claim.cors)?;
        Ok(claim.tenant()?.map_or_else(|| self.default.clone(), anonymous))
    }
}

fn anonymous(tenant: TenantId) -> Identity {
    let principal =
        Principal { tenant, name: "anonymous".to_owned(), roles: Roles::APPLICATION, scope: AccessScope::default() };
    Identity { principal: Arc::new(principal), reach: Reach::EveryTenant, revocation: None, expires_ms: None }
}

impl Authenticator for LoopbackApplications {
    fn authenticate<'a>(&'a self, claim: Claim<'a>) -> Verdict<'a> {
        Verdict::Now(self.identify(&claim))
    }

    fn open_remedy(&self) -> Option<&'static str> {
        Some("configure API tokens for it")
    }
}
