//! The log and the planes over it: opened in order, closed in the reverse order; their routes, failures and figures.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use millstream_connect::Connect;
use millstream_context::Context;
use millstream_flow::{FlowRuntime, Functions, Hooks, Jobs};
use millstream_history::{Dependencies, History};
use millstream_http::{Api, Limits, Metrics, TokenIssuer};
use millstream_log::SystemFiles;
use millstream_net::LoginThrottle;
use millstream_query::{Deliveries, Engine, QueryRuntime};
use millstream_store::{Statistics, Store};
use millstream_types::{MemoryBudget, Quotas, RemoteCallers, ShortLives, SystemClock, WallClock as _};
use millstream_view::{Checkpoints, Failure, Shards, ViewRuntime};
use parking_lot::Mutex;

use crate::audit::Audit;
use crate::backups::Backups;
use crate::config::{Applications, Config};
use crate::drain::Drain;
use crate::health::Ready;
use crate::history_rules::RegistryRules;
use crate::job_entities::JobEntities;
use crate::kept_log::{EngineHealth, KeptLog, LogStart};
use crate::lives::Life;
use crate::mappings::{MappingRules, RegistryMappings};
use crate::oidc::OidcProvider;
use crate::schema::Schemas;
use crate::stats::{Observed, PlaneCounts, Sampler};
use crate::streams::Streams;
use crate::tokens::Tokens;
use crate::{
    backups, bullet, console, data_dir, health, jobs, login_route, mapping_errors, queries, schema, stats, streams,
    tokens,
};

const DOCUMENT_LIMITS: Limits =
    Limits { body_max_bytes: 0, body_max_setting: "none: this route takes no body", timeout: Duration::from_secs(5) };

/// Notifications that wait may take one in this many bytes of the memory budget.
const NOTIFICATIONS_PART: u64 = 4;

/// The log, the planes over it and what they share.
pub(crate) struct Planes {
    pub(crate) log: KeptLog,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) connect: Connect,
    pub(crate) context: Context,
    pub(crate) history: History,
    pub(crate) query: Arc<Engine>,
    pub(crate) deliveries: Arc<Deliveries>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) store: Arc<Store>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) oidc: Option<Arc<OidcProvider>>,
    pub(crate) backups: Arc<Backups>,
    life: Mutex<Life>,
}

/// `true` if a test of a debug build wants a fault in place of a status that is not documented.
fn checks_statuses() -> bool {
    cfg!(debug_assertions) && std::env::var_os("MILLSTREAM_CHECK_STATUSES").is_some()
}

