//! The parser's own sources: a build of the whole crate under a sanitizer takes many minutes and tests nothing more.

#[path = "../../../src/resp/codec/foreign.rs"]
mod foreign;
#[path = "../../../src/resp/codec/inline.rs"]
mod inline;
#[path = "../../../src/resp/number.rs"]
#[allow(dead_code, reason = "the commands use more of it")]
pub mod number;
#[path = "../../../src/resp/codec/request.rs"]
mod request;

pub use foreign::ForeignProtocol;
pub use request::{ProtocolError, RequestLimits, RequestParser};
