//! The plane over real sockets, on a real log with four partitions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod messages;
mod registry_api;
mod world;
