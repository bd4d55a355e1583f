//! The frames and messages of AMQP 1.0 (ISO/IEC 19464), read and written, for servers and clients.
//!
//! Reading borrows from the bytes at hand: it allocates nothing, reserves nothing for an announced size, and does not recurse,
//! however deep values are nested. The content of lists, maps and arrays is read when it is iterated. Writing appends to a buffer.
//!
//! ```
//! use millstream_amqp::{Body, Flow, Framed, Performative, frame, write_frame};
//!
//! let mut out = Vec::new();
//! let credit = Flow { handle: Some(0), link_credit: Some(100), ..Flow::default() };
//! write_frame(&mut out, 3, &Performative::Flow(credit), &[]);
//! let Framed::Whole(frame) = frame(&out, 512)? else { panic!("the frame is whole") };
//! let Body::Amqp { channel: 3, performative: Performative::Flow(read), .. } = frame.body()? else { panic!() };
//! assert_eq!(read, credit);
//! # Ok::<(), millstream_amqp::Error>(())
//! ```
//!
//! Not here: sockets, sessions, links and credit, logins, and the meaning of addresses (`connect`, `load`).

mod builders;
mod composite;
pub mod condition;
mod delivery_state;
mod descriptor;
mod error;
mod frame;
mod message;
mod performative;
mod sasl;
mod terminus;
#[cfg(test)]
mod tests;
mod value;
pub mod write;

pub use builders::{MapBuilder, SymbolsBuilder};
pub use delivery_state::{Accepted, DeliveryState, ErrorInfo, Modified, Received, Rejected, Released};
pub use error::Error;
pub use frame::{
    Body, FRAME_MIN_MAX_BYTES, Frame, Framed, HEADER_BYTES, ProtocolHeader, frame, heartbeat, protocol_header,
    write_frame, write_sasl,
};
pub use message::{Content, Header, Message, MessageDraft, Properties};
pub use performative::{Attach, Begin, Close, Detach, Disposition, End, Flow, Open, Performative, Transfer};
pub use sasl::{Sasl, SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse};
pub use terminus::{Coordinator, Source, Target, TargetTerminus};
pub use value::{Array, Described, Items, Map, Multiple, Symbol, Timestamp, Value};
