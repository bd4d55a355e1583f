//! Errors of routes and listeners at start.

use std::io;
use std::net::SocketAddr;

use axum::http::Method;

/// The reason that an [`Api`](crate::Api) or a [`Listener`](crate::Listener) does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The listener has no authentication but is reachable from the network.
    #[error(
        "listener '{listener}' refuses to start on {address}: an address other than loopback needs authentication; {remedy}, or listen on 127.0.0.1"
    )]
    OpenToTheNetwork {
        /// The name of the listener.
        listener: &'static str,
        /// The address that was requested.
        address: SocketAddr,
        /// The way to configure authentication.
        remedy: &'static str,
    },
    /// The system refused the address.
    #[error("listener '{listener}' cannot listen on {address}; free the port or choose another address")]
    Bind {
        /// The name of the listener.
        listener: &'static str,
        /// The address that was requested.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Two routes answer the same request.
    #[error("route {method} {path} of '{group}' is declared twice or overlaps another; keep one of them")]
    DuplicateRoute {
        /// The method of the route.
        method: Method,
        /// The path of the route.
        path: String,
        /// The group that declares it.
        group: &'static str,
    },
    /// A path that no request can match.
    #[error("path '{path}' of '{group}' is no route: {rule}")]
    InvalidPath {
        /// The path as it was declared.
        path: String,
        /// The group that declares it.
        group: &'static str,
        /// The rule that the path breaks.
        rule: String,
    },
    /// A route lacks a part of its documentation.
    #[error("route {method} {path} of '{group}' does not document {missing}; add it where the route is declared")]
    Undocumented {
        /// The method of the route.
        method: Method,
        /// The path of the route.
        path: String,
        /// The group that declares it.
        group: &'static str,
        /// The part that is missing.
        missing: String,
    },
    /// An API token that cannot work.
    #[error("API token '{name}': {rule}")]
    InvalidToken {
        /// The token's name (never its secret).
        name: String,
        /// The broken rule and the remedy.
        rule: String,
    },
}
