//! The Redis protocol over a bucket in memory: sessions without a socket, and one over a real one.

mod client;
mod commands;
mod foreign;
mod memory;
mod over_a_socket;
mod pause;
mod pubsub;
mod sessions;
mod transactions;
