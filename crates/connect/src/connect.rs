//! The device plane, as `server` opens, serves and stops it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_http::{Authenticator, Metrics, Routes, Serving, Share, Workers};
use millstream_net::{ClientTrust, Endpoints, LoginThrottle, Logins};
use millstream_types::{LatencyCounts, MemoryBudget, MonotonicClock, RemoteCallers};
use millstream_view::ViewRuntime;

use crate::adapter::{HTTP_ADAPTER, LORA_ADAPTER};
use crate::amqp::{self, AmqpAdapter, AmqpParts, StreamQueues};
use crate::commands::Commands;
use crate::connection_table::ConnectionTable;
use crate::connections::{Attempts, Connections, Gauges, LiveDevices};
use crate::cors::origins;
use crate::credential_cache::CredentialCache;
use crate::http::{self, HttpAdapter};
use crate::ingest::Ingest;
use crate::last_seen::LastSeen;
use crate::login::{DeviceLogins, DeviceLoginsParts};
use crate::lora::{self, LoraAdapter};
use crate::management::{Management, ManagementParts};
use crate::metrics::{AdapterMetrics, Totals};
use crate::mqtt::{self, Guests, MqttAdapter, MqttParts, SessionStore};
use crate::password::PasswordHashing;
use crate::presence::Presence;
use crate::provisioning::Provisioning;
use crate::registry::{ExtRules, Registry};
use crate::streams::Streams;
use crate::uplink::{Patience, Uplink};
use crate::usage::Ledger;
use crate::{ConnectConfig, Error};

/// The device registry and the HTTP, LoRaWAN and MQTT adapters of a running process.
pub struct Connect {
    registry: Registry,
    management: Management,
    logins: DeviceLogins,
    ledger: Arc<Ledger>,
    last_seen: Arc<LastSeen>,
    adapter: Arc<HttpAdapter>,
    lora: Arc<LoraAdapter>,
    mqtt: MqttParts,
    mqtt_guests: Guests,
    amqp: AmqpParts,
    provisioning: Arc<Provisioning>,
    pub(crate) commands: Arc<Commands>,
}

/// Current figures of the plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectStats {
    /// Messages that were accepted since the start of the process.
    pub accepted: u64,
    /// Messages of logged-in senders that were refused for any reason.
    pub rejected: u64,
    /// Latency of accepted messages, from arrival to answer.
    pub accept_latency: LatencyCounts,
    /// Number of tenants in the registry.
    pub tenants: usize,
    /// Devices that are registered, of all tenants.
    pub devices: usize,
    /// Logins that wait for their password to be checked.
    pub logins_waiting: usize,
    /// Number of logins in the cache.
    pub logins_cached: usize,
}

impl std::fmt::Debug for Connect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connect({:?})", self.registry)
    }
}

impl Connect {
    /// The topics that the plane builds anew if a start of the log has set them aside.
    pub fn derived_topics() -> Vec<millstream_log::DerivedTopic> {
        vec![crate::usage::derived_topic()]
    }

