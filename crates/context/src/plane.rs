//! Opens, runs and stops the context plane.

use std::sync::Arc;
use std::time::Duration;

use millstream_http::{Metrics, Routes, Share, Workers};
use millstream_types::{MonotonicClock, PartitionId, RemoteCallers, StateTopic, TenantId, TopicName};
use millstream_view::{Follower, FollowerConfig, Place, Slots, ViewRuntime, ViewsConfig};
use parking_lot::Mutex;

use crate::Build;
use crate::ContextConfig;
use crate::ContextStats;
use crate::EntityReader;
use crate::Error;
use crate::MappingError;
use crate::entities::change_topics::ChangeTopics;
use crate::entities::measurement::Telemetry;
use crate::entities::stamps::Stamps;
use crate::entities::topic_update::UpdateTopics;
use crate::entities::view::{APPEND_MAX_BYTES, EntityView};
use crate::maintenance::Maintenance;
use crate::mapping::Mappings;
use crate::mapping::mapping_errors::{MappingErrors, SourceRecords};
use crate::orion::log_routes::{self, LogLevel};
use crate::orion::metrics_routes;
use crate::orion::statistics_routes::{self, StatisticsState};
use crate::orion::version_route;
use crate::registrations::Registrations;
use crate::requests::deprecations::Deprecations;
use crate::requests::registration_routes;
use crate::requests::routes;
use crate::requests::service::Service;
use crate::state_topic::create_state_topic;
use crate::statistics::alarms::Alarms;
use crate::statistics::observers::Observers;
use crate::statistics::request_counts::RequestCounts;
use crate::statistics::request_observer::RequestObserver;
use crate::statistics::stats::ContextCounters;
use crate::statistics::summary::Summary;
use crate::statistics::timing::Timing;
use crate::statistics::traffic::ServiceTraffic;
use crate::subscriptions::Subscriptions;

/// Measurements in one command: so many versions of the largest measured entity fit into one append.
const COMMAND_MAX_MEASUREMENTS: usize = 16;

/// Commands with records of updates that may be in flight. Each has one record, whose changes may fill an append.
const UPDATES_IN_FLIGHT_MAX: usize = 512;

/// The context plane while it runs.
pub struct Context {
    service: Arc<Service>,
    telemetry: Follower,
    updates: Follower,
    subscriptions: Arc<Subscriptions>,
    mapping_errors: Arc<MappingErrors>,
    update_errors: Arc<MappingErrors>,
    config: ContextConfig,
    summary: Option<Summary>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context({:?})", self.service.views)
    }
}

