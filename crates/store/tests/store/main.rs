//! Buckets by their API, over HTTP and over Redis' protocol, on real sockets and disks.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bucket_process;
mod clock;
mod doors;
mod durable;
mod http_large;
mod large;
mod resp;