    /// Opens the registry and starts the threads that hash passwords. The registry's documents obey `ext_rules`.
    /// `throttle` counts failed logins. This function blocks: call it from a plain thread.
    ///
    /// # Errors
    /// Returns [`Error::Registry`] or the like if a part cannot be opened, and [`Error::InvalidSetting`] or
    /// [`Error::Thread`] if a setting is invalid or a thread cannot be started.
    ///
    /// # Panics
    /// When called on an async thread.
    pub fn open(
        ground: &ViewRuntime,
        config: &ConnectConfig,
        ext_rules: Arc<dyn ExtRules>,
        throttle: Arc<LoginThrottle>,
        monotonic: Arc<dyn MonotonicClock>,
        metrics: &Metrics,
    ) -> Result<Self, Error> {
        config.validate()?;
        let hashing = hashing(config)?;
        let thread = |source| Error::Thread(Arc::new(source));
        let hashers = Workers::start("hashing", 1, config.hashing_max_waiting, Share::Equal).map_err(thread)?;
        let checkers =
            Workers::start("login", config.logins_threads, config.logins_max_waiting, Share::Equal).map_err(thread)?;
        let searchers = Workers::start("search", 1, config.searches_max_waiting, Share::Background).map_err(thread)?;
        let registry = Registry::open(ground, config.registry_views()).map_err(Error::Registry)?;
        let meters = Arc::new(AdapterMetrics::new(metrics, HTTP_ADAPTER));
        let ledger = Ledger::open(ground, &config.notes_views(), &registry, metrics)?;
        let last_seen = LastSeen::open(ground, &config.notes_views(), &registry)?;
        let (log, partitions) = (ground.log.clone(), config.topic_partitions);
        let streams = Arc::new(Streams::new(log, partitions, meters.clone(), ledger.clone(), last_seen.clone()));
        for tenant in registry.tenants() {
            if let Err(error) = streams.resolve(&tenant) {
                // The tenant's first message tries again, and tells its sender if it fails again.
                tracing::warn!(%tenant, %error, "the topics of a tenant cannot be opened");
            }
        }
        let commands = Arc::new(Commands::open(ground, &config.commands, &registry, &streams, metrics)?);
        let presence = Presence::open(ground, &config.presence_views(), &streams, mqtt::ADAPTER)?;
        let credential_cache = CredentialCache::new(config.logins_cached_max);
        let is_required = config.http.authentication_required;
        let wall = ground.wall.clone();
        let provisioning = Provisioning::new(registry.clone(), streams.clone(), wall.clone());
        let logins = DeviceLoginsParts {
            registry: registry.clone(),
            credential_cache,
            workers: checkers,
            wall,
            is_required,
            provisioning: provisioning.clone(),
            throttle: throttle.clone(),
        };
        let logins = DeviceLogins::new(logins, metrics);
        let totals = Arc::new(Totals::default());
        let uplink = |ingest, meters, timeout_ms, setting| Uplink {
            ingest: Arc::new(ingest),
            streams: streams.clone(),
            commands: commands.clone(),
            provisioning: provisioning.clone(),
            meters,
            wall: ground.wall.clone(),
            monotonic: monotonic.clone(),
            patience: Patience { limit: Duration::from_millis(timeout_ms), setting },
        };
        let ingest = |adapter, ttd_max_s| Ingest {
            adapter,
            registry: registry.clone(),
            commands: commands.clone(),
            totals: totals.clone(),
            ttd_max_s,
        };
        let ingest_http = ingest(HTTP_ADAPTER, config.http.ttd_max_s);
        let adapter = Arc::new(HttpAdapter {
            uplink: uplink(ingest_http, meters, config.http.send_timeout_ms, "connect.http.send_timeout_ms"),
            origins: origins("connect.http.cors_allowed_origin", &config.http.cors_allowed_origin)?,
            config: config.http.clone(),
        });
        let meters_lora = Arc::new(AdapterMetrics::new(metrics, LORA_ADAPTER));
        let uplink_lora =
            uplink(ingest(LORA_ADAPTER, 0), meters_lora, config.http.send_timeout_ms, "connect.http.send_timeout_ms");
        let timeout = Duration::from_millis(config.http.request_timeout_ms);
        let lora = Arc::new(LoraAdapter::new(uplink_lora, config.lora.clone(), timeout, metrics));
        let counted = registry.clone();
        metrics.gauge_fn("hono_tenants_total", "Tenants that are registered.", move || counted.counts().0 as f64);
        let connections = Arc::new(Connections {
            adapter: mqtt::ADAPTER,
            registry: registry.clone(),
            wall: ground.wall.clone(),
            monotonic: monotonic.clone(),
            is_told: config.connection_events,
            attempts: Attempts::new(metrics, mqtt::ADAPTER),
            gauges: Gauges::new(metrics, mqtt::ADAPTER),
            live: LiveDevices::default(),
        });
        let connection_table = ConnectionTable::new(ground.wall.clone());
        let management = Management::new(ManagementParts {
            registry: registry.clone(),
            ext_rules,
            streams: streams.clone(),
            connections: connections.clone(),
            connection_table: connection_table.clone(),
            config: config.clone(),
            hashing,
            hashers,
            background: searchers,
        });
        let mqtt = MqttParts {
            connections,
            connection_table: connection_table.clone(),
            registry: registry.clone(),
            logins: logins.clone(),
            uplink: Arc::new(uplink(
                ingest(mqtt::ADAPTER, 0),
                Arc::new(AdapterMetrics::new(metrics, mqtt::ADAPTER)),
                config.mqtt.send_timeout_ms,
                "connect.mqtt.send_timeout_ms",
            )),
            presence,
            config: config.mqtt.clone(),
            log: ground.log.clone(),
            store: SessionStore::open(ground, &config.mqtt.broker).map_err(Error::Registry)?,
        };
        let mqtt_guests = Guests::default();
        let amqp = AmqpParts {
            registry: registry.clone(),
            streams: streams.clone(),
            throttle,
            wall: ground.wall.clone(),
            queues: StreamQueues::open(ground, &config.notes_views(), &registry)?,
            commands: commands.clone(),
            payload_max_bytes: config.commands.payload_max_bytes,
            config: config.amqp.clone(),
            connection_table,
        };
        Ok(Self {
            registry,
            management,
            logins,
            ledger,
            last_seen,
            adapter,
            lora,
            mqtt,
            mqtt_guests,
            amqp,
            provisioning,
            commands,
        })
    }

    /// Lets LoRaWAN network servers have commands for their devices. The requests take their bytes from `memory`; the hosts that may be
    /// reached depend on `callers`, unless the operator has named them.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] names the setting, its value and the rule.
    pub fn open_downlinks(&self, callers: RemoteCallers, memory: &MemoryBudget) -> Result<(), Error> {
        self.lora.open_downlinks(callers, memory)
    }

