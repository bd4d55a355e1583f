//! Kafka's protocol on the wire, as far as several parts of this process speak it.
//!
//! A [`Connection`] to a broker is one socket over which requests go out and answers come back in their order. Its users bring
//! the socket, with TLS or without, choose the versions of their requests ([`Versions`]), log in ([`log_in`]), and decide what a
//! failure means. [`decode`] is for both sides: it trusts no length in what a stranger sends.

mod connection;
mod login;
mod safe_decode;
mod versions;

pub use connection::{CallError, Connection};
pub use login::{Login, log_in};
pub use safe_decode::decode;
pub use versions::Versions;
