//! The rim as its clients meet it: over sockets, with the bytes that they would send.

#![expect(clippy::unwrap_used, reason = "in a test a failure is what unwrap should make of it")]

mod access;
mod answer;
mod lifetime;
mod limits;
mod memory;
mod plain;
mod refusals;
mod server;
mod streams;
