//! The packets of MQTT 3.1.1 and 5, read and written, for servers and clients.
//!
//! Reading borrows from the bytes at hand and reserves nothing for an announced size; writing appends to a buffer.
//! [`from_client`] reads the packets that clients send, [`from_server`] those that servers send. [`to_server`] writes those of
//! clients, [`to_client`] those of servers, and [`encode`] messages and acknowledgements, which are the same for both.
//!
//! ```
//! use millstream_mqtt::{Framed, Outgoing, Qos, Version, encode, frame, from_client};
//!
//! let mut out = Vec::new();
//! let message = Outgoing { topic: "telemetry", payload: b"21.5", ..Outgoing::at(Qos::AtLeastOnce, 7) };
//! encode::publish(&mut out, Version::V311, &message);
//! let Framed::Whole(frame) = frame(&out, 1024)? else { panic!("the packet is whole") };
//! let from_client::Packet::Publish(publish) = from_client::decode(frame, Version::V311)? else { panic!() };
//! assert_eq!((publish.topic, publish.id, publish.payload), ("telemetry", 7, &b"21.5"[..]));
//! # Ok::<(), millstream_mqtt::Error>(())
//! ```
//!
//! Not here: sockets, sessions, timeouts, and the meaning of topics (`connect`, `context`, `load`).

#[cfg(test)]
mod codec_tests;
mod connect_packet;
pub mod encode;
mod error;
pub mod from_client;
pub mod from_server;
mod packet;
pub mod property;
pub mod reason;
#[cfg(test)]
mod round_trip_tests;
pub mod to_client;
pub mod to_server;
mod wire;

pub use connect_packet::{Connect, Will};
pub use encode::{AckKind, Outgoing};
pub use error::{Error, WriteError};
pub use packet::{
    Ack, Disconnect, Publish, PublishProperties, Qos, RetainHandling, Subscribe, SubscribeOptions, Unsubscribe, Version,
};
pub use to_client::ConnackParts;
pub use wire::{Frame, Framed, PACKET_MAX_BYTES, frame};
