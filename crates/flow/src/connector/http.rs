//! The connector `http`: sends records to a server by POST.
//!
//! Requests are sent by one thread with an async runtime, which begins with the first sink.

mod outgoing;
mod request;
mod sender;
mod sink;
mod thread;

pub(crate) use self::outgoing::HttpAccess;
pub(super) use self::sink::{SINK, sink};
pub(crate) use self::thread::HttpThread;
