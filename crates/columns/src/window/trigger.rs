//! Triggers: the rules for when the windows of a key are given.

use super::extent::WindowExtent;
use super::shape::WindowShape;

/// A rule for when windows are given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trigger {
    /// The event that gives windows.
    pub when: TriggerWhen,
    /// A record gives all windows of its key, and not only those that it is in.
    pub gives_all: bool,
    /// A window is dropped once it is given.
    pub discards: bool,
}

/// The event that gives windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TriggerWhen {
    /// So many records of the key, right after the last of them; above 0.
    Records(u64),
    /// A record for which the caller decides it.
    Record,
    /// The caller decides it, for all windows of the key that have changed.
    Clock,
    /// Time has passed the end of the window by so much.
    Closed {
        /// Milliseconds, from 0.
        delay_ms: i64,
    },
    /// The first record whose time is at this part of the window or later, from 0 to 1.
    Part(f64),
}

/// The windows of a key, and the triggers that give them.
#[derive(Debug, Clone, PartialEq)]
pub struct TriggerPlan {
    /// The windows.
    pub shape: WindowShape,
    /// The triggers, at least one and at most 32.
    pub triggers: Vec<Trigger>,
    /// A window is kept for so long after it has closed, in milliseconds; at least the longest delay of a trigger.
    pub kept_ms: i64,
}

impl TriggerPlan {
    /// The number of the trigger that gives a window for the last time: the first by time, or the first of all.
    pub(super) fn last_trigger(&self) -> usize {
        let by_time = |trigger: &Trigger| matches!(trigger.when, TriggerWhen::Closed { .. });
        self.triggers.iter().position(by_time).unwrap_or(0)
    }

    /// A bit for each trigger by the clock.
    pub(super) fn clocks(&self) -> u32 {
        let bit = |(number, trigger): (usize, &Trigger)| u32::from(trigger.when == TriggerWhen::Clock) << number;
        self.triggers.iter().enumerate().map(bit).sum()
    }

    /// The time at which a window is no longer kept; `None` for one that never closes.
    pub(super) fn gone_ms(&self, window: WindowExtent) -> Option<i64> {
        self.closed_ms(window, self.kept_ms)
    }

    /// The time at which a window has been closed for so long; `None` for one that never closes.
    pub(super) fn closed_ms(&self, window: WindowExtent, delay_ms: i64) -> Option<i64> {
        match self.shape {
            WindowShape::Global => None,
            _ => self.shape.close_ms(window).checked_add(delay_ms),
        }
    }
}
