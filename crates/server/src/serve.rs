//! The server: opens everything in order, serves until told to stop, closes everything in the reverse order.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use millstream_connect::{Connect, MqttServing};
use millstream_context::Context;
use millstream_history::{Base, History};
use millstream_http::{Api, ApiTokens, Authenticator, Limits, Listener, LoopbackApplications, Metrics, Serving};
use millstream_kafka::Logins;
use millstream_log::{Embedded, Log, LogConfig, SystemFiles};
use millstream_query::{Deliveries, Engine, Requests};
use millstream_types::{Grant, MemoryBudget, Principal, Quotas, SystemClock, WallClock, iso_time};
use millstream_view::{Checkpoints, Failure, Ground, Shards};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

use crate::config::{Config, Door};
use crate::history_rules::RegistryRules;
use crate::mappings::{MappingRules, RegistryMappings};
use crate::schema::Schemas;
use crate::stats::{PlaneCounts, SAMPLE_INTERVAL, Sampler};
use crate::streams::Streams;
use crate::{bullet, console, figures, health, logging, queries, schema, stats, streams, writing};

const DOCUMENT_LIMITS: Limits =
    Limits { body_max_bytes: 0, body_max_setting: "none: this route takes no body", timeout: Duration::from_secs(5) };

/// A thread of the rim has 256 places for tasks that are ready; those beyond wait in the queue of all threads. It looks
/// there every so many tasks. The runtime's own choice serves who found a place ten times as often as who did not:
/// with 500 busy connections one half waits 4 ms for each answer and the other 60 ms.
const TURNS_OF_A_THREADS_OWN: u32 = 2;

/// `millstream serve`.
pub(crate) fn run(config: &Config) -> anyhow::Result<()> {
    logging::start(&config.logging)?;
    raise_open_files(config);
    let runtime = runtime(config)?;
    // Heard from here on: who reads where it listens may stop it at once.
    let mut stop = runtime.block_on(async { StopSignals::listen() })?;
    let server = runtime.block_on(Server::start(config))?;
    announce(&server);
    runtime.block_on(stop.received());
    tracing::info!("stopping");
    runtime.block_on(server.stop())
}

/// Connections need open files, of which processes begin with 1,024 as a rule.
fn raise_open_files(config: &Config) {
    let connections_max =
        2 * config.http.connections_max + config.connect.mqtt.connections_max + config.kafka.connections_max;
    let room = millstream_types::raise_open_files();
    if room < connections_max as u64 {
        tracing::info!(
            room,
            connections_max,
            "fewer connections fit the limit of open files than are allowed; raise it (ulimit -n)"
        );
    }
}

/// Says where it listens, in one piece: whoever reads it may close its end once it has seen enough.
fn announce(server: &Server) {
    let mut lines: Vec<_> =
        server.addresses().map(|(name, address)| format!("listening {name} http://{address}\n")).collect();
    lines.extend(server.kafka_address().map(|address| format!("listening kafka {address}\n")));
    lines.extend(server.mqtt_address().map(|address| format!("listening devices-mqtt mqtt://{address}\n")));
    let mut output = std::io::stdout().lock();
    let said = output.write_all(lines.concat().as_bytes()).and_then(|()| output.flush());
    if let Err(error) = said {
        tracing::warn!(%error, "cannot say on standard output where the server listens");
    }
}

/// The threads that serve sockets.
pub(crate) fn runtime(config: &Config) -> anyhow::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().thread_name("rim").worker_threads(or_cores(config.threads.rim));
    builder.global_queue_interval(TURNS_OF_A_THREADS_OWN);
    builder.build().context("cannot start the threads that serve sockets")
}

fn or_cores(count: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if count == 0 { cores } else { count }
}

/// SIGINT and SIGTERM, which no longer end the process by themselves.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// From here on no signal is missed.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
        })
    }

    /// Resolves once for each signal.
    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A running server.
