//! The built-in log, spoken to Kafka clients.
//!
//! ```text
//!  socket ─► frame ─► dispatch ─► handler ──┬─ appends at once, in the order of arrival
//!                     (one table)           └─ future ─► queue ─► answered in the order of arrival ─► socket
//! ```
//!
//! Always true
//! - Answers leave in the order of their requests; a produce request is appended before the next frame is read, and does
//!   not wait for the durability of the one before it.
//! - A frame that is malformed or too large ends its own connection, and nothing else.
//! - A client sees the topics of its tenant (`default`, where nobody has to log in); internal topics never.
//! - Where logins are asked for, nothing is served before one, and each request takes a role.
//!
//! Not here: what a topic keeps and how durable it is (`log`).

mod api_versions;
mod caller;
mod cluster;
mod config;
mod configs;
mod connection;
mod create_topics;
mod delete_records;
mod delete_topics;
mod describe_producers;
mod dispatch;
mod error;
mod fetch;
mod fetched;
mod frame;
pub mod group;
mod isolation;
mod list_offsets;
mod listener;
mod log_dirs;
mod login;
mod metadata;
#[cfg(test)]
mod mutations;
mod node;
mod parts;
mod probe;
mod produce;
mod refusal;
mod transaction;

pub use config::KafkaConfig;
pub use error::Error;
pub use listener::{Listener, Serving};
pub use login::Logins;