impl Planes {
    /// Opens the log, then every plane over it. Blocks while state is rebuilt.
    pub(crate) fn open(
        config: &Config,
        clock: &Arc<SystemClock>,
        throttle: Arc<LoginThrottle>,
        oidc: Option<Arc<OidcProvider>>,
        metrics: &Metrics,
        memory: &MemoryBudget,
        start: LogStart,
    ) -> anyhow::Result<Self> {
        data_dir::check_finished(&config.data_dir)?;
        let log = KeptLog::open(config, clock, start)?;
        // Only once the data directory is this process's own.
        let life = Life::begin(&config.data_dir, clock.now_ms());
        let shards =
            Shards::start(or_cores(config.threads.shards)).context("cannot start the threads that own state")?;
        let checkpoints = Checkpoints::open(&config.data_dir.join("views"))?;
        let ground = ViewRuntime { log: log.log(), checkpoints: Arc::clone(&checkpoints), shards, wall: clock.clone() };
        let Applications { tokens, hosts, audit_retention_days } = &config.applications;
        Audit::open(&*ground.log, *audit_retention_days)?;
        let issuer = oidc.clone().map(|provider| provider as Arc<dyn TokenIssuer>);
        let tokens = Tokens::open(&ground, tokens, hosts, issuer, Arc::clone(&throttle))?;
        let expressions = config.query.limits.clone();
        let connect = Connect::open(
            &ground,
            &config.connect,
            Arc::new(MappingRules(expressions.clone())),
            throttle,
            clock.clone(),
            metrics,
        )?;
        let mappings = Arc::new(RegistryMappings::new(connect.registry().clone(), expressions));
        let logins = Arc::clone(&tokens.logins);
        let callers: RemoteCallers = Arc::new(move || logins.are_required());
        connect.open_downlinks(callers.clone(), memory)?;
        let mut of_context = config.context.clone();
        let waiting_max_bytes = usize::try_from(memory.limit_bytes() / NOTIFICATIONS_PART).unwrap_or(usize::MAX);
        let notifications = &mut of_context.notifications;
        notifications.total_max_bytes = notifications.total_max_bytes.min(waiting_max_bytes);
        let context = Context::open(&ground, of_context, mappings, clock.clone(), metrics, callers.clone())?;
        let dependencies = Dependencies {
            log: ground.log.clone(),
            dir: &config.data_dir.join("history"),
            files: Arc::new(SystemFiles),
            tenant_rules: Arc::new(RegistryRules::new(connect.registry().clone())),
            clock: clock.clone(),
            wall: clock.clone(),
        };
        let history = History::open(&dependencies, &config.history, metrics)?;
        let short_lives = ShortLives::new(life.short_lives_ms.clone());
        let query_runtime = QueryRuntime {
            log: ground.log.clone(),
            memory: memory.clone(),
            monotonic: clock.clone(),
            wall: clock.clone(),
            short_lives: short_lives.clone(),
        };
        let query = Engine::start(query_runtime, config.query.clone())?;
        let quotas = Quotas::new(config.quota.clone(), clock.clone());
        let streams = Streams::start(&log, clock.clone(), memory, quotas.clone())
            .context("cannot start the threads that read streams")?;
        let query = Arc::new(query);
        let deliveries = Deliveries::new(Arc::clone(&query), Arc::clone(&quotas));
        let store = Store::open(ground.clone(), config.store.clone(), clock.clone(), memory)?;
        let statistics = Statistics::of_store(&store, &log.figures(), clock.clone()).map_err(anyhow::Error::msg)?;
        let flow = FlowRuntime {
            views: ground,
            clock: clock.clone(),
            memory: memory.clone(),
            short_lives,
            callers,
            entities: Some(Arc::new(JobEntities(context.entity_reader()))),
        };
        let jobs = Jobs::open(&flow, config.flow.clone(), Functions::default(), Hooks::default())?;
        let backups =
            Backups::new(log.embedded().cloned(), Box::new(history.file_holds()), clock.clone(), clock.clone());
        Ok(Self {
            log,
            checkpoints,
            connect,
            context,
            history,
            query,
            deliveries,
            jobs,
            store,
            statistics,
            streams,
            quotas,
            tokens,
            oidc,
            backups,
            life: Mutex::new(life),
        })
    }

    pub(crate) fn applications_api(
        self: &Arc<Self>,
        sampler: &Arc<Sampler>,
        memory: &MemoryBudget,
        metrics: &Metrics,
    ) -> anyhow::Result<Api> {
        let [registry, connections, commands] = self.connect.application_routes();
        let [temporal, quantumleap, comet_1, comet_2] = self.history.routes();
        let schemas = Schemas::new(Arc::clone(&self.query));
        let oidc = self.oidc.clone();
        let origins: console::ProviderOrigins = Arc::new(move || oidc.iter().flat_map(|oidc| oidc.origins()).collect());
        let api = Api::builder("applications", "Millstream", env!("CARGO_PKG_VERSION"))
            .with(console::routes(&origins))
            .with(registry)
            .with(connections)
            .with(commands)
            .with(self.context.routes(crate::logging::level(), crate::built::BUILD))
            .with(mapping_errors::routes(self.mapping_errors()))
            .with(temporal)
            .with(quantumleap)
            .with(comet_1)
            .with(comet_2)
            .with(queries::routes(Arc::clone(&self.query), &self.deliveries, &schemas))
            .with(jobs::routes(&self.jobs, &self.streams, memory))
            .with(millstream_store::routes(&self.store))
            .with(bullet::routes(Arc::clone(&self.query), &schemas)?)
            .with(schema::routes(&schemas))
            .with(streams::routes(&self.streams))
            .with(tokens::routes(&self.tokens, &self.jobs, &self.query))
            .with(login_route::routes(&self.tokens, self.oidc.as_ref()))
            .with(backups::routes(&self.backups))
            .with(stats::routes(Arc::clone(sampler), &self.statistics))
            .with(millstream_store::stats_routes(&self.statistics))
            .with(health::routes(metrics, self.readiness()))
            .with_openapi(DOCUMENT_LIMITS)
            .checking_statuses(checks_statuses());
        let api = match self.store.config().rift {
            true => api.with(millstream_store::rift_routes(&self.store, &self.statistics)),
            false => api,
        };
        let api = match console::stray_page(&origins) {
            Some(page) => api.with_stray_page(page),
            None => api,
        };
        Ok(api.build(metrics)?)
    }

    fn mapping_errors(self: &Arc<Self>) -> mapping_errors::FindErrors {
        let planes = Arc::clone(self);
        Arc::new(move |tenant, device| match device {
            Some(device) => planes.context.mapping_error_of_device(tenant, device).into_iter().collect(),
            None => planes.context.mapping_errors_by_device(tenant),
        })
    }

