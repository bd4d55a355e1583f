//! The engine: it accepts queries, reports on them and ends them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millstream_columns::SketchSizes;
use millstream_log::{AckLevel, Log};
use millstream_types::{MemoryBudget, TenantId, TopicKind, TopicName, TopicPartition, WallClock};
use parking_lot::Mutex;
use serde_json::Value;

use crate::checkpointer::Checkpointer;
use crate::clocks::Clocks;
use crate::copies::CopyMemory;
use crate::cost::QueryCost;
use crate::durable_state::{DurableState, ResultRecipient};
use crate::hints::hints;
use crate::live::{LiveQuery, LiveStream};
use crate::outbox::{After, Outbox};
use crate::outboxes::Outboxes;
use crate::past_end::until;
use crate::pool::Pool;
use crate::query_store::{QueryStore, StoredQueries};
use crate::reader::PartitionReader;
use crate::registry::QueryRegistry;
use crate::runtime::QueryRuntime;
use crate::schema::Schemas;
use crate::sink_progress::SinkOffset;
use crate::stream::StreamTable;
use crate::subscription::Subscription;
use crate::window::{AggregatePlan, ResultLimit, RunningAggregate, Timing};
use crate::{
    Cause, Clamped, Compiled, Config, Deliver, Diagnostic, Error, Extent, Field, Language, Meta, MetaNames, QueryId,
    QueryPlan, QueryRequest, RecordSource, ResultId, Schema, StreamDuration, Window, json, parse,
};

/// Live queries over the streams of a log.
///
/// ```text
///   log: partitions ──read──► threads: match ──rows──► outbox of each query ──► Subscription
///                                ▲ queries are added and removed: Engine::submit, kill, deadlines, limits
/// ```
pub struct Engine {
    log: Arc<dyn Log>,
    /// The number of this life of the process, by which results of different ones have different numbers.
    pub(crate) life: u32,
    pub(crate) config: Config,
    pub(crate) clocks: Arc<Clocks>,
    pub(crate) registry: Arc<QueryRegistry>,
    outboxes: Outboxes,
    states_memory: MemoryBudget,
    copies: CopyMemory,
    bullet_names: MetaNames,
    schemas: Schemas,
    streams: StreamTable<Arc<LiveQuery>>,
    shared: Mutex<EngineShared>,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) in_the_past: Arc<AtomicUsize>,
    checkpointer: Mutex<Option<JoinHandle<()>>>,
}

/// Values that many queries share, stored once.
#[derive(Default)]
struct EngineShared {
    fields: Pool<Field>,
    columns: Pool<String>,
}

/// The id, the tenant and the start of a query.
pub(crate) struct Begun {
    pub(crate) id: QueryId,
    pub(crate) addressee: Option<ResultRecipient>,
    /// By the clock of this process.
    pub(crate) received: Duration,
    pub(crate) received_ms: i64,
    /// The time that it had run in former processes.
    pub(crate) ran_before: Duration,
}

impl Engine {
    /// Starts the threads; queries that a former process has kept go on.
    ///
    /// # Errors
    /// [`Error::MetaName`]; [`Error::Thread`] if the system gives no thread;
    /// [`Error::Log`] and [`Error::Batch`] if the kept queries cannot be read.
    pub fn start(runtime: QueryRuntime, config: Config) -> Result<Self, Error> {
        let QueryRuntime { log, memory, monotonic, wall, short_lives } = runtime;
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        let threads = if config.threads == 0 { cores() } else { config.threads };
        let clocks = Arc::new(Clocks { monotonic, wall });
        let store = QueryStore::new(log.clone(), config.kept_state_max_bytes);
        let StoredQueries { queries, life } = store.begin()?;
        let engine = Self {
            log,
            life,
            outboxes: Outboxes::new(&config, clocks.clone(), &memory),
            clocks,
            registry: Arc::new(QueryRegistry::new(threads)),
            states_memory: memory.share("query.states_max_bytes", config.states_max_bytes as u64),
            copies: CopyMemory::of(&memory),
            bullet_names: MetaNames::new(&config.bullet.meta_names)?,
            config,
            schemas: Schemas::default(),
            streams: StreamTable::default(),
            shared: Mutex::default(),
            threads: Mutex::default(),
            in_the_past: Arc::default(),
            checkpointer: Mutex::default(),
        };
        for number in 0..threads {
            let reader = PartitionReader::new(
                number,
                engine.registry.clone(),
                engine.config.read_max_bytes,
                engine.clocks.clone(),
            );
            let thread = thread::Builder::new().name(format!("query-{number}")).spawn(move || reader.run());
            engine.threads.lock().push(thread.map_err(Error::Thread)?);
        }
        let resumed = engine.resume(queries, &short_lives);
        let checkpointer = Checkpointer::new(engine.registry.clone(), store, engine.clocks.clone(), &engine.config);
        let thread = thread::Builder::new().name("query-keeper".to_owned()).spawn(move || checkpointer.run(resumed));
        *engine.checkpointer.lock() = Some(thread.map_err(Error::Thread)?);
        Ok(engine)
    }

