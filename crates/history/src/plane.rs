//! History as a whole: opened, asked for its routes, stopped.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_http::{Metrics, Routes, Share, Workers};
use millstream_log::{Files, Log};
use millstream_types::{Kind, MonotonicClock, PartitionId, TopicPartition, WallClock};
use parking_lot::Mutex;

use crate::catalog::Catalog;
use crate::config::{HistoryConfig, Rules, TenantRules};
use crate::desk::Desk;
use crate::follow::Follower;
use crate::index_cache::IndexCache;
use crate::keeper::{Keeper, KeeperLimits};
use crate::read::ReadLimits;
use crate::shared::Shared;
use crate::{Error, routes};

/// Running history.
pub struct History {
    desk: Arc<Desk>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "History({:?})", self.stats())
    }
}

/// What history stands on.
#[derive(Clone)]
pub struct Base<'b> {
    /// Where changes are read from.
    pub log: Arc<dyn Log>,
    /// Directory of the files.
    pub dir: &'b Path,
    /// How files are written.
    pub files: Arc<dyn Files>,
    /// Rules of tenants.
    pub own: Arc<dyn TenantRules>,
    /// For intervals.
    pub clock: Arc<dyn MonotonicClock>,
    /// For retention.
    pub wall: Arc<dyn WallClock>,
}

/// What there is, and what was counted since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HistoryStats {
    /// Points that were taken from changes.
    pub points: u64,
    /// Files.
    pub files: u64,
    /// Bytes of files.
    pub file_bytes: u64,
    /// Points in files.
    pub file_points: u64,
    /// Points that are in no file yet.
    pub recent_points: u64,
    /// Bytes of memory that these take, about.
    pub recent_bytes: u64,
    /// Changes that are durable and not read yet.
    pub lag_records: u64,
    /// Changes that could not be read or were trimmed, and points for which there may be no file.
    pub passed_over: u64,
    /// Merges of files.
    pub merges: u64,
    /// Points that sampling has left out of files.
    pub sampled_out: u64,
}

