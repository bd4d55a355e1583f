//! Requests to other servers: receivers of notifications, and providers of context.
//!
//! [`rules`] says which hosts may be reached and which certificates are trusted. Connections are kept for a while, and each
//! carries one request at a time.

pub(crate) mod address;
pub(crate) mod attempt;
pub(crate) mod http_receiver;
pub(crate) mod http_request;
pub(crate) mod http_response;
pub(crate) mod rules;
pub(crate) mod socket;
