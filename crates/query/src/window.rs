//! Aggregated results: their due times, their records and their meta.
//!
//! ```text
//!   rows of a batch ──► RunningWindow::add ──► parts, one for each thread
//!                                                │ taken out as a window ends, so that each record is in one
//!                                                ▼
//!                                          merged ──► HAVING, ORDER BY, LIMIT ──► WindowResult
//! ```
//!
//! A window by time holds the records that were read while it ran; a window by records holds exactly that number.

mod aggregate_plan;
mod checkpoint;
mod result;
mod running;

pub(crate) use aggregate_plan::{AggregatePlan, ResultLimit};
pub(crate) use checkpoint::AggregateCheckpoint;
pub use result::{WindowMeta, WindowResult};
pub(crate) use running::{AddOutcome, FinalResult, RunningWindow, Timing};
