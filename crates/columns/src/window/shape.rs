//! The windows that a time belongs to.

use super::calendar::CalendarWindows;
use super::extent::WindowExtent;

/// The windows of a key. Times are milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WindowShape {
    /// Windows of one size that begin at equal distances. They lie on the grid of `offset_ms` and multiples of `slide_ms`.
    Time {
        /// The size of each, above 0.
        size_ms: i64,
        /// The distance between the beginnings of two, above 0 and at most `size_ms`; equal to it, each time is in one window.
        slide_ms: i64,
        /// The beginning of one of the windows.
        offset_ms: i64,
    },
    /// Windows of the calendar that follow each other. A time beyond the calendar is in a window of its own.
    Calendar(CalendarWindows),
    /// Windows from the first to the last record of a time without a pause longer than `gap_ms`.
    Session {
        /// The longest pause within a session.
        gap_ms: i64,
    },
    /// One window of all records, which never closes.
    Global,
}

impl WindowShape {
    /// Windows that follow each other.
    pub fn tumbling(size_ms: i64, offset_ms: i64) -> Self {
        Self::Time { size_ms, slide_ms: size_ms, offset_ms }
    }

    /// The first time after `time_ms` at which a window of this grid or calendar closes, whether it has records or not; `None` for
    /// sessions and the one window of all records.
    pub fn next_close_ms(&self, time_ms: i64) -> Option<i64> {
        match *self {
            Self::Time { size_ms, slide_ms, offset_ms } => {
                floor(time_ms, slide_ms, offset_ms.saturating_add(size_ms)).checked_add(slide_ms)
            }
            Self::Calendar(ref windows) => Some(windows.window(time_ms)?.end_ms),
            Self::Session { .. } | Self::Global => None,
        }
    }

    /// The window of this grid or calendar that closes at a time.
    pub fn closing_at(&self, close_ms: i64) -> WindowExtent {
        match *self {
            Self::Time { size_ms, .. } => WindowExtent { start_ms: close_ms.saturating_sub(size_ms), end_ms: close_ms },
            _ => self.pane(close_ms.saturating_sub(1)),
        }
    }

    /// The pane of a time: the largest time around it that no window divides. A session begins as a pane of one moment.
    pub(super) fn pane(&self, time_ms: i64) -> WindowExtent {
        match *self {
            Self::Time { size_ms, slide_ms, offset_ms } => {
                let width = divisor(size_ms, slide_ms);
                let start_ms = floor(time_ms, width, offset_ms);
                WindowExtent { start_ms, end_ms: start_ms.saturating_add(width) }
            }
            Self::Session { .. } => WindowExtent { start_ms: time_ms, end_ms: time_ms },
            Self::Calendar(ref windows) => {
                let alone = WindowExtent { start_ms: time_ms, end_ms: time_ms.saturating_add(1) };
                windows.window(time_ms).unwrap_or(alone)
            }
            Self::Global => WindowExtent { start_ms: i64::MIN, end_ms: i64::MAX },
        }
    }

    /// The time at which the last window with this pane closes; `None` if it never does.
    pub(super) fn last_close_ms(&self, pane: WindowExtent) -> Option<i64> {
        match *self {
            Self::Time { size_ms, slide_ms, offset_ms } => {
                floor(pane.start_ms, slide_ms, offset_ms).checked_add(size_ms)
            }
            Self::Calendar(_) => Some(pane.end_ms),
            // A record at the distance of the gap still belongs to it.
            Self::Session { gap_ms } => pane.end_ms.checked_add(gap_ms)?.checked_add(1),
            Self::Global => None,
        }
    }

