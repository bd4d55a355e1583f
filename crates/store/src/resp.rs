//! The Redis protocol: a bucket behind each database number.
//!
//! A [`RespSession`] is a connection without its socket. It asks a [`Host`] for logins and buckets, and gives a
//! [`Bucket`] the commands of a client as [`CommandUnit`]s, each of which runs in one [`crate::Transaction`]. Replies,
//! errors and limits are those of Redis 7.0 for strings and keys; types that there are not are unknown commands.
//!
//! Not here: the engine and the caches (buckets), expiry and eviction (theirs), users (the host's).

mod bitfield;
mod bitmaps;
mod channels;
mod clients;
mod closed;
mod codec;
mod command;
mod context;
mod counters;
mod cursors;
mod events;
mod expiry;
mod glob;
mod host;
mod keys;
mod latency_monitor;
mod lcs;
mod listener;
mod long_double;
mod messages;
mod number;
mod session;
mod settings;
mod shared;
mod slow_log;
mod statistics;
mod strings;
mod unit;

pub use codec::{ForeignProtocol, ProtocolError, ReplyWriter, RequestLimits, RequestParser, RespVersion};
pub use events::{EventClass, EventClasses, KeyEvent};
pub use host::{
    Bucket, DatabaseInfo, ErrorReply, Execution, Host, KeyPage, Keyspace, LoginError, ServerInfo, User, UserRole,
};
pub use listener::{BindError, CONNECTION_BYTES, Listener, ListenerConfig};
pub use session::{RespSession, SessionProgress};
pub use shared::Shared;
pub use unit::CommandUnit;
