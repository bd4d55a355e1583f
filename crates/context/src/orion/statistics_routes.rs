//! `/statistics` and `/cache/statistics` in Orion's format.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use millstream_http::{Access, Caller, Content, Limits, Reach, Route, Routes};
use millstream_types::Role;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::mapping::mapping_errors::{MappingError, MappingErrors};
use crate::requests::handler::{HandlerResult, json_answer, scoped};
use crate::requests::service::{NgsiRequest, Service};
use crate::statistics::request_counts::RequestCounts;
use crate::subscriptions::Subscriptions;

const STATISTICS: &str = "/statistics";
const CACHE_STATISTICS: &str = "/cache/statistics";
/// Longer lists of ids are left out.
const IDS_MAX: usize = 100;

pub(crate) struct StatisticsState {
    pub(crate) service: Arc<Service>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) mapping_errors: Arc<MappingErrors>,
    pub(crate) update_errors: Arc<MappingErrors>,
    pub(crate) counts: Arc<RequestCounts>,
    pub(crate) shows_queue: bool,
    /// Time of the last reset, by the service's clock.
    pub(crate) counted_since: Mutex<Duration>,
}

type Shared = State<Arc<StatisticsState>>;

pub(crate) fn add(routes: Routes, watched: &Arc<StatisticsState>, limits: Limits) -> Routes {
    let admin = Access::Role(Role::Admin);
    let schema = || Content::json(json!({"type": "object", "additionalProperties": true}));
    let get =
        |path, summary| scoped(Route::get(path, admin, limits, summary)).answers_with(200, "What it is now.", schema());
    let reset = |path, summary| {
        scoped(Route::delete(path, admin, limits, summary)).answers_with(200, "Counted anew.", schema())
    };
    routes
        .route(get(STATISTICS, "How long the server runs and counts").to(statistics, watched.clone()))
        .route(reset(STATISTICS, "Begin to count anew").to(reset_statistics, watched.clone()))
        .route(get(CACHE_STATISTICS, "The tenant's subscriptions at work").to(of_subscriptions, watched.clone()))
        .route(reset(CACHE_STATISTICS, "Count their changes anew").to(reset_subscriptions, watched.clone()))
}

async fn statistics(State(watched): Shared, caller: Caller, ask: NgsiRequest) -> HandlerResult {
    let given = ask.parameters(&[], &["fullCounters"])?;
    let now = watched.service.clock.now();
    let mut shown = json!({
        "uptime_in_secs": now.saturating_sub(watched.service.started).as_secs(),
        "measuring_interval_in_secs": now.saturating_sub(*watched.counted_since.lock()).as_secs(),
    });
    // Only for callers who see all tenants.
    if caller.reach() == Reach::EveryTenant {
        watched.push_blocks(given.has_option("fullCounters"), &mut shown);
    }
    if let Some(trouble) = watched.mapping_errors.last(&ask.tenant) {
        shown["millstream"]["mapping"] = json!(trouble);
    }
    if let Some(MappingError { at, what, count, .. }) = watched.update_errors.last(&ask.tenant) {
        shown["millstream"]["updates"] = json!({"at": at, "what": what, "count": count});
    }
    Ok(json_answer(shown.to_string()))
}

async fn reset_statistics(State(watched): Shared, ask: NgsiRequest) -> HandlerResult {
    ask.parameters(&[], &[])?;
    *watched.counted_since.lock() = watched.service.clock.now();
    watched.counts.reset();
    watched.service.observers.timing.reset();
    watched.service.deprecations.reset();
    watched.subscriptions.count_outcomes_anew();
    Ok(told("statistics are counted anew"))
}

impl StatisticsState {
    fn push_blocks(&self, full: bool, shown: &mut Value) {
        let alarms = self.service.observers.alarms.active();
        if !alarms.is_empty() {
            shown["millstream"]["alarms"] = alarms.into();
        }
        if self.counts.has_counters {
            let (deprecated, sent) = (self.service.deprecations.count(), self.subscriptions.sent());
            shown["counters"] = self.counts.counters(deprecated, sent, full);
        }
        if let Some(timing) = self.service.observers.timing.shown() {
            shown["timing"] = timing;
        }
        if self.shows_queue {
            shown["notifQueue"] = self.subscriptions.outcomes();
        }
    }
}

async fn of_subscriptions(State(watched): Shared, ask: NgsiRequest) -> HandlerResult {
    ask.parameters(&[], &[])?;
    let (ids, tally) = watched.subscriptions.at_work(&ask.tenant);
    let shown = match ids.len() {
        count if count > IDS_MAX => format!("more than {IDS_MAX}: list them by /v2/subscriptions"),
        _ => ids.join(", "),
    };
    // There is no cache to refresh: subscriptions are active as soon as they are stored.
    let shown: Value = json!({
        "ids": shown, "refreshs": 0, "inserts": tally.inserts, "updates": tally.updates, "removes": tally.removes,
        "items": ids.len(),
    });
    Ok(json_answer(shown.to_string()))
}

async fn reset_subscriptions(State(watched): Shared, ask: NgsiRequest) -> HandlerResult {
    ask.parameters(&[], &[])?;
    watched.subscriptions.count_anew(&ask.tenant);
    Ok(told("changes of subscriptions are counted anew"))
}

fn told(message: &str) -> Response {
    json_answer(json!({"message": message}).to_string())
}
