//! The counters of a node: totals, rates over the last seconds, errors by code, and the latency of batches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_types::MonotonicClock;
use parking_lot::Mutex;

use super::latency::RecentLatency;
use crate::expression::RecordError;

/// Seconds of the rates that show a change at once.
const SHORT_SECONDS: u64 = 10;
/// Seconds of the steadier rates.
const LONG_SECONDS: u64 = 60;
/// Bits of a meter's slot that hold the amount; the others hold the second.
const AMOUNT_BITS: u32 = 40;
const SECOND_MASK: u64 = u64::MAX >> AMOUNT_BITS;
const AMOUNT_MASK: u64 = (1 << AMOUNT_BITS) - 1;

/// The counters of one node, for all its instances.
pub(crate) struct NodeCounters {
    records_in: Meter,
    records_out: Meter,
    batches_in: AtomicU64,
    batches_out: AtomicU64,
    unrouted: AtomicU64,
    late: AtomicU64,
    errors: Mutex<BTreeMap<&'static str, u64>>,
    latency: RecentLatency,
    clock: Arc<dyn MonotonicClock>,
}

/// The figures of one node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeCounts {
    pub(crate) records_in: u64,
    pub(crate) records_out: u64,
    pub(crate) batches_in: u64,
    pub(crate) batches_out: u64,
    pub(crate) unrouted: u64,
    /// Records that came too late for their windows.
    pub(crate) late: u64,
    pub(crate) errors_by_code: BTreeMap<&'static str, u64>,
    pub(crate) rates_in: Rates,
    pub(crate) rates_out: Rates,
    /// The time of the node for a batch, over the last one to two minutes; `None` without a batch.
    pub(crate) latency_p50_ms: Option<f64>,
    pub(crate) latency_p99_ms: Option<f64>,
}

impl NodeCounts {
    /// Records on which the node has failed.
    pub(crate) fn errors(&self) -> u64 {
        self.errors_by_code.values().sum()
    }
}

impl NodeCounters {
    pub(crate) fn new(clock: Arc<dyn MonotonicClock>) -> Self {
        let born = clock.now().as_secs();
        Self {
            records_in: Meter::new(born),
            records_out: Meter::new(born),
            batches_in: AtomicU64::new(0),
            batches_out: AtomicU64::new(0),
            unrouted: AtomicU64::new(0),
            late: AtomicU64::new(0),
            errors: Mutex::default(),
            latency: RecentLatency::default(),
            clock,
        }
    }

    /// Counts a batch that enters; the time at which it does.
    pub(crate) fn begin(&self, records: usize) -> Duration {
        let now = self.clock.now();
        self.records_in.add(now.as_secs(), records as u64);
        self.batches_in.fetch_add(1, Ordering::Relaxed);
        now
    }

