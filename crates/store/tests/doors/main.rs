//! The store over a real socket: statistics and Rift's routes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rift;
mod statistics;
mod world;
