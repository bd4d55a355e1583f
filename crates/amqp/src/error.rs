//! The reasons for which bytes cannot be read.

/// Bytes that are no frame, value or message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Bytes that break a rule of the encoding.
    #[error("malformed: {0}")]
    Malformed(&'static str),
    /// A field that must be there and is not.
    #[error("{composite} has no {field}")]
    Missing {
        /// The performative or section.
        composite: &'static str,
        /// Its field.
        field: &'static str,
    },
    /// A field with a value of another type.
    #[error("{field} of {composite} has another type")]
    Type {
        /// The performative or section.
        composite: &'static str,
        /// Its field.
        field: &'static str,
    },
    /// A described value that may not stand here, such as an unknown performative.
    #[error("a value with the descriptor {descriptor:#x}, which is not known here")]
    Descriptor {
        /// The number of its type; 0 for a name that is not known.
        descriptor: u64,
    },
    /// A frame over the reader's limit.
    #[error("a frame of {size_bytes} bytes is over the limit of {limit_bytes}")]
    TooLarge {
        /// Size that the frame announces.
        size_bytes: usize,
        /// Largest frame that the reader takes.
        limit_bytes: usize,
    },
}
