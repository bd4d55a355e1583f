//! The main job, end to end: real devices' data over HTTP into a real process, entities and live answers out of it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bullet;
mod commands;
mod consumers;
mod flights;
mod guide;
mod kept_queries;
mod load;
mod memory;
mod notifications;
mod process;
mod query_command;
mod query_refusals;
mod query_requests;
mod query_slow;
mod query_socket;
mod query_topics;
mod readme;
mod ready;
mod replay;
mod settings;
mod start;
mod streams;
mod threads;
mod topic;
mod usage;
mod weather_observed;
