//! What ends a run. What a broker refuses in the course of it is a figure, not an error.

use std::io;

/// Why a client of Kafka's protocol could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KafkaError {
    /// The connection could not be made, or broke off.
    #[error("the connection to the broker failed")]
    Connection(#[from] io::Error),
    /// An answer could not be read.
    #[error("the broker's answer to {request} does not read: {why}")]
    Answer {
        /// Kafka's name of the request.
        request: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The broker refused what the run needs.
    #[error("the broker refused {request}: {why} (code {code})")]
    Refused {
        /// Kafka's name of the request.
        request: &'static str,
        /// Kafka's error code.
        code: i16,
        /// What the broker says, or what the code is called.
        why: String,
    },
    /// A thread of the generator ended early; its figures are lost.
    #[error("a generator thread panicked; this is a fault of the generator")]
    ThreadDied,
}