    /// Checks a text: its plan.
    ///
    /// # Errors
    /// [`Error::Refused`] with everything that is wrong with it.
    pub fn validate(&self, text: &str) -> Result<QueryPlan, Error> {
        parse(text, &self.config.limits).map_err(|diagnostics| Error::Refused { diagnostics })
    }

    /// The plan of a request.
    pub(crate) fn plan(&self, request: &QueryRequest) -> Result<QueryPlan, Error> {
        if let Some(asked) = request.language.filter(|asked| *asked != Language::of(&request.query)) {
            return Err(Error::OtherLanguage { asked });
        }
        let plan = self.validate(&request.query)?;
        let plan = match &request.window {
            Some(window) => self.windowed(plan, window)?,
            None => plan,
        };
        if !request.is_of_bullet {
            return Ok(plan);
        }
        let plan = if self.config.bullet.group_values_as_text { plan.with_groups_as_texts() } else { plan };
        Ok(if self.config.bullet.receive_timestamp { plan.with_receive_timestamp() } else { plan })
    }

    /// The plan with the window that a request names.
    fn windowed(&self, plan: QueryPlan, window: &Value) -> Result<QueryPlan, Error> {
        if plan.window.is_some() {
            return Err(Error::Window { what: "the query has one itself; leave one of both out".to_owned() });
        }
        let window = Some(json::window(window).map_err(|what| Error::Window { what })?);
        json::checked(&QueryPlan { window, ..plan }, &self.config.limits).map_err(|wrong| {
            let wrong: Vec<String> = wrong.into_iter().map(|diagnostic| diagnostic.message).collect();
            Error::Window { what: wrong.join("; ") }
        })
    }

    /// Takes a query of `tenant`. It sees every record that is appended after this has returned, once, and those of one
    /// key in their order; and those before that which [`QueryRequest::from`] asks for.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Zero`], [`Error::Window`], [`Error::Start`], [`Error::EndlessOrder`], [`Error::TooManyInThePast`]; [`Error::UnknownStream`], [`Error::ForeignStream`], [`Error::Name`];
    /// [`Error::TooMany`], [`Error::TooManyOfTenant`], [`Error::TooManyKept`], [`Error::TooCostly`]; [`Error::VolatileStream`],
    /// [`Error::NotKept`]; [`Error::Log`], [`Error::Batch`]; [`Error::Stopped`]. Nothing is left behind.
    pub async fn submit(&self, tenant: &TenantId, request: QueryRequest) -> Result<Subscription, Error> {
        self.submit_for(tenant, request, None).await
    }