impl History {
    /// Opens what was kept, and begins to follow the change topics.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(base: &Base<'_>, config: &HistoryConfig, metrics: &Metrics) -> Result<Self, Error> {
        config.validate()?;
        let (catalog, missing) = Catalog::open(base.dir, base.files.clone(), &*base.log)?;
        let shared = Arc::new(Shared::new(catalog.table.clone()));
        for path in missing {
            shared.fail(&path.display().to_string(), "the file is not there; its points are lost unless it comes back");
        }
        let rules = Arc::new(Rules { general: config.rules.clone(), own: base.own.clone() });
        let sources = catalog.sources.clone();
        let generation_max_bytes = config.recent_max_bytes / 2;
        let directories: BTreeSet<_> = catalog.table.directories().map(|(directory, _)| directory.clone()).collect();
        let keeper = Keeper {
            shared: shared.clone(),
            log: base.log.clone(),
            old: directories.clone(),
            changed: directories,
            catalog,
            rules: rules.clone(),
            clock: base.clock.clone(),
            wall: base.wall.clone(),
            limits: KeeperLimits {
                generation_max_bytes,
                flush_interval: Duration::from_millis(config.flush_interval_ms),
                files_max: config.files_max,
                merge_max_bytes: config.merge_max_bytes,
            },
            sampling: None,
            ended: None,
            flushed_at: base.clock.now(),
            retained_at: base.clock.now(),
        };
        let follower = Follower::new(shared.clone(), base.log.clone(), rules, generation_max_bytes, sources);
        let thread = |source: std::io::Error| Error::Thread(Arc::new(source));
        let workers = |name, share| Workers::start(name, 1, config.requests_max_waiting, share).map_err(thread);
        let desk = Arc::new(Desk {
            shared: shared.clone(),
            log: base.log.clone(),
            cache: Arc::new(IndexCache::new(config.index_cache_bytes)),
            limits: ReadLimits {
                page_max_points: config.page_max_points,
                page_max_bytes: config.page_max_bytes,
                read_max_files: config.read_max_files,
            },
            timeout_ms: config.timeout_ms,
            requests_max_waiting: config.requests_max_waiting,
            follows: config.enabled,
            quick: workers("history-read", Share::Equal)?,
            background: workers("history-list", Share::Background)?,
        });
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(thread)
        };
        let mut threads = vec![spawn("history-files", Box::new(move || keeper.run()))?];
        if config.enabled {
            threads.push(spawn("history-follow", Box::new(move || follower.run()))?);
        }
        let history = Self { desk, threads: Mutex::new(threads) };
        history.show(metrics);
        Ok(history)
    }

    /// The temporal routes, under `/ngsi-ld/v1/temporal`.
    pub fn routes(&self) -> Routes {
        routes::routes(&self.desk)
    }

    /// What has failed and does not come right by itself.
    pub fn failures(&self) -> Vec<String> {
        self.desk.shared.failures()
    }

    /// What there is.
    pub fn stats(&self) -> HistoryStats {
        stats(&self.desk)
    }

    /// Reads no more changes, answers what was asked, writes what is in no file yet.
    pub fn stop(&self) {
        self.desk.quick.stop();
        self.desk.background.stop();
        let shared = &self.desk.shared;
        shared.stopping.store(true, Ordering::Release);
        shared.follower_bell.ring();
        // The one that follows was started last: what it has read yet is written by the other.
        for thread in self.threads.lock().drain(..).rev() {
            shared.keeper_bell.ring();
            if thread.join().is_err() {
                tracing::error!("a thread of history panicked");
            }
        }
    }

    fn show(&self, metrics: &Metrics) {
        type Figure = fn(&HistoryStats) -> u64;
        let figures: [(&str, &str, Figure); 9] = [
            ("points_total", "Points that history has taken from changes.", |s| s.points),
            ("files", "Files of history.", |s| s.files),
            ("file_bytes", "Bytes of history's files.", |s| s.file_bytes),
            ("file_points", "Points in history's files.", |s| s.file_points),
            ("recent_bytes", "Bytes of points that are in no file yet.", |s| s.recent_bytes),
            ("lag_records", "Changes that are durable and that history has not read yet.", |s| s.lag_records),
            ("passed_over", "Changes and points that history could not keep.", |s| s.passed_over),
            ("merges_total", "Merges of history's files.", |s| s.merges),
            ("sampled_out_total", "Points that sampling has left out of history's files.", |s| s.sampled_out),
        ];
        for (name, help, figure) in figures {
            let desk = Arc::downgrade(&self.desk);
            let read = move || desk.upgrade().map_or(0.0, |desk| figure(&stats(&desk)) as f64);
            metrics.gauge_fn(&format!("millstream_history_{name}"), help, read);
        }
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.stop();
    }
}

fn stats(desk: &Desk) -> HistoryStats {
    let (shared, counters) = (&desk.shared, &desk.shared.counters);
    let (recent_bytes, recent_points) = shared.recent();
    let mut stats = HistoryStats {
        points: counters.points.load(Ordering::Relaxed),
        recent_points: recent_points as u64,
        recent_bytes: recent_bytes as u64,
        lag_records: if desk.follows { lag(desk) } else { 0 },
        passed_over: counters.passed_over.load(Ordering::Relaxed),
        merges: counters.merges.load(Ordering::Relaxed),
        sampled_out: counters.sampled_out.load(Ordering::Relaxed),
        ..HistoryStats::default()
    };
    for file in shared.files().files() {
        stats.files += 1;
        stats.file_bytes += file.record.bytes;
        stats.file_points += file.record.rows;
    }
    stats
}

fn lag(desk: &Desk) -> u64 {
    let topics = desk.log.topics();
    let mut lag = 0;
    for topic in topics.iter().filter(|topic| topic.name.kind() == Kind::Context) {
        for number in 0..topic.config.partitions {
            let Ok(partition) = desk.log.partition(&TopicPartition::new(topic.name.clone(), number)) else { continue };
            let ends = partition.offsets();
            let next = desk.shared.next_of((topic.id, PartitionId(number))).unwrap_or(ends.first);
            lag += ends.stable.0.saturating_sub(next.0);
        }
    }
    lag
}
