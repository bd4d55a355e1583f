//! The engine: takes queries, answers what is asked about them, ends them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millstream_log::{AckLevel, Log};
use millstream_types::{Kind, MemoryBudget, MonotonicClock, TenantId, TopicName, TopicPartition, WallClock};
use parking_lot::Mutex;
use serde_json::Value;

use crate::aggregate::SketchSizes;
use crate::hints::hints;
use crate::keeper::Keeper;
use crate::keeping::{Addressee, Keeping};
use crate::live::{Clocks, Live};
use crate::outbox::{After, Outbox};
use crate::outboxes::Outboxes;
use crate::passage::Gone;
use crate::pool::Pool;
use crate::price::Price;
use crate::reader::Reader;
use crate::registry::Registry;
use crate::schema::Schemas;
use crate::shelf::Shelf;
use crate::stream::{Stream, Streams};
use crate::subscription::Subscription;
use crate::window::{Running, Summing, Timing};
use crate::{
    Cause, Clamped, Compiled, Config, Deliver, Diagnostic, Error, Extent, Field, Language, Meta, MetaNames, Plan,
    QueryId, QueryRequest, ResultId, Schema, Source, StreamDuration, Window, json, parse,
};

/// Live queries over the streams of a log.
///
/// ```text
///   log: partitions ──read──► threads: match ──rows──► outbox of each query ──► Subscription
///                                ▲ add, remove
///                             Engine::submit, kill, deadlines, limits
/// ```
pub struct Engine {
    log: Arc<dyn Log>,
    pub(crate) config: Config,
    pub(crate) clocks: Arc<Clocks>,
    pub(crate) registry: Arc<Registry>,
    outboxes: Outboxes,
    states_memory: MemoryBudget,
    bullet_names: MetaNames,
    schemas: Schemas,
    streams: Streams,
    shared: Mutex<Shared>,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) in_the_past: Arc<AtomicUsize>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

/// What many queries have alike, once.
#[derive(Default)]
struct Shared {
    fields: Pool<Field>,
    columns: Pool<String>,
}

/// Which query it is, for whom, and when it began.
pub(crate) struct Begun {
    pub(crate) id: QueryId,
    pub(crate) addressee: Option<Addressee>,
    /// By the clock of this process.
    pub(crate) received: Duration,
    pub(crate) received_ms: i64,
    /// How long it had run before, in other processes.
    pub(crate) ran_before: Duration,
}

impl Engine {
    /// Starts the threads; queries that a former process has kept go on. Rows that wait for their client draw on `memory`.
    ///
    /// # Errors
    /// [`Error::MetaName`]; [`Error::Thread`] if the system gives none; [`Error::Log`], [`Error::Batch`] if it cannot be read what was kept.
    pub fn start(
        log: Arc<dyn Log>,
        config: Config,
        memory: &MemoryBudget,
        monotonic: Arc<dyn MonotonicClock>,
        wall: Arc<dyn WallClock>,
    ) -> Result<Self, Error> {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        let threads = if config.threads == 0 { cores() } else { config.threads };
        let clocks = Arc::new(Clocks { monotonic, wall });
        let engine = Self {
            log,
            outboxes: Outboxes::new(&config, clocks.clone(), memory),
            clocks,
            registry: Arc::new(Registry::new(threads)),
            states_memory: memory.share("query.states_max_bytes", config.states_max_bytes as u64),
            bullet_names: MetaNames::new(&config.bullet.meta_names)?,
            config,
            schemas: Schemas::default(),
            streams: Streams::default(),
            shared: Mutex::default(),
            threads: Mutex::default(),
            in_the_past: Arc::default(),
            keeper: Mutex::default(),
        };
        for number in 0..threads {
            let reader =
                Reader::new(number, engine.registry.clone(), engine.config.read_max_bytes, engine.clocks.clone());
            let thread = thread::Builder::new().name(format!("query-{number}")).spawn(move || reader.run());
            engine.threads.lock().push(thread.map_err(Error::Thread)?);
        }
        let shelf = Shelf::new(engine.log.clone(), engine.config.kept_state_max_bytes);
        let kept = shelf.read()?;
        let resumed = engine.resume(kept, shelf.epoch().unwrap_or_default());
        let keeper = Keeper::new(engine.registry.clone(), shelf, engine.clocks.clone(), &engine.config);
        let thread = thread::Builder::new().name("query-keeper".to_owned()).spawn(move || keeper.run(resumed));
        *engine.keeper.lock() = Some(thread.map_err(Error::Thread)?);
        Ok(engine)
    }

