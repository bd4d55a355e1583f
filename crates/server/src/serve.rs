//! The server: opens everything in order, serves until told to stop, closes everything in the reverse order.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use millstream_http::{Authenticator, Listener, Metrics, Serving};
use millstream_log::{LogEngine, LogFigures};
use millstream_net::BoundAddresses;
use millstream_net::LoginThrottle;
use millstream_net::Logins;
use millstream_query::Requests;
use millstream_store::RiftAccess;
use millstream_types::{Grant, SystemClock, WallClock, iso_time};
use sd_notify::NotifyState;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::audit::Audit;
use crate::config::Config;
use crate::drain::Drain;
use crate::kept_log::{ClaimedLog, LogStart};
use crate::listen::ListenerEndpoints;
use crate::lives::SETTLED_AFTER;
use crate::oidc::OidcProvider;
use crate::planes::{Planes, or_cores};
use crate::stats::{SAMPLE_INTERVAL, Sampler};
use crate::{audit, figures, jobs, logging, logins, process_metrics, redis, waiting, writing};

/// Tasks that an I/O thread runs from its own queue before it takes one from the queue that all threads share. Its own
/// queue holds 256 tasks; further ones go to the shared queue. Tokio's default runs tasks of the own queue ten times as
/// often: of 500 busy connections one half waits 4 ms for each answer and the other 60 ms.
const GLOBAL_QUEUE_INTERVAL: u32 = 2;
/// Time that the last events of the audit trail have at the end.
const AUDIT_PATIENCE: Duration = Duration::from_secs(5);

/// `millstream serve`.
pub(crate) fn run(config: &Config) -> anyhow::Result<()> {
    logging::start(&config.logging)?;
    keep_files_private();
    raise_open_files(config);
    let runtime = runtime(config)?;
    // Before the addresses are printed: a program that reads them may stop the server at once.
    let mut stop = runtime.block_on(async { StopSignals::listen() })?;
    // A process that stands by is told to stop while it waits. One that has claimed to work, and reads its state, lets the next one in.
    let stands_by = config.log.engine == LogEngine::Kafka;
    if stands_by {
        tell_service_manager(NotifyState::Ready);
    }
    let claimed = ClaimedLog::default();
    let started = runtime.block_on(async {
        tokio::select! {
            started = Server::start(config, &claimed) => Some(started),
            () = stop.received(), if stands_by => None,
        }
    });
    let Some(server) = started.transpose()? else {
        claimed.give_up();
        runtime.shutdown_background();
        return Ok(());
    };
    announce(&server);
    tell_service_manager(NotifyState::Ready);
    let successor = runtime.block_on(async {
        tokio::select! {
            successor = server.planes.log.taken_over() => Some(successor),
            () = stop.received() => None,
        }
    });
    if let Some(successor) = successor {
        // Nothing that it holds may be written any more.
        runtime.shutdown_background();
        bail!("{successor} has taken over the log; this process ends, and stands by if it is started again");
    }
    tracing::info!("stopping");
    tell_service_manager(NotifyState::Stopping);
    let stopped = runtime.block_on(server.stop());
    // Dropping it would wait for reads whose clients have been cut off.
    runtime.shutdown_background();
    stopped
}

/// Lets only the user of this process read and write the files that it creates (0600, directories 0700).
pub(crate) fn keep_files_private() {
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o077));
}

/// Raises the limit of open files, which most processes start with at 1,024: each connection needs one.
fn raise_open_files(config: &Config) {
    let listeners = [
        2 * config.http.connections_max,
        config.connect.mqtt.connections_max,
        config.kafka.connections_max,
        config.store.redis.connections_max,
    ];
    // A quarter more may be about to log in.
    let connections_max = listeners.iter().sum::<usize>() / 4 * 5;
    let room = millstream_net::raise_open_files();
    if room < connections_max as u64 {
        tracing::info!(
            room,
            connections_max,
            "fewer connections fit the limit of open files than are allowed; raise it (ulimit -n)"
        );
    }
}

