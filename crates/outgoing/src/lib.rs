//! Requests to other servers: receivers of notifications, providers of context, network servers of LoRaWAN devices.
//!
//! [`Outgoing`] says which hosts may be reached and which certificates are trusted. An [`HttpReceiver`] keeps a few connections to
//! one host for a while, and each carries one request at a time.
//!
//! This crate does not contain: retries and queues, which the planes have; targets that a job posts rows to (`flow`).

mod address;
mod attempt;
mod http_receiver;
mod http_request;
mod http_response;
mod rules;
mod socket;

pub use address::{Address, is_host};
pub use attempt::{Failed, FailureKind};
pub use http_receiver::{HttpReceiver, HttpReply};
pub use http_request::{HttpRequest, HttpUrl, is_header, is_header_text};
pub use rules::{InvalidSetting, Outgoing, OutgoingSettings, Trust};
pub use socket::{Socket, dial, tls_refused, tls_to};
