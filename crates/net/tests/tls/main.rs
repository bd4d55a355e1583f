//! TLS of a listener, with a client of rustls.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod certificates;
mod handshakes;
mod server;
mod streams;