/// Prints the addresses of the listeners in one write, because a reader may close its end after the first lines.
fn announce(server: &Server) {
    let lines: Vec<_> = server.addresses().iter().map(|listener| listener.lines()).collect();
    let mut output = std::io::stdout().lock();
    let said = output.write_all(lines.concat().as_bytes()).and_then(|()| output.flush());
    if let Err(error) = said {
        tracing::warn!(%error, "cannot say on standard output where the server listens");
    }
}

/// Tells systemd, if it has started this process as `Type=notify` (sd_notify(3)).
fn tell_service_manager(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot tell the service manager how far the server is");
    }
}

/// Starts the threads that serve sockets.
pub(crate) fn runtime(config: &Config) -> anyhow::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().thread_name("io").worker_threads(or_cores(config.threads.io));
    builder.global_queue_interval(GLOBAL_QUEUE_INTERVAL);
    builder.build().context("cannot start the threads that serve sockets")
}

/// Receives SIGINT and SIGTERM in place of the system's default, which ends the process.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Starts to listen; signals from now on are kept until they are received.
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

/// A listener and its addresses.
pub(crate) struct ListeningAt {
    pub(crate) name: &'static str,
    /// The beginning of a URL, without and with TLS.
    schemes: [&'static str; 2],
    pub(crate) addresses: BoundAddresses,
}

impl ListeningAt {
    /// A line for each address.
    fn lines(&self) -> String {
        let Self { name, schemes: [plain, tls], addresses } = self;
        let plain = addresses.plain.map(|address| format!("listening {name} {plain}{address}\n"));
        let tls = addresses.tls.map(|address| format!("listening {name}-tls {tls}{address}\n"));
        plain.into_iter().chain(tls).collect()
    }
}

pub(crate) struct Server {
    listeners: Vec<(&'static str, Serving)>,
    mqtt: Option<Serving>,
    kafka: Option<millstream_kafka::Serving>,
    redis: Option<millstream_net::Serving>,
    amqp: Option<millstream_net::Serving>,
    sampling: JoinHandle<()>,
    /// Writes the journal of the built-in log.
    writing: Option<JoinHandle<()>>,
    auditing: (Arc<Audit>, JoinHandle<()>),
    requests: JoinHandle<()>,
    expiry: JoinHandle<()>,
    /// Tells applications of devices that registered themselves.
    telling: JoinHandle<()>,
    /// Asks the identity provider for its keys.
    asking: Option<JoinHandle<()>>,
    /// Watches the files of TLS.
    certificates: Option<JoinHandle<()>>,
    /// Notes that this life is no short one.
    settling: JoinHandle<()>,
    planes: Arc<Planes>,
    /// The reserved parts of the memory budget, released after the planes have stopped.
    set_aside: Vec<Grant>,
    shutdown_timeout: Duration,
}

impl Server {
    /// Opens the data directory, rebuilds all state and starts to listen. The server takes requests when this returns.
    /// `claimed` has its log before it takes anything.
    pub(crate) async fn start(config: &Config, claimed: &ClaimedLog) -> anyhow::Result<Self> {
        let clock = Arc::new(SystemClock::default());
        let metrics = Metrics::default();
        // First of all: files that cannot be used are told of before anything is opened.
        let endpoints = ListenerEndpoints::of(&config.listen, &config.tls, &clock, &metrics)?;
        let oidc = OidcProvider::open(&config.oidc, clock.clone())?;
        let (memory, set_aside) = config.memory_budget()?;
        process_metrics::show(clock.now_ms() as f64 / 1_000.0, &memory, &metrics);
        let throttle = Arc::new(LoginThrottle::new(config.listen.login_failures_per_minute, clock.clone()));
        logins::show(&throttle, &endpoints, &metrics);
        let (opened, counted, drawn) = (config.clone(), metrics.clone(), memory.clone());
        let (waits, why) = watch::channel(None);
        let start = LogStart { waits, claimed: claimed.clone() };
        let planes = tokio::task::spawn_blocking({
            let (clock, throttle) = (clock.clone(), throttle.clone());
            move || Planes::open(&opened, &clock, throttle, oidc, &counted, &drawn, start)
        });
        let planes = Arc::new(waiting::until_open(planes, why, config, &endpoints).await?);
        if let Some(tls) = &endpoints.tls {
            tls.set_client_trust(planes.connect.device_trust());
        }
        let asking = planes.oidc.clone().map(|provider| tokio::spawn(provider.run()));
        let telling = tokio::spawn(planes.connect.keep_telling_of_devices());
        planes.show_failures(&metrics);
        let writing = planes.log.embedded().map(writing::start);
        let log: Arc<dyn LogFigures> = planes.log.figures();
        let (audit, auditing) = Audit::start(log.clone(), &clock)?;
        audit::show(&audit, &metrics);
        figures::show(&log, &metrics);
        if planes.log.embedded().is_some() {
            figures::show_segments(&log, &metrics);
        }
        figures::show_queries(&planes.query, &metrics);
        millstream_store::show_metrics(&planes.store, &metrics);
        jobs::show_metrics(&planes.jobs, &metrics);
        let started_at = iso_time(clock.now_ms());
        let sampler = Sampler::new(log, clock.clone(), started_at, memory.clone(), planes.clone());
        let mut listeners = Vec::new();
        if !endpoints.applications.is_empty() {
            let api = planes.applications_api(&sampler, &memory, &metrics)?;
            let callers: Arc<dyn Authenticator> = planes.tokens.logins.clone();
            let callers: Arc<dyn Authenticator> = match config.store.rift {
                true => {
                    let callers = RiftAccess::over(callers, Arc::clone(&planes.store));
                    Arc::new(callers.throttled_by(throttle.clone()))
                }
                false => callers,
            };
            let listener = Listener::bind("applications", endpoints.applications, callers, config.http.clone()).await?;
            let listener = listener.audited_by("applications", audit.clone());
            listeners.push(("applications", listener.drawing_on(&memory).serve(Arc::new(api), &metrics)));
        }
        if !endpoints.devices_http.is_empty() {
            let api = planes.devices_api(&metrics)?;
            let authenticator = planes.connect.device_authenticator();
            let listener =
                Listener::bind("devices-http", endpoints.devices_http, authenticator, config.http.clone()).await?;
            listeners.push(("devices-http", listener.drawing_on(&memory).serve(Arc::new(api), &metrics)));
        }
        let mqtt = match endpoints.devices_mqtt {
            none if none.is_empty() => None,
            endpoints => Some(planes.connect.listen_mqtt(endpoints, &memory, &metrics)?),
        };
        let kafka = match (endpoints.kafka, planes.log.embedded()) {
            (none, _) if none.is_empty() => None,
            (_, None) => {
                tracing::info!("there is no listener for Kafka's clients: they speak to the brokers that keep the log");
                None
            }
            (endpoints, Some(log)) => {
                let logins: Arc<dyn Logins> = planes.tokens.clone();
                let listener =
                    millstream_kafka::Listener::bind_with(endpoints, config.kafka.clone(), Some(logins)).await?;
                let listener = listener.drawing_on(&memory).throttled_by(throttle.clone());
                let listener = listener.limited_by(Arc::clone(&planes.quotas)).audited_by(audit.clone());
                Some(listener.serve(log.clone(), &metrics).await)
            }
        };
        let redis = match endpoints.redis {
            none if none.is_empty() => None,
            endpoints => {
                Some(redis::listen(endpoints, config, &planes.tokens, &planes.store, &throttle, &memory, &metrics)?)
            }
        };
        let amqp = match endpoints.amqp {
            none if none.is_empty() => None,
            endpoints => Some(planes.connect.listen_amqp(endpoints, planes.tokens.clone(), &memory, &metrics)?),
        };
        let certificates = endpoints.tls.map(|tls| tokio::spawn(tls.watch()));
        let (statistics, tokens) = (Arc::clone(&planes.statistics), Arc::clone(&planes.tokens));
        let backups = Arc::clone(&planes.backups);
        let events = Arc::clone(&audit);
        let stats = Arc::clone(&sampler);
        let sampling = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
            loop {
                ticks.tick().await;
                sampler.sample();
                statistics.tick();
                tokens.logins.end_expired();
                logins::log_failures(&throttle, &events);
                let idle = backups.take_idle();
                if !idle.is_empty() {
                    // Removes the files that they held.
                    tokio::task::spawn_blocking(move || drop(idle));
                }
            }
        });
        planes.deliveries.resume();
        let requests = tokio::spawn(Requests::new(Arc::clone(&planes.deliveries)).run());
        let expiry = tokio::spawn(Arc::clone(&planes.store).remove_expired());
        let settled = Arc::clone(&planes);
        let settling = tokio::spawn(async move {
            tokio::time::sleep(SETTLED_AFTER).await;
            settled.settle();
        });
        let shutdown_timeout = Duration::from_millis(config.shutdown_timeout_ms);
        let server = Self {
            listeners,
            mqtt,
            kafka,
            redis,
            amqp,
            sampling,
            writing,
            auditing: (audit, auditing),
            requests,
            expiry,
            telling,
            asking,
            certificates,
            settling,
            planes,
            set_aside,
            shutdown_timeout,
        };
        stats.show_listeners(server.addresses().iter().map(|at| (at.name, at.addresses)));
        Ok(server)
    }