    /// Checks a text: its plan.
    ///
    /// # Errors
    /// [`Error::Refused`] with everything that is wrong with it.
    pub fn validate(&self, text: &str) -> Result<Plan, Error> {
        parse(text, &self.config.limits).map_err(|diagnostics| Error::Refused { diagnostics })
    }

    /// What a request asks for.
    pub(crate) fn plan(&self, request: &QueryRequest) -> Result<Plan, Error> {
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
    fn windowed(&self, plan: Plan, window: &Value) -> Result<Plan, Error> {
        if plan.window.is_some() {
            return Err(Error::Window { what: "the query has one itself; leave one of both out".to_owned() });
        }
        let window = Some(json::window(window).map_err(|what| Error::Window { what })?);
        json::checked(&Plan { window, ..plan }, &self.config.limits).map_err(|wrong| {
            let wrong: Vec<String> = wrong.into_iter().map(|diagnostic| diagnostic.message).collect();
            Error::Window { what: wrong.join("; ") }
        })
    }

    /// Takes a query of `tenant`. It sees every record that is appended after this has returned, once, and those of one
    /// key in their order; and those before that which [`QueryRequest::from`] asks for.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Zero`], [`Error::Window`], [`Error::Start`], [`Error::TooManyInThePast`]; [`Error::UnknownStream`], [`Error::ForeignStream`], [`Error::Name`];
    /// [`Error::TooMany`], [`Error::TooManyOfTenant`], [`Error::TooManyKept`], [`Error::TooCostly`]; [`Error::VolatileStream`],
    /// [`Error::NotKept`]; [`Error::Log`], [`Error::Batch`]; [`Error::Stopped`]. Nothing is left behind.
    pub async fn submit(&self, tenant: &TenantId, request: QueryRequest) -> Result<Subscription, Error> {
        self.submit_for(tenant, request, None).await
    }

    /// As [`Self::submit`], of a query whose results go into a topic for somebody.
    pub(crate) async fn submit_for(
        &self,
        tenant: &TenantId,
        request: QueryRequest,
        addressee: Option<Addressee>,
    ) -> Result<Subscription, Error> {
        let (received, received_ms) = (self.clocks.monotonic.now(), self.clocks.wall.now_ms());
        let begun = Begun { id: QueryId::unique(), addressee, received, received_ms, ran_before: Duration::ZERO };
        let plan = self.plan(&request)?;
        let stream = self.stream(self.stream_name(tenant, &plan.source)?)?;
        let past = self.past(&stream, &request.from).await?;
        let mut live = self.live(stream, request, &plan, begun)?;
        if let Some(past) = &past {
            live.begin_at(&past.places);
        }
        let live = Arc::new(live);
        self.registry.admit(&live, &filter(&plan), &self.config)?;
        // From here on a failure, or a caller that has gone away, ends the query as the subscription is dropped.
        let subscription = Subscription::new(live.clone(), self.registry.clone(), Keeping::FIRST_CLIENT);
        match past {
            Some(past) => self.read_past(live.clone(), past)?,
            None => self.registry.start(&live).await?,
        }
        if live.keeping.is_some() {
            self.registry.keeper.begin(&live).await?;
        }
        Ok(subscription)
    }

    /// Reads on for a query that is kept and has no client: what nobody has read. One whose results go into a topic has that.
    ///
    /// # Errors
    /// [`Error::UnknownQuery`], [`Error::HasClient`].
    pub fn attach(&self, tenant: &TenantId, id: QueryId) -> Result<Subscription, Error> {
        let live = self.registry.find(tenant, id)?;
        let keeping = live.keeping.as_ref().filter(|keeping| keeping.addressee.is_none());
        match keeping.and_then(|keeping| keeping.attach()) {
            Some(client) => Ok(Subscription::new(live, self.registry.clone(), client)),
            None => Err(Error::HasClient { id }),
        }
    }

    /// Reads on for a query that is kept, as its client does whose connection has broken: it has all results up to `after`,
    /// and takes the place of whoever reads. `None` if it has the end, too: then the query is forgotten.
    ///
    /// # Errors
    /// [`Error::UnknownQuery`]; [`Error::HasClient`], also if it is not kept, or if its client's results have no numbers;
    /// [`Error::UnknownResult`].
    pub fn attach_after(&self, tenant: &TenantId, id: QueryId, after: ResultId) -> Result<Option<Subscription>, Error> {
        let live = self.registry.find(tenant, id)?;
        let keeping = live.keeping.as_ref().filter(|keeping| keeping.addressee.is_none());
        let keeping = keeping.ok_or(Error::HasClient { id })?;
        if live.outbox.last_id().is_none_or(|last| after > last) {
            return Err(Error::UnknownResult { id, result: after });
        }
        let client = keeping.take_over().ok_or(Error::HasClient { id })?;
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
        stream: Arc<Stream>,
        request: QueryRequest,
        plan: &Plan,
        begun: Begun,
    ) -> Result<Live, Error> {
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
            outbox.hold_until_arrived(Gone::default());
        } else if request.keep {
            let epoch = stream.partitions.first().map(|partition| partition.offsets().epoch);
            outbox.number(None, epoch.unwrap_or_default());
        }
        Ok(Live {
            id,
            columns: self.shared.lock().columns.share(plan.columns()),
            price: Price::of(&compiled, plan.filter.as_ref()).map(Box::new),
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
            keeping: request.keep.then(|| Box::new(Keeping::begin(request, addressee))),
            shares: Mutex::new(shares),
            matched: AtomicBool::new(false),
        })
    }