    pub(crate) fn devices_api(&self, metrics: &Metrics) -> anyhow::Result<Api> {
        let mut api = Api::builder("devices-http", "Millstream for devices", env!("CARGO_PKG_VERSION"));
        for routes in self.connect.device_routes() {
            api = api.with(routes);
        }
        Ok(api.with_openapi(DOCUMENT_LIMITS).checking_statuses(checks_statuses()).build(metrics)?)
    }

    fn readiness(self: &Arc<Self>) -> health::Readiness {
        let planes = Arc::clone(self);
        Arc::new(move || {
            planes.log.log().check_writing().map_err(|e| e.to_string())?;
            let of_views = planes.failures();
            let failures: Vec<String> =
                of_views.iter().map(ToString::to_string).chain(planes.history.failures()).collect();
            let mut warnings = planes.history.warnings();
            let engine = planes.log.health();
            warnings.extend(engine.degradations());
            if failures.is_empty() { Ok(Ready { facts: engine.line(), warnings }) } else { Err(failures.join("\n")) }
        })
    }

    /// Returns the failures in the planes' views.
    fn failures(&self) -> Vec<Failure> {
        let of_devices_and_entities = self.connect.failures().into_iter().chain(self.context.failures());
        let of_jobs_and_keys = self.jobs.failures().into_iter().chain(self.store.failures());
        of_devices_and_entities.chain(of_jobs_and_keys).chain(self.tokens.failures()).collect()
    }

    /// Registers the metrics of failed views and of the room on the disk.
    pub(crate) fn show_failures(self: &Arc<Self>, metrics: &Metrics) {
        let count = |of: fn(&Self) -> u64| {
            let planes = Arc::downgrade(self);
            move || planes.upgrade().map_or(0.0, |planes| of(&planes) as f64)
        };
        if let Some(log) = self.log.embedded().map(Arc::downgrade) {
            let help = "Bytes that the disk of the log still takes; below log.disk_free_min_bytes nothing is stored.";
            let free_bytes = move || log.upgrade().map_or(0.0, |log| log.disk_free_bytes() as f64);
            metrics.gauge_fn("millstream_disk_free_bytes", help, free_bytes);
        }
        let help = "Parts of views that have failed; /readyz names them.";
        metrics.gauge_fn("millstream_view_failures", help, count(|planes| planes.failures().len() as u64));
        let help = "Records that never reach a view: refused by an owner, or trimmed before they were read.";
        let passed_over = count(|planes| planes.connect.records_passed_over() + planes.context.records_passed_over());
        metrics.counter_fn("millstream_view_records_passed_over_total", help, passed_over);
    }

    /// Whatever ends this process from now on, it is not what goes on at its start.
    pub(crate) fn settle(&self) {
        self.life.lock().settle();
    }

    /// Stops the planes in the reverse order of [`Planes::open`]. The listeners have stopped before. Receivers of jobs and of
    /// notifications have what is left of `drain`. The log is closed even if the checkpoints, which are rebuilt from it, take
    /// nothing any more after a full disk.
    pub(crate) fn stop(&self, drain: Drain) -> anyhow::Result<()> {
        self.settle();
        self.streams.stop();
        self.jobs.shut_down(drain.left());
        self.store.stop();
        self.query.stop();
        self.context.stop(drain.left());
        self.history.stop();
        self.connect.stop();
        self.tokens.stop();
        if let Err(error) = self.checkpoints.sync() {
            tracing::error!(%error, "checkpoints are not synced; the next start reads more of the log");
        }
        self.log.close()
    }
}

impl Observed for Planes {
    fn counts(&self) -> PlaneCounts {
        let (connect, context) = (self.connect.stats(), self.context.stats());
        PlaneCounts {
            accepted: connect.accepted,
            rejected: connect.rejected,
            accept_latency: connect.accept_latency,
            entities: context.entities,
            unmapped: context.unmapped_measurements,
            skipped_attributes: context.skipped_attributes,
            refused_updates: context.refused_topic_updates,
            updates: context.updates + context.measurements + context.topic_updates,
            update_latency: context.update_latency,
            live_queries: self.query.live_count() as u64,
            records_seen: self.query.records_seen(),
            matched: self.query.matched(),
        }
    }

    fn engine(&self) -> EngineHealth {
        self.log.health()
    }
}

/// The threads that a setting says; 0 is one for each core.
pub(crate) fn or_cores(count: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if count == 0 { cores } else { count }
}
