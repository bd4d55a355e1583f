//! The context plane as a whole: opened, asked for its routes, stopped.

use std::sync::Arc;
use std::time::Duration;

use millstream_http::{Metrics, Routes, Share, Workers};
use millstream_log::{Cleanup, Log, TopicConfig, Writers};
use millstream_types::{MonotonicClock, TenantId, TopicName};
use millstream_view::{Follower, FollowerConfig, Ground, Views, ViewsConfig};
use parking_lot::Mutex;

use crate::alarms::Alarms;
use crate::change_topics::ChangeTopics;
use crate::config::RECORD_MAX_BYTES;
use crate::deprecations::Deprecations;
use crate::desk::Desk;
use crate::entities::EntityView;
use crate::log_routes::{self, LogLevel};
use crate::mapping::Mappings;
use crate::measurement::Telemetry;
use crate::metrics_routes;
use crate::request_counts::RequestCounts;
use crate::request_watch::RequestWatch;
use crate::routes;
use crate::stamps::Stamps;
use crate::statistics_routes::{self, Watched};
use crate::stats::Counters;
use crate::subscriptions::Subscriptions;
use crate::summary::Summary;
use crate::timing::Timing;
use crate::traffic::Traffic;
use crate::troubles::Troubles;
use crate::upkeep::Upkeep;
use crate::watch::Watch;
use crate::{Build, ContextConfig, ContextStats, Error, MappingTrouble, version_route};

/// The compacted topic that holds every entity's latest version.
const STATE_TOPIC: &str = "_context";
/// Room for the state and the telling of the largest entity that a client may make.
const APPEND_MAX_BYTES: usize = 4 << 20;
/// Measurements in one command: so many versions of the largest measured entity fit into one append.
const COMMAND_MAX_MEASUREMENTS: usize = 16;

/// The running context plane.
pub struct Context {
    desk: Arc<Desk>,
    follower: Follower,
    subscriptions: Arc<Subscriptions>,
    troubles: Arc<Troubles>,
    config: ContextConfig,
    summary: Option<Summary>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context({:?})", self.desk.views)
    }
}

impl Context {
    /// Opens the entities in `ground` and begins to follow telemetry.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`], [`Error::View`], [`Error::Log`].
    pub fn open(
        ground: &Ground,
        config: ContextConfig,
        mappings: Arc<dyn Mappings>,
        clock: Arc<dyn MonotonicClock>,
        metrics: &Metrics,
    ) -> Result<Self, Error> {
        config.validate()?;
        let counters = Arc::new(Counters::new(metrics));
        let topics = Arc::new(ChangeTopics::new(ground.log.clone(), config.tenants_max));
        let troubles = Arc::new(Troubles::default());
        let view = EntityView {
            entity_max_bytes: config.entity_max_bytes,
            measured_entity_max_bytes: config.measured_entity_max_bytes,
            indexed_attributes_max: config.indexed_attributes_max,
            topics: topics.clone(),
            counters: counters.clone(),
            troubles: troubles.clone(),
        };
        let name = TopicName::internal(STATE_TOPIC);
        create_state_topic(&name, config.partitions, &*ground.log)?;
        let views_config = ViewsConfig {
            partitions: config.partitions,
            append_max_bytes: APPEND_MAX_BYTES,
            dirty_max_bytes: config.dirty_max_bytes,
            inbox_max_bytes: config.inbox_max_bytes,
            inbox_setting: "context.inbox_max_bytes",
            ..ViewsConfig::default()
        };
        let views = Views::open(view, &name, &views_config, ground)?;
        let upkeep = Upkeep::start(views.clone(), ground.wall.clone())?;
        let telemetry = Telemetry {
            views: views.clone(),
            topics: topics.clone(),
            mappings,
            counters: counters.clone(),
            troubles: troubles.clone(),
            wall: ground.wall.clone(),
        };
        let follower_config = FollowerConfig {
            threads: config.telemetry_threads,
            command_max_records: COMMAND_MAX_MEASUREMENTS,
            ..FollowerConfig::default()
        };
        let follower = Follower::start(Arc::new(telemetry), &views, &ground.log, &follower_config)?;
        let background = Workers::start("list", 1, config.lists_max_waiting, Share::Background)
            .map_err(|source| Error::Thread(Arc::new(source)))?;
        let traffic = Arc::new(Traffic::new(config.metrics_max));
        show_traffic(&traffic, metrics);
        let watch = Watch {
            traffic,
            timing: Arc::new(Timing::new(config.stat_timing.then(|| clock.clone()))),
            alarms: Arc::new(Alarms::new(config.notifications.relog_alarms)),
            requests: (config.log_summary_s > 0).then(Arc::default),
        };
        let every = Duration::from_secs(config.log_summary_s);
        let summary = watch.requests.clone().map(|requests| Summary::start(every, requests, watch.alarms.clone()));
        let summary = summary.transpose()?;
        let subscriptions = Subscriptions::open(ground, &config, &watch, metrics)?;
        let (wall, stamps) = (ground.wall.clone(), Stamps::new(ground.wall.clone()));
        let (tokens, flows) = (subscriptions.tokens.clone(), subscriptions.flows.clone());
        let (started, page_max_bytes) = (clock.now(), config.page_max_bytes);
        let desk = Arc::new(Desk {
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
            upkeep,
            deprecations: Deprecations::new(config.log_deprecate),
            watch,
        });
        Ok(Self { desk, follower, subscriptions, troubles, config, summary })
    }

