//! The addresses that one listener is reached at.

use std::net::{AddrParseError, SocketAddr};
use std::str::FromStr;

use crate::tls::{ApplicationProtocol, ServerTls};

/// The addresses of a listener: a plain one, one with TLS, or both. Its connections share limits and metrics.
#[derive(Debug, Clone, Default)]
pub struct Endpoints {
    pub(crate) plain: Option<SocketAddr>,
    pub(crate) tls: Option<(SocketAddr, ServerTls)>,
    pub(crate) application: ApplicationProtocol,
    /// Clients log in by certificate.
    pub(crate) is_login: bool,
}

impl From<SocketAddr> for Endpoints {
    fn from(address: SocketAddr) -> Self {
        Self { plain: Some(address), ..Self::default() }
    }
}

/// A plain address, such as `127.0.0.1:0`.
impl FromStr for Endpoints {
    type Err = AddrParseError;

    fn from_str(address: &str) -> Result<Self, Self::Err> {
        address.parse::<SocketAddr>().map(Self::from)
    }
}

impl Endpoints {
    /// Adds an address on which clients speak TLS.
    #[must_use]
    pub fn with_tls(self, address: SocketAddr, tls: ServerTls) -> Self {
        Self { tls: Some((address, tls)), ..self }
    }

    /// Lets TLS clients agree on `application` (ALPN).
    #[must_use]
    pub fn speaking(self, application: ApplicationProtocol) -> Self {
        Self { application, ..self }
    }

    /// Asks TLS clients for a certificate whenever the trust of the server's TLS does (see
    /// [`ServerTls::set_client_trust`]); the protocol checks who has signed it.
    #[must_use]
    pub fn logging_in_by_certificate(self) -> Self {
        Self { is_login: true, ..self }
    }

    /// True if there is no address.
    pub fn is_empty(&self) -> bool {
        self.plain.is_none() && self.tls.is_none()
    }

    /// The first address that other machines can reach.
    pub fn exposed(&self) -> Option<SocketAddr> {
        let tls = self.tls.as_ref().map(|(address, _)| *address);
        self.plain.into_iter().chain(tls).find(|address| !address.ip().to_canonical().is_loopback())
    }
}

/// The addresses that a listener is bound to, with their real ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundAddresses {
    /// The address that takes connections without TLS.
    pub plain: Option<SocketAddr>,
    /// The address that takes connections with TLS only.
    pub tls: Option<SocketAddr>,
}

impl BoundAddresses {
    /// The plain address, or else the one with TLS.
    pub(crate) fn first(self) -> SocketAddr {
        self.plain.or(self.tls).expect("a listener is bound to an address")
    }
}

/// An address that the system refuses.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct BindError {
    /// The address that was to be bound.
    pub address: SocketAddr,
    /// The error of the system.
    pub source: std::io::Error,
}