    /// Counts the records that the node has made of time alone.
    pub(crate) fn made(&self, records: usize) {
        if records > 0 {
            self.records_out.add(self.clock.now().as_secs(), records as u64);
            self.batches_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the records that the node has made of a batch that entered at `begun`.
    pub(crate) fn end(&self, records: usize, begun: Duration) {
        self.made(records);
        let now = self.clock.now();
        self.latency.record(now, now.saturating_sub(begun));
    }

    /// Counts records on which the node has failed.
    pub(crate) fn failed(&self, failed: &[RecordError]) {
        if !failed.is_empty() {
            let mut errors = self.errors.lock();
            failed.iter().for_each(|error| *errors.entry(error.code).or_default() += 1);
        }
    }

    /// Counts a record that a sink can never write.
    pub(crate) fn refused(&self, code: &'static str) {
        *self.errors.lock().entry(code).or_default() += 1;
    }

    pub(crate) fn unrouted(&self, records: u64) {
        self.unrouted.fetch_add(records, Ordering::Relaxed);
    }

    /// Counts records that came too late for their windows.
    pub(crate) fn late(&self, records: u64) {
        self.late.fetch_add(records, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> NodeCounts {
        let now = self.clock.now();
        let latency = self.latency.counts(now);
        NodeCounts {
            records_in: self.records_in.total(),
            records_out: self.records_out.total(),
            batches_in: self.batches_in.load(Ordering::Relaxed),
            batches_out: self.batches_out.load(Ordering::Relaxed),
            unrouted: self.unrouted.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            errors_by_code: self.errors.lock().clone(),
            rates_in: self.records_in.rates(now.as_secs()),
            rates_out: self.records_out.rates(now.as_secs()),
            latency_p50_ms: latency.quantile_ms(0.5),
            latency_p99_ms: latency.quantile_ms(0.99),
        }
    }
}

/// Amounts a second, over two times.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Rates {
    /// Over the last ten seconds.
    pub(crate) short: f64,
    /// The rate over the last minute, records a second.
    pub(crate) long: f64,
}

/// A total, and the amounts of the last seconds. Adding takes no lock.
pub(crate) struct Meter {
    total: AtomicU64,
    /// The second in which it was made.
    born: u64,
    /// A second with its amount, by second modulo the length.
    seconds: [AtomicU64; LONG_SECONDS as usize + 1],
}

impl Meter {
    pub(crate) fn new(born: u64) -> Self {
        Self { total: AtomicU64::new(0), born, seconds: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    pub(crate) fn add(&self, second: u64, amount: u64) {
        self.total.fetch_add(amount, Ordering::Relaxed);
        let slot = &self.seconds[(second % (LONG_SECONDS + 1)) as usize];
        let tag = (second & SECOND_MASK) << AMOUNT_BITS;
        let of_another_second = |held: u64| held & !AMOUNT_MASK != tag;
        if of_another_second(slot.load(Ordering::Relaxed)) {
            let next = |held| of_another_second(held).then_some(tag);
            // An error says that another thread has begun this second.
            let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        }
        slot.fetch_add(amount & AMOUNT_MASK, Ordering::Relaxed);
    }

    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    pub(crate) fn rates(&self, now: u64) -> Rates {
        Rates { short: self.rate(now, SHORT_SECONDS), long: self.rate(now, LONG_SECONDS) }
    }

    /// The mean over the last whole seconds, or over those since the meter was made.
    fn rate(&self, now: u64, seconds: u64) -> f64 {
        let from = now.saturating_sub(seconds).max(self.born);
        let amount = |second: u64| {
            let held = self.seconds[(second % (LONG_SECONDS + 1)) as usize].load(Ordering::Relaxed);
            if held >> AMOUNT_BITS == second & SECOND_MASK { held & AMOUNT_MASK } else { 0 }
        };
        (from..now).map(amount).sum::<u64>() as f64 / now.saturating_sub(from).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_forgets_what_is_older_than_its_time() {
        let meter = Meter::new(0);
        meter.add(20, 50);
        meter.add(21, 50);
        let rates = |now| {
            let Rates { short, long } = meter.rates(now);
            (short, (long * 60.0).round())
        };
        assert_eq!(rates(31), (5.0, (100.0_f64 / 31.0 * 60.0).round()));
        assert_eq!(rates(70), (0.0, 100.0));
        assert_eq!(rates(81), (0.0, 50.0));
        assert_eq!(rates(90), (0.0, 0.0));
        assert_eq!(meter.total(), 100);
    }

    #[test]
    fn a_young_meter_has_the_rate_of_its_age() {
        let meter = Meter::new(100);
        assert_eq!(meter.rates(100), Rates::default());
        meter.add(100, 30);
        meter.add(101, 10);
        assert_eq!(meter.rates(102), Rates { short: 20.0, long: 20.0 });
    }

    #[test]
    fn errors_count_by_code() {
        let counters = NodeCounters::new(Arc::new(millstream_types::ManualClock::default()));
        let error = |code| RecordError { row: 0, code, message: String::new() };
        counters.failed(&[error("cast"), error("cast"), error("division")]);
        counters.refused("cast");
        let counts = counters.counts();
        assert_eq!(counts.errors_by_code, BTreeMap::from([("cast", 3), ("division", 1)]));
        assert_eq!(counts.errors(), 4);
    }
}
