//! The limits of a decoder, and of the format.

/// The smallest record: seven numbers of one byte each.
pub(super) const MIN_RECORD_BYTES: usize = 7;

/// The limits of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Largest batch before inflating. Default 16 MiB.
    pub batch_max_bytes: usize,
    /// Largest batch after inflating. Default 64 MiB.
    pub inflated_max_bytes: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { batch_max_bytes: 16 << 20, inflated_max_bytes: 64 << 20 }
    }
}
