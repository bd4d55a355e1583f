//! The entry point of the crate: opens history, provides its routes and stops it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_http::{Metrics, Routes, Share, Workers};
use millstream_log::{DerivedTopic, Files, Log};
use millstream_types::{MonotonicClock, PartitionId, TopicKind, TopicPartition, WallClock};
use parking_lot::Mutex;

use crate::block_checksums::MISSING;
use crate::catalog::FileCatalog;
use crate::compactor::{Compactor, CompactorLimits};
use crate::config::HistoryConfig;
use crate::follow::ChangeFollower;
use crate::held_files::HeldFiles;
use crate::index_cache::IndexCache;
use crate::read::ReadLimits;
use crate::replaced_files::ReplacedFiles;
use crate::rules::{RuleSet, TenantRules};
use crate::service::HistoryService;
use crate::state::HistoryState;
use crate::{Error, comet, quantumleap, routes};

/// The running history of all tenants.
pub struct History {
    service: Arc<HistoryService>,
    dir: PathBuf,
    replaced_files: Arc<ReplacedFiles>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "History({:?})", self.stats())
    }
}

/// The services that history needs.
#[derive(Clone)]
pub struct Dependencies<'b> {
    /// The log with the change topics.
    pub log: Arc<dyn Log>,
    /// The directory of the files.
    pub dir: &'b Path,
    /// The file system of the history files.
    pub files: Arc<dyn Files>,
    /// The source of the tenants' rules.
    pub tenant_rules: Arc<dyn TenantRules>,
    /// The clock that measures intervals.
    pub clock: Arc<dyn MonotonicClock>,
    /// The clock that decides on retention.
    pub wall: Arc<dyn WallClock>,
}

/// Current sizes, and counters since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HistoryStats {
    /// Number of points read from changes.
    pub points: u64,
    /// Number of files at present.
    pub files: u64,
    /// Total size of the files.
    pub file_bytes: u64,
    /// Number of points in files.
    pub file_points: u64,
    /// Number of points that are not in files yet.
    pub recent_points: u64,
    /// Approximate memory of these points.
    pub recent_bytes: u64,
    /// Durable changes that are not read yet.
    pub lag_records: u64,
    /// Changes that were unreadable or trimmed.
    pub passed_over: u64,
    /// Number of merges of files.
    pub merges: u64,
    /// Number of points that sampling dropped.
    pub sampled_out: u64,
}

impl History {
    /// The topics that history builds anew if a start of the log has set them aside.
    pub fn derived_topics() -> Vec<DerivedTopic> {
        crate::catalog::derived_topics().into()
    }

