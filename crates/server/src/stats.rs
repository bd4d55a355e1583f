//! `/stats`: the current activity of the process, for people and the console. Rates and
//! latencies cover the last seconds. With `categories`, it answers the store's tree of statistics instead.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use millstream_http::{Access, Caller, Content, Limits, Problem, Query, Reach, Route, Routes};
use millstream_log::{LogFigures, LogStats, SYNC_BUCKETS_US};
use millstream_net::BoundAddresses;
use millstream_store::{Scope, Statistics, answer_statistics};
use millstream_types::{LatencyCounts, MemoryBudget, MonotonicClock, Role, TenantId, TopicKind, TopicName};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::figures::{self, Lag};
use crate::kept_log::EngineHealth;
use crate::rate_history::{RateHistory, RateSample};

/// Time span of rates and latencies.
const WINDOW: Duration = Duration::from_secs(5);
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// Limit of (group, topic) pairs in an answer.
const LAGS_MAX: usize = 100;
const LIMITS: Limits =
    Limits { body_max_bytes: 0, body_max_setting: "none: this route takes no body", timeout: Duration::from_secs(5) };

/// Counters of the planes since the start.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlaneCounts {
    pub(crate) accepted: u64,
    pub(crate) rejected: u64,
    pub(crate) accept_latency: LatencyCounts,
    pub(crate) entities: u64,
    pub(crate) unmapped: u64,
    pub(crate) skipped_attributes: u64,
    pub(crate) refused_updates: u64,
    pub(crate) updates: u64,
    pub(crate) update_latency: LatencyCounts,
    pub(crate) live_queries: u64,
    pub(crate) records_seen: u64,
    pub(crate) matched: u64,
}

struct CounterSample {
    at: Duration,
    log: LogStats,
    planes: PlaneCounts,
}

/// The samples of the last seconds, and what they came to in the last minutes.
struct Samples {
    window: VecDeque<CounterSample>,
    history: RateHistory,
}

/// The parts of the process that `/stats` tells of.
pub(crate) trait Observed: Send + Sync {
    fn counts(&self) -> PlaneCounts;
    /// The engine that keeps the log, and how it is.
    fn engine(&self) -> EngineHealth;
}

/// Samples the counters and computes rates between samples.
pub(crate) struct Sampler {
    log: Arc<dyn LogFigures>,
    planes: Arc<dyn Observed>,
    clock: Arc<dyn MonotonicClock>,
    samples: Mutex<Samples>,
    started: Duration,
    started_at: String,
    memory: MemoryBudget,
    listeners: OnceLock<BTreeMap<&'static str, ListenerPart>>,
}

impl Sampler {
    pub(crate) fn new(
        log: Arc<dyn LogFigures>,
        clock: Arc<dyn MonotonicClock>,
        started_at: String,
        memory: MemoryBudget,
        planes: Arc<dyn Observed>,
    ) -> Arc<Self> {
        let started = clock.now();
        let samples = Mutex::new(Samples { window: VecDeque::new(), history: RateHistory::new() });
        let listeners = OnceLock::new();
        let sampler = Self { log, planes, clock, samples, started, started_at, memory, listeners };
        sampler.sample();
        Arc::new(sampler)
    }