pub(crate) struct Server {
    listeners: Vec<(&'static str, Serving)>,
    mqtt: Option<MqttServing>,
    kafka: Option<millstream_kafka::Serving>,
    sampling: JoinHandle<()>,
    writing: JoinHandle<()>,
    requests: JoinHandle<()>,
    planes: Arc<Planes>,
    /// Held as long as the planes.
    set_aside: Vec<Grant>,
    shutdown_timeout: Duration,
}

/// What keeps state behind the listeners.
struct Planes {
    log: Arc<Embedded>,
    checkpoints: Arc<Checkpoints>,
    connect: Connect,
    context: Context,
    history: History,
    query: Arc<Engine>,
    deliveries: Arc<Deliveries>,
    streams: Arc<Streams>,
    quotas: Arc<Quotas>,
}

impl Server {
    /// Opens the data directory, rebuilds all state and starts to listen; ready for requests when it returns.
    pub(crate) async fn start(config: &Config) -> anyhow::Result<Self> {
        let clock = Arc::new(SystemClock::default());
        let metrics = Metrics::default();
        let (memory, set_aside) = config.memory_budget()?;
        show(&memory, &metrics);
        let (opened, counted, drawn) = (config.clone(), metrics.clone(), memory.clone());
        let planes = tokio::task::spawn_blocking({
            let clock = clock.clone();
            move || Planes::open(&opened, &clock, &counted, &drawn)
        });
        let planes = Arc::new(planes.await??);
        planes.show_failures(&metrics);
        let writing = writing::start(&planes.log);
        figures::show(&planes.log, &metrics);
        let counts = Arc::clone(&planes);
        let started_at = iso_time(clock.now_ms());
        let sampler = Sampler::new(
            Arc::clone(&planes.log),
            clock.clone(),
            started_at,
            memory.clone(),
            Box::new(move || counts.counts()),
        );
        let mut listeners = Vec::new();
        if let Door::At(address) = config.listen.applications {
            let api = planes.applications_api(&sampler, &metrics)?;
            let listener = Listener::bind("applications", address, applications(config)?, config.http.clone()).await?;
            listeners.push(("applications", listener.drawing_on(&memory).serve(Arc::new(api), &metrics)));
        }
        if let Door::At(address) = config.listen.devices_http {
            let api = planes.devices_api(&metrics)?;
            let authenticator = planes.connect.device_authenticator();
            let listener = Listener::bind("devices-http", address, authenticator, config.http.clone()).await?;
            listeners.push(("devices-http", listener.drawing_on(&memory).serve(Arc::new(api), &metrics)));
        }
        let mqtt = match config.listen.devices_mqtt {
            Door::Off => None,
            Door::At(address) => Some(planes.connect.listen_mqtt(address, &memory).await?),
        };
        let kafka = match config.listen.kafka {
            Door::Off => None,
            Door::At(address) => {
                let logins = kafka_logins(config)?;
                let listener = millstream_kafka::Listener::bind_with(address, config.kafka.clone(), logins).await?;
                let listener = listener.drawing_on(&memory);
                Some(listener.limited_by(Arc::clone(&planes.quotas)).serve(planes.log.clone(), planes.log.epoch()))
            }
        };
        let sampling = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
            loop {
                ticks.tick().await;
                sampler.sample();
            }
        });
        planes.deliveries.resume();
        let requests = tokio::spawn(Requests::new(Arc::clone(&planes.deliveries)).run());
        let shutdown_timeout = Duration::from_millis(config.shutdown_timeout_ms);
        Ok(Self { listeners, mqtt, kafka, sampling, writing, requests, planes, set_aside, shutdown_timeout })
    }

    /// The listeners, by name, with their real ports.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        self.listeners.iter().map(|(name, serving)| (*name, serving.address()))
    }

    /// Where clients that speak Kafka's protocol connect, unless that listener is off.
    pub(crate) fn kafka_address(&self) -> Option<SocketAddr> {
        self.kafka.as_ref().map(millstream_kafka::Serving::address)
    }

    /// The listener of devices over MQTT, if there is one.
    pub(crate) fn mqtt_address(&self) -> Option<SocketAddr> {
        self.mqtt.as_ref().map(MqttServing::address)
    }

    /// Accepts no more, finishes what runs, writes checkpoints, syncs and closes the log.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        let Self { listeners, mqtt, kafka, sampling, writing, requests, planes, set_aside, shutdown_timeout } = self;
        let http = listeners.into_iter().map(|(_, serving)| serving.shut_down(shutdown_timeout));
        let mqtt = mqtt.into_iter().map(|serving| serving.shut_down(shutdown_timeout));
        let kafka = kafka.into_iter().map(|serving| serving.shut_down(shutdown_timeout));
        tokio::join!(
            futures_util::future::join_all(http),
            futures_util::future::join_all(mqtt),
            futures_util::future::join_all(kafka)
        );
        sampling.abort();
        requests.abort();
        let ending = Arc::clone(&planes);
        tokio::task::spawn_blocking(move || ending.query.stop()).await?;
        planes.deliveries.finish().await;
        writing.abort();
        let stopped = tokio::task::spawn_blocking(move || planes.stop()).await?;
        drop(set_aside);
        stopped
    }
}