    /// All listeners, in the order in which they are told of.
    pub(crate) fn addresses(&self) -> Vec<ListeningAt> {
        let http = self.listeners.iter().map(|(name, serving)| (*name, ["http://", "https://"], serving.addresses()));
        let kafka = self.kafka.as_ref().map(|serving| ("kafka", ["", ""], serving.addresses()));
        let mqtt = self.mqtt.as_ref().map(|serving| ("devices-mqtt", ["mqtt://", "mqtts://"], serving.addresses()));
        let redis = self.redis.as_ref().map(|serving| ("redis", ["redis://", "rediss://"], serving.addresses()));
        let amqp = self.amqp.as_ref().map(|serving| ("amqp", ["amqp://", "amqps://"], serving.addresses()));
        let all = http.chain(kafka).chain(mqtt).chain(redis).chain(amqp);
        all.map(|(name, schemes, addresses)| ListeningAt { name, schemes, addresses }).collect()
    }

    /// Stops accepting, gives clients and receivers `shutdown_timeout_ms` to finish, cuts off what is left, writes checkpoints,
    /// syncs and closes the log.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        let Self {
            listeners,
            mqtt,
            kafka,
            redis,
            amqp,
            sampling,
            writing,
            auditing: (audit, auditing),
            requests,
            expiry,
            telling,
            asking,
            certificates,
            settling,
            planes,
            set_aside,
            shutdown_timeout,
        } = self;
        let drain = Drain::begin(shutdown_timeout);
        let http = listeners.into_iter().map(|(_, serving)| serving.shut_down(shutdown_timeout));
        let mqtt = mqtt.into_iter().map(|serving| serving.shut_down(shutdown_timeout));
        let kafka = kafka.into_iter().map(|serving| serving.shut_down(shutdown_timeout));
        let redis = redis.into_iter().map(|serving| serving.shut_down(shutdown_timeout));
        let amqp = amqp.into_iter().map(|serving| serving.shut_down(shutdown_timeout));
        tokio::join!(
            futures_util::future::join_all(http),
            futures_util::future::join_all(mqtt),
            futures_util::future::join_all(kafka),
            futures_util::future::join_all(redis),
            futures_util::future::join_all(amqp)
        );
        sampling.abort();
        audit.close();
        // Brokers of Kafka that are gone do not take the last events.
        if let Ok(ended) = tokio::time::timeout(AUDIT_PATIENCE, auditing).await {
            ended?;
        }
        requests.abort();
        expiry.abort();
        telling.abort();
        asking.inspect(JoinHandle::abort);
        certificates.inspect(JoinHandle::abort);
        settling.abort();
        let ending = Arc::clone(&planes);
        tokio::task::spawn_blocking(move || ending.query.stop()).await?;
        planes.deliveries.finish(drain.left()).await;
        writing.inspect(JoinHandle::abort);
        let stopped = tokio::task::spawn_blocking(move || planes.stop(drain)).await?;
        drop(set_aside);
        tracing::info!(took_ms = drain.elapsed().as_millis(), "stopped");
        stopped
    }
}
