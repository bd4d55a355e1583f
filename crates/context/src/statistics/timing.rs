//! Durations of request phases: the block `timing` of `/statistics`.

use std::sync::Arc;
use std::time::Duration;

use millstream_types::MonotonicClock;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

/// A phase of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestPhase {
    Parse,
    /// Rendering the reply; for a list this includes the search.
    Render,
    /// From the head of a request to that of its reply.
    Total,
}

impl RequestPhase {
    const ALL: [Self; 3] = [Self::Parse, Self::Render, Self::Total];

    /// Orion's name of the phase.
    const fn name(self) -> &'static str {
        match self {
            Self::Parse => "jsonV2Parse",
            Self::Render => "render",
            Self::Total => "total",
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Times {
    all: Duration,
    last: Duration,
}

/// Reads no clock if it is switched off.
pub(crate) struct Timing {
    clock: Option<Arc<dyn MonotonicClock>>,
    parts: [Mutex<Times>; RequestPhase::ALL.len()],
}

impl Timing {
    /// Measures with `clock`; `None` switches it off.
    pub(crate) fn new(clock: Option<Arc<dyn MonotonicClock>>) -> Self {
        Self { clock, parts: Default::default() }
    }

    /// Runs `work` and measures it as `part`.
    pub(crate) fn of<T>(&self, part: RequestPhase, work: impl FnOnce() -> T) -> T {
        let Some(clock) = &self.clock else { return work() };
        let begun = clock.now();
        let done = work();
        self.took(part, clock.now().saturating_sub(begun));
        done
    }

    pub(crate) fn took(&self, part: RequestPhase, took: Duration) {
        if self.clock.is_some() {
            let mut times = self.parts[part as usize].lock();
            times.all += took;
            times.last = took;
        }
    }

    /// The block in seconds; `None` if it is switched off.
    pub(crate) fn shown(&self) -> Option<Value> {
        self.clock.as_ref()?;
        let times = self.parts.each_ref().map(|times| *times.lock());
        let shown = |of: fn(&Times) -> Duration| {
            let parts = RequestPhase::ALL.iter().zip(&times);
            parts.map(|(part, times)| (part.name().to_owned(), of(times).as_secs_f64().into())).collect::<Map<_, _>>()
        };
        Some(json!({"accumulated": shown(|times| times.all), "last": shown(|times| times.last)}))
    }

    pub(crate) fn reset(&self) {
        self.parts.iter().for_each(|times| *times.lock() = Times::default());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A clock that advances one second on each read.
    #[derive(Default)]
    struct Slow(AtomicU64);

    impl MonotonicClock for Slow {
        fn now(&self) -> Duration {
            Duration::from_secs(self.0.fetch_add(1, Ordering::Relaxed))
        }
    }

    #[test]
    fn parts_add_up_and_the_last_of_each_is_kept() {
        let timing = Timing::new(Some(Arc::new(Slow::default())));
        assert_eq!((0..3).map(|n| timing.of(RequestPhase::Parse, || n)).sum::<i32>(), 3);
        timing.took(RequestPhase::Total, Duration::from_millis(1_500));
        timing.took(RequestPhase::Total, Duration::from_millis(500));
        let expected = json!({
            "accumulated": {"jsonV2Parse": 3.0, "render": 0.0, "total": 2.0},
            "last": {"jsonV2Parse": 1.0, "render": 0.0, "total": 0.5},
        });
        assert_eq!(timing.shown(), Some(expected));
        timing.reset();
        assert_eq!(timing.shown().unwrap()["accumulated"]["total"], 0.0);
        let off = Timing::new(None);
        off.took(RequestPhase::Total, Duration::from_secs(1));
        assert_eq!((off.of(RequestPhase::Render, || 7), off.shown()), (7, None));
    }
}
