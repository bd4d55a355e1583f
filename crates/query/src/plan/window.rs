//! The windows of a query: the times of its results and their records.

/// The times of results, and the records in each: those since the last result, or all.
///
/// Results are numbered from 1; those by time are never skipped, even if they are empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// `TUMBLING(n, …)`: a result after every n, of the records since the last result.
    Tumbling(Extent),
    /// `EVERY(n, …, ALL)`: a result after every n, of all records since the start.
    Additive(Extent),
}

/// A stretch of a stream; at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Milliseconds, by the server's clock.
    TimeMs(u64),
    /// The number of matching records.
    Records(u64),
}

impl Window {
    /// The distance between two results.
    pub fn emit(self) -> Extent {
        match self {
            Self::Tumbling(emit) | Self::Additive(emit) => emit,
        }
    }
}
