//! One listener for every protocol over TCP.
//!
//! ```text
//!   Listener::bind ──► serve(protocol) ──► Serving
//!                          │ accept
//!                          ▼
//!                logins that are pending, memory, open files
//!                     │ admitted              │ refused
//!                     ▼                       ▼
//!                Protocol::serve      Protocol::turn_away
//! ```
//!
//! A [`Listener`] owns the address. It accepts, limits and counts connections, and ends them in order:
//! [`Serving::shut_down`] accepts no more, tells every connection by its [`Shutdown`], waits for them, and then aborts
//! those that are left. A [`Protocol`] owns what passes over a connection. A connection that comes another way (a
//! WebSocket of an HTTP listener, for example) enters through a [`Door`] and counts as the others do.
//!
//! A connection is without a login until its protocol says otherwise. Such connections have a share of places and memory, and
//! a limited time; what they are closed for is the same for every protocol. From its login on a connection counts for its tenant:
//! when a listener is full, tenants share its places.
//!
//! An address may take TLS: each connection then begins with a handshake of bounded time, with the certificates that
//! [`ServerTls`] has at that moment, and a protocol sees the same [`TransportStream`] as without.
//!
//! An address that fails to log in too often waits: [`LoginThrottle`], which all listeners share. Sockets leave open files for what is
//! stored: [`raise_open_files`].
//!
//! Protocols that log in by SASL share its messages and the [`Logins`] of applications.
//!
//! Not here: what the bytes mean.

mod connections;
mod door;
mod endpoints;
mod limits;
mod listener;
mod log_rate_limit;
mod login_throttle;
mod metrics;
mod open_files;
mod pending_login;
mod revocation;
mod sasl;
mod shutdown;
mod tenant_connections;
mod tenant_room;
mod tls;
mod transport;

pub use door::{Admitted, Door, Protocol, Refusal, TlsSession};
pub use endpoints::{BindError, BoundAddresses, Endpoints};
pub use limits::{ConnectionLimits, LoginTimeout};
pub use listener::{Listener, Serving};
pub use log_rate_limit::LogRateLimit;
pub use login_throttle::{
    ClientNetwork, FailedLogins, LoginProtocol, LoginSource, LoginThrottle, RefusedLogin, Throttled,
};
pub use metrics::{Counter, Gauge, Histogram, HistogramCounts, Labels, Metrics};
pub use open_files::{raise_open_files, with_room};
pub use pending_login::PendingLogin;
pub use revocation::{Revocation, Revoker};
pub use sasl::{
    ClientFirst, Login, LoginCheck, Logins, ScramCredential, ScramExchange, ScramMechanism, ScramUser, bearer_message,
    plain_message,
};
pub use shutdown::Shutdown;
pub use tenant_connections::ListenerFull;
pub use tenant_room::{RoomPermit, TenantRoom};
pub use tls::{
    ApplicationProtocol, CertificateFields, ClientAuth, ClientCertificate, ClientTrust, NameError, ServerTls,
    TlsConfig, TlsError, TrustAnchor, Untrusted, normalized_name,
};
pub use transport::{TransportReadHalf, TransportStream, TransportWriteHalf};