    /// What the records of a stream of `tenant` look like; without a name, of the one that `STREAM()` is. Waits for disks:
    /// for plain threads, one at a time.
    ///
    /// # Errors
    /// [`Error::UnknownStream`], [`Error::ForeignStream`], [`Error::Name`]; [`Error::Log`], [`Error::Batch`].
    pub fn schema(&self, tenant: &TenantId, stream: Option<&str>) -> Result<Arc<Schema>, Error> {
        let source = stream.map_or(Source::Stream(StreamDuration::Default), |name| Source::Topic(name.to_owned()));
        let stream = self.stream(self.stream_name(tenant, &source)?)?;
        let now = self.clocks.monotonic.now();
        self.schemas.of(&stream, &self.config.schema, now).map_err(|broken| broken.of(&stream.topic.name))
    }

    /// What is odd about a text that is a query: fields that no record of its stream has of those that were looked at, while
    /// there is one of nearly the same name. Waits for disks, as [`Self::schema`].
    ///
    /// # Errors
    /// [`Error::Refused`] and those of [`Self::schema`].
    pub fn hints(&self, tenant: &TenantId, text: &str) -> Result<Vec<Diagnostic>, Error> {
        let plan = self.validate(text)?;
        let stream = match &plan.source {
            Source::Stream(_) => None,
            Source::Topic(name) => Some(name.as_str()),
        };
        Ok(hints(text, &plan, &*self.schema(tenant, stream)?))
    }

    /// What can be told about the live queries of `tenant`, oldest first: those that see what is appended from now on, and
    /// if they are kept outlive whatever happens.
    pub fn list(&self, tenant: &TenantId) -> Vec<Meta> {
        let is_listed = |live: &Live| {
            let is_safe = live.keeping.as_ref().is_none_or(|keeping| keeping.is_kept());
            *live.tenant() == *tenant && is_safe && live.matched.load(Ordering::Acquire)
        };
        self.registry.list(is_listed).iter().map(|live| live.meta()).collect()
    }

    /// What can be told about one of them.
    ///
    /// # Errors
    /// [`Error::UnknownQuery`].
    pub fn get(&self, tenant: &TenantId, id: QueryId) -> Result<Meta, Error> {
        self.registry.find(tenant, id).map(|live| live.meta())
    }

    /// Ends one of them; its client gets the rows that are waiting, and cause `killed`. One that is kept and has ended
    /// already is forgotten.
    ///
    /// # Errors
    /// [`Error::UnknownQuery`].
    pub fn kill(&self, tenant: &TenantId, id: QueryId) -> Result<(), Error> {
        let live = self.registry.find(tenant, id)?;
        match live.outbox.has_ended() {
            true => self.registry.forget(&live),
            false => self.registry.end(&live, Cause::Killed, None),
        }
        Ok(())
    }

    /// What members of a meta are called on Bullet's paths.
    pub fn bullet_names(&self) -> &MetaNames {
        &self.bullet_names
    }

    pub(crate) fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    pub(crate) fn wall(&self) -> Arc<dyn WallClock> {
        self.clocks.wall.clone()
    }

    /// Whether queries are asked by the records of a topic.
    pub(crate) fn is_asked_in(&self, topic: &TopicName) -> bool {
        let word = &self.config.requests_topic;
        !word.is_empty() && topic.kind() == Kind::User && topic.to_string() == format!("{word}.{}", topic.tenant())
    }

    /// How many queries of all tenants are live.
    pub fn live_count(&self) -> usize {
        self.registry.live_count()
    }

    /// How many records have been seen by any query since the start; one counts once, however many see it.
    pub fn records_seen(&self) -> u64 {
        self.registry.totals.records_seen.load(Ordering::Relaxed)
    }

    /// How many rows have been found for all queries since the start.
    pub fn matched(&self) -> u64 {
        self.registry.totals.matched.load(Ordering::Relaxed)
    }