    /// As [`Self::submit`], with the recipient of results that go into a topic.
    pub(crate) async fn submit_for(
        &self,
        tenant: &TenantId,
        request: QueryRequest,
        addressee: Option<ResultRecipient>,
    ) -> Result<Subscription, Error> {
        let (received, received_ms) = (self.clocks.monotonic.now(), self.clocks.wall.now_ms());
        let begun = Begun { id: QueryId::unique(), addressee, received, received_ms, ran_before: Duration::ZERO };
        let plan = self.plan(&request)?;
        let name = self.stream_name(tenant, &plan.source)?;
        let plan = of_stream(plan, &request, &name);
        let stream = self.stream(name)?;
        let until = until(&plan, &request)?;
        let past = self.past(&stream, &request, until.clone()).await?;
        // Nothing is waited for beyond that.
        let request = QueryRequest { until, ..request };
        if plan.sorts_all_matches()
            && request.until.is_none()
            && self.duration_ms(&plan, &request, &mut Vec::new())?.is_none()
        {
            return Err(Error::EndlessOrder);
        }
        let mut live = self.live(stream, request, &plan, begun)?;
        if let Some(past) = &past {
            live.begin_at(&past.places);
        }
        let live = Arc::new(live);
        self.registry.admit(&live, &filter(&plan), &self.config)?;
        // From here on a failure, or a caller that has gone away, ends the query as the subscription is dropped.
        let subscription = Subscription::new(live.clone(), self.registry.clone(), DurableState::FIRST_CLIENT);
        match past {
            Some(past) => self.read_past(live.clone(), past)?,
            None => self.registry.start(&live).await?,
        }
        if live.durable.is_some() {
            self.registry.checkpointer.begin(&live).await?;
        }
        Ok(subscription)
    }

    /// Attaches a client to a kept query without a client; it gets the results that nobody has read. A query whose results
    /// go into a topic never lacks a client.
    ///
    /// # Errors
    /// [`Error::UnknownQuery`]; [`Error::HasClient`], also if the query is not kept or its results go into a topic.
    pub fn attach(&self, tenant: &TenantId, id: QueryId) -> Result<Subscription, Error> {
        let live = self.registry.find(tenant, id)?;
        let durable = live.durable.as_ref().filter(|durable| durable.addressee.is_none());
        match durable.and_then(|durable| durable.attach()) {
            Some(client) => Ok(Subscription::new(live, self.registry.clone(), client)),
            None => Err(Error::HasClient { id }),
        }
    }

    /// Attaches a client to a kept query after its connection broke. The client has all results up to `after`, and replaces
    /// the current one. `None` if it has the end too: then the query is removed.
    ///
    /// # Errors
    /// [`Error::UnknownQuery`]; [`Error::HasClient`], also if the query is not kept, or if its
    /// results have no numbers; [`Error::UnknownResult`].
    pub fn attach_after(&self, tenant: &TenantId, id: QueryId, after: ResultId) -> Result<Option<Subscription>, Error> {
        let live = self.registry.find(tenant, id)?;
        let durable = live.durable.as_ref().filter(|durable| durable.addressee.is_none());
        let durable = durable.ok_or(Error::HasClient { id })?;
        if live.outbox.last_id().is_none_or(|last| after > last) {
            return Err(Error::UnknownResult { id, result: after });
        }
        let client = durable.take_over().ok_or(Error::HasClient { id })?;
        let begun = live.outbox.begin_after(client, after);
        if begun == After::All {
            self.registry.forget(&live);
            return Ok(None);
        }
        Ok(Some(Subscription::new(live.clone(), self.registry.clone(), client).numbered(begun == After::Gap)))
    }

    /// Makes a query of a plan.
    pub(crate) fn live(
        &self,
        stream: Arc<LiveStream>,
        request: QueryRequest,
        plan: &QueryPlan,
        begun: Begun,
    ) -> Result<LiveQuery, Error> {
        let Begun { id, addressee, received, received_ms, ran_before } = begun;
        if request.keep && addressee.is_none() && matches!(request.deliver, Deliver::Topic(_)) {
            return Err(Error::NobodyDelivers);
        }
        if request.keep && stream.topic.config.level == AckLevel::Memory {
            return Err(Error::VolatileStream { stream: stream.topic.name.clone() });
        }
        let mut clamped = Vec::new();
        let duration_ms = self.duration_ms(plan, &request, &mut clamped)?;
        let rows_max = self.rows_max(plan, &request, &mut clamped)?;
        let timing = Timing { started: received, ran_before, started_ms: received_ms };
        let running = self.running(plan, &request, timing, &mut clamped)?;
        let shares = Vec::with_capacity(stream.partitions.len());
        let mut compiled = Compiled::new(plan);
        compiled.share_fields(&mut self.shared.lock().fields);
        let compiled = Arc::new(compiled);
        let outbox = Outbox::new(self.outboxes.of(stream.topic.name.tenant()), rows_max, request.on_slow);
        if request.keep && addressee.is_some() {
            outbox.hold_until_arrived(SinkOffset::default());
        } else if request.keep {
            outbox.number(None, self.life);
        }
        Ok(LiveQuery {
            id,
            columns: self.shared.lock().columns.share(plan.columns()),
            price: QueryCost::of(&compiled, plan.filter.as_ref()).map(Box::new),
            compiled,
            text: request.query.as_str().into(),
            stream,
            entry: AtomicU32::new(0),
            received_ms,
            received: received.into(),
            deadline: duration_ms.map(|duration_ms| received.saturating_add(Duration::from_millis(duration_ms)).into()),
            clamped: clamped.into(),
            outbox,
            running,
            durable: request.keep.then(|| Box::new(DurableState::begin(request, addressee))),
            shares: Mutex::new(shares),
            matched: AtomicBool::new(false),
        })
    }