    /// Opens the stored history and starts to follow the change topics.
    ///
    /// # Errors
    /// [`Error`] if a setting is invalid, the catalog is unreadable or a thread cannot start.
    pub fn open(dependencies: &Dependencies<'_>, config: &HistoryConfig, metrics: &Metrics) -> Result<Self, Error> {
        config.validate()?;
        let mut catalog = FileCatalog::open(dependencies.dir, dependencies.files.clone(), &dependencies.log)?;
        let state = Arc::new(HistoryState::new(catalog.table.clone()));
        catalog.is_stopping = Arc::clone(&state.stopping);
        for file in catalog.table.files().filter(|file| file.is_damaged()) {
            state.damaged(&file.path, MISSING);
        }
        let rules =
            Arc::new(RuleSet { general: config.rules.clone(), tenant_rules: dependencies.tenant_rules.clone() });
        let sources = catalog.sources.clone();
        let replaced_files = catalog.replaced_files.clone();
        let memtable_max_bytes = config.recent_max_bytes / 2;
        let directories: BTreeSet<_> = catalog.table.directories().map(|(directory, _)| directory.clone()).collect();
        let compactor = Compactor {
            state: state.clone(),
            log: dependencies.log.clone(),
            old: directories.clone(),
            changed: directories,
            catalog,
            rules: rules.clone(),
            clock: dependencies.clock.clone(),
            wall: dependencies.wall.clone(),
            limits: CompactorLimits {
                memtable_max_bytes,
                flush_interval: Duration::from_millis(config.flush_interval_ms),
                files_max: config.files_max,
                merge_max_bytes: config.merge_max_bytes,
            },
            sampling: None,
            ended: None,
            may_roll_up: true,
            is_crowded: false,
            may_lack_checksums: true,
            may_lack_copies: true,
            may_lack_files: true,
            flushed_at: dependencies.clock.now(),
            retained_at: dependencies.clock.now(),
        };
        let follower = ChangeFollower::new(state.clone(), dependencies.log.clone(), rules, memtable_max_bytes, sources);
        let thread = |source: std::io::Error| Error::Thread(Arc::new(source));
        let workers = |name, share| Workers::start(name, 1, config.requests_max_waiting, share).map_err(thread);
        let service = Arc::new(HistoryService {
            state: state.clone(),
            log: dependencies.log.clone(),
            cache: Arc::new(IndexCache::new(config.index_cache_bytes)),
            limits: ReadLimits { page_max_points: config.page_max_points, page_max_bytes: config.page_max_bytes },
            timeout_ms: config.timeout_ms,
            requests_max_waiting: config.requests_max_waiting,
            follows: config.enabled,
            quick: workers("history-read", Share::Equal)?,
            background: workers("history-list", Share::Background)?,
        });
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(thread)
        };
        let mut threads = vec![spawn("history-files", Box::new(move || compactor.run()))?];
        if config.enabled {
            threads.push(spawn("history-follow", Box::new(move || follower.run()))?);
        }
        let dir = dependencies.dir.to_owned();
        let history = Self { service, dir, replaced_files, threads: Mutex::new(threads) };
        history.show(metrics, config.files_max);
        Ok(history)
    }

    /// Returns the routes below `/ngsi-ld/v1/temporal`, `/quantumleap`, `/STH/v1` and `/STH/v2`.
    pub fn routes(&self) -> [Routes; 4] {
        let [comet_1, comet_2] = comet::routes(&self.service);
        [routes::routes(&self.service), quantumleap::routes(&self.service), comet_1, comet_2]
    }

    /// Returns a function that keeps all files in place, also those that merges and rules replace from its call on, until
    /// the hold is dropped.
    pub fn file_holds(&self) -> impl Fn() -> HeldFiles + Send + Sync + 'static + use<> {
        let (replaced, dir, state) = (self.replaced_files.clone(), self.dir.clone(), self.service.state.clone());
        move || HeldFiles::new(&replaced, &dir, &state)
    }

    /// Returns the failures that keep history from working.
    pub fn failures(&self) -> Vec<String> {
        self.service.state.failures()
    }

    /// Returns what the operator should know, though history goes on: damaged files, and too many of them.
    pub fn warnings(&self) -> Vec<String> {
        self.service.state.warnings()
    }

    /// Returns current sizes and counters.
    pub fn stats(&self) -> HistoryStats {
        stats(&self.service)
    }

    /// Stops reading changes, finishes accepted requests and flushes all points.
    pub fn stop(&self) {
        self.service.quick.stop();
        self.service.background.stop();
        let state = &self.service.state;
        state.stopping.store(true, Ordering::Release);
        state.follower_bell.ring();
        // The follower was started last and is joined first, so the compactor flushes everything that it read.
        for thread in self.threads.lock().drain(..).rev() {
            state.compactor_bell.ring();
            if thread.join().is_err() {
                tracing::error!("a history thread panicked");
            }
        }
    }

    fn show(&self, metrics: &Metrics, files_max: usize) {
        let help = "Files from which on /readyz warns: history.files_max.";
        metrics.gauge_fn("millstream_history_files_max", help, move || files_max as f64);
        type Figure = fn(&HistoryStats) -> u64;
        let counters: [(&str, &str, Figure); 4] = [
            ("points", "Points that history has read from changes.", |s| s.points),
            ("passed_over", "Changes that history could not read.", |s| s.passed_over),
            ("merges", "Merges of history's files.", |s| s.merges),
            ("sampled_out", "Points that sampling has dropped from history's files.", |s| s.sampled_out),
        ];
        let gauges: [(&str, &str, Figure); 5] = [
            ("files", "Files of history.", |s| s.files),
            ("file_bytes", "Bytes of history's files.", |s| s.file_bytes),
            ("file_points", "Points in history's files.", |s| s.file_points),
            ("recent_bytes", "Bytes of points that are in no file yet.", |s| s.recent_bytes),
            ("lag_records", "Changes that are durable and that history has not read yet.", |s| s.lag_records),
        ];
        let state = Arc::downgrade(&self.service.state);
        let help = "Files of history that are missing or damaged; /readyz names them.";
        let damaged = move || state.upgrade().map_or(0.0, |state| state.damaged_files() as f64);
        metrics.gauge_fn("millstream_history_damaged_files", help, damaged);
        let reading = |figure: Figure| {
            let service = Arc::downgrade(&self.service);
            move || service.upgrade().map_or(0.0, |service| figure(&stats(&service)) as f64)
        };
        for (name, help, figure) in gauges {
            metrics.gauge_fn(&format!("millstream_history_{name}"), help, reading(figure));
        }
        for (name, help, figure) in counters {
            metrics.counter_fn(&format!("millstream_history_{name}_total"), help, reading(figure));
        }
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.stop();
    }
}

fn stats(service: &HistoryService) -> HistoryStats {
    let (state, counters) = (&service.state, &service.state.counters);
    let (recent_bytes, recent_points) = state.recent();
    let mut stats = HistoryStats {
        points: counters.points.load(Ordering::Relaxed),
        recent_points: recent_points as u64,
        recent_bytes: recent_bytes as u64,
        lag_records: if service.follows { lag(service) } else { 0 },
        passed_over: counters.passed_over.load(Ordering::Relaxed),
        merges: counters.merges.load(Ordering::Relaxed),
        sampled_out: counters.sampled_out.load(Ordering::Relaxed),
        ..HistoryStats::default()
    };
    for file in state.files().files() {
        stats.files += 1;
        stats.file_bytes += file.record.bytes;
        stats.file_points += file.record.rows;
    }
    stats
}

fn lag(service: &HistoryService) -> u64 {
    let topics = service.log.topics();
    let mut lag = 0;
    for topic in topics.iter().filter(|topic| topic.name.kind() == TopicKind::Context) {
        for number in 0..topic.config.partitions {
            let Ok(partition) = service.log.partition(&TopicPartition::new(topic.name.clone(), number)) else {
                continue;
            };
            let next = service.state.next_of((topic.id, PartitionId(number)));
            lag += partition.lag(next.unwrap_or_else(|| partition.offsets().first));
        }
    }
    lag
}
