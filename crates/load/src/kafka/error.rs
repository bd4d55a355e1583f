//! Errors that end a run. Requests that the broker refuses during a run are counted, not errors.

use std::io;

/// An error of a client of Kafka's protocol.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KafkaError {
    /// The connection could not be made, or broke off.
    #[error("the connection to the broker failed")]
    Connection(#[from] io::Error),
    /// A response could not be decoded.
    #[error("the broker's answer to {request} does not read: {why}")]
    Answer {
        /// Name of the request in Kafka's protocol.
        request: &'static str,
        /// Reason why it could not be decoded.
        why: String,
    },
    /// The broker refused a request that the run needs.
    #[error("the broker refused {request}: {why} (code {code})")]
    Refused {
        /// Name of the request in Kafka's protocol.
        request: &'static str,
        /// Error code of Kafka's protocol.
        code: i16,
        /// Message of the broker, or the name of the code.
        why: String,
    },
    /// A thread of the generator ended early; its figures are lost.
    #[error("a generator thread panicked; this is a fault of the generator")]
    ThreadDied,
}
