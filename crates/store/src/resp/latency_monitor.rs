//! The latency monitor: the latest commands that took longer than `latency-monitor-threshold`.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;

/// Samples that are kept of an event, as in Redis.
const SAMPLES_MAX: usize = 160;

/// When something was slow, and how slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LatencySample {
    pub(crate) time_s: i64,
    pub(crate) took_ms: u64,
}

/// The latest samples of an event, the oldest first, and the slowest one ever.
#[derive(Debug, Clone, Default)]
pub(crate) struct LatencyHistory {
    pub(crate) samples: VecDeque<LatencySample>,
    pub(crate) longest_ms: u64,
}

/// The histories of slow events, by the event's name.
#[derive(Debug, Default)]
pub(crate) struct LatencyMonitor(Mutex<BTreeMap<&'static str, LatencyHistory>>);

impl LatencyMonitor {
    /// Adds a sample. Those of one second count as one, the slowest.
    pub(crate) fn add(&self, event: &'static str, sample: LatencySample) {
        let mut events = self.0.lock();
        let event = events.entry(event).or_default();
        event.longest_ms = event.longest_ms.max(sample.took_ms);
        match event.samples.back_mut() {
            Some(last) if last.time_s == sample.time_s => last.took_ms = last.took_ms.max(sample.took_ms),
            _ => event.samples.push_back(sample),
        }
        if event.samples.len() > SAMPLES_MAX {
            event.samples.pop_front();
        }
    }

    pub(crate) fn events(&self) -> BTreeMap<&'static str, LatencyHistory> {
        self.0.lock().clone()
    }

    /// Forgets events by name, or all of them without names; returns how many.
    pub(crate) fn reset(&self, names: &[bytes::Bytes]) -> usize {
        let mut events = self.0.lock();
        let before = events.len();
        events.retain(|event, _| {
            !names.is_empty() && !names.iter().any(|name| name.eq_ignore_ascii_case(event.as_bytes()))
        });
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_second_are_one_and_old_ones_go() {
        let monitor = LatencyMonitor::default();
        for (time_s, took_ms) in [(1, 5), (1, 9), (1, 7), (2, 4)] {
            monitor.add("command", LatencySample { time_s, took_ms });
        }
        let event = monitor.events()["command"].clone();
        assert_eq!(event.samples, [LatencySample { time_s: 1, took_ms: 9 }, LatencySample { time_s: 2, took_ms: 4 }]);
        assert_eq!(event.longest_ms, 9);
        (3..1_000).for_each(|time_s| monitor.add("command", LatencySample { time_s, took_ms: 1 }));
        assert_eq!(monitor.events()["command"].samples.len(), SAMPLES_MAX);
        assert_eq!((monitor.reset(&["other".into()]), monitor.reset(&["COMMAND".into()])), (0, 1));
    }
}
