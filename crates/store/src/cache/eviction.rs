//! Eviction: chooses the key that goes when the cache is full, by what is noted of each use.
//!
//! A slot has 32 bits for it. With the LFU policies they are the minute of the last use (16 bits) and a counter that
//! grows with the logarithm of the uses and falls with idle minutes, as in Redis; with all others the tick of the last
//! use.

use fastrand::Rng;

use super::config::{CacheConfig, EvictionPolicy};
use super::loss::KeyLoss;
use super::pages::Pages;
use super::shard::CacheShard;
use super::time::{Tick, TransactionTime};

/// Keys among which the LRU and LFU policies choose the worst.
const SAMPLES: usize = 5;
/// The counter of a new key, so that it has time to be used before it is the worst.
const LFU_FIRST: u8 = 5;

/// The policy and its settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Eviction {
    pub(super) policy: EvictionPolicy,
    log_factor: u32,
    decay_minutes: u32,
}

impl Eviction {
    pub(super) fn new(config: &CacheConfig) -> Self {
        let (log_factor, decay_minutes) = (config.lfu_log_factor, config.lfu_decay_minutes);
        Self { policy: config.policy, log_factor, decay_minutes }
    }

    /// The access word of a new key.
    pub(super) fn first_access(&self, tick: Tick) -> u32 {
        if self.policy.counts_accesses() { lfu(tick, LFU_FIRST) } else { tick.0 }
    }

    /// The access word of a key that is used again.
    #[inline]
    pub(super) fn next_access(&self, access: u32, tick: Tick, rng: &mut Rng) -> u32 {
        if !self.policy.counts_accesses() {
            return tick.0;
        }
        let count = self.count(access, tick);
        let base = u64::from(count.saturating_sub(LFU_FIRST));
        let grows = count < u8::MAX && rng.u64(..base * u64::from(self.log_factor) + 1) == 0;
        lfu(tick, count + u8::from(grows))
    }

    /// The counter of the LFU policies, less the minutes that have passed.
    pub(super) fn count(&self, access: u32, tick: Tick) -> u8 {
        let minutes = tick.minute().wrapping_sub((access >> 8) as u16);
        // The clock was set back, or the key was idle for more than three weeks.
        let minutes = if minutes > u16::MAX / 2 { 0 } else { u32::from(minutes) };
        let periods = minutes.checked_div(self.decay_minutes).unwrap_or(0);
        (access as u8).saturating_sub(periods.min(u32::from(u8::MAX)) as u8)
    }

    /// Milliseconds since the last use, if the policy notes it.
    pub(super) fn idle_ms(&self, access: u32, tick: Tick) -> Option<u64> {
        (!self.policy.counts_accesses()).then(|| tick.ms_since(Tick(access)))
    }

    /// The access counter, if the policy has one.
    pub(super) fn frequency(&self, access: u32, tick: Tick) -> Option<u8> {
        self.policy.counts_accesses().then(|| self.count(access, tick))
    }

    /// The larger, the better a key is to evict.
    pub(super) fn rank(&self, access: u32, tick: Tick) -> u32 {
        if self.policy.counts_accesses() {
            u32::from(u8::MAX - self.count(access, tick))
        } else {
            tick.since(Tick(access))
        }
    }
}

fn lfu(tick: Tick, count: u8) -> u32 {
    (u32::from(tick.minute()) << 8) | u32::from(count)
}

impl CacheShard {
    /// Makes room: removes the key that expired first or, if none has, the policy's choice. Returns
    /// `false` if there is none.
    pub(super) fn evict(&mut self, moment: &TransactionTime<'_>) -> bool {
        if self.remove_expired(moment).is_some() {
            return true;
        }
        let Some(slot) = self.victim(moment.tick()) else { return false };
        self.note_loss(KeyLoss::Evicted, slot);
        self.remove(slot);
        true
    }

