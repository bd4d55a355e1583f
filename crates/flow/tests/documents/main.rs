//! Documents of jobs: what is read, what is refused with which findings, and what both forms have in common.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on has failed")]

mod catalogue;
mod examples;
mod mutations;
mod properties;
mod reading;
mod reference;
mod refused;
mod take_apart;
