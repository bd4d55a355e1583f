//! Devices over MQTT 3.1.1 and 5.
//!
//! Hono's topics carry telemetry, events and commands. All other topics belong to the tenant's private space.
//!
//! ```text
//!   socket ─► framed_io ─► from_client ─► client ─► upstream ─► ingest: one append for a run of messages
//!     ▲                                      │                     │
//!     ├────────── encode ◄──── settle ◄──────┴────── PUBACK ◄──────┘ once the log has them
//!     └────────── encode ◄──── broker_deliver ◄───── broker: the queue of this client
//! ```
//!
//! `client` is the state of one client. The files of what a client does (`upstream`, `broker_publish`, `commands`,
//! `settle` and so on) import it; it imports none of them.
//!
//! A connection is one task and nothing else: what it reads is worked off where it lies, appended without a hop to
//! another thread, and acknowledged in the order in which it came. While the log is behind, the socket is not read.
//! `from_client` and `encode` are those of `millstream_mqtt`.

mod access;
mod adapter;
mod anonymous;
mod broker;
mod broker_client;
mod broker_deliver;
mod broker_publish;
mod broker_subscribe;
mod client;
mod client_figures;
mod command_filter;
mod commands;
mod config;
mod connection;
mod deliveries;
mod disconnect;
mod error_filter;
mod framing;
mod handshake;
mod incoming;
mod last_will;
mod listener;
mod pending;
mod protocol;
mod provisioning;
mod publish;
mod routing;
mod session_store;
mod settle;
mod signals;
mod topic;
mod topic_rules;
mod unknown_devices;
mod upstream;
mod wake_flag;
mod websocket;
mod websocket_stream;
mod will;

pub(crate) use adapter::{MqttAdapter, MqttParts};
pub use broker::config::BrokerConfig;
pub use config::MqttConfig;
pub(crate) use listener::listen;
pub(crate) use session_store::SessionStore;
pub(crate) use websocket::{Guests, routes};

/// The adapter's type, in tenants' settings and in records.
pub(crate) const ADAPTER: &str = "hono-mqtt";
