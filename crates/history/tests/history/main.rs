//! End-to-end tests of history with a real log of four partitions, real files and real sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod comet;
mod crash;
mod elsewhere;
mod failures;
mod lasting;
mod many_days;
mod quantumleap;
mod sampling;
mod shapes;
mod tools;
mod world;
