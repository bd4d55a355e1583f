//! `commands`, `stats` and `io`: what was asked, and what waits.

use std::sync::atomic::Ordering;

use serde_json::{Map, Value, json};

use super::FigureSink;
use super::histograms::OPERATIONS;
use crate::Store;
use crate::counters::{BucketCounts, OperationCounts};

/// Successes, failures, bytes and microseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    successes: u64,
    failures: u64,
    size: u64,
    time: u64,
}

impl Sum {
    fn shown(self) -> Value {
        json!({"successes": self.successes, "failures": self.failures, "size": self.size, "time": self.time})
    }
}

fn sums(store: &Store, sink: &FigureSink) -> Vec<(&'static str, &'static str, Sum)> {
    let buckets = store.buckets(sink.tenant());
    let sum = |of: fn(&BucketCounts) -> &OperationCounts| {
        buckets.iter().fold(Sum::default(), |sum, (_, bucket)| {
            let counts = of(bucket.counts());
            Sum {
                successes: sum.successes + counts.successes.load(Ordering::Relaxed),
                failures: sum.failures + counts.failures.load(Ordering::Relaxed),
                size: sum.size + counts.bytes.load(Ordering::Relaxed),
                time: sum.time + counts.time_us.load(Ordering::Relaxed),
            }
        })
    };
    OPERATIONS.iter().map(|(operation, place, of)| (*operation, *place, sum(*of))).collect()
}

/// Operations of the buckets by place, then the commands of each protocol.
pub(super) fn commands(store: &Store, sink: &mut FigureSink) {
    let (mut successes, mut failures) = (0, 0);
    let mut tree = json!({});
    for (operation, place, sum) in sums(store, sink) {
        tree[operation.to_uppercase()][place] = json!({"outside": sum.shown()});
        successes += sum.successes;
        failures += sum.failures;
    }
    if let Value::Object(members) = tree {
        members.into_iter().for_each(|(name, value)| sink.set(&name, value));
    }
    sink.set("total", json!({"storage": {"successes": successes, "failures": failures}}));
    // The counters of protocols are of all tenants together.
    if sink.sees_every_tenant() {
        sink.set("protocols", protocols(store));
    }
}

fn protocols(store: &Store) -> Value {
    let mut tree: Map<String, Value> = Map::new();
    for (protocol, name, figures) in store.doors().figures() {
        let sum = Sum {
            successes: figures.successes,
            failures: figures.failures,
            size: figures.bytes,
            time: figures.time_us,
        };
        tree.entry(protocol).or_insert_with(|| json!({}))[name] = sum.shown();
    }
    Value::Object(tree)
}

/// The same as counters, gauges and timers with one name each.
pub(super) fn named(store: &Store, sink: &mut FigureSink) {
    for (operation, place, sum) in sums(store, sink) {
        let name = format!("{place}.{}", operation.to_uppercase());
        sink.set(&format!("{name}.count"), sum.successes);
        sink.set(&format!("{name}.failures"), sum.failures);
        sink.set(&format!("{name}.time_us"), sum.time);
    }
    if sink.sees_every_tenant() {
        sink.set("pool.store-read.queue.size", store.reads_waiting());
        for (protocol, name, figures) in store.doors().figures() {
            sink.set(&format!("io.cmd.{protocol}.{name}"), figures.successes + figures.failures);
        }
    }
}

/// The queues of the store.
pub(super) fn io(store: &Store, sink: &mut FigureSink) {
    let waiting = store.reads_waiting();
    sink.set("blocking", json!({"current_size": waiting, "max_size": store.config().reads_waiting_max}));
    sink.set("blocked", waiting >= store.config().reads_waiting_max);
}
