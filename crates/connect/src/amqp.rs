//! Applications over AMQP 1.0: they receive telemetry as it is stored, events until they have settled them, and
//! the responses to commands that they send.
//!
//! ```text
//!   socket ─► framed_io ─► engine: sessions and links ──► attach: a queue of the tenant's stream
//!     ▲                      ▲ credit                                   │
//!     └── transfers ◄────────┴──────────── pump ◄───────────────────────┘ rings when there are records
//! ```
//!
//! A connection is one task. `engine` holds what its peer has opened, and answers each frame at once; only the connection waits.
//! Receivers of the same address share one queue, from which each takes as many records as it has credit for: credit is the
//! only control of the flow.
//!
//! Not here: the encoding of frames (`millstream_amqp`); who an application is (`millstream_net::Logins`).

mod adapter;
mod address;
mod command_tasks;
mod config;
mod connection;
mod connection_figures;
mod durable_records;
mod engine;
mod fault;
mod framing;
mod handshake;
mod incoming_command;
mod link;
mod link_opener;
mod listener;
mod outgoing;
mod parts;
mod queue_positions;
mod receiver_link;
mod reply_address;
mod session;
mod stream_queue;
mod stream_queues;
mod unsettled_room;

pub(crate) use adapter::{AmqpAdapter, AmqpParts};
pub use config::AmqpConfig;
pub(crate) use listener::listen;
pub(crate) use stream_queues::StreamQueues;
