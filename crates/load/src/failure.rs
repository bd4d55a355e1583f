//! Failures of requests and messages.

use std::time::Duration;
use std::{fmt, io};

use serde::{Serialize, Serializer};

/// A request that got no response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestFailure {
    /// No connection could be opened; nothing was sent.
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    /// The connection broke before the response was complete.
    #[error("the connection was lost before the answer")]
    Lost(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The response did not come in time.
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The MQTT server refused the connection with this CONNACK return code; nothing was sent.
    #[error("the server refused the connection with return code {0}")]
    Refused(u8),
}

impl RequestFailure {
    /// Returns whether the server may have applied the request despite the failure.
    pub fn may_have_applied(&self) -> bool {
        !matches!(self, Self::Connect(_) | Self::Refused(_))
    }
}

/// Kind of failure of a message, as results count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The response has this status, which is not 2xx.
    Status(u16),
    /// No connection could be opened.
    Connect,
    /// The connection broke before the response; the server may have taken the message.
    Lost,
    /// No response in time; the server may have taken the message.
    Timeout,
    /// The MQTT server refused the connection with this CONNACK return code.
    Refused(u8),
}

impl FailureKind {
    /// Advice for a run in which every message failed in this way.
    pub(crate) const fn remedy(self) -> &'static str {
        match self {
            Self::Status(401 | 403 | 404) | Self::Refused(_) => {
                "register the devices first with --register, or check tenant and password"
            }
            Self::Status(429 | 503) => "send less: fewer --devices or a longer --period, or raise the server's limits",
            Self::Status(_) => "the server's log says what it refuses",
            Self::Connect => "start a server with 'millstream serve', or name its address with --devices-url",
            Self::Lost | Self::Timeout => "look whether the server is up and not overloaded",
        }
    }
}

impl From<&RequestFailure> for FailureKind {
    fn from(failure: &RequestFailure) -> Self {
        match failure {
            RequestFailure::Connect(_) => Self::Connect,
            RequestFailure::Lost(_) => Self::Lost,
            RequestFailure::Timeout(_) => Self::Timeout,
            RequestFailure::Refused(code) => Self::Refused(*code),
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(code) => write!(f, "{code}"),
            Self::Connect => f.write_str("connect"),
            Self::Lost => f.write_str("lost"),
            Self::Timeout => f.write_str("timeout"),
            Self::Refused(code) => write!(f, "refused {code}"),
        }
    }
}

impl Serialize for FailureKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