impl Planes {
    /// Opens the log, then every plane over it. Blocks while state is rebuilt.
    fn open(
        config: &Config,
        clock: &Arc<SystemClock>,
        metrics: &Metrics,
        memory: &MemoryBudget,
    ) -> anyhow::Result<Self> {
        let log = LogConfig { dir: config.data_dir.join("log"), ..config.log.clone() };
        let log = Embedded::open(log, Arc::new(SystemFiles), clock.clone(), clock.clone())?;
        let shards =
            Shards::start(or_cores(config.threads.shards)).context("cannot start the threads that own state")?;
        let checkpoints = Checkpoints::open(&config.data_dir.join("views"))?;
        let ground = Ground {
            log: log.clone() as Arc<dyn Log>,
            checkpoints: Arc::clone(&checkpoints),
            shards,
            wall: clock.clone(),
        };
        let expressions = config.query.limits.clone();
        let connect = Connect::open(
            &ground,
            &config.connect,
            Arc::new(MappingRules(expressions.clone())),
            clock.clone(),
            metrics,
        )?;
        let mappings = Arc::new(RegistryMappings::new(connect.registry().clone(), expressions));
        let context = Context::open(&ground, config.context.clone(), mappings, clock.clone(), metrics)?;
        let base = Base {
            log: ground.log.clone(),
            dir: &config.data_dir.join("history"),
            files: Arc::new(SystemFiles),
            own: Arc::new(RegistryRules::new(connect.registry().clone())),
            clock: clock.clone(),
            wall: clock.clone(),
        };
        let history = History::open(&base, &config.history, metrics)?;
        let query = Engine::start(ground.log.clone(), config.query.clone(), memory, clock.clone(), clock.clone())?;
        let quotas = Quotas::new(config.quota.clone(), clock.clone());
        let streams = Streams::start(log.clone(), clock.clone(), memory, quotas.clone())
            .context("cannot start the threads that read streams")?;
        let query = Arc::new(query);
        let deliveries = Deliveries::new(Arc::clone(&query), Arc::clone(&quotas));
        Ok(Self { log, checkpoints, connect, context, history, query, deliveries, streams, quotas })
    }

    fn applications_api(self: &Arc<Self>, sampler: &Arc<Sampler>, metrics: &Metrics) -> anyhow::Result<Api> {
        let [registry, commands] = self.connect.application_routes();
        let schemas = Schemas::new(Arc::clone(&self.query));
        let api = Api::builder("applications", "Millstream", env!("CARGO_PKG_VERSION"))
            .with(console::routes())
            .with(registry)
            .with(commands)
            .with(self.context.routes(crate::logging::level(), crate::built::BUILD))
            .with(self.history.routes())
            .with(queries::routes(Arc::clone(&self.query), &self.deliveries, &schemas))
            .with(bullet::routes(Arc::clone(&self.query), &schemas))
            .with(schema::routes(&schemas))
            .with(streams::routes(&self.streams))
            .with(stats::routes(Arc::clone(sampler)))
            .with(health::routes(metrics, self.readiness()))
            .with_openapi(DOCUMENT_LIMITS);
        let api = match console::document() {
            Some(page) => api.with_stray_page(page),
            None => api,
        };
        Ok(api.build(metrics)?)
    }

    fn devices_api(&self, metrics: &Metrics) -> anyhow::Result<Api> {
        let mut api = Api::builder("devices-http", "Millstream for devices", env!("CARGO_PKG_VERSION"));
        for routes in self.connect.device_routes() {
            api = api.with(routes);
        }
        Ok(api.build(metrics)?)
    }

