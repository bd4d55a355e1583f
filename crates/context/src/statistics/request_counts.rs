//! Counts of requests by route and method for `/statistics`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::StatusCode;
use millstream_http::Ended;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

#[derive(Default)]
pub(crate) struct RequestCounts {
    pub(crate) has_counters: bool,
    by_route: Mutex<BTreeMap<(String, String), u64>>,
    with_body: AtomicU64,
    without_body: AtomicU64,
    invalid: AtomicU64,
}

impl RequestCounts {
    pub(crate) fn new(has_counters: bool) -> Self {
        Self { has_counters, ..Self::default() }
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
    }

    /// The block `counters`, with the uses of deprecated features and the sent notifications; zeros
    /// are left out unless `full`.
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

    pub(crate) fn reset(&self) {
        self.by_route.lock().clear();
        for counter in [&self.with_body, &self.without_body, &self.invalid] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}