    /// The fields of the records in a stream of `tenant`; without a name, in the stream of `STREAM()`. Blocks on disks: call
    /// it on plain threads, one at a time.
    ///
    /// # Errors
    /// [`Error::UnknownStream`], [`Error::ForeignStream`], [`Error::Name`]; [`Error::Log`], [`Error::Batch`].
    pub fn schema(&self, tenant: &TenantId, stream: Option<&str>) -> Result<Arc<Schema>, Error> {
        let source =
            stream.map_or(RecordSource::Stream(StreamDuration::Default), |name| RecordSource::Topic(name.to_owned()));
        let stream = self.stream(self.stream_name(tenant, &source)?)?;
        let now = self.clocks.monotonic.now();
        self.schemas.of(&stream, &self.config.schema, now).map_err(|broken| broken.of(&stream.topic.name))
    }

    /// Hints about a valid query: fields that no sampled record of its stream has, while a field of nearly the same name
    /// exists. Blocks on disks like [`Self::schema`].
    ///
    /// # Errors
    /// [`Error::Refused`] and those of [`Self::schema`].
    pub fn hints(&self, tenant: &TenantId, text: &str) -> Result<Vec<Diagnostic>, Error> {
        let plan = self.validate(text)?;
        let stream = match &plan.source {
            RecordSource::Stream(_) => None,
            RecordSource::Topic(name) => Some(name.as_str()),
        };
        Ok(hints(text, &plan, &*self.schema(tenant, stream)?))
    }

    /// The live queries of `tenant`, oldest first: those that see all records from now on, and whose checkpoint, if
    /// they are kept, is durable.
    pub fn list(&self, tenant: &TenantId) -> Vec<Meta> {
        self.page(tenant, 0, usize::MAX).0
    }

    /// As [`Self::list`], at most `limit` of them after the first `offset`; and how many there are.
    pub fn page(&self, tenant: &TenantId, offset: usize, limit: usize) -> (Vec<Meta>, usize) {
        let is_listed = |live: &LiveQuery| {
            let is_safe = live.durable.as_ref().is_none_or(|durable| durable.is_kept());
            *live.tenant() == *tenant && is_safe && live.matched.load(Ordering::Acquire)
        };
        let listed = self.registry.list(is_listed);
        (listed.iter().skip(offset).take(limit).map(|live| live.meta()).collect(), listed.len())
    }

    /// The meta of one query of `tenant`.
    ///
    /// # Errors
    /// [`Error::UnknownQuery`], if there is no such query.
    pub fn get(&self, tenant: &TenantId, id: QueryId) -> Result<Meta, Error> {
        self.registry.find(tenant, id).map(|live| live.meta())
    }

    /// Ends a query; its client gets the waiting rows, and cause `killed`. A kept query that has ended already is removed.
    ///
    /// # Errors
    /// [`Error::UnknownQuery`], if there is no such query.
    pub fn kill(&self, tenant: &TenantId, id: QueryId) -> Result<(), Error> {
        let live = self.registry.find(tenant, id)?;
        match live.outbox.has_ended() {
            true => self.registry.forget(&live),
            false => self.registry.end(&live, Cause::Killed, None),
        }
        Ok(())
    }

    /// From which origin pages may call Bullet's paths.
    pub fn bullet_cors_origin(&self) -> &str {
        &self.config.bullet.cors_origin
    }

    /// The memory of results that are copied for a client.
    pub fn copies(&self) -> &CopyMemory {
        &self.copies
    }

