//! Aggregated results: their due times, their records and their meta.
//!
//! ```text
//!   rows of a batch ──► RunningAggregate::add ──► steady: parts, one for each thread
//!                                            └──► placed: windows by time, of each key of sessions
//!                                                ▼     taken out as a window ends
//!                                          merged ──► HAVING, ORDER BY, LIMIT ──► WindowResult
//! ```
//!
//! A window by time holds the records that were read while it ran, or those whose own times lie in it; a window by records
//! holds exactly that number.

mod aggregate_plan;
mod checkpoint;
mod event_clock;
mod moments;
mod placed;
mod result;
mod results;
mod running;
mod steady;

pub(crate) use aggregate_plan::{AggregatePlan, ResultLimit, ResultOf};
pub(crate) use checkpoint::AggregateCheckpoint;
pub(crate) use moments::{AddOutcome, FinalResult, Now, Timing};
pub use result::{WindowMeta, WindowResult};
pub(crate) use running::RunningAggregate;
