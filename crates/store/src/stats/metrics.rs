//! The store's series in `/metrics`. Their number is bounded by `store.buckets_max`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_net::{HistogramCounts, Metrics};

use super::histograms::OPERATIONS;
use crate::counters::{BucketCounts, OperationCounts, TIME_BOUNDS_US};
use crate::{Bucket, Store};

const LABELS: [&str; 2] = ["tenant", "bucket"];

/// Registers the metrics of the store.
pub fn show_metrics(store: &Arc<Store>, metrics: &Metrics) {
    let gauge = |name: &str, help: &str, read: fn(&Bucket) -> Option<u64>| {
        let store = Arc::downgrade(store);
        metrics.gauges_fn(name, help, &LABELS, move || {
            let buckets = store.upgrade().map(|store| store.buckets(None)).unwrap_or_default();
            let figures = buckets
                .into_iter()
                .filter_map(|((tenant, name), bucket)| Some((vec![tenant.to_string(), name], read(&bucket)? as f64)));
            figures.collect()
        });
    };
    gauge("millstream_store_keys", "Keys of a bucket.", |bucket| Some(bucket.totals().keys));
    gauge("millstream_store_bytes", "Bytes of a bucket's keys and values.", |bucket| Some(bucket.totals().bytes));
    gauge("millstream_store_quota_keys", "Most keys of a bucket, if it has such a quota.", |bucket| {
        bucket.config().quotas.max_keys
    });
    gauge("millstream_store_quota_bytes", "Most bytes of a bucket, if it has such a quota.", |bucket| {
        bucket.config().quotas.max_bytes
    });
    gauge("millstream_store_cache_bytes", "Bytes of a bucket's values in memory.", |bucket| {
        Some(bucket.cache_figures().bytes)
    });
    let counted = |name: &str, help: &str, read: fn(&Bucket) -> u64| {
        let store = Arc::downgrade(store);
        metrics.labelled_counters_fn(name, help, &LABELS, move || {
            let buckets = store.upgrade().map(|store| store.buckets(None)).unwrap_or_default();
            buckets
                .into_iter()
                .map(|((tenant, name), bucket)| (vec![tenant.to_string(), name], read(&bucket)))
                .collect()
        });
    };
    counted("millstream_store_cache_hits_total", "Reads that the values in memory answered.", |bucket| {
        bucket.cache_figures().hits
    });
    counted("millstream_store_cache_misses_total", "Reads that the values in memory did not answer.", |bucket| {
        bucket.cache_figures().misses
    });
    counted("millstream_store_disk_reads_total", "Reads of a record from the disk.", |bucket| {
        bucket.counts().read_disk.successes.load(Ordering::Relaxed)
    });
    counted("millstream_store_disk_read_bytes_total", "Bytes of the values that were read from the disk.", |bucket| {
        bucket.counts().read_disk.bytes.load(Ordering::Relaxed)
    });
    counted("millstream_store_writes_total", "Transactions that were answered.", |bucket| {
        bucket.counts().write.successes.load(Ordering::Relaxed)
    });
    counted("millstream_store_write_failures_total", "Transactions that were refused or failed.", |bucket| {
        bucket.counts().write.failures.load(Ordering::Relaxed)
    });
    counted("millstream_store_missing_total", "Reads of a key that was not there.", |bucket| {
        bucket.counts().missing.load(Ordering::Relaxed)
    });
    counted("millstream_store_expired_total", "Expired keys that were removed.", |bucket| {
        bucket.counts().expired.load(Ordering::Relaxed)
    });
    let store = Arc::downgrade(store);
    let help = "Time of a bucket's operations. Reads from memory are sampled.";
    let labels = ["tenant", "bucket", "operation", "place"];
    metrics.histograms_fn("millstream_store_operation_seconds", help, &labels, move || {
        let buckets = store.upgrade().map(|store| store.buckets(None)).unwrap_or_default();
        let series = buckets.iter().flat_map(|((tenant, name), bucket)| {
            OPERATIONS.iter().map(move |(operation, place, of)| {
                let labels = vec![tenant.to_string(), name.clone(), (*operation).to_owned(), (*place).to_owned()];
                (labels, histogram(bucket.counts(), *of))
            })
        });
        series.collect()
    });
}

fn histogram(counts: &BucketCounts, of: fn(&BucketCounts) -> &OperationCounts) -> HistogramCounts {
    let counts = of(counts);
    HistogramCounts {
        bounds: TIME_BOUNDS_US.iter().map(|us| *us as f64 / 1e6).collect(),
        counts: counts.grid().by_time().to_vec(),
        sum: counts.time_us.load(Ordering::Relaxed) as f64 / 1e6,
    }
}
