//! One window that triggers give: its state, and the triggers that have given it.

use crate::window::extent::WindowExtent;
use crate::window::key_windows::WindowState;

#[derive(Debug, Clone)]
pub(super) struct Window<S> {
    extent: WindowExtent,
    state: S,
    /// A bit for each trigger that has not given it since its last record; for one by the clock, that none has.
    changed: u32,
    /// A bit for each [`TriggerWhen::Part`](super::TriggerWhen::Part) that has given it.
    reached: u32,
}

impl<S> Window<S> {
    /// A window without a record.
    pub(super) fn new(extent: WindowExtent, state: S) -> Self {
        Self { extent, state, changed: 0, reached: 0 }
    }

    pub(super) fn extent(&self) -> WindowExtent {
        self.extent
    }

    pub(super) fn state(&self) -> &S {
        &self.state
    }

    /// Adds a record: no trigger has given the window since.
    pub(super) fn add(&mut self, add: impl FnOnce(&mut S)) {
        add(&mut self.state);
        self.changed = u32::MAX;
    }

    /// `true` if the trigger has not given the window since its last record.
    pub(super) fn has_changed(&self, number: usize) -> bool {
        self.changed & (1 << number) != 0
    }

    /// Gives the window by a trigger. `clocks` has a bit for each trigger by the clock.
    pub(super) fn give(&mut self, number: usize, clocks: u32, give: impl FnOnce(usize, WindowExtent, &mut S)) {
        give(number, self.extent, &mut self.state);
        // A clock has nothing to add to what another trigger has given.
        self.changed &= !(1 << number | clocks);
    }

    /// `true` if a record at this time lies at the part of the window or later.
    pub(super) fn is_past(&self, part: f64, time_ms: i64) -> bool {
        let WindowExtent { start_ms, end_ms } = self.extent;
        time_ms.saturating_sub(start_ms) as f64 >= part * end_ms.saturating_sub(start_ms) as f64
    }

    /// `true` if the window was given as records have come to the part of this trigger.
    pub(super) fn has_reached(&self, number: usize) -> bool {
        self.reached & (1 << number) != 0
    }

    /// Records have come to the part of this trigger.
    pub(super) fn reach(&mut self, number: usize) {
        self.reached |= 1 << number;
    }

    /// Makes a session reach to a record at this time.
    pub(super) fn extend_to(&mut self, time_ms: i64) {
        self.extent.start_ms = self.extent.start_ms.min(time_ms);
        self.extent.end_ms = self.extent.end_ms.max(time_ms);
    }

    /// Appends the stored form; see [`TriggeredWindows::write`](super::TriggeredWindows::write).
    pub(super) fn write(&self, out: &mut Vec<u8>, write: impl FnOnce(&S, &mut Vec<u8>)) {
        let Self { extent, state, changed, reached } = self;
        out.extend_from_slice(&extent.start_ms.to_be_bytes());
        out.extend_from_slice(&extent.end_ms.to_be_bytes());
        out.extend_from_slice(&changed.to_be_bytes());
        out.extend_from_slice(&reached.to_be_bytes());
        let length_at = out.len();
        out.extend_from_slice(&[0; 4]);
        write(state, out);
        let length = (out.len() - length_at - 4) as u32;
        out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// Reads the stored form at the beginning of `stored`, and what follows it; `None` if it is none.
    pub(super) fn read(stored: &[u8], read: impl FnOnce(&[u8]) -> Option<S>) -> Option<(Self, &[u8])> {
        let (start, after) = stored.split_first_chunk()?;
        let (end, after) = after.split_first_chunk()?;
        let (changed, after) = after.split_first_chunk()?;
        let (reached, after) = after.split_first_chunk()?;
        let (length, after) = after.split_first_chunk()?;
        let (state, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        let extent = WindowExtent { start_ms: i64::from_be_bytes(*start), end_ms: i64::from_be_bytes(*end) };
        let (changed, reached) = (u32::from_be_bytes(*changed), u32::from_be_bytes(*reached));
        Some((Self { extent, state: read(state)?, changed, reached }, after))
    }
}

impl<S: WindowState> Window<S> {
    /// Takes in another window of the same session.
    pub(super) fn merge(&mut self, part: &Self) {
        self.state.merge(&part.state);
        self.extent.start_ms = self.extent.start_ms.min(part.extent.start_ms);
        self.extent.end_ms = self.extent.end_ms.max(part.extent.end_ms);
    }
}
