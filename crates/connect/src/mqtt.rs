//! Devices over MQTT 3.1.1 and 5: telemetry, events and commands on Hono's topics, and all other topics as their tenant's
//! private space.
//!
//! ```text
//!   socket ─► line ─► wire, packet ─► client ─► upstream ─► one append for a run of messages
//!     ▲                                  │                        │
//!     ├────────── encode ◄───────────────┴──── PUBACK ◄───────────┘ once the log has them
//!     └────────── encode ◄── private ◄── space: what waits for this client
//! ```
//!
//! A connection is one task and nothing else: what it reads is worked off where it lies, appended without a hop to
//! another thread, and acknowledged in the order in which it came. While the log is behind, the socket is not read.

mod adapter;
mod client;
#[cfg(test)]
mod codec_tests;
mod command_filter;
mod commands;
mod config;
mod connect_packet;
mod connection;
mod encode;
mod error_filter;
mod fault;
mod handshake;
mod kept;
mod line;
mod listener;
mod mapped;
mod packet;
mod pending;
mod private;
mod property;
mod source;
mod space;
mod stranger;
mod toll;
mod topic;
mod upstream;
mod way;
mod websocket;
mod wire;

pub(crate) use adapter::{ADAPTER, MqttAdapter, MqttParts};
pub use config::MqttConfig;
pub(crate) use kept::Kept;
pub use listener::MqttServing;
pub(crate) use space::Counts;
pub use space::config::BrokerConfig;
pub(crate) use space::message::MAPPED;
pub(crate) use websocket::{Guests, routes};
