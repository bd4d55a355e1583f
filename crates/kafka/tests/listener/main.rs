//! The listener as a client sees it, frame by frame.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod answers;
mod authorisation;
mod client;
mod consumer_groups;
mod device_names;
mod epochs;
mod groups;
mod hostile;
mod login;
mod memory;
mod quotas;
mod records;
mod sessions;
mod transactions;
mod users;