    /// Refuses new queries, keeps those that are to go on, ends the live ones with cause `shutdown`, and ends the threads.
    /// Again is no error.
    pub fn stop(&self) {
        self.registry.close();
        if let Some(keeper) = self.keeper.lock().take() {
            self.registry.keeper.stop();
            if keeper.join().is_err() {
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

    pub(crate) fn stream_name(&self, tenant: &TenantId, source: &Source) -> Result<TopicName, Error> {
        let name = match source {
            Source::Stream(_) if self.config.bullet.stream.is_empty() => TopicName::reserved(Kind::Telemetry, tenant),
            Source::Stream(_) => TopicName::parse(&self.config.bullet.stream, tenant)?,
            Source::Topic(name) => TopicName::parse(name, tenant)?,
        };
        if name.tenant() != tenant || name.kind() == Kind::Internal {
            return Err(Error::ForeignStream { stream: name, tenant: tenant.clone() });
        }
        Ok(name)
    }

    pub(crate) fn stream(&self, name: TopicName) -> Result<Arc<Stream>, Error> {
        let Some(topic) = self.log.topic(&name) else {
            return Err(Error::UnknownStream { stream: name });
        };
        let partitions = (0..topic.config.partitions)
            .map(|partition| self.log.partition(&TopicPartition::new(name.clone(), partition)))
            .collect::<Result<_, _>>()
            .map_err(|source| Error::Log { stream: name.clone(), source: Box::new(source) })?;
        Ok(self.streams.of(topic, partitions))
    }

    /// What the records of a query come to; `None` if each of them is a row at once.
    fn running(
        &self,
        plan: &Plan,
        request: &QueryRequest,
        timing: Timing,
        clamped: &mut Vec<Clamped>,
    ) -> Result<Option<Box<Running>>, Error> {
        if plan.is_raw() && plan.window.is_none() {
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
        let sizes = SketchSizes::new(self.config.groups_max, self.config.distinct_exact_max);
        let summing = Arc::new(Summing::new(plan, rows_max.unwrap_or(u64::MAX), sizes));
        let window = plan.window.map(|window| self.window(window, clamped));
        let threads = self.registry.inboxes.len();
        Ok(Some(Box::new(Running::new(summing, window, timing, threads, self.states_memory.clone()))))
    }

    /// The window, as long as it must be at least.
    fn window(&self, window: Window, clamped: &mut Vec<Clamped>) -> Window {
        let Extent::TimeMs(asked) = window.emit() else { return window };
        let given = self.config.window_min_ms.max(1);
        if asked >= given {
            return window;
        }
        clamped.push(Clamped { setting: "query.window_min_ms".to_owned(), asked: Some(asked), given });
        match window {
            Window::Tumbling(_) => Window::Tumbling(Extent::TimeMs(given)),
            Window::Additive(_) => Window::Additive(Extent::TimeMs(given)),
        }
    }

    /// How long the query lives; `None` for as long as it likes.
    fn duration_ms(
        &self,
        plan: &Plan,
        request: &QueryRequest,
        clamped: &mut Vec<Clamped>,
    ) -> Result<Option<u64>, Error> {
        if request.duration_ms == Some(0) {
            return Err(Error::Zero { setting: "duration_ms" });
        }
        let asked = match plan.source {
            Source::Stream(StreamDuration::Ms(duration_ms)) => Some(duration_ms),
            Source::Stream(StreamDuration::Max) => None,
            _ if request.duration_ms.is_none() && request.deliver == Deliver::Wait => {
                Some(self.config.duration_default_ms)
            }
            _ => request.duration_ms,
        };
        let most = Some(self.config.duration_max_ms).filter(|most| *most > 0);
        Ok(at_most(asked, most, "query.duration_max_ms", clamped))
    }

    /// After how many rows the query ends; `None` for never.
    fn rows_max(&self, plan: &Plan, request: &QueryRequest, clamped: &mut Vec<Clamped>) -> Result<Option<u64>, Error> {
        if request.limit == Some(0) {
            return Err(Error::Zero { setting: "limit" });
        }
        if !plan.is_raw() || plan.window.is_some() {
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

/// The condition of a plan, as it is told.
pub(crate) fn filter(plan: &Plan) -> String {
    plan.filter.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// `asked`, or `most` if that is less; then it is told.
fn at_most(asked: Option<u64>, most: Option<u64>, setting: &str, clamped: &mut Vec<Clamped>) -> Option<u64> {
    let Some(most) = most.filter(|most| asked.is_none_or(|asked| asked > *most)) else {
        return asked;
    };
    clamped.push(Clamped { setting: setting.to_owned(), asked, given: most });
    Some(most)
}