impl Context {
    /// Opens the entities in `ground` and begins to follow telemetry and updates. Notifications to private addresses must be
    /// allowed by a setting where `callers` may be on other machines.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`], [`Error::View`] or [`Error::Log`], if a part of the plane cannot start.
    pub fn open(
        ground: &ViewRuntime,
        config: ContextConfig,
        mappings: Arc<dyn Mappings>,
        clock: Arc<dyn MonotonicClock>,
        metrics: &Metrics,
        callers: RemoteCallers,
    ) -> Result<Self, Error> {
        config.validate()?;
        let counters = Arc::new(ContextCounters::new(metrics));
        let topics = Arc::new(ChangeTopics::open(ground.log.clone(), config.tenants_max, config.change_codec()?)?);
        let mapping_errors = Arc::new(MappingErrors::new(SourceRecords::Measurements));
        let update_errors = Arc::new(MappingErrors::new(SourceRecords::Updates));
        let view = EntityView {
            entity_max_bytes: config.entity_max_bytes,
            measured_entity_max_bytes: config.measured_entity_max_bytes,
            indexed_attributes_max: config.indexed_attributes_max,
            topics: topics.clone(),
            counters: counters.clone(),
            mapping_errors: mapping_errors.clone(),
            update_errors: update_errors.clone(),
        };
        let name = TopicName::internal(StateTopic::Context);
        create_state_topic(&name, config.partitions, &*ground.log)?;
        let views_config = ViewsConfig {
            partitions: config.partitions,
            append_max_bytes: APPEND_MAX_BYTES,
            dirty_max_bytes: config.dirty_max_bytes,
            inbox_max_bytes: config.inbox_max_bytes,
            inbox_setting: "context.inbox_max_bytes",
            ..ViewsConfig::default()
        };
        let views = Slots::open(Arc::new(view), &name, &views_config, ground, "nobody")?;
        views.take_all()?;
        let maintenance = Maintenance::start(views.clone(), ground.wall.clone())?;
        let telemetry = Telemetry {
            views: views.clone(),
            topics: topics.clone(),
            mappings,
            counters: counters.clone(),
            mapping_errors: mapping_errors.clone(),
            wall: ground.wall.clone(),
        };
        let follower_config = FollowerConfig {
            threads: config.telemetry_threads,
            command_max_records: COMMAND_MAX_MEASUREMENTS,
            ..FollowerConfig::default()
        };
        let telemetry = Follower::of_slots(Arc::new(telemetry), &views, &ground.log, &follower_config)?;
        let stamps = Arc::new(Stamps::new(ground.wall.clone()));
        let updates = UpdateTopics {
            views: views.clone(),
            topics: topics.clone(),
            stamps: stamps.clone(),
            counters: counters.clone(),
            update_errors: update_errors.clone(),
            wall: ground.wall.clone(),
        };
        let updates_config = FollowerConfig {
            threads: 1,
            command_max_records: 1,
            flights_max: UPDATES_IN_FLIGHT_MAX,
            ..FollowerConfig::default()
        };
        let updates = Follower::of_slots(Arc::new(updates), &views, &ground.log, &updates_config)?;
        let background = Workers::start("list", 1, config.lists_max_waiting, Share::Background)
            .map_err(|source| Error::Thread(Arc::new(source)))?;
        let traffic = Arc::new(ServiceTraffic::new(config.metrics_max));
        show_traffic(&traffic, metrics);
        let observers = Observers {
            traffic,
            timing: Arc::new(Timing::new(config.stat_timing.then(|| clock.clone()))),
            alarms: Arc::new(Alarms::new(config.notifications.relog_alarms)),
            requests: (config.log_summary_s > 0).then(Arc::default),
        };
        let every = Duration::from_secs(config.log_summary_s);
        let summary =
            observers.requests.clone().map(|requests| Summary::start(every, requests, observers.alarms.clone()));
        let summary = summary.transpose()?;
        let subscriptions = Subscriptions::open(ground, &config, callers, &observers, metrics)?;
        let registrations = Registrations::open(ground, &config, subscriptions.outgoing(), &observers, metrics)?;
        let wall = ground.wall.clone();
        let (tokens, flows) = (subscriptions.tokens.clone(), subscriptions.flows.clone());
        let (started, page_max_bytes) = (clock.now(), config.page_max_bytes);
        let service = Arc::new(Service {
            views,
            topics,
            counters,
            clock,
            wall,
            stamps,
            started,
            page_max_bytes,
            tokens,
            flows,
            background,
            maintenance,
            deprecations: Deprecations::new(config.log_deprecate),
            observers,
            registrations,
        });
        Ok(Self { service, telemetry, updates, subscriptions, mapping_errors, update_errors, config, summary })
    }

    /// The NGSI-v2 routes under `/v2`, and Orion's operator routes. `log_level` is the log level that `/admin/log`
    /// changes, `build` the content of `/version`.
    pub fn routes(&self, log_level: Arc<dyn LogLevel>, build: Build) -> Routes {
        let counts = Arc::new(RequestCounts::new(self.config.stat_counters));
        let observers = RequestObserver { observers: self.service.observers.clone(), counts: counts.clone() };
        let routes = routes::routes(&self.service, &self.config).observed(Arc::new(observers));
        let routes = self.subscriptions.routes(routes, &self.config);
        let routes = registration_routes::add(routes, &self.service.registrations, self.config.limits());
        let limits = self.config.limits();
        let routes = version_route::add(routes, &self.service, build, limits);
        let routes = metrics_routes::add(routes, &self.service.observers.traffic, limits);
        let routes = log_routes::add(routes, &self.service, log_level, limits);
        let watched = StatisticsState {
            service: self.service.clone(),
            subscriptions: self.subscriptions.clone(),
            mapping_errors: self.mapping_errors.clone(),
            update_errors: self.update_errors.clone(),
            counts,
            shows_queue: self.config.stat_notif_queue,
            counted_since: Mutex::new(self.service.started),
        };
        statistics_routes::add(routes, &Arc::new(watched), limits)
    }

