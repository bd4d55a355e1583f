//! Why the listener does not start, and why a connection ends.

use std::io;
use std::net::SocketAddr;

/// Why the listener does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A listener that asks for no authentication may listen on loopback only.
    #[error(
        "listener 'kafka' refuses to start on {address}: an address other than loopback needs authentication; configure API tokens (applications.tokens), or listen on 127.0.0.1"
    )]
    OpenToTheNetwork {
        /// Where it was to listen.
        address: SocketAddr,
    },
    /// The system refused the address.
    #[error("listener 'kafka' cannot listen on {address}; free the port or choose another address")]
    Bind {
        /// Where it was to listen.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A setting that cannot be.
    #[error("{setting} = {value}: {rule}")]
    InvalidSetting {
        /// The setting's key.
        setting: &'static str,
        /// What was given.
        value: String,
        /// The rule, and the remedy.
        rule: &'static str,
    },
}

/// Why a connection ends before its client has closed it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("a request of {size_bytes} bytes; kafka.request_max_bytes = {limit_bytes}")]
    Oversized { size_bytes: i64, limit_bytes: usize },
    #[error("a request of {size_bytes} bytes, too few for its header")]
    Undersized { size_bytes: i64 },
    #[error("api key {key} version {version} is not served")]
    Unsupported { key: i16, version: i16 },
    #[error(
        "a request of api key {key} before a login; set security.protocol=SASL_PLAINTEXT and sasl.mechanism=PLAIN, with name and secret of an API token"
    )]
    NotLoggedIn { key: i16 },
    #[error("{setting} = {rate} is used up for {wait_ms} ms more, over other connections; this request was not begun")]
    OverQuota { setting: &'static str, rate: u64, wait_ms: u128 },
    #[error("request of api key {key} version {version} is malformed: {why}")]
    Malformed { key: i16, version: i16, why: String },
    #[error("the answer to api key {key} version {version} cannot be written: {why}")]
    Unwritable { key: i16, version: i16, why: String },
    #[error("a request with acks = 0 was refused, which can be told in no other way: {why}")]
    RefusedUnasked { why: String },
    #[error("no request for kafka.idle_timeout_ms = {limit_ms}")]
    Idle { limit_ms: u64 },
    #[error(
        "the rest of a request, or of an answer, took longer than kafka.request_timeout_ms = {limit_ms}, or a large one comes at less than half the pace for it"
    )]
    Slow { limit_ms: u64 },
    #[error("{0}")]
    Io(#[from] io::Error),
}
