//! The bounds of a window.

/// The bounds of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowExtent {
    /// The beginning; of a session its first record. The least number for a window without one.
    pub start_ms: i64,
    /// The end, which is no part of it; of a session its last record, which is. The greatest number for a window without one.
    pub end_ms: i64,
}
