//! The Redis protocol on the wire: requests of clients, and replies.

mod foreign;
mod inline;
mod reply;
mod request;

pub use foreign::ForeignProtocol;
pub use reply::{ReplyWriter, RespVersion};
pub use request::{ProtocolError, RequestLimits, RequestParser};