    /// Puts another policy into force. `pages` are empty ones of the new sizes, if the policy has any.
    ///
    /// The keys keep their notes of uses if the new policy takes the same; otherwise each counts as just written.
    pub(super) fn set_eviction(&mut self, eviction: Eviction, pages: Option<Pages>, tick: Tick) {
        if self.eviction.policy.counts_accesses() != eviction.policy.counts_accesses() {
            let first = eviction.first_access(tick);
            self.slots.iter_mut().for_each(|slot| slot.access = first);
        }
        self.eviction = eviction;
        self.pages = match (self.pages.take(), pages) {
            (Some(old), Some(new)) => Some(old.resized_as(&self.slots, new)),
            (None, Some(new)) => {
                let mut oldest_first: Vec<u32> = (0..self.slots.len() as u32).collect();
                let rank = |slot: &u32| std::cmp::Reverse(eviction.rank(self.slots[*slot as usize].access, tick));
                oldest_first.sort_by_key(rank);
                Some(new.filled(&self.slots, self.slots.capacity(), oldest_first))
            }
            (_, None) => None,
        };
    }

    fn victim(&mut self, tick: Tick) -> Option<u32> {
        use EvictionPolicy as Policy;
        match self.eviction.policy {
            Policy::Noeviction => None,
            Policy::VolatileTtl => self.expiries.first().map(|(slot, _)| slot),
            Policy::Slru => self.pages.as_ref().and_then(|pages| pages.victim()),
            Policy::AllkeysRandom => self.any_key(),
            Policy::VolatileRandom => self.any_that_expires(),
            Policy::AllkeysLru | Policy::AllkeysLfu => self.worst_of(tick, Self::any_key),
            Policy::VolatileLru | Policy::VolatileLfu => self.worst_of(tick, Self::any_that_expires),
        }
    }

    fn worst_of(&mut self, tick: Tick, any: fn(&mut Self) -> Option<u32>) -> Option<u32> {
        let eviction = self.eviction;
        let mut worst = any(self)?;
        let mut worst_rank = eviction.rank(self.slots[worst as usize].access, tick);
        for _ in 1..SAMPLES {
            let slot = any(self)?;
            let rank = eviction.rank(self.slots[slot as usize].access, tick);
            if rank > worst_rank {
                (worst, worst_rank) = (slot, rank);
            }
        }
        Some(worst)
    }

    pub(super) fn any_key(&mut self) -> Option<u32> {
        (!self.slots.is_empty()).then(|| self.rng.u32(..self.slots.len() as u32))
    }

    fn any_that_expires(&mut self) -> Option<u32> {
        (self.expiries.len() > 0).then(|| self.expiries.slot(self.rng.usize(..self.expiries.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u32 = 60_000 / 16;

    fn lfu_policy(log_factor: u32, decay_minutes: u32) -> Eviction {
        Eviction { policy: EvictionPolicy::AllkeysLfu, log_factor, decay_minutes }
    }

    #[test]
    fn the_access_counter_grows_with_the_logarithm_of_the_hits() {
        // The table in Redis's documentation of `lfu-log-factor`, with room for chance.
        for (factor, hits, expected) in [
            (0, 1_000, 255..=255),
            (10, 100, 8..=16),
            (10, 1_000, 14..=24),
            (100, 1_000, 7..=16),
            (10, 100_000, 120..=165),
        ] {
            let (eviction, mut rng) = (lfu_policy(factor, 1), Rng::with_seed(1));
            let first = eviction.first_access(Tick(0));
            let access = (0..hits).fold(first, |access, _| eviction.next_access(access, Tick(0), &mut rng));
            let count = eviction.count(access, Tick(0));
            assert!(expected.contains(&count), "factor {factor}, {hits} hits: {count}");
        }
    }

    #[test]
    fn the_access_counter_falls_with_idle_time() {
        let access = lfu(Tick(100 * MINUTE), 50);
        let count = |decay, minute: u32| lfu_policy(10, decay).count(access, Tick(minute * MINUTE));
        assert_eq!([count(1, 100), count(1, 110), count(1, 1_000)], [50, 40, 0]);
        assert_eq!([count(5, 109), count(5, 110), count(0, 1_000)], [49, 48, 50]);
        assert_eq!(count(1, 99), 50, "a clock that is set back makes nothing old");
    }
}
