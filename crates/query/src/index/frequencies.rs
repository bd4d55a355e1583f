//! Approximate frequencies of the values in a field.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counters; values share them by hash.
const COUNTERS: usize = 4096;
/// Number of values after which all counts are halved, so that the stream's past fades.
const HALVED_AT: u32 = 1 << 20;
/// Number of samples below which a frequency means nothing.
const TELLING: u32 = 64;

/// Counts of the values of sampled records; threads count at the same time, and lose some where they meet.
#[derive(Debug, Default)]
pub(crate) struct Frequencies {
    /// Not there until the first value.
    counts: OnceLock<Box<[AtomicU32]>>,
    total: AtomicU32,
}

impl Frequencies {
    pub(crate) fn count(&self, hash: u64) {
        let counts = self.counts.get_or_init(|| (0..COUNTERS).map(|_| AtomicU32::new(0)).collect());
        counts[hash as usize % COUNTERS].fetch_add(1, Ordering::Relaxed);
        let total = self.total.fetch_add(1, Ordering::Relaxed) + 1;
        if total == HALVED_AT {
            let halve = |count: &AtomicU32| count.store(count.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            counts.iter().for_each(halve);
            halve(&self.total);
        }
    }

    /// The share of this value in millionths, estimated from above; `None` if too few values have been seen.
    pub(crate) fn millionths(&self, hash: u64) -> Option<u64> {
        let total = self.total.load(Ordering::Relaxed);
        let counts = self.counts.get().filter(|_| total >= TELLING)?;
        Some(u64::from(counts[hash as usize % COUNTERS].load(Ordering::Relaxed)) * 1_000_000 / u64::from(total))
    }
}