    /// The names of the meta's members on Bullet's paths.
    pub fn bullet_names(&self) -> &MetaNames {
        &self.bullet_names
    }

    pub(crate) fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    pub(crate) fn wall(&self) -> Arc<dyn WallClock> {
        self.clocks.wall.clone()
    }

    /// True if the records of the topic are requests for queries.
    pub(crate) fn is_asked_in(&self, topic: &TopicName) -> bool {
        topic.is_called(&self.config.requests_topic)
    }

    /// The number of live queries of all tenants.
    pub fn live_count(&self) -> usize {
        self.registry.live_count()
    }

    /// The number of ended queries since the start, by cause.
    pub fn ended(&self) -> impl Iterator<Item = (Cause, u64)> {
        self.registry.totals.ended()
    }

    /// The number of queries that read records from before their request.
    pub fn reading_past(&self) -> usize {
        self.in_the_past.load(Ordering::Relaxed)
    }

    /// Bytes that the counts, groups and sketches of all queries take, of `query.states_max_bytes`.
    pub fn states_bytes(&self) -> u64 {
        self.states_memory.used_bytes()
    }

    /// Bytes that wait for clients of all queries, of `query.queues_max_bytes`.
    pub fn queues_bytes(&self) -> u64 {
        self.outboxes.used_bytes()
    }

    /// The number of records that queries have seen since the start: each once for all queries that read new records, and
    /// once more for each that reads it as past.
    pub fn records_seen(&self) -> u64 {
        self.registry.totals.records_seen.load(Ordering::Relaxed)
    }

    /// The number of rows for all queries since the start.
    pub fn matched(&self) -> u64 {
        self.registry.totals.matched.load(Ordering::Relaxed)
    }

