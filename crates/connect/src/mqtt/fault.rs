//! Why a connection ends before its client has ended it, and the reason code that says so.

use std::io;
use std::time::Duration;

/// Reason codes of MQTT 5 (section 2.4), as far as the server sends them.
pub(super) mod reason {
    pub(in crate::mqtt) const SUCCESS: u8 = 0x00;
    pub(in crate::mqtt) const NO_SUBSCRIPTION_EXISTED: u8 = 0x11;
    pub(in crate::mqtt) const UNSPECIFIED: u8 = 0x80;
    pub(in crate::mqtt) const MALFORMED: u8 = 0x81;
    pub(in crate::mqtt) const PROTOCOL_ERROR: u8 = 0x82;
    pub(in crate::mqtt) const IMPLEMENTATION: u8 = 0x83;
    pub(in crate::mqtt) const UNSUPPORTED_VERSION: u8 = 0x84;
    pub(in crate::mqtt) const BAD_CLIENT_ID: u8 = 0x85;
    pub(in crate::mqtt) const BAD_LOGIN: u8 = 0x86;
    pub(in crate::mqtt) const NOT_AUTHORISED: u8 = 0x87;
    pub(in crate::mqtt) const UNAVAILABLE: u8 = 0x88;
    pub(in crate::mqtt) const BUSY: u8 = 0x89;
    pub(in crate::mqtt) const SHUTTING_DOWN: u8 = 0x8B;
    pub(in crate::mqtt) const BAD_AUTHENTICATION_METHOD: u8 = 0x8C;
    pub(in crate::mqtt) const KEEP_ALIVE: u8 = 0x8D;
    pub(in crate::mqtt) const TAKEN_OVER: u8 = 0x8E;
    pub(in crate::mqtt) const BAD_FILTER: u8 = 0x8F;
    pub(in crate::mqtt) const BAD_TOPIC: u8 = 0x90;
    pub(in crate::mqtt) const UNKNOWN_ID: u8 = 0x92;
    pub(in crate::mqtt) const RECEIVE_MAXIMUM: u8 = 0x93;
    pub(in crate::mqtt) const BAD_ALIAS: u8 = 0x94;
    pub(in crate::mqtt) const TOO_LARGE: u8 = 0x95;
    pub(in crate::mqtt) const QUOTA: u8 = 0x97;
    pub(in crate::mqtt) const QOS: u8 = 0x9B;
    pub(in crate::mqtt) const ANOTHER_SERVER: u8 = 0x9C;
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// Bytes that are no packet, or none that may stand here.
    #[error("malformed packet: {0}")]
    Malformed(&'static str),
    /// A packet that breaks a rule of the protocol.
    #[error("protocol error: {0}")]
    Protocol(&'static str),
    /// The client breaks a rule that has a reason code of its own.
    #[error("{why}")]
    Refused { reason: u8, why: String },
    /// A packet over the limit.
    #[error("a packet of {size_bytes} bytes; connect.mqtt.packet_max_bytes = {limit_bytes}")]
    TooLarge { size_bytes: usize, limit_bytes: usize },
    /// Nothing came for one and a half times the keep alive.
    #[error("no packet for one and a half times the keep alive of {keep_alive_s} s")]
    KeepAlive { keep_alive_s: u16 },
    /// No CONNECT came.
    #[error("no CONNECT within connect.mqtt.connect_timeout_ms = {}", limit.as_millis())]
    NoConnect { limit: Duration },
    /// The rest of a packet did not come.
    #[error("the rest of a packet took longer than connect.mqtt.packet_timeout_ms = {}", limit.as_millis())]
    SlowPacket { limit: Duration },
    /// The client reads nothing.
    #[error("the client has read nothing for connect.mqtt.write_timeout_ms = {}", limit.as_millis())]
    SlowReader { limit: Duration },
    /// The memory budget has no room.
    #[error("no room in the memory budget for a packet of {size_bytes} bytes")]
    NoMemory { size_bytes: usize },
    /// The server ends.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The socket.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Fault {
    pub(super) fn refused(reason: u8, why: impl Into<String>) -> Self {
        Self::Refused { reason, why: why.into() }
    }

    /// As DISCONNECT says it; `None` where nobody is left to be told.
    pub(super) fn reason(&self) -> Option<u8> {
        Some(match self {
            Self::Malformed(_) => reason::MALFORMED,
            Self::Protocol(_) => reason::PROTOCOL_ERROR,
            Self::Refused { reason, .. } => *reason,
            Self::TooLarge { .. } => reason::TOO_LARGE,
            Self::KeepAlive { .. } => reason::KEEP_ALIVE,
            Self::SlowPacket { .. } => reason::UNSPECIFIED,
            Self::NoMemory { .. } => reason::BUSY,
            Self::ShuttingDown => reason::SHUTTING_DOWN,
            Self::NoConnect { .. } | Self::SlowReader { .. } | Self::Io(_) => return None,
        })
    }
}
