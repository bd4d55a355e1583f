//! The errors of a listener that does not start, and of a connection that ends.

use std::io;
use std::net::SocketAddr;

/// The reason why the listener does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A listener that asks for no authentication may listen on loopback only.
    #[error(
        "listener 'kafka' refuses to start on {address}: an address other than loopback needs authentication; make an API token on loopback (millstream token create) or configure one (applications.tokens), or listen on 127.0.0.1"
    )]
    OpenToTheNetwork {
        /// The address that was to be bound.
        address: SocketAddr,
    },
    /// The system refused the address.
    #[error("listener 'kafka' cannot listen on {address}; free the port or choose another address")]
    Bind {
        /// The address that was to be bound.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A setting with an invalid value.
    #[error("{setting} = {value}: {rule}")]
    InvalidSetting {
        /// The key of the setting.
        setting: &'static str,
        /// The value that was configured.
        value: String,
        /// The rule, and the remedy.
        rule: &'static str,
    },
}

/// The reason why the broker closes a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("a request of {size_bytes} bytes exceeds kafka.request_max_bytes = {limit_bytes}")]
    Oversized { size_bytes: i64, limit_bytes: usize },
    #[error(
        "a request of {size_bytes} bytes before a login exceeds {limit_bytes} bytes; log in first (security.protocol=SASL_PLAINTEXT, or SASL_SSL over TLS)"
    )]
    OversizedBeforeLogin { size_bytes: i64, limit_bytes: usize },
    #[error("a request of {size_bytes} bytes, too few for its header")]
    Undersized { size_bytes: i64 },
    #[error("api key {key} version {version} is not served")]
    Unsupported { key: i16, version: i16 },
    #[error(
        "a request of api key {key} before a login; set security.protocol=SASL_PLAINTEXT (SASL_SSL over TLS) and sasl.mechanism=SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN, with name and secret of an API token"
    )]
    NotLoggedIn { key: i16 },
    #[error("the login has ended: its API token was revoked or has expired, or logins are required by now")]
    LoginEnded,
    #[error(
        "the login has lasted for its time (kafka.connections_max_reauth_ms, or as long as its API token) and was not repeated; use a client that logs in again over the same connection (KIP-368)"
    )]
    SessionExpired,
    #[error("{setting} = {rate} is used up for {wait_ms} ms more, over other connections; this request was not begun")]
    OverQuota { setting: &'static str, rate: u64, wait_ms: u128 },
    #[error("request of api key {key} version {version} is malformed: {why}")]
    Malformed { key: i16, version: i16, why: String },
    #[error("the answer to api key {key} version {version} cannot be written: {why}")]
    Unwritable { key: i16, version: i16, why: String },
    #[error(
        "a request with acks = 0 was refused, and closing the connection is the only way to tell the client: {why}"
    )]
    RefusedUnasked { why: String },
    #[error("no request for kafka.idle_timeout_ms = {limit_ms}")]
    Idle { limit_ms: u64 },
    #[error(
        "a request or an answer took longer than kafka.request_timeout_ms = {limit_ms}, or a large request arrived at less than half the pace that this needs"
    )]
    Slow { limit_ms: u64 },
    #[error("{0}")]
    Io(#[from] io::Error),
}
