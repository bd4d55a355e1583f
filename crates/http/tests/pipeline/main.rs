//! The pipeline over real sockets, with the bytes that clients send.

#![expect(clippy::unwrap_used, reason = "in a test a failure is what unwrap should make of it")]

mod access;
mod body_streams;
mod browsers;
mod heads;
mod lifetime;
mod limits;
mod memory;
mod refusals;
mod server;
mod streams;
