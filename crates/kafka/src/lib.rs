//! The built-in log for Kafka clients.
//!
//! ```text
//!  socket ─► frame ─► dispatch ─► handler ──┬─ appends at once, in the order of arrival
//!                     (one table)           └─ future ─► queue ─► answered in the order of arrival ─► socket
//! ```
//!
//! Always true
//! - Responses leave in the order of their requests. A produce request is appended before the next frame is read, and does
//!   not wait for the durability of the one before it.
//! - A frame that is malformed or too large ends its own connection and no other.
//! - A client sees the topics of its tenant (`default` if there are no logins). A client that may act in all tenants also
//!   sees topics whose names say their tenant. Nobody sees internal topics.
//! - If logins are required, nothing is served before one, and each request needs a role. Connections before their login
//!   take no room from the requests of others.
//!
//! Not here: retention and durability of topics (`log`).

mod acls;
mod api_error;
mod api_versions;
mod authorized_operations;
mod broker;
mod broker_settings;
mod client_quotas;
mod cluster;
mod config;
mod config_type;
mod configs;
mod connection;
mod create_topics;
mod delete_records;
mod delete_topics;
mod describe_producers;
mod dispatch;
mod error;
mod fetch;
mod fetch_response;
mod frame;
pub mod group;
mod isolation;
mod leader_epochs;
mod list_offsets;
mod listener;
mod log_dirs;
mod metadata;
#[cfg(test)]
mod mutations;
mod namespace;
mod network_send;
mod oversized_produce;
mod produce;
mod quorum;
mod read_buffer;
mod request_context;
mod response;
mod sasl;
mod sasl_state;
mod scram_users;
mod supported_apis;
mod topic_partitions;
mod transaction;
mod transaction_apis;
mod unsupported_api;

pub use config::KafkaConfig;
pub use error::Error;
pub use listener::{Listener, Serving};
