//! The moments of calls to a running aggregate, and their outcomes.

use std::time::Duration;

use super::WindowResult;
use crate::rows::RowBatch;

/// Most results that are emitted for windows by time that ended while the process was down.
pub(super) const MISSED_MAX: u64 = 1000;

/// The moment of a call, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) monotonic: Duration,
    pub(crate) wall_ms: i64,
}

/// When it began, by both clocks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timing {
    pub(crate) started: Duration,
    /// The time that it had run in former processes.
    pub(crate) ran_before: Duration,
    pub(crate) started_ms: i64,
}

/// The outcome of adding rows.
#[derive(Debug, Default)]
pub(crate) struct AddOutcome {
    /// Records that are in the result.
    pub(crate) records: u64,
    /// Records that could not be added.
    pub(crate) errors: u64,
    /// The state has become larger than it may.
    pub(crate) too_large: bool,
    /// The one result has all its rows.
    pub(crate) full: bool,
}

/// The last result of a query.
#[derive(Debug)]
pub(crate) enum FinalResult {
    /// The rows of a query without window.
    Rows(RowBatch),
    /// The result of the window that was running.
    Window(Box<WindowResult>),
}
