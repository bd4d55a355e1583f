//! Devices over MQTT 3.1.1 and 5: telemetry and events on Hono's topics.
//!
//! ```text
//!   socket ─► line ─► wire, packet ─► client ─► upstream ─► one append for a run of messages
//!     ▲                                  │                        │
//!     └────────── encode ◄───────────────┴──── PUBACK ◄───────────┘ once the log has them
//! ```
//!
//! A connection is one task and nothing else: what it reads is worked off where it lies, appended without a hop to
//! another thread, and acknowledged in the order in which it came. While the log is behind, the socket is not read.

mod adapter;
mod client;
#[cfg(test)]
mod codec_tests;
mod config;
mod connect_packet;
mod connection;
mod encode;
mod error_filter;
mod fault;
mod handshake;
mod line;
mod listener;
mod packet;
mod property;
mod topic;
mod upstream;
mod wire;

pub(crate) use adapter::{ADAPTER, MqttAdapter, MqttParts};
pub use config::MqttConfig;
pub use listener::MqttServing;
