//! Why a message was not accepted.

use std::time::Duration;
use std::{fmt, io};

use serde::{Serialize, Serializer};

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// No connection could be opened; nothing was sent.
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    /// The connection broke before the answer was complete.
    #[error("the connection was lost before the answer")]
    Lost(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer did not come in time.
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The MQTT server did not let the client in, with this return code of CONNACK; nothing was sent.
    #[error("the server refused the connection with return code {0}")]
    Refused(u8),
}

impl Failure {
    /// Whether the server may have taken the request all the same.
    pub fn may_have_applied(&self) -> bool {
        !matches!(self, Self::Connect(_) | Self::Refused(_))
    }
}

/// Why a message was not accepted, as a class that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// Answered with this status, which is not 2xx.
    Status(u16),
    /// No connection could be opened.
    Connect,
    /// The connection broke before the answer; the message may have been taken.
    Lost,
    /// No answer in time; the message may have been taken.
    Timeout,
    /// CONNECT of MQTT was answered with this return code, which is not 0.
    Refused(u8),
}

impl From<&Failure> for FailureKind {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::Connect(_) => Self::Connect,
            Failure::Lost(_) => Self::Lost,
            Failure::Timeout(_) => Self::Timeout,
            Failure::Refused(code) => Self::Refused(*code),
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
