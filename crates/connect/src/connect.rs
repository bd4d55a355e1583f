//! The plane as `server` runs it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_http::{Authenticator, Metrics, Routes, Share, Workers};
use millstream_types::{LatencyCounts, MemoryBudget, MonotonicClock};
use millstream_view::Ground;

use crate::commands::Commands;
use crate::connections::{Connections, Gauges};
use crate::http::{self, HttpAdapter};
use crate::login::Logins;
use crate::management::Management;
use crate::meter::{Meters, Totals};
use crate::mqtt::{self, Guests, Kept, MqttAdapter, MqttParts};
use crate::password::PasswordHashing;
use crate::presence::Presence;
use crate::registry::{ExtRules, Registry};
use crate::streams::Streams;
use crate::usage::Ledger;
use crate::verified::VerifiedLogins;
use crate::{ConnectConfig, Error, MqttServing};

/// Registry and adapters, open.
pub struct Connect {
    registry: Registry,
    management: Management,
    logins: Logins,
    ledger: Arc<Ledger>,
    adapter: Arc<HttpAdapter>,
    mqtt: MqttParts,
    pub(crate) commands: Arc<Commands>,
}

/// What the plane holds at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectStats {
    /// Messages that were accepted since the start of the process.
    pub accepted: u64,
    /// Messages that were refused, for any reason, after their sender had logged in.
    pub rejected: u64,
    /// How long accepted messages took, from their arrival to their answer.
    pub accept_latency: LatencyCounts,
    /// Tenants that are registered.
    pub tenants: usize,
    /// Devices that are registered, of all tenants.
    pub devices: usize,
    /// Logins that wait for their password to be checked.
    pub logins_waiting: usize,
    /// Logins that are remembered as right.
    pub logins_cached: usize,
}

impl std::fmt::Debug for Connect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connect({:?})", self.registry)
    }
}

impl Connect {
    /// Opens the registry, whose documents keep `ext_rules`, and starts the threads that work on passwords. Blocks: call it from a plain thread.
    ///
    /// # Errors
    /// [`Error::Registry`], [`Error::InvalidSetting`], [`Error::Thread`].
    ///
    /// # Panics
    /// When called on an async thread.
    pub fn open(
        ground: &Ground,
        config: &ConnectConfig,
        ext_rules: Arc<dyn ExtRules>,
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
        let registry = Registry::open(ground, config).map_err(Error::Registry)?;
        let meters = Arc::new(Meters::new(metrics, http::ADAPTER));
        let ledger = Ledger::open(ground, config, &registry, metrics)?;
        let (log, partitions) = (ground.log.clone(), config.topic_partitions);
        let streams = Arc::new(Streams::new(log, partitions, meters.clone(), ledger.clone()));
        for tenant in registry.tenants() {
            if let Err(error) = streams.resolve(&tenant) {
                // The tenant's first message tries again, and tells its sender if it fails again.
                tracing::warn!(%tenant, %error, "the topics of a tenant cannot be opened");
            }
        }
        let commands = Arc::new(Commands::open(ground, &config.commands, &registry, &streams, metrics)?);
        let presence = Presence::open(ground, config, &streams, mqtt::ADAPTER)?;
        let verified = VerifiedLogins::new(config.logins_cached_max);
        let is_required = config.http.authentication_required;
        let attempts = Logins::attempts(metrics);
        let logins = Logins::new(registry.clone(), verified, checkers, ground.wall.clone(), is_required, attempts);
        let totals = Arc::new(Totals::default());
        let adapter = Arc::new(HttpAdapter {
            registry: registry.clone(),
            streams: streams.clone(),
            commands: commands.clone(),
            meters,
            totals: totals.clone(),
            wall: ground.wall.clone(),
            monotonic: monotonic.clone(),
            origins: http::origins(&config.http)?,
            config: config.http.clone(),
        });
        let counted = registry.clone();
        metrics.gauge_fn("hono_tenants_total", "Tenants that are registered.", move || counted.counts().0 as f64);
        let connections = Arc::new(Connections {
            adapter: mqtt::ADAPTER,
            registry: registry.clone(),
            wall: ground.wall.clone(),
            monotonic: monotonic.clone(),
            is_told: config.connection_events,
            attempts: Connections::attempts(metrics, mqtt::ADAPTER),
            gauges: Gauges::new(metrics, mqtt::ADAPTER),
        });
        let mqtt = MqttParts {
            connections,
            registry: registry.clone(),
            logins: logins.clone(),
            streams: streams.clone(),
            commands: commands.clone(),
            presence,
            meters: Arc::new(Meters::new(metrics, mqtt::ADAPTER)),
            totals,
            wall: ground.wall.clone(),
            monotonic,
            config: config.mqtt.clone(),
            log: ground.log.clone(),
            counts: Arc::new(mqtt::Counts::new(metrics)),
            guests: Guests::default(),
            kept: Kept::open(ground, &config.mqtt.broker).map_err(Error::Registry)?,
        };
        let management = Management::new(registry.clone(), ext_rules, streams, config, hashing, [hashers, searchers]);
        Ok(Self { registry, management, logins, ledger, adapter, mqtt, commands })
    }

