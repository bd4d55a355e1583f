//! How often values occur in a field, about.

/// Counters; values share them by hash.
const COUNTERS: usize = 4096;
/// After so many values all counts are halved, so that the stream's past fades.
const HALVED_AT: u32 = 1 << 20;
/// Fewer values tell nothing.
const TELLING: u32 = 64;

/// Counts of the values of sampled records.
#[derive(Debug, Default)]
pub(crate) struct Frequencies {
    /// Empty until the first value.
    counts: Vec<u32>,
    total: u32,
}

impl Frequencies {
    pub(crate) fn count(&mut self, hash: u64) {
        self.counts.resize(COUNTERS, 0);
        self.counts[hash as usize % COUNTERS] += 1;
        self.total += 1;
        if self.total == HALVED_AT {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total /= 2;
        }
    }

    /// Of a million values so many are this one, at most about; `None` if too few have been seen.
    pub(crate) fn millionths(&self, hash: u64) -> Option<u64> {
        let count = self.counts.get(hash as usize % COUNTERS).filter(|_| self.total >= TELLING)?;
        Some(u64::from(*count) * 1_000_000 / u64::from(self.total))
    }
}
