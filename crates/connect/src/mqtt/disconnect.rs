//! The causes for which the server ends a connection, with the reason code of each.

use std::io;
use std::time::Duration;

use millstream_mqtt::reason;

/// Largest CONNECT, in bytes: a client without a login takes little memory.
pub(super) const CONNECT_MAX_BYTES: usize = 64 << 10;

/// The cause for which the server ends a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DisconnectCause {
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
    #[error("a CONNECT of {size_bytes} bytes; at most {} are taken", CONNECT_MAX_BYTES)]
    LargeConnect { size_bytes: usize },
    #[error(
        "a packet of {size_bytes} bytes; without a login at most {limit_bytes} are taken (see connect.mqtt.payload_max_bytes)"
    )]
    LargeWithoutLogin { size_bytes: usize, limit_bytes: usize },
    /// Nothing came for one and a half times the keep alive.
    #[error("no packet for one and a half times the keep alive of {keep_alive_s} s")]
    KeepAlive { keep_alive_s: u16 },
    #[error("no CONNECT within connect.mqtt.connect_timeout_ms = {}", limit.as_millis())]
    NoConnect { limit: Duration },
    /// The rest of a packet did not come.
    #[error("the rest of a packet took longer than connect.mqtt.packet_timeout_ms = {}", limit.as_millis())]
    SlowPacket { limit: Duration },
    #[error("the client has read nothing for connect.mqtt.write_timeout_ms = {}", limit.as_millis())]
    SlowReader { limit: Duration },
    /// The memory budget has no room.
    #[error("no room in the memory budget for a packet of {size_bytes} bytes")]
    NoMemory { size_bytes: usize },
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<millstream_mqtt::Error> for DisconnectCause {
    fn from(error: millstream_mqtt::Error) -> Self {
        use millstream_mqtt::Error;
        match error {
            Error::Malformed(rule) => Self::Malformed(rule),
            Error::Protocol(rule) => Self::Protocol(rule),
            Error::Refused { reason, why } => Self::Refused { reason, why },
            Error::TooLarge { size_bytes, limit_bytes } => Self::TooLarge { size_bytes, limit_bytes },
        }
    }
}

impl DisconnectCause {
    pub(super) fn refused(reason: u8, why: impl Into<String>) -> Self {
        Self::Refused { reason, why: why.into() }
    }

    /// The reason code for DISCONNECT; `None` if nobody is left to be told.
    pub(super) fn reason(&self) -> Option<u8> {
        Some(match self {
            Self::Malformed(_) => reason::MALFORMED,
            Self::Protocol(_) => reason::PROTOCOL_ERROR,
            Self::Refused { reason, .. } => *reason,
            Self::TooLarge { .. } | Self::LargeConnect { .. } | Self::LargeWithoutLogin { .. } => reason::TOO_LARGE,
            Self::KeepAlive { .. } => reason::KEEP_ALIVE,
            Self::SlowPacket { .. } => reason::UNSPECIFIED,
            Self::NoMemory { .. } => reason::BUSY,
            Self::ShuttingDown => reason::SHUTTING_DOWN,
            Self::NoConnect { .. } | Self::SlowReader { .. } | Self::Io(_) => return None,
        })
    }
}
