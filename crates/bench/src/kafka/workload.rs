//! Sizes of the Kafka comparison: partitions, record sizes, rounds and times.

use std::time::Duration;

use crate::Length;

pub(super) const PARTITIONS: u32 = 4;
pub(super) const SMALL_BYTES: usize = 100;
pub(super) const LARGE_BYTES: usize = 1024;

/// Sizes and times of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct KafkaWorkload {
    pub(super) rounds: usize,
    /// Bytes of values that Kafka's producer sends in a round.
    pub(super) produced_bytes: u64,
    /// Time that each client sends at half of Kafka's rate.
    pub(super) half_rate: Duration,
    /// Time that our own generator sends.
    pub(super) own: Duration,
}

impl KafkaWorkload {
    pub(super) fn of(length: Length) -> Self {
        let s = Duration::from_secs;
        match length {
            Length::Quick => Self { rounds: 1, produced_bytes: 40_000_000, half_rate: s(3), own: s(1) },
            Length::Default => Self { rounds: 3, produced_bytes: 50_000_000, half_rate: s(3), own: s(2) },
            Length::Full => Self { rounds: 3, produced_bytes: 1_000_000_000, half_rate: s(120), own: s(20) },
        }
    }

    pub(super) fn records(self, record_bytes: usize) -> u64 {
        self.produced_bytes / record_bytes as u64
    }
}
