//! The store over a real socket: statistics, values as browsers see them, and Rift's routes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod documents;
mod headers;
mod rift;
mod statistics;
mod world;
