//! TLS with clients that are not ours: curl, mosquitto, paho, kcat and redis-cli. `scripts/setup-clients` installs them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../net/tests/tls/authority.rs"]
mod authority;
mod certificate_logins;
mod command;
mod http;
mod kafka;
mod mqtt;
mod redis;
mod token_logins;
mod world;
