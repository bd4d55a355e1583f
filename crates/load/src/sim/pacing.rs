//! Due times of messages, and the times from which their latencies count.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

/// Tolerance of timers. A delay within it is caused by the simulator, not by the server.
const TIMER_GRAIN: Duration = Duration::from_millis(2);

/// Behaviour of a device when its server is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Pacing {
    /// It waits: the next message follows one period after the last one's start, but never before its answer. A stall
    /// lowers the rate and shows in one message per device.
    Closed,
    /// It keeps to its timetable: messages are due at fixed times, those that could not be sent in time are sent late,
    /// and latency counts from when a message was due. A stall shows in all messages that it held up.
    Open,
}

impl Pacing {
    /// Due time of the message after the one with these times.
    pub(crate) fn next_due(self, period: Duration, due: Instant, started: Instant, completed: Instant) -> Instant {
        match self {
            Self::Closed => (started + period).max(completed),
            Self::Open => due + period,
        }
    }

    /// Time from which the latency of a message counts. `waited` is true if a connection was free before the due time.
    pub(crate) fn counts_from(self, due: Instant, started: Instant, waited: bool) -> Instant {
        match self {
            Self::Closed => started,
            Self::Open if waited && started.saturating_duration_since(due) <= TIMER_GRAIN => started,
            Self::Open => due,
        }
    }
}

/// Counts the messages that are due by `elapsed` if devices start at `offsets` (ascending, each below the period).
pub(crate) fn messages_due(offsets: &[Duration], period: Duration, elapsed: Duration) -> u64 {
    let rounds = elapsed.as_nanos() / period.as_nanos().max(1);
    let within = Duration::from_nanos((elapsed.as_nanos() % period.as_nanos().max(1)) as u64);
    rounds as u64 * offsets.len() as u64 + offsets.partition_point(|offset| *offset <= within) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_next_message_is_due_by_the_loops_rule() {
        let zero = Instant::now();
        // (loop, due, started, completed, next due), period 100 ms
        for (pacing, due, started, completed, expected) in [
            (Pacing::Closed, 0, 0, 10, 100),
            (Pacing::Closed, 0, 0, 100, 100),
            (Pacing::Closed, 0, 0, 350, 350),
            (Pacing::Closed, 0, 40, 60, 140),
            (Pacing::Open, 0, 0, 10, 100),
            (Pacing::Open, 0, 0, 350, 100),
            (Pacing::Open, 100, 350, 360, 200),
        ] {
            let next = pacing.next_due(ms(100), zero + ms(due), zero + ms(started), zero + ms(completed));
            assert_eq!(next - zero, ms(expected), "{pacing:?} {due} {started} {completed}");
        }
    }

    #[test]
    fn open_loop_latency_counts_from_the_due_time_except_for_the_timers_own_lateness() {
        let zero = Instant::now();
        for (pacing, started, waited, expected) in [
            (Pacing::Closed, 50, false, 50),
            (Pacing::Open, 50, false, 0),
            (Pacing::Open, 1, false, 0),
            (Pacing::Open, 1, true, 1),
            (Pacing::Open, 50, true, 0),
        ] {
            let from = pacing.counts_from(zero, zero + ms(started), waited);
            assert_eq!(from - zero, ms(expected), "{pacing:?} {started} {waited}");
        }
    }

    #[test]
    fn messages_due_counts_whole_rounds_and_the_begun_one() {
        let offsets = [ms(0), ms(30), ms(70)];
        for (elapsed, expected) in [(0, 1), (29, 1), (30, 2), (99, 3), (100, 4), (169, 5), (1070, 33)] {
            assert_eq!(messages_due(&offsets, ms(100), ms(elapsed)), expected, "{elapsed} ms");
        }
    }
}
