//! The windows of one key.

use millstream_columns::{KeyWindows, TriggeredWindows, TriggeringRecord, Value, WindowExtent, WindowTimes};

use super::plan::{AggregatePlan, WindowFigures, WindowsPlan};
use crate::state::StateValue;

/// Most bytes of a key's windows, so that they fit into a record of the state's topic, which may have 1 MiB.
pub(super) const WINDOWS_MAX_BYTES: u64 = 768 << 10;
/// Bytes of the windows of one key in an answer, and the window that goes beyond.
const DESCRIBED_MAX_BYTES: usize = 1 << 20;
/// Memory of the timer of a key.
const TIMER_BYTES: u64 = 48;

/// The windows of a key.
#[derive(Debug)]
pub(super) struct KeyState {
    windows: Windows,
    /// The memory of its windows.
    size_bytes: u64,
    /// The time of its timer, which is not stored.
    pub(super) armed_ms: Option<i64>,
}

#[derive(Debug)]
enum Windows {
    Timed(KeyWindows<WindowFigures>),
    Counted {
        /// The records of the key so far.
        records: u64,
        windows: KeyWindows<WindowFigures>,
    },
    Triggered(TriggeredWindows<WindowFigures>),
}

/// The bounds of a window that is given, and its figures.
pub(super) enum GivenWindow<'w> {
    Timed(WindowExtent, &'w WindowFigures),
    /// By the trigger of this number.
    Triggered(usize, WindowExtent, &'w mut WindowFigures),
}

impl StateValue for KeyState {
    fn encode(&self, out: &mut Vec<u8>) {
        // What is sent of panes is never taken back.
        let write = |figures: &WindowFigures, out: &mut Vec<u8>| out.extend_from_slice(&figures.figures.write());
        match &self.windows {
            Windows::Timed(windows) => windows.write(out, write),
            Windows::Counted { records, windows } => {
                out.extend_from_slice(&records.to_be_bytes());
                windows.write(out, write);
            }
            Windows::Triggered(windows) => windows.write(out, WindowFigures::write),
        }
    }

    fn heap_bytes(&self) -> u64 {
        TIMER_BYTES + self.size_bytes
    }
}

impl Windows {
    fn size_bytes(&self) -> u64 {
        match self {
            Self::Timed(windows) | Self::Counted { windows, .. } => {
                windows.states().map(WindowFigures::heap_bytes).sum()
            }
            Self::Triggered(windows) => windows.states().map(WindowFigures::heap_bytes).sum(),
        }
    }
}

impl KeyState {
    /// A key without records.
    pub(super) fn new(plan: &AggregatePlan) -> Self {
        let windows = match plan.windows {
            WindowsPlan::Timed { .. } => Windows::Timed(KeyWindows::default()),
            WindowsPlan::Counted { .. } => Windows::Counted { records: 0, windows: KeyWindows::default() },
            WindowsPlan::Triggered(_) => Windows::Triggered(TriggeredWindows::default()),
        };
        Self { windows, size_bytes: 0, armed_ms: None }
    }

    /// The state of a stored form; `None` if it is that of another aggregate.
    pub(super) fn read(plan: &AggregatePlan, stored: &[u8]) -> Option<Self> {
        let read = |stored: &[u8]| plan.aggregates.read(stored).map(WindowFigures::new);
        let read_sent = |stored: &[u8]| WindowFigures::read(&plan.aggregates, stored);
        let windows = match plan.windows {
            WindowsPlan::Timed { .. } => Windows::Timed(KeyWindows::read(stored, read)?),
            WindowsPlan::Counted { .. } => {
                let (records, stored) = stored.split_first_chunk()?;
                Windows::Counted { records: u64::from_be_bytes(*records), windows: KeyWindows::read(stored, read)? }
            }
            WindowsPlan::Triggered(_) => Windows::Triggered(TriggeredWindows::read(stored, read_sent)?),
        };
        Some(Self { size_bytes: windows.size_bytes(), windows, armed_ms: None })
    }

    /// `true` if there is room for values of so many bytes.
    pub(super) fn has_room(&self, added_bytes: u64) -> bool {
        self.size_bytes.saturating_add(added_bytes) <= WINDOWS_MAX_BYTES
    }

    /// Adds a record, and gives the windows that it causes to be given; `false` if it is too late for all its windows.
    pub(super) fn add(
        &mut self,
        plan: &AggregatePlan,
        record: TriggeringRecord,
        inputs: &[Value<'_>],
        mut give: impl FnMut(GivenWindow<'_>),
    ) -> bool {
        let fresh = || plan.fresh();
        // A nested value cannot be compared, and is left out.
        let add = |state: &mut WindowFigures| {
            let _ = state.figures.add(inputs);
        };
        match (&mut self.windows, &plan.windows) {
            (Windows::Timed(windows), WindowsPlan::Timed { shape, lateness_ms }) => {
                let gone_ms = record.now_ms.saturating_sub(*lateness_ms);
                let panes = windows.panes();
                let Some(state) = windows.state(shape, record.time_ms, gone_ms, fresh) else { return false };
                let before_bytes = state.heap_bytes();
                add(state);
                self.size_bytes = self.size_bytes.saturating_sub(before_bytes) + state.heap_bytes();
                if windows.panes() != panes {
                    self.size_bytes = windows.states().map(WindowFigures::heap_bytes).sum();
                }
                let times = WindowTimes { due_ms: record.now_ms, gone_ms };
                let give = |window, figures: &_| give(GivenWindow::Timed(window, figures));
                windows.give_again(shape, record.time_ms, times, fresh, give);
                true
            }
            (Windows::Counted { records, windows }, WindowsPlan::Counted { shape, .. }) => {
                let number = i64::try_from(*records).unwrap_or(i64::MAX);
                windows.state(shape, number, i64::MIN, fresh).into_iter().for_each(add);
                *records += 1;
                windows.give_due(shape, number + 1, fresh, |window, figures| give(GivenWindow::Timed(window, figures)));
                windows.forget(shape, number + 1);
                self.size_bytes = self.windows.size_bytes();
                true
            }
            (Windows::Triggered(windows), WindowsPlan::Triggered(plan)) => {
                let is_taken = windows.add(plan, record, fresh, add, |trigger, window, figures| {
                    give(GivenWindow::Triggered(trigger, window, figures));
                });
                self.size_bytes = self.windows.size_bytes();
                is_taken
            }
            _ => unreachable!("a key has the windows of its plan"),
        }
    }

    /// Gives the windows that are due by a time, and drops those that are gone.
    pub(super) fn advance(&mut self, plan: &AggregatePlan, now_ms: i64, mut give: impl FnMut(GivenWindow<'_>)) {
        match (&mut self.windows, &plan.windows) {
            (Windows::Timed(windows), WindowsPlan::Timed { shape, lateness_ms }) => {
                let give = |window, figures: &_| give(GivenWindow::Timed(window, figures));
                windows.give_due(shape, now_ms, || plan.fresh(), give);
                windows.forget(shape, now_ms.saturating_sub(*lateness_ms));
            }
            (Windows::Triggered(windows), WindowsPlan::Triggered(plan)) => {
                windows.advance(plan, now_ms, |trigger, window, figures| {
                    give(GivenWindow::Triggered(trigger, window, figures));
                });
            }
            _ => {}
        }
        self.size_bytes = self.windows.size_bytes();
    }

    /// Gives the windows that have changed since a trigger by the clock last gave them.
    pub(super) fn tick(&mut self, plan: &AggregatePlan, trigger: usize, mut give: impl FnMut(GivenWindow<'_>)) {
        if let (Windows::Triggered(windows), WindowsPlan::Triggered(plan)) = (&mut self.windows, &plan.windows) {
            windows.give_changed(plan, trigger, |trigger, window, figures| {
                give(GivenWindow::Triggered(trigger, window, figures));
            });
        }
        self.size_bytes = self.windows.size_bytes();
    }

    /// Gives all that was not given, at the end of the job.
    pub(super) fn finish(&mut self, plan: &AggregatePlan, mut give: impl FnMut(GivenWindow<'_>)) {
        match (&mut self.windows, &plan.windows) {
            (Windows::Timed(windows), WindowsPlan::Timed { shape, .. }) => {
                let give = |window, figures: &_| give(GivenWindow::Timed(window, figures));
                windows.give_all(shape, || plan.fresh(), give);
            }
            (Windows::Counted { records, windows }, WindowsPlan::Counted { shape, slide }) => {
                // The window that has got records since the last one was given.
                let slide = (*slide).unsigned_abs().max(1);
                let end = i64::try_from(records.div_ceil(slide).saturating_mul(slide)).unwrap_or(i64::MAX);
                let give = |window, figures: &_| give(GivenWindow::Timed(window, figures));
                windows.give_due(shape, end, || plan.fresh(), give);
            }
            (Windows::Triggered(windows), WindowsPlan::Triggered(plan)) => {
                windows.give_all(plan, |trigger, window, figures| {
                    give(GivenWindow::Triggered(trigger, window, figures));
                });
            }
            _ => {}
        }
        self.size_bytes = self.windows.size_bytes();
    }

    /// The windows that are open as JSON, with the values that they would give now, as many as fit.
    pub(super) fn describe(mut self, plan: &AggregatePlan, key: &[u8]) -> Vec<serde_json::Value> {
        let (mut told, mut left_bytes) = (Vec::new(), DESCRIBED_MAX_BYTES);
        let mut tell = |window: WindowExtent, figures: &WindowFigures| {
            if left_bytes > 0 {
                let (window, size_bytes) = plan.describe(key, window, figures);
                left_bytes = left_bytes.saturating_sub(size_bytes);
                told.push(window);
            }
        };
        if let Windows::Triggered(windows) = &self.windows {
            windows.windows().for_each(|(window, figures)| tell(window, figures));
        } else {
            self.finish(plan, |given| match given {
                GivenWindow::Timed(window, figures) => tell(window, figures),
                GivenWindow::Triggered(_, window, figures) => tell(window, figures),
            });
        }
        told
    }

    /// `true` if a window has changed since a trigger by the clock last gave it.
    pub(super) fn waits_for(&self, trigger: usize) -> bool {
        matches!(&self.windows, Windows::Triggered(windows) if windows.has_changed(trigger))
    }

    /// The time of a timer that has to be armed. One that is due too soon is set anew once it is: a session that grows has one, and not
    /// one for each record.
    pub(super) fn arm(&mut self, plan: &AggregatePlan) -> Option<i64> {
        let next_ms = self.next_ms(plan)?;
        if self.armed_ms.is_some_and(|armed_ms| armed_ms <= next_ms) {
            return None;
        }
        self.armed_ms = Some(next_ms);
        Some(next_ms)
    }

    /// The time at which [`Self::advance`] has something to do.
    fn next_ms(&self, plan: &AggregatePlan) -> Option<i64> {
        match (&self.windows, &plan.windows) {
            (Windows::Timed(windows), WindowsPlan::Timed { shape, lateness_ms }) => {
                windows.next_ms(shape, *lateness_ms)
            }
            (Windows::Triggered(windows), WindowsPlan::Triggered(plan)) => windows.next_ms(plan),
            _ => None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match &self.windows {
            Windows::Timed(windows) | Windows::Counted { windows, .. } => windows.is_empty(),
            Windows::Triggered(windows) => windows.is_empty(),
        }
    }
}
