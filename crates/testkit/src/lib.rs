//! The ground of the tests of all crates. No crate of the product depends on it but to test itself.
//!
//! - [`conformance`]: the contract of the log, as checks that every engine passes.
//! - [`sim`]: a disk with power loss.
//! - [`eventually`]: waiting for what comes about in its own time.
//!
//! Not here: what only one crate's tests need.

pub mod conformance;
mod eventually;
pub mod sim;

pub use eventually::{PATIENCE, eventually, eventually_async, found_async};
