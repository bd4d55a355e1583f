//! Rounds, counts and times of the suite.

use std::time::Duration;

use crate::Length;

#[derive(Debug, Clone, Copy)]
pub(super) struct StoreWorkload {
    pub(super) rounds: usize,
    /// Measured time of a case in a round.
    pub(super) time: Duration,
    /// Writes before the measurement, which make the journal's files and open the connections.
    pub(super) warm_up_puts: u64,
    /// Keys that are read at random.
    pub(super) read_keys: u64,
    /// Requests of redis-benchmark in a round, by the commands in flight on a connection.
    pub(super) cache_requests: [(usize, u64); 2],
    /// Requests of redis-benchmark in a round whose writes must be synced.
    pub(super) durable_requests: u64,
    /// Bytes of the values that must be synced.
    pub(super) durable_bytes: &'static [usize],
    /// Keys that are inserted and then updated.
    pub(super) update_keys: u64,
    /// Time of the updates, in [`StoreWorkload::SLICES`] parts.
    pub(super) update_time: Duration,
    /// Times that the server is killed in a run.
    pub(super) kills: usize,
    /// Time of writes before a kill.
    pub(super) kill_after: Duration,
    /// First rate of the ramp in requests a second, and the factor from a step to the next.
    pub(super) ramp: (f64, f64),
    /// Time of a step of the ramp.
    pub(super) step: Duration,
    /// Time at 70 % of the highest rate, in [`StoreWorkload::SLICES`] parts.
    pub(super) steady_time: Duration,
}

impl StoreWorkload {
    /// Parts of a long run, the last of which is compared with an early one.
    pub(super) const SLICES: u32 = 10;

    pub(super) fn of(length: Length) -> Self {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let long = Self {
            rounds: 3,
            time: s(3),
            warm_up_puts: 15_000,
            read_keys: 100_000,
            cache_requests: [(1, 150_000), (16, 1_500_000)],
            durable_requests: 40_000,
            durable_bytes: &[1_024, 3_072, 5_120],
            update_keys: 50_000,
            update_time: s(40),
            kills: 3,
            kill_after: s(2),
            ramp: (2_000.0, 1.2),
            step: s(2),
            steady_time: s(40),
        };
        match length {
            Length::Quick => Self {
                rounds: 1,
                time: ms(800),
                warm_up_puts: 3_000,
                read_keys: 20_000,
                cache_requests: [(1, 30_000), (16, 300_000)],
                durable_requests: 10_000,
                durable_bytes: &[3_072],
                update_keys: 10_000,
                update_time: s(2),
                kills: 1,
                kill_after: ms(500),
                ramp: (4_000.0, 1.5),
                step: ms(500),
                steady_time: s(2),
            },
            Length::Default => long,
            Length::Full => {
                Self { time: s(15), update_time: s(600), kills: 20, step: s(5), steady_time: s(1_800), ..long }
            }
        }
    }
}
