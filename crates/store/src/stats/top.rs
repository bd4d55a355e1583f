//! `top`: the keys with the most traffic.

use serde_json::json;

use super::FigureSink;
use crate::Store;

pub(super) fn top(store: &Store, length: usize, period_s: u64, sink: &mut FigureSink) {
    let mut all = Vec::new();
    for ((tenant, name), bucket) in store.buckets(sink.tenant()) {
        let hot = bucket.counts().top_keys.top(length);
        all.extend(hot.into_iter().map(|hot| (tenant.clone(), name.clone(), hot)));
    }
    all.sort_by_key(|(_, _, hot)| std::cmp::Reverse(hot.bytes));
    all.truncate(length);
    let shown = all.iter().map(|(tenant, bucket, hot)| {
        json!({
            "tenant": tenant.to_string(), "bucket": bucket, "key": String::from_utf8_lossy(&hot.key),
            "size": hot.bytes, "frequency": hot.frequency,
        })
    });
    sink.set("top_by_size", shown.collect::<Vec<_>>());
    sink.set("top_result_limit", length);
    sink.set("period_in_seconds", period_s);
}
