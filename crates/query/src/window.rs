//! Results of many records: when they are due, of which records they are, and what is told about them.
//!
//! ```text
//!   rows of a batch ──► Running::add ──► parts, one for each thread
//!                                          │ taken out as a window ends, so that each record is in one
//!                                          ▼
//!                                    merged ──► HAVING, ORDER BY, LIMIT ──► WindowResult
//! ```
//!
//! A window by time holds what was read while it ran; one by records exactly so many.

mod result;
mod running;
mod summing;

pub use result::{WindowMeta, WindowResult};
pub(crate) use running::{Final, Running, Timing};
pub(crate) use summing::Summing;
