//! The running aggregate of a query, and its due results.

use std::sync::Arc;
use std::time::Duration;

use millstream_columns::WindowShape;
use millstream_types::{MemoryBudget, PartitionId};

use super::checkpoint::AggregateCheckpoint;
use super::moments::{AddOutcome, FinalResult, Now, Timing};
use super::placed::{PlacedBy, PlacedPlan, PlacedWindows};
use super::results::{Precision, ResultMaker};
use super::steady::{SteadyWindow, SteadyWindows};
use super::{AggregatePlan, WindowResult};
use crate::plan::{Extent, QueryPlan, Window};
use crate::rows::RowBatch;

/// The states of one query, in windows or without.
#[derive(Debug)]
pub(crate) enum RunningAggregate {
    /// Windows that follow each other from the start of the query, or one result of all records.
    Steady(SteadyWindows),
    /// Windows that lie on the clock, the calendar or event time, and those that overlap.
    Placed(PlacedWindows),
}

impl RunningAggregate {
    pub(crate) fn new(
        aggregates: AggregatePlan,
        plan: &QueryPlan,
        timing: Timing,
        threads: usize,
        memory: MemoryBudget,
    ) -> Self {
        let has_keys =
            matches!(plan.window, Some(Window::Session { .. })) && !plan.is_raw() && plan.summary().is_none();
        let session_keys = if has_keys { plan.keys().len() } else { 0 };
        let aggregates = if session_keys > 0 { aggregates.for_single_groups(plan) } else { aggregates };
        let results = ResultMaker::new(Arc::new(aggregates), memory);
        let steady = |window, results| Self::Steady(SteadyWindows::new(results, window, timing, threads));
        let delay_ms = plan.event_time.as_ref().map(|time| signed(time.delay_ms));
        let by = delay_ms.map_or(PlacedBy::Arrival, |delay_ms| PlacedBy::EventTime { delay_ms });
        let (shape, by, size) = match &plan.window {
            None => return steady(None, results),
            Some(Window::Additive(emit)) => {
                return steady(Some(SteadyWindow { emit: *emit, keeps_all: true }), results);
            }
            Some(Window::Tumbling(emit)) => match emit {
                Extent::TimeMs(size_ms) if delay_ms.is_some() => {
                    (WindowShape::tumbling(signed(*size_ms), 0), by, *size_ms)
                }
                _ => return steady(Some(SteadyWindow { emit: *emit, keeps_all: false }), results),
            },
            Some(Window::Sliding {
                emit: Extent::Records(slide),
                size: Extent::Records(size) | Extent::TimeMs(size),
            }) => {
                // A window ends at each multiple of the distance.
                (sliding(*size, *slide, -signed(*size)), PlacedBy::Number, *size)
            }
            Some(Window::Sliding {
                emit: Extent::TimeMs(slide),
                size: Extent::TimeMs(size) | Extent::Records(size),
            }) => {
                let end_ms = if delay_ms.is_some() { 0 } else { timing.started_ms };
                (sliding(*size, *slide, end_ms.saturating_sub(signed(*size))), by, *size)
            }
            Some(Window::Calendar(windows)) => (WindowShape::Calendar(windows.clone()), by, 0),
            Some(Window::Session { gap_ms }) => (WindowShape::Session { gap_ms: signed(*gap_ms) }, by, *gap_ms),
        };
        Self::Placed(PlacedWindows::new(results, PlacedPlan { shape, by, session_keys, size }, timing))
    }

    /// Adds rows as `thread` has matched them in a partition; gives the windows that they end.
    pub(crate) fn add(
        &self,
        thread: usize,
        partition: PartitionId,
        rows: &RowBatch,
        now: Now,
        give: impl FnMut(WindowResult),
    ) -> AddOutcome {
        match self {
            Self::Steady(windows) => windows.add(thread, rows, now.wall_ms, give),
            Self::Placed(windows) => windows.add(partition, rows, now, give),
        }
    }

    /// When the next window by time is due, or the clock is to be looked at.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        match self {
            Self::Steady(windows) => windows.next_due(),
            Self::Placed(windows) => windows.next_due(),
        }
    }

    /// Emits all windows that are due by now.
    pub(crate) fn tick(&self, now: Now, give: impl FnMut(WindowResult)) {
        match self {
            Self::Steady(windows) => windows.tick(now.monotonic, now.wall_ms, give),
            Self::Placed(windows) => windows.tick(now, give),
        }
    }

    /// Emits the remaining results once, and nothing after them.
    pub(crate) fn finish(&self, now: Now, give: impl FnMut(FinalResult)) {
        match self {
            Self::Steady(windows) => windows.finish(now.monotonic, now.wall_ms, give),
            Self::Placed(windows) => windows.finish(now, give),
        }
    }

    /// The windows by time that a partition can hold back.
    pub(crate) fn placed(&self) -> Option<&PlacedWindows> {
        match self {
            Self::Steady(_) => None,
            Self::Placed(windows) => Some(windows),
        }
    }

    /// The precision of the last rows of a query without window.
    pub(crate) fn last_precision(&self) -> Precision {
        match self {
            Self::Steady(windows) => windows.last_precision(),
            Self::Placed(_) => Precision::default(),
        }
    }

    /// The number of result rows, since the last call, with a value that could not be computed.
    pub(crate) fn take_failed(&self) -> u64 {
        match self {
            Self::Steady(windows) => windows.take_failed(),
            Self::Placed(windows) => windows.take_failed(),
        }
    }

    /// The number of windows that were emitted.
    pub(crate) fn given(&self) -> u64 {
        match self {
            Self::Steady(windows) => windows.given(),
            Self::Placed(windows) => windows.given(),
        }
    }

    /// The checkpoint of the aggregate.
    pub(crate) fn keep(&self) -> AggregateCheckpoint {
        match self {
            Self::Steady(windows) => windows.keep(),
            Self::Placed(windows) => windows.keep(),
        }
    }

    /// Resumes from a checkpoint. The last windows that ended meanwhile are emitted late.
    ///
    /// # Errors
    /// Words for a checkpoint that is damaged or of another query.
    pub(crate) fn resume(&self, kept: &AggregateCheckpoint) -> Result<(), String> {
        match self {
            Self::Steady(windows) => windows.resume(kept),
            Self::Placed(windows) => windows.resume(kept),
        }
    }
}

fn sliding(size: u64, slide: u64, offset_ms: i64) -> WindowShape {
    WindowShape::Time { size_ms: signed(size), slide_ms: signed(slide), offset_ms }
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
