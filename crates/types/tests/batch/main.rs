//! The record batch, seen from outside.

mod properties;
#[cfg(test)]
mod support;