    /// Shows the ports of the listeners from now on; the first call counts.
    pub(crate) fn show_listeners(&self, listeners: impl Iterator<Item = (&'static str, BoundAddresses)>) {
        let port = |address: Option<SocketAddr>| address.map(|address| address.port());
        let ports = |at: BoundAddresses| ListenerPart { port: port(at.plain), tls_port: port(at.tls) };
        let _ = self.listeners.set(listeners.map(|(name, at)| (name, ports(at))).collect());
    }

    /// Takes a sample, drops those older than the window, and keeps the rates of each second.
    pub(crate) fn sample(&self) {
        let sample = CounterSample { at: self.clock.now(), log: self.log.stats(), planes: self.planes.counts() };
        let uptime_s = (sample.at - self.started).as_secs();
        let mut samples = self.samples.lock();
        let Samples { window, history } = &mut *samples;
        let window_start = sample.at.saturating_sub(WINDOW);
        window.push_back(sample);
        while window.get(1).is_some_and(|next| next.at <= window_start) {
            window.pop_front();
        }
        if let (Some(first), Some(last)) = (window.front(), window.back())
            && first.at < last.at
            && history.is_due(uptime_s)
        {
            history.record(rates_between(first, last, uptime_s));
        }
    }

    /// Returns the figures for a caller of `tenant`, with only the tenant's topics. Internal topics, which hold state
    /// of all tenants, are shown only to callers that act in all tenants. With `history_s`, the rates of so many seconds
    /// are part of them.
    fn stats(&self, tenant: &TenantId, reach: Reach, history_s: Option<u64>) -> Stats {
        let samples = self.samples.lock();
        let (Some(first), Some(last)) = (samples.window.front(), samples.window.back()) else {
            return Stats::default();
        };
        let uptime_s = (self.clock.now() - self.started).as_secs();
        let seconds = (last.at - first.at).as_secs_f64();
        let rate = |before, now| rate_per_s(before, now, seconds);
        let (was, is) = (&first.planes, &last.planes);
        let engine = self.planes.engine();
        let engine =
            engine.shown_to(|topic| topic.map_or(reach == Reach::EveryTenant, |topic| is_told(topic, tenant, reach)));
        Stats {
            version: env!("CARGO_PKG_VERSION"),
            uptime_s,
            started_at: self.started_at.clone(),
            log: LogPart {
                append_rate_per_s: rate(first.log.records, last.log.records),
                bytes_per_s: rate(first.log.bytes, last.log.bytes),
                records_lost_total: last.log.records_lost,
                sync_p50_ms: sync_quantile_ms(&first.log, &last.log, 0.5),
                sync_p99_ms: sync_quantile_ms(&first.log, &last.log, 0.99),
                topics: topics(&last.log, &engine, tenant, reach),
                engine: Some(engine),
                lags: figures::lags(&*self.log, Some(tenant), LAGS_MAX),
            },
            connect: ConnectPart {
                accepted_total: is.accepted,
                rejected_total: is.rejected,
                accepted_rate_per_s: rate(was.accepted, is.accepted),
                latency_ms: Latency::between(&was.accept_latency, &is.accept_latency),
            },
            context: ContextPart {
                entities: is.entities,
                unmapped_total: is.unmapped,
                skipped_attributes_total: is.skipped_attributes,
                refused_updates_total: is.refused_updates,
                updates_total: is.updates,
                updates_rate_per_s: rate(was.updates, is.updates),
                latency_ms: Latency::between(&was.update_latency, &is.update_latency),
            },
            query: QueryPart { live: is.live_queries, records_seen_total: is.records_seen, matched_total: is.matched },
            memory: MemoryPart { reserved_bytes: self.memory.used_bytes(), budget_bytes: self.memory.limit_bytes() },
            rss_bytes: resident_bytes(),
            listeners: self.listeners.get().cloned().unwrap_or_default(),
            history: history_s.map(|span_s| samples.history.last(span_s, uptime_s)),
        }
    }
}

fn rate_per_s(before: u64, now: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { (now - before) as f64 / seconds } else { 0.0 }
}

fn rates_between(first: &CounterSample, last: &CounterSample, uptime_s: u64) -> RateSample {
    let seconds = (last.at - first.at).as_secs_f64();
    let (was, is) = (&first.planes, &last.planes);
    RateSample {
        uptime_s,
        accepted_rate_per_s: rate_per_s(was.accepted, is.accepted, seconds),
        append_rate_per_s: rate_per_s(first.log.records, last.log.records, seconds),
        updates_rate_per_s: rate_per_s(was.updates, is.updates, seconds),
        accept_p99_ms: Latency::between(&was.accept_latency, &is.accept_latency).p99,
        sync_p99_ms: sync_quantile_ms(&first.log, &last.log, 0.99),
        update_p99_ms: Latency::between(&was.update_latency, &is.update_latency).p99,
    }
}

/// The parameters of the query of `/stats`.
#[derive(Debug, Deserialize)]
struct StatsParameters {
    categories: Option<String>,
    history_s: Option<u64>,
}

#[derive(Clone)]
struct StatsState {
    sampler: Arc<Sampler>,
    statistics: Arc<Statistics>,
}

pub(crate) fn routes(sampler: Arc<Sampler>, statistics: &Arc<Statistics>) -> Routes {
    Routes::new("stats").route(
        Route::get("/stats", Access::Role(Role::Reader), LIMITS, "Show the current activity of the process")
            .query(
                "categories",
                "Answers the tree of these categories instead: a sum of bits, -1 for all, or names separated by commas.",
            )
            .query(
                "history_s",
                "Adds `history`: the rates and p99 latencies of each of the last so many seconds, 300 at most, oldest first.",
            )
            .answers_with(
                200,
                "Rates and latencies of the last seconds, totals, topics; the engine of the log, for Apache Kafka with brokers and troubles; what is reserved of the memory budget, and resident memory.",
                Content::json(answer_schema()),
            )
            .answers(400, "There are no such categories, or `history_s` is not a whole number.")
            .to(stats, StatsState { sampler, statistics: Arc::clone(statistics) }),
    )
}

/// The schema of the answer, as far as its form differs between servers.
fn answer_schema() -> Value {
    let text_or_null = json!({"type": ["string", "null"]});
    let number_or_null = json!({"type": ["integer", "null"]});
    let embedded = json!({
        "type": "object",
        "properties": {
            "name": {"const": "embedded"},
            "dir": {"type": ["string", "null"], "description": "The directory of its files; null for callers of one tenant."},
        },
        "required": ["name"],
    });
    let broker = json!({
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "address": text_or_null,
            "silent_s": {"type": ["integer", "null"], "description": "Seconds without an answer; null while it answers."},
        },
    });
    let trouble = json!({
        "type": "object",
        "properties": {
            "topic": text_or_null,
            "partition": number_or_null,
            "kind": {"enum": ["no_leader", "too_few_in_sync", "not_taken"]},
            "why": {"type": "string"},
        },
    });
    let kafka = json!({
        "type": "object",
        "properties": {
            "name": {"const": "kafka"},
            "brokers": {"type": "array", "items": broker},
            "troubles": {"type": "array", "items": trouble, "description": "Partitions of the tenant's topics; of all for operators."},
            "warnings": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name", "brokers", "troubles", "warnings"],
    });
    let engine = json!({"description": "The engine that keeps the log.", "oneOf": [embedded, kafka]});
    let log = json!({"type": "object", "properties": {"engine": engine}});
    json!({"type": "object", "properties": {"log": log}})
}

async fn stats(
    State(StatsState { sampler, statistics }): State<StatsState>,
    caller: Caller,
    Query(asked): Query<StatsParameters>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    match asked.categories {
        None => Ok(axum::Json(sampler.stats(&caller.tenant, caller.reach(), asked.history_s)).into_response()),
        Some(categories) => answer_statistics(&statistics, &categories, &Scope::of(&caller), &headers).await,
    }
}

#[derive(Debug, Default, Serialize)]
struct Stats {
    version: &'static str,
    uptime_s: u64,
    started_at: String,
    log: LogPart,
    connect: ConnectPart,
    context: ContextPart,
    query: QueryPart,
    memory: MemoryPart,
    rss_bytes: u64,
    /// By the names that the start prints; one that is off is not there.
    listeners: BTreeMap<&'static str, ListenerPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<Vec<RateSample>>,
}

/// The ports of a listener, without TLS and with it.
#[derive(Debug, Clone, Copy, Serialize)]
struct ListenerPart {
    port: Option<u16>,
    tls_port: Option<u16>,
}

#[derive(Debug, Default, Serialize)]
struct LogPart {
    append_rate_per_s: f64,
    bytes_per_s: f64,
    records_lost_total: u64,
    sync_p50_ms: Option<f64>,
    sync_p99_ms: Option<f64>,
    engine: Option<EngineHealth>,
    topics: Vec<TopicPart>,
    /// Lags of consumer groups, largest first.
    lags: Vec<Lag>,
}

#[derive(Debug, Serialize)]
struct TopicPart {
    name: String,
    tenant: String,
    kind: &'static str,
    partitions: Vec<PartitionPart>,
}

#[derive(Debug, Serialize)]
struct PartitionPart {
    partition: u32,
    first: u64,
    stable: u64,
    tail: u64,
    bytes: u64,
    /// `null` on Apache Kafka, whose brokers keep them to themselves.
    segments: Option<u64>,
}

#[derive(Debug, Default, Serialize)]
struct ConnectPart {
    accepted_total: u64,
    rejected_total: u64,
    accepted_rate_per_s: f64,
    latency_ms: Latency,
}

#[derive(Debug, Default, Serialize)]
struct ContextPart {
    entities: u64,
    unmapped_total: u64,
    skipped_attributes_total: u64,
    refused_updates_total: u64,
    updates_total: u64,
    updates_rate_per_s: f64,
    latency_ms: Latency,
}

#[derive(Debug, Default, Serialize)]
struct QueryPart {
    live: u64,
    records_seen_total: u64,
    matched_total: u64,
}

#[derive(Debug, Default, Serialize)]
struct MemoryPart {
    /// Bytes of the budget that are given out or set aside, in use or not; `rss_bytes` is the memory that the process uses.
    reserved_bytes: u64,
    budget_bytes: u64,
}

#[derive(Debug, Default, Serialize)]
struct Latency {
    p50: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

impl Latency {
    fn between(before: &LatencyCounts, now: &LatencyCounts) -> Self {
        let recent = now.since(before);
        Self { p50: recent.quantile_ms(0.5), p99: recent.quantile_ms(0.99), max: recent.quantile_ms(1.0) }
    }
}

/// Returns the upper bound of the histogram bucket with the quantile of recent syncs.
fn sync_quantile_ms(before: &LogStats, now: &LogStats, quantile: f64) -> Option<f64> {
    let recent: Vec<u64> = now.sync_buckets.iter().zip(before.sync_buckets).map(|(now, before)| now - before).collect();
    let total: u64 = recent.iter().sum();
    let rank = ((total as f64 * quantile).ceil() as u64).max(1);
    let mut below = 0;
    let bucket = recent.iter().position(|count| {
        below += count;
        below >= rank
    })?;
    let end_us = SYNC_BUCKETS_US.get(bucket).or(SYNC_BUCKETS_US.last())?;
    Some(*end_us as f64 / 1_000.0)
}

/// `true` for the topics of the tenant, and for internal ones if the caller acts in all tenants.
fn is_told(name: &TopicName, tenant: &TenantId, reach: Reach) -> bool {
    match name.kind() {
        TopicKind::Internal => reach == Reach::EveryTenant,
        _ => name.tenant() == tenant,
    }
}

fn topics(log: &LogStats, engine: &EngineHealth, tenant: &TenantId, reach: Reach) -> Vec<TopicPart> {
    let has_segments = matches!(engine, EngineHealth::Embedded { .. });
    let mut topics: Vec<TopicPart> = Vec::new();
    for partition in &log.partitions {
        let name = &partition.partition.topic;
        if !is_told(name, tenant, reach) {
            continue;
        }
        let part = PartitionPart {
            partition: partition.partition.partition.0,
            first: partition.offsets.first.0,
            stable: partition.offsets.stable.0,
            tail: partition.offsets.tail.0,
            bytes: partition.record_bytes,
            segments: has_segments.then_some(partition.segments),
        };
        let rendered = name.to_string();
        match topics.last_mut().filter(|topic| topic.name == rendered) {
            Some(topic) => topic.partitions.push(part),
            None => topics.push(TopicPart {
                name: rendered,
                tenant: name.tenant().to_string(),
                kind: kind_word(name.kind()),
                partitions: vec![part],
            }),
        }
    }
    topics
}

fn kind_word(kind: TopicKind) -> &'static str {
    kind.prefix().unwrap_or(if kind == TopicKind::Internal { "internal" } else { "user" })
}

/// Returns the resident memory of the process; 0 if the system does not report it.
fn resident_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default() * PAGE_BYTES
}