    /// The NGSI-v2 routes, under `/v2`, and those by which FIWARE's operators look at the server; `log_level` is what they
    /// change of its log, `build` what `/version` tells of it.
    pub fn routes(&self, log_level: Arc<dyn LogLevel>, build: Build) -> Routes {
        let counts = Arc::new(RequestCounts::new(self.config.stat_counters));
        let watch = RequestWatch { watch: self.desk.watch.clone(), counts: counts.clone() };
        let routes = routes::routes(&self.desk, &self.config).observed(Arc::new(watch));
        let routes = self.subscriptions.routes(routes, &self.config);
        let limits = self.config.limits();
        let routes = version_route::add(routes, &self.desk, build, limits);
        let routes = metrics_routes::add(routes, &self.desk.watch.traffic, limits);
        let routes = log_routes::add(routes, &self.desk, log_level, limits);
        let watched = Watched {
            desk: self.desk.clone(),
            subscriptions: self.subscriptions.clone(),
            troubles: self.troubles.clone(),
            counts,
            shows_queue: self.config.stat_notif_queue,
            counted_since: Mutex::new(self.desk.started),
        };
        statistics_routes::add(routes, &Arc::new(watched), limits)
    }

    /// What has been counted.
    pub fn stats(&self) -> ContextStats {
        let snapshots = self.desk.views.snapshots();
        self.desk.counters.stats(snapshots.iter().map(|snapshot| snapshot.state.count()).sum())
    }

    /// What was last wrong with a measurement of the tenant, since the start of the process.
    pub fn mapping_trouble(&self, tenant: &TenantId) -> Option<MappingTrouble> {
        self.troubles.last(tenant)
    }

    /// What of the entities has failed and does not come right by itself: telemetry that is not followed any further,
    /// records that no entity has taken, owners that ended.
    pub fn failures(&self) -> Vec<millstream_view::Failure> {
        self.desk.views.failures().into_iter().chain(self.subscriptions.failures()).collect()
    }

    /// Records of telemetry that never reach an entity: refused by an owner, or trimmed before they were read.
    pub fn records_passed_over(&self) -> u64 {
        self.desk.views.records_passed_over() + self.subscriptions.records_passed_over()
    }

    /// Reads no more telemetry, takes no more updates, answers those taken, writes the checkpoint.
    pub fn stop(&self) {
        self.desk.background.stop();
        self.summary.iter().for_each(Summary::stop);
        self.desk.upkeep.stop();
        self.follower.stop();
        self.desk.views.stop();
        self.subscriptions.stop();
    }
}

/// Shows what `/admin/metrics` counts, summed up for each tenant.
fn show_traffic(traffic: &Arc<Traffic>, metrics: &Metrics) {
    let of = traffic.clone();
    let help = "What /admin/metrics counts, by tenant.";
    metrics.gauges_fn("millstream_context_traffic", help, &["tenant", "metric"], move || of.by_service());
}

/// Made here and not by the view, because an entity may be larger than a record usually is.
pub(crate) fn create_state_topic(name: &TopicName, partitions: u32, log: &dyn Log) -> Result<(), Error> {
    if log.topic(name).is_none() {
        let config = TopicConfig {
            partitions,
            cleanup: Cleanup::Compact,
            writers: Writers::OwnersOnly,
            retention: None,
            record_max_bytes: RECORD_MAX_BYTES,
            ..TopicConfig::default()
        };
        log.create_topic(name, &config)?;
    }
    Ok(())
}
