//! Logins with tokens of a real OpenID Connect provider, on every listener. `scripts/setup-clients` installs the provider.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../net/tests/tls/authority.rs"]
#[allow(dead_code, reason = "the tests of TLS use more of it")]
mod authority;
mod logins;
mod outages;
#[path = "../main_job/process.rs"]
#[allow(dead_code, reason = "the main job's tests use more of it")]
mod process;
mod provider;
#[path = "../main_job/raw.rs"]
#[allow(dead_code, reason = "the main job's tests use more of it")]
mod raw;
mod refusals;
mod world;
