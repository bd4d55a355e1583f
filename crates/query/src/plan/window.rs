//! The windows of a query: the times of its results and their records.

use millstream_columns::{CalendarWindows, Expr};

/// The times of results, and the records in each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Window {
    /// `TUMBLING(n, …)`: a result after every n, of the records since the last result.
    Tumbling(Extent),
    /// `EVERY(n, …, ALL)`: a result after every n, of all records since the start.
    Additive(Extent),
    /// `EVERY(n, …, LAST, m, …)`: a result after every n, of the records of the last m.
    Sliding {
        /// The distance between two results, less than the size and of the same kind.
        emit: Extent,
        /// The size of each window.
        size: Extent,
    },
    /// `TUMBLING(n, DAY | WEEK | MONTH | QUARTER | YEAR, 'zone')`: a result at the end of each, of its records.
    Calendar(CalendarWindows),
    /// `SESSION(n, TIME)`: a result of each group once it has had no record for longer than this.
    Session {
        /// The longest pause within a session, in milliseconds; at least 1.
        gap_ms: u64,
    },
}

/// A stretch of a stream; at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Milliseconds, by the server's clock or by event time.
    TimeMs(u64),
    /// The number of matching records.
    Records(u64),
}

/// `ON value [DELAY n]`: the time by which records are put into windows, in place of the server's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct EventTime {
    /// The time of a record: milliseconds since 1970-01-01T00:00:00Z, or a text as in RFC 3339.
    pub value: Expr,
    /// A window is given once a record is this much later than its end, in milliseconds.
    pub delay_ms: u64,
}
