//! `io_histograms`: counts by time and size of each operation, with copies of past periods.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::FigureSink;
use crate::counters::{BucketCounts, Grid, OperationCounts, SIZE_BOUNDS, TIME_BOUNDS_US};
use crate::{Bucket, Store};

/// Past periods that are kept.
const COPIES: usize = 5;

/// The counts of one operation among those of a bucket.
type CountsOf = fn(&BucketCounts) -> &OperationCounts;

/// Operation, place, and its counts in a bucket. A write from outside lands on the disk.
pub(super) const OPERATIONS: [(&str, &str, CountsOf); 3] = [
    ("read", "cache", |counts| &counts.read_memory),
    ("read", "disk", |counts| &counts.read_disk),
    ("write", "disk", |counts| &counts.write),
];

type Grids = [Grid; OPERATIONS.len()];

/// The histograms of all buckets at the ends of the last periods, newest last.
#[derive(Debug, Default)]
pub(super) struct Histograms(Mutex<VecDeque<Grids>>);

impl Histograms {
    /// Keeps a copy of the histograms at the end of a period.
    pub(super) fn keep(&self, store: &Store) {
        let now = sums(store.buckets(None).iter().map(|(_, bucket)| bucket));
        self.keep_grids(now);
    }

    fn keep_grids(&self, now: Grids) {
        let mut kept = self.0.lock();
        kept.push_back(now);
        // One more than periods, as a period lies between two copies.
        while kept.len() > COPIES + 1 {
            kept.pop_front();
        }
    }

    /// The counts of the last periods, newest first.
    fn past(&self) -> Vec<Grids> {
        let kept = self.0.lock();
        let pairs = kept.iter().zip(kept.iter().skip(1)).rev();
        pairs.map(|(before, after)| std::array::from_fn(|at| after[at].since(&before[at]))).collect()
    }

    pub(super) fn collect(&self, store: &Store, sink: &mut FigureSink) {
        sink.set("time_bounds_us", TIME_BOUNDS_US.to_vec());
        sink.set("size_bounds_bytes", SIZE_BOUNDS.to_vec());
        let buckets = store.buckets(sink.tenant());
        sink.set("since_start", shown(&sums(buckets.iter().map(|(_, bucket)| bucket))));
        // The copies are of all tenants together.
        if sink.sees_every_tenant() {
            sink.set("past_periods", self.past().iter().map(shown).collect::<Vec<_>>());
        }
    }
}

fn sums<'a>(buckets: impl Iterator<Item = &'a Arc<Bucket>>) -> Grids {
    let mut sums = Grids::default();
    for bucket in buckets {
        for (sum, (_, _, of)) in sums.iter_mut().zip(OPERATIONS) {
            *sum += &of(bucket.counts()).grid();
        }
    }
    sums
}

fn shown(grids: &Grids) -> Value {
    let mut tree = json!({});
    for ((operation, place, _), grid) in OPERATIONS.iter().zip(grids) {
        tree[operation][place] = json!({"outside": grid.0.iter().map(|row| row.to_vec()).collect::<Vec<_>>()});
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_past_periods_are_kept_newest_first() {
        let histograms = Histograms::default();
        assert!(histograms.past().is_empty());
        let mut count = 0;
        for period in 0..10 {
            count += period;
            let mut grids = Grids::default();
            grids[0].0[2][3] = count;
            histograms.keep_grids(grids);
        }
        let past: Vec<u64> = histograms.past().iter().map(|grids| grids[0].0[2][3]).collect();
        assert_eq!(past, [9, 8, 7, 6, 5]);
        let tree = shown(&histograms.past()[0]);
        assert_eq!(tree["read"]["cache"]["outside"][2][3], 9);
        assert!(tree["write"]["disk"]["outside"].is_array() && tree["read"]["disk"]["outside"].is_array());
    }
}