    /// Returns the registry of tenants, devices and credentials.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The registry's management API, connected clients and the sending of commands, for the listener of applications.
    pub fn application_routes(&self) -> [Routes; 3] {
        let [registry, connections] = self.management.routes();
        [registry, connections, self.commands.routes()]
    }

    /// The routes of the HTTP adapter, of LoRaWAN network servers and of MQTT over WebSocket, for the listener of devices.
    pub fn device_routes(&self) -> [Routes; 5] {
        let [telemetry, events, replies] = http::routes(&self.adapter);
        let mqtt = mqtt::routes(&self.mqtt_guests, self.adapter.limits());
        [telemetry, events, replies, lora::routes(&self.lora), mqtt]
    }

    /// Authenticates the callers of the device listener.
    pub fn device_authenticator(&self) -> Arc<dyn Authenticator> {
        Arc::new(self.logins.clone())
    }

    /// The authorities of the tenants' devices, for the handshakes of the devices' listeners with TLS.
    pub fn device_trust(&self) -> Arc<dyn ClientTrust> {
        Arc::new(self.logins.clone())
    }

    /// Tells applications of devices that registered themselves and that they have not been told of, from the last process
    /// or because it failed. Await it beside the rest; it does not end.
    pub fn keep_telling_of_devices(&self) -> impl Future<Output = ()> + Send + 'static {
        Arc::clone(&self.provisioning).keep_telling()
    }

    #[cfg(test)]
    pub(crate) fn provisioning(&self) -> Arc<Provisioning> {
        Arc::clone(&self.provisioning)
    }

    /// Listens for devices over MQTT; port 0 takes any free port.
    /// Incomplete packets and connections with TLS take their bytes from `memory`.
    ///
    /// # Errors
    /// [`Error::Bind`] if the system refuses.
    ///
    /// # Panics
    /// Outside of an async runtime, and if another MQTT listener counts into the same metrics.
    pub fn listen_mqtt(
        &self,
        endpoints: Endpoints,
        memory: &MemoryBudget,
        metrics: &Metrics,
    ) -> Result<Serving, Error> {
        let adapter = MqttAdapter::new(self.mqtt.clone(), memory, metrics);
        mqtt::listen(endpoints, adapter, &self.mqtt_guests, memory, metrics)
    }

    /// Listens for applications over AMQP 1.0, which `logins` admits; port 0 takes any free port. Frames in part and connections take
    /// their bytes from `memory`.
    ///
    /// # Errors
    /// [`Error::OpenToTheNetwork`] if an address is not loopback and nobody has to log in; [`Error::Bind`] if the system refuses.
    ///
    /// # Panics
    /// Outside of an async runtime, and if another AMQP listener counts into the same metrics.
    pub fn listen_amqp(
        &self,
        endpoints: Endpoints,
        logins: Arc<dyn Logins>,
        memory: &MemoryBudget,
        metrics: &Metrics,
    ) -> Result<Serving, Error> {
        amqp::listen(endpoints, AmqpAdapter::new(self.amqp.clone(), logins, memory), memory, metrics)
    }

    /// Current figures of the plane.
    pub fn stats(&self) -> ConnectStats {
        let (tenants, devices) = self.registry.counts();
        let totals = &self.adapter.uplink.ingest.totals;
        ConnectStats {
            accepted: totals.accept_latency.counts().total(),
            rejected: totals.rejected.load(Ordering::Relaxed),
            accept_latency: totals.accept_latency.counts(),
            tenants,
            devices,
            logins_waiting: self.logins.waiting(),
            logins_cached: self.logins.cached(),
        }
    }

    /// Permanent failures of the registry, sessions, retained messages, event queues, notes and commands.
    pub fn failures(&self) -> Vec<millstream_view::Failure> {
        let states = [self.registry.failures(), self.mqtt.store.failures(), self.ledger.failures()];
        let others = [self.last_seen.failures(), self.amqp.queues.failures(), self.mqtt.presence.failures()];
        [states.concat(), others.concat(), self.commands.failures()].concat()
    }

    /// Number of command records that were skipped: refused by an owner, or trimmed before they were read.
    pub fn records_passed_over(&self) -> u64 {
        self.commands.records_passed_over()
    }

    /// Ends the threads, answers open requests and writes the registry's checkpoint. Stop the listeners first.
    pub fn stop(&self) {
        self.management.stop();
        self.lora.stop();
        self.commands.stop();
        self.mqtt.presence.stop();
        self.logins.stop();
        self.ledger.stop();
        self.last_seen.stop();
        self.amqp.queues.stop();
        self.registry.stop();
        self.mqtt.store.stop();
    }
}

fn hashing(config: &ConnectConfig) -> Result<PasswordHashing, Error> {
    PasswordHashing::new(config.hashing_memory_kib, config.hashing_passes).ok_or_else(|| Error::InvalidSetting {
        setting: "connect.hashing_memory_kib",
        value: format!("{} with connect.hashing_passes = {}", config.hashing_memory_kib, config.hashing_passes),
        rule: "argon2 wants at least 8 KiB and one pass",
    })
}
