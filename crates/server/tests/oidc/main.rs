//! Logins with tokens of a real OpenID Connect provider, on every listener. `scripts/setup-clients` installs the provider.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod logins;
mod outages;
mod provider;
mod refusals;
mod world;
