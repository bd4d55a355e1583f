//! The Redis protocol over a bucket in memory: sessions without a socket, and one over a real one.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "resp/client.rs"]
mod client;
#[path = "resp/commands.rs"]
mod commands;
#[path = "resp/foreign.rs"]
mod foreign;
#[path = "resp/memory.rs"]
mod memory;
#[path = "resp/over_a_socket.rs"]
mod over_a_socket;
#[path = "resp/pause.rs"]
mod pause;
#[path = "resp/pubsub.rs"]
mod pubsub;
#[path = "resp/sessions.rs"]
mod sessions;
#[path = "resp/transactions.rs"]
mod transactions;