    /// Refuses new queries, stores kept ones, ends the others with cause `shutdown`, and ends the threads.
    /// A second call does nothing.
    pub fn stop(&self) {
        self.registry.close();
        if let Some(checkpointer) = self.checkpointer.lock().take() {
            self.registry.checkpointer.stop();
            if checkpointer.join().is_err() {
                tracing::error!("the thread that keeps live queries has panicked");
            }
        }
        self.registry.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of live queries has panicked");
            }
        }
    }

    pub(crate) fn stream_name(&self, tenant: &TenantId, source: &RecordSource) -> Result<TopicName, Error> {
        let name = match source {
            RecordSource::Stream(_) if self.config.bullet.stream.is_empty() => {
                TopicName::reserved(TopicKind::Telemetry, tenant)
            }
            RecordSource::Stream(_) => TopicName::parse(&self.config.bullet.stream, tenant)?,
            RecordSource::Topic(name) => TopicName::parse(name, tenant)?,
        };
        if name.tenant() != tenant || name.kind() == TopicKind::Internal {
            return Err(Error::ForeignStream { stream: name, tenant: tenant.clone() });
        }
        Ok(name)
    }

    pub(crate) fn stream(&self, name: TopicName) -> Result<Arc<LiveStream>, Error> {
        let Some(topic) = self.log.topic(&name) else {
            return Err(Error::UnknownStream { stream: name });
        };
        let partitions = (0..topic.config.partitions)
            .map(|partition| self.log.partition(&TopicPartition::new(name.clone(), partition)))
            .collect::<Result<_, _>>()
            .map_err(|source| Error::Log { stream: name.clone(), source: Box::new(source) })?;
        Ok(self.streams.of(topic, partitions))
    }

    /// The aggregate of a query; `None` if each record is a row at once.
    fn running(
        &self,
        plan: &QueryPlan,
        request: &QueryRequest,
        timing: Timing,
        clamped: &mut Vec<Clamped>,
    ) -> Result<Option<Box<RunningAggregate>>, Error> {
        if plan.gives_rows_at_once() {
            return Ok(None);
        }
        if plan.window.is_some() && request.deliver == Deliver::Wait {
            return Err(Error::WindowedAnswer);
        }
        let asked = plan.limit.into_iter().chain(request.limit).min();
        let rows_max = match plan.is_raw() {
            true => {
                at_most(asked.or(Some(self.config.rows_default)), Some(self.config.rows_max), "query.rows_max", clamped)
            }
            false => asked,
        };
        let limit = ResultLimit { rows_max: rows_max.unwrap_or(u64::MAX), is_default: asked.is_none() };
        let sizes = SketchSizes::new(self.config.groups_max, self.config.distinct_exact_max);
        let aggregates = AggregatePlan::new(plan, limit, sizes);
        let window = plan.window.clone().map(|window| self.window(window, clamped));
        let plan = QueryPlan { window, ..plan.clone() };
        let (threads, memory) = (self.registry.inboxes.len(), self.states_memory.clone());
        Ok(Some(Box::new(RunningAggregate::new(aggregates, &plan, timing, threads, memory))))
    }

    /// The window, extended to the smallest allowed size.
    fn window(&self, window: Window, clamped: &mut Vec<Clamped>) -> Window {
        let least = self.config.window_min_ms.max(1);
        let mut at_least = |asked: u64| {
            if asked < least {
                let (setting, asked) = ("query.window_min_ms".to_owned(), Some(asked));
                clamped.push(Clamped { setting, asked, given: least });
            }
            asked.max(least)
        };
        match window {
            Window::Tumbling(Extent::TimeMs(size)) => Window::Tumbling(Extent::TimeMs(at_least(size))),
            Window::Additive(Extent::TimeMs(emit)) => Window::Additive(Extent::TimeMs(at_least(emit))),
            Window::Session { gap_ms } => Window::Session { gap_ms: at_least(gap_ms) },
            Window::Sliding { emit: Extent::TimeMs(emit), size: Extent::TimeMs(size) } => {
                let emit = at_least(emit);
                Window::Sliding { emit: Extent::TimeMs(emit), size: Extent::TimeMs(size.max(emit)) }
            }
            other => other,
        }
    }

    /// The lifetime of the query; `None` without a limit.
    fn duration_ms(
        &self,
        plan: &QueryPlan,
        request: &QueryRequest,
        clamped: &mut Vec<Clamped>,
    ) -> Result<Option<u64>, Error> {
        if request.duration_ms == Some(0) {
            return Err(Error::Zero { setting: "duration_ms" });
        }
        let asked = match plan.source {
            RecordSource::Stream(StreamDuration::Ms(duration_ms)) => Some(duration_ms),
            RecordSource::Stream(StreamDuration::Max) => None,
            _ if request.duration_ms.is_none() && request.deliver == Deliver::Wait && request.until.is_none() => {
                Some(self.config.duration_default_ms)
            }
            _ => request.duration_ms,
        };
        let most = Some(self.config.duration_max_ms).filter(|most| *most > 0);
        Ok(at_most(asked, most, "query.duration_max_ms", clamped))
    }

    /// The number of rows after which the query ends; `None` for never.
    fn rows_max(
        &self,
        plan: &QueryPlan,
        request: &QueryRequest,
        clamped: &mut Vec<Clamped>,
    ) -> Result<Option<u64>, Error> {
        if request.limit == Some(0) {
            return Err(Error::Zero { setting: "limit" });
        }
        if !plan.gives_rows_at_once() {
            // Rows are counted in each result.
            return Ok(None);
        }
        let asked = plan.limit.into_iter().chain(request.limit).min();
        match request.deliver {
            Deliver::Sse | Deliver::Topic(_) => Ok(asked),
            Deliver::Wait => {
                let asked = asked.unwrap_or(self.config.rows_default);
                Ok(at_most(Some(asked), Some(self.config.rows_max), "query.rows_max", clamped))
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The plan of a request for this stream.
pub(crate) fn of_stream(plan: QueryPlan, request: &QueryRequest, stream: &TopicName) -> QueryPlan {
    let is_of_devices = matches!(stream.kind(), TopicKind::Telemetry | TopicKind::Event);
    if request.with_device && is_of_devices { plan.with_keys() } else { plan }
}

/// The condition of a plan, for messages.
pub(crate) fn filter(plan: &QueryPlan) -> String {
    plan.filter.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// The smaller one of `asked` and `most`; a reduced value is reported.
fn at_most(asked: Option<u64>, most: Option<u64>, setting: &str, clamped: &mut Vec<Clamped>) -> Option<u64> {
    let Some(most) = most.filter(|most| asked.is_none_or(|asked| asked > *most)) else {
        return asked;
    };
    clamped.push(Clamped { setting: setting.to_owned(), asked, given: most });
    Some(most)
}
