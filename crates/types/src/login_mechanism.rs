//! The ways of a client of Kafka to prove who it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A mechanism of SASL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
pub enum LoginMechanism {
    /// The password itself (RFC 4616); use TLS.
    #[serde(rename = "PLAIN")]
    Plain,
    /// A proof with SHA-256 (RFC 7677).
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// A proof with SHA-512.
    #[default]
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

impl LoginMechanism {
    /// The name in the handshake.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}