    /// What is registered.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The registry's management API and the sending of commands, for the listener of applications.
    pub fn application_routes(&self) -> [Routes; 2] {
        [self.management.routes(), self.commands.routes()]
    }

    /// The routes of the HTTP adapter and of MQTT over WebSocket, for the listener of devices.
    pub fn device_routes(&self) -> [Routes; 4] {
        let [telemetry, events, replies] = http::routes(&self.adapter);
        let mqtt = mqtt::routes(&self.mqtt.guests, self.mqtt.config.packet_max_bytes, self.adapter.limits());
        [telemetry, events, replies, mqtt]
    }

    /// Judges who calls at the listener of devices.
    pub fn device_authenticator(&self) -> Arc<dyn Authenticator> {
        Arc::new(self.logins.clone())
    }

    /// Listens for devices over MQTT on `address`; port 0 takes any free port. What arrives in part draws on `memory`.
    ///
    /// # Errors
    /// [`Error::Bind`] if the system refuses.
    pub async fn listen_mqtt(&self, address: SocketAddr, memory: &MemoryBudget) -> Result<MqttServing, Error> {
        MqttServing::start(address, MqttAdapter::new(self.mqtt.clone(), memory)).await
    }

    /// What the plane holds now.
    pub fn stats(&self) -> ConnectStats {
        let (tenants, devices) = self.registry.counts();
        let totals = &self.adapter.totals;
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

    /// What of the registry, of sessions, retained messages, notes of usage and commands has failed and does not come
    /// right by itself.
    pub fn failures(&self) -> Vec<millstream_view::Failure> {
        let states = [self.registry.failures(), self.mqtt.kept.failures(), self.ledger.failures()];
        [states.concat(), self.commands.failures(), self.mqtt.presence.failures()].concat()
    }

    /// Records of commands that were never taken: refused by an owner, or trimmed before they were read.
    pub fn records_passed_over(&self) -> u64 {
        self.commands.records_passed_over()
    }

    /// Ends the threads, answers what was taken and writes the registry's checkpoint. The listeners have stopped before.
    pub fn stop(&self) {
        self.management.stop();
        self.commands.stop();
        self.mqtt.presence.stop();
        self.logins.stop();
        self.ledger.stop();
        self.registry.stop();
        self.mqtt.kept.stop();
    }
}

fn hashing(config: &ConnectConfig) -> Result<PasswordHashing, Error> {
    PasswordHashing::new(config.hashing_memory_kib, config.hashing_passes).ok_or_else(|| Error::InvalidSetting {
        setting: "connect.hashing_memory_kib",
        value: format!("{} with connect.hashing_passes = {}", config.hashing_memory_kib, config.hashing_passes),
        rule: "argon2 wants at least 8 KiB and one pass",
    })
}