    /// Reads single entities for other planes.
    pub fn entity_reader(&self) -> EntityReader {
        EntityReader { views: self.service.views.clone(), wall: self.service.wall.clone() }
    }

    /// Returns the statistics as of now.
    pub fn stats(&self) -> ContextStats {
        let views = &self.service.views;
        let here = (0..views.partitions()).filter_map(|number| views.snapshot(PartitionId(number)).ok());
        self.service.counters.stats(here.map(|snapshot| snapshot.state.count()).sum())
    }

    /// The place of the entities of a partition of the state topic.
    ///
    /// # Panics
    /// If the topic has no such partition.
    pub fn place(&self, partition: PartitionId) -> Place {
        self.service.views.place(partition)
    }

    /// Takes the entities of a partition: see [`Slots::take`].
    ///
    /// # Errors
    /// [`Error::View`], if their state cannot be read.
    ///
    /// # Panics
    /// If the topic has no such partition.
    pub fn take(&self, partition: PartitionId) -> Result<(), Error> {
        Ok(self.service.views.take(partition)?)
    }

    /// Gives the entities of a partition away to the process at `address`: see [`Slots::give`]. Requests that need them are
    /// answered with 503 until they are back.
    ///
    /// # Panics
    /// If the topic has no such partition.
    pub fn give(&self, partition: PartitionId, address: &str) {
        self.service.views.give(partition, address);
    }

    /// The last error in the tenant's measurements since the start of the process.
    pub fn mapping_error(&self, tenant: &TenantId) -> Option<MappingError> {
        self.mapping_errors.last(tenant)
    }

    /// The last error of each of the tenant's devices since the start of the process, the newest first; of at most 1,000.
    pub fn mapping_errors_by_device(&self, tenant: &TenantId) -> Vec<MappingError> {
        self.mapping_errors.by_device(tenant)
    }

    /// The last error in a device's measurements since the start of the process, unless many others have erred since.
    pub fn mapping_error_of_device(&self, tenant: &TenantId, device: &str) -> Option<MappingError> {
        self.mapping_errors.of_device(tenant, device)
    }

    /// The last refused update from a record of `context_update.<tenant>` since the start of the process.
    pub fn update_error(&self, tenant: &TenantId) -> Option<MappingError> {
        self.update_errors.last(tenant)
    }

    /// Permanent failures of entities: telemetry or updates that are not followed any further, records that were
    /// not applied, owners that ended.
    pub fn failures(&self) -> Vec<millstream_view::Failure> {
        let of_receivers = self.subscriptions.failures().into_iter().chain(self.service.registrations.failures());
        self.service.views.failures().into_iter().chain(of_receivers).collect()
    }

    /// Records of telemetry and updates that never reach an entity: refused by an owner, or trimmed before they were read.
    pub fn records_passed_over(&self) -> u64 {
        self.service.views.records_passed_over() + self.subscriptions.records_passed_over()
    }

    /// Stops telemetry and updates from topics, refuses further updates, answers the accepted ones and writes the checkpoint.
    /// Notifications that are being sent have `drain` to be answered.
    pub fn stop(&self, drain: Duration) {
        self.service.background.stop();
        self.summary.iter().for_each(Summary::stop);
        self.service.maintenance.stop();
        self.telemetry.stop();
        self.updates.stop();
        self.service.views.stop();
        self.service.registrations.stop();
        self.subscriptions.stop(drain);
    }
}

/// Exports the counts of `/admin/metrics` as a metric by tenant.
fn show_traffic(traffic: &Arc<ServiceTraffic>, metrics: &Metrics) {
    let of = traffic.clone();
    let help = "What /admin/metrics counts, by tenant.";
    metrics.gauges_fn("millstream_context_traffic", help, &["tenant", "metric"], move || of.by_service());
}
