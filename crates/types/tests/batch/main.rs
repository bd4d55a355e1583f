//! The record batch, seen from outside.

#![cfg(test)]

mod errors;
mod fixtures;
mod hostile;
mod kafka;
mod properties;
mod support;
mod take_apart;
