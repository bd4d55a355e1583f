//! What can be wrong with routes and listeners before the first request: a start refused.

use std::io;
use std::net::SocketAddr;

use axum::http::Method;

/// Why an [`Api`](crate::Api) or a [`Listener`](crate::Listener) refuses to start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Anybody on the network could act as anybody.
    #[error(
        "listener '{listener}' refuses to start on {address}: an address other than loopback needs authentication; {remedy}, or listen on 127.0.0.1"
    )]
    OpenToTheNetwork {
        /// The listener.
        listener: &'static str,
        /// Where it was to listen.
        address: SocketAddr,
        /// How authentication is configured for it.
        remedy: &'static str,
    },
    /// The system refused the address.
    #[error("listener '{listener}' cannot listen on {address}; free the port or choose another address")]
    Bind {
        /// The listener.
        listener: &'static str,
        /// Where it was to listen.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Two routes answer the same request.
    #[error("route {method} {path} of '{group}' is declared twice or overlaps another; keep one of them")]
    DuplicateRoute {
        /// Its method.
        method: Method,
        /// Its path.
        path: String,
        /// The group that declares it.
        group: &'static str,
    },
    /// A path that no request can match.
    #[error("path '{path}' of '{group}' is no route: {rule}")]
    InvalidPath {
        /// The path.
        path: String,
        /// The group that declares it.
        group: &'static str,
        /// What is wrong with it.
        rule: String,
    },
    /// A route that does not say what it takes or answers.
    #[error("route {method} {path} of '{group}' does not document {missing}; add it where the route is declared")]
    Undocumented {
        /// Its method.
        method: Method,
        /// Its path.
        path: String,
        /// The group that declares it.
        group: &'static str,
        /// What is missing.
        missing: String,
    },
    /// An API token that cannot work.
    #[error("API token '{name}': {rule}")]
    InvalidToken {
        /// The token's name (never its secret).
        name: String,
        /// What is wrong, and the remedy.
        rule: String,
    },
}
