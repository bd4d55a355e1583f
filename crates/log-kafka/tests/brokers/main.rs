//! The engine on real brokers.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod conformance;
