//! `backends`: each bucket with its keys, its values in memory and the figures of its partitions.

use std::sync::atomic::Ordering;

use millstream_log::{LogFigures, SYNC_BUCKETS_US};
use serde_json::{Value, json};

use super::{Categories, FigureSink};
use crate::{Bucket, Store};

/// The buckets by number, which is their place among those that the caller sees.
pub(super) fn backends(store: &Store, log: &dyn LogFigures, sink: &mut FigureSink) {
    let (with_cache, with_backend) = (sink.asks(Categories::CACHE), sink.asks(Categories::BACKEND));
    for (number, ((tenant, name), bucket)) in store.buckets(sink.tenant()).into_iter().enumerate() {
        let failures: Vec<String> = bucket.failures().iter().map(ToString::to_string).collect();
        let mut part = json!({
            "backend_id": number, "tenant": tenant.to_string(), "bucket": name,
            "status": {
                "state": i32::from(failures.is_empty()),
                "string_state": if failures.is_empty() { "enabled" } else { "failed" },
                "failures": failures,
                "read_only": false,
            },
        });
        if with_cache {
            part["cache"] = cache(&bucket);
        }
        if with_backend {
            part["backend"] = backend(&bucket, log);
        }
        sink.set(&number.to_string(), part);
    }
}

fn cache(bucket: &Bucket) -> Value {
    let figures = bucket.cache_figures();
    json!({
        "total_cache": {
            "size_stats": {"size": figures.bytes, "max_size": figures.max_bytes, "objects": figures.values},
            "hits": figures.hits,
            "misses": figures.misses,
        },
    })
}

fn backend(bucket: &Bucket, log: &dyn LogFigures) -> Value {
    let (totals, counts, config) = (bucket.totals(), bucket.counts(), bucket.config());
    let partitions = log.topic_stats(bucket.topic());
    let stored_bytes: u64 = partitions.iter().map(|partition| partition.record_bytes).sum();
    // A secret may be among the settings of access.
    let settings = json!({
        "kind": config.kind, "partitions": config.partitions, "ack": config.ack, "ttl_ms": config.ttl_ms,
        "quotas": config.quotas, "cache_bytes": config.cache_bytes,
    });
    let base_stats = partitions.iter().map(|partition| {
        json!({
            "partition": partition.partition.partition.0,
            "segments": partition.segments,
            "segment_bytes": partition.segment_bytes,
            "record_bytes": partition.record_bytes,
            "memory_bytes": partition.memory_bytes,
            "first": partition.offsets.first.0,
            "stable": partition.offsets.stable.0,
            "tail": partition.offsets.tail.0,
        })
    });
    json!({
        "global_stats": {
            "reads_memory": counts.read_memory.successes.load(Ordering::Relaxed),
            "reads_disk": counts.read_disk.successes.load(Ordering::Relaxed),
            "reads_disk_bytes": counts.read_disk.bytes.load(Ordering::Relaxed),
            "reads_missing": counts.missing.load(Ordering::Relaxed),
            "writes": counts.write.successes.load(Ordering::Relaxed),
            "writes_failed": counts.write.failures.load(Ordering::Relaxed),
            "expired": counts.expired.load(Ordering::Relaxed),
        },
        "summary_stats": {
            "records_total": totals.keys,
            "live_bytes": totals.bytes,
            "base_size": stored_bytes,
            "dead_bytes": stored_bytes.saturating_sub(totals.bytes),
            "max_keys": config.quotas.max_keys,
            "max_bytes": config.quotas.max_bytes,
        },
        "base_stats": base_stats.collect::<Vec<_>>(),
        "config": settings,
    })
}

/// The log's commits, of all topics together: records and bytes of each, and the time of their syncs.
pub(super) fn log_figures(log: &dyn LogFigures, sink: &mut FigureSink) {
    let stats = log.stats();
    let per = |sum: u64, count: u64| if count == 0 { 0.0 } else { sum as f64 / count as f64 };
    sink.set("output", json!({"current_size": stats.pending_bytes, "unit": "bytes"}));
    sink.set(
        "log",
        json!({
            "commits": stats.frames,
            "records_per_commit": per(stats.records, stats.frames),
            "bytes_per_commit": per(stats.bytes, stats.frames),
            "journal_bytes": stats.journal_bytes,
            "syncs": stats.syncs,
            "sync_mean_us": per(stats.sync_us, stats.syncs),
            "sync_bounds_us": SYNC_BUCKETS_US.to_vec(),
            "sync_counts": stats.sync_buckets.to_vec(),
        }),
    );
}
