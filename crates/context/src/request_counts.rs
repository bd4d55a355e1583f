//! What `/statistics` tells of requests where it is switched on: how many, of which kind, and how long they took.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use millstream_http::Ended;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

/// Counted of all requests together.
#[derive(Default)]
pub(crate) struct RequestCounts {
    /// Requests by route and method are counted.
    pub(crate) has_counters: bool,
    /// Times are noted.
    pub(crate) has_timing: bool,
    by_route: Mutex<BTreeMap<(String, String), u64>>,
    with_body: AtomicU64,
    without_body: AtomicU64,
    invalid: AtomicU64,
    total: Mutex<Times>,
}

#[derive(Default)]
struct Times {
    all: Duration,
    last: Duration,
}

impl RequestCounts {
    /// Counts what is switched on.
    pub(crate) fn new(has_counters: bool, has_timing: bool) -> Self {
        Self { has_counters, has_timing, ..Self::default() }
    }

    pub(crate) fn ended(&self, answer: &Ended<'_>) {
        if self.has_counters {
            let one = (answer.route.to_owned(), answer.method.to_string());
            *self.by_route.lock().entry(one).or_default() += 1;
            let bodies = if answer.request_bytes > 0 { &self.with_body } else { &self.without_body };
            bodies.fetch_add(1, Ordering::Relaxed);
            if answer.status == StatusCode::BAD_REQUEST.as_u16() {
                self.invalid.fetch_add(1, Ordering::Relaxed);
            }
        }
        if self.has_timing {
            let mut total = self.total.lock();
            total.all += answer.took;
            total.last = answer.took;
        }
    }

    /// The block `counters`, with the deprecated things that were used and the notifications sent; zeros are left out
    /// unless `full`.
    pub(crate) fn counters(&self, deprecated: u64, sent: u64, full: bool) -> Value {
        let mut requests = Map::new();
        for ((route, method), count) in &*self.by_route.lock() {
            requests.entry(route.clone()).or_insert_with(|| json!({}))[method] = (*count).into();
        }
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut shown = Map::new();
        for (name, count) in [
            ("deprecatedFeatures", deprecated),
            ("invalidRequests", read(&self.invalid)),
            ("jsonRequests", read(&self.with_body)),
            ("noPayloadRequests", read(&self.without_body)),
            ("notificationsSent", sent),
        ] {
            if full || count > 0 {
                shown.insert(name.to_owned(), count.into());
            }
        }
        shown.insert("requests".to_owned(), requests.into());
        Value::Object(shown)
    }

    /// The block `timing`, in seconds.
    pub(crate) fn timing(&self) -> Value {
        let total = self.total.lock();
        json!({"accumulated": {"total": total.all.as_secs_f64()}, "last": {"total": total.last.as_secs_f64()}})
    }

    /// Begins anew.
    pub(crate) fn reset(&self) {
        self.by_route.lock().clear();
        *self.total.lock() = Times::default();
        for counter in [&self.with_body, &self.without_body, &self.invalid] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}