    /// The first window with this pane that closes after a time.
    pub(super) fn window_after(&self, pane: WindowExtent, after_ms: i64) -> Option<WindowExtent> {
        let last_ms = self.last_close_ms(pane)?;
        if last_ms <= after_ms {
            return None;
        }
        match *self {
            Self::Time { size_ms, slide_ms, offset_ms } => {
                // The first window with the pane closes with it or later; the one that is wanted, after the time.
                let least_ms = pane.end_ms.max(after_ms.saturating_add(1));
                let end_ms = floor(least_ms.saturating_sub(1), slide_ms, offset_ms.saturating_add(size_ms))
                    .checked_add(slide_ms)?;
                let end_ms = if end_ms.saturating_sub(slide_ms) == least_ms { least_ms } else { end_ms };
                Some(WindowExtent { start_ms: end_ms.checked_sub(size_ms)?, end_ms })
            }
            Self::Session { .. } | Self::Calendar(_) | Self::Global => Some(pane),
        }
    }

    /// The time at which a window closes.
    pub fn close_ms(&self, window: WindowExtent) -> i64 {
        match *self {
            Self::Session { gap_ms } => window.end_ms.saturating_add(gap_ms).saturating_add(1),
            _ => window.end_ms,
        }
    }
}

/// The greatest point of the grid that is not above `time_ms`.
fn floor(time_ms: i64, step_ms: i64, offset_ms: i64) -> i64 {
    // Of times within the calendar all is within 64 bits.
    if let Some(past_ms) = time_ms.checked_sub(offset_ms)
        && let Some(floor_ms) = time_ms.checked_sub(past_ms.rem_euclid(step_ms.max(1)))
    {
        return floor_ms;
    }
    let past = (i128::from(time_ms) - i128::from(offset_ms)).rem_euclid(i128::from(step_ms.max(1)));
    i64::try_from(i128::from(time_ms) - past).unwrap_or(i64::MIN)
}

/// The greatest common divisor.
fn divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(shape: &WindowShape, time_ms: i64) -> Vec<(i64, i64)> {
        let pane = shape.pane(time_ms);
        let mut after_ms = i64::MIN;
        let next = || {
            let window = shape.window_after(pane, after_ms)?;
            after_ms = window.end_ms;
            Some((window.start_ms, window.end_ms))
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_time_is_in_the_windows_that_begin_up_to_it_and_end_after_it() {
        let tumbling = WindowShape::tumbling(10, 3);
        assert_eq!(extents(&tumbling, 3), [(3, 13)]);
        assert_eq!(extents(&tumbling, 12), [(3, 13)]);
        assert_eq!(extents(&tumbling, -1), [(-7, 3)]);
        let sliding = WindowShape::Time { size_ms: 10, slide_ms: 4, offset_ms: 0 };
        assert_eq!(extents(&sliding, 9), [(0, 10), (4, 14), (8, 18)]);
        assert_eq!(extents(&sliding, 10), [(4, 14), (8, 18)]);
        assert_eq!(extents(&sliding, -1), [(-8, 2), (-4, 6)]);
    }

    #[test]
    fn every_window_of_a_time_is_found_whatever_the_sizes() {
        for size_ms in 1..12 {
            for slide_ms in 1..=size_ms {
                for offset_ms in [0, 1, 5] {
                    let shape = WindowShape::Time { size_ms, slide_ms, offset_ms };
                    for time_ms in -30..30 {
                        let expected: Vec<(i64, i64)> = (-60..60_i64)
                            .map(|number| offset_ms + number * slide_ms)
                            .filter(|start_ms| *start_ms <= time_ms && time_ms < start_ms + size_ms)
                            .map(|start_ms| (start_ms, start_ms + size_ms))
                            .collect();
                        assert_eq!(extents(&shape, time_ms), expected, "{shape:?} {time_ms}");
                    }
                }
            }
        }
    }

    #[test]
    fn times_beyond_all_bounds_have_no_window_that_closes() {
        let shape = WindowShape::tumbling(10, 0);
        assert_eq!(extents(&shape, i64::MAX), []);
        let _ = extents(&shape, i64::MIN);
    }
}
