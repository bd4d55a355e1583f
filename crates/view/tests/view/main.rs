//! Views over a log, one owner a partition, as planes use them, and over crashes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod by_reference;
mod common;
mod crash;
mod damage;
mod failures;
mod gate;
mod hold;
mod many_sources;
mod memory;
mod moves;
mod order;
mod progress;
mod shelf;
mod source_damage;
mod unknown;
