//! TLS with clients that are not ours: curl, mosquitto_pub, kcat and redis-cli. `scripts/setup-clients` installs them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../net/tests/tls/authority.rs"]
mod authority;
mod command;
mod http;
mod kafka;
mod mqtt;
mod redis;
mod world;