    fn readiness(self: &Arc<Self>) -> health::Readiness {
        let planes = Arc::clone(self);
        Arc::new(move || {
            planes.log.check_writing().map_err(|e| e.to_string())?;
            let of_views = planes.failures();
            let failures: Vec<String> =
                of_views.iter().map(ToString::to_string).chain(planes.history.failures()).collect();
            if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
        })
    }

    /// What has failed in the planes' views.
    fn failures(&self) -> Vec<Failure> {
        self.connect.failures().into_iter().chain(self.context.failures()).collect()
    }

    /// Shows among the counters what has failed.
    fn show_failures(self: &Arc<Self>, metrics: &Metrics) {
        let count = |of: fn(&Self) -> u64| {
            let planes = Arc::downgrade(self);
            move || planes.upgrade().map_or(0.0, |planes| of(&planes) as f64)
        };
        let log = Arc::downgrade(&self.log);
        let help = "Bytes that the disk of the log still takes; below log.disk_free_min_bytes nothing is stored.";
        let free_bytes = move || log.upgrade().map_or(0.0, |log| log.disk_free_bytes() as f64);
        metrics.gauge_fn("millstream_disk_free_bytes", help, free_bytes);
        let help = "Parts of views that have failed; /readyz names them.";
        metrics.gauge_fn("millstream_view_failures", help, count(|planes| planes.failures().len() as u64));
        let help = "Records that never reach a view: refused by an owner, or trimmed before they were read.";
        let passed_over = count(|planes| planes.connect.records_passed_over() + planes.context.records_passed_over());
        metrics.gauge_fn("millstream_view_records_passed_over", help, passed_over);
    }

    fn counts(&self) -> PlaneCounts {
        let (connect, context) = (self.connect.stats(), self.context.stats());
        PlaneCounts {
            accepted: connect.accepted,
            rejected: connect.rejected,
            accept_latency: connect.accept_latency,
            entities: context.entities,
            unmapped: context.unmapped_measurements,
            skipped_attributes: context.skipped_attributes,
            updates: context.updates + context.measurements,
            update_latency: context.update_latency,
            live_queries: self.query.live_count() as u64,
            records_seen: self.query.records_seen(),
            matched: self.query.matched(),
        }
    }

    /// The listeners have stopped before. In the reverse order of [`Planes::open`].
    fn stop(&self) -> anyhow::Result<()> {
        self.streams.stop();
        self.query.stop();
        self.context.stop();
        self.history.stop();
        self.connect.stop();
        self.checkpoints.sync()?;
        self.log.close().context("the log was not closed cleanly; the next start recovers what is durable")
    }
}

/// Shows the budget and how much of it is used among the counters.
fn show(memory: &MemoryBudget, metrics: &Metrics) {
    let (limit_bytes, memory) = (memory.limit_bytes(), memory.clone());
    let budget_help = "Bytes that queues, caches, connections, bodies and answers may hold together.";
    metrics.gauge_fn("millstream_memory_budget_bytes", budget_help, move || limit_bytes as f64);
    let used_help = "Bytes of the memory budget that are taken or set aside.";
    metrics.gauge_fn("millstream_memory_used_bytes", used_help, move || memory.used_bytes() as f64);
}

/// Who may call the applications' listener.
fn applications(config: &Config) -> anyhow::Result<Arc<dyn Authenticator>> {
    let tokens = &config.applications.tokens;
    Ok(if tokens.is_empty() { Arc::new(LoopbackApplications::default()) } else { Arc::new(ApiTokens::new(tokens)?) })
}

/// Who may log in to the listener of Kafka clients: the holders of API tokens, if there are any.
fn kafka_logins(config: &Config) -> anyhow::Result<Option<Arc<dyn Logins>>> {
    let tokens = &config.applications.tokens;
    Ok(if tokens.is_empty() { None } else { Some(Arc::new(TokenLogins(ApiTokens::new(tokens)?))) })
}

/// API tokens as names and passwords.
struct TokenLogins(ApiTokens);

impl Logins for TokenLogins {
    fn log_in(&self, name: &str, password: &str) -> Option<Arc<Principal>> {
        self.0.holder(name, password)
    }
}
