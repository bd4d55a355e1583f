//! Parts of the suites that run the embedded log on a simulated disk.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_log::{AckLevel, Appended, AtomicAppend, Done, Error, Files as _, Log, LogConfig};
use millstream_types::{ManualClock, TenantId, TopicName};

use crate::sim::SimFiles;

/// Limits so small that files are recycled, closed and trimmed all the time.
pub fn small_config() -> LogConfig {
    LogConfig {
        dir: PathBuf::from("/data/log"),
        journal_file_bytes: 56 << 10,
        journal_max_bytes: 224 << 10,
        pending_max_bytes: 256 << 10,
        pending_unwaited_percent: 50,
        append_max_bytes: 40 << 10,
        batch_max_bytes: 4 << 10,
        cache_bytes: 16 << 10,
        sync_interval_ms: 5,
        flush_interval_ms: 20,
        compaction_map_bytes: 4 << 10,
        compaction_dirty_percent: 30,
        compaction_bytes_per_second: 1 << 30,
        ..LogConfig::default()
    }
}

/// A disk with the directory `/data`, which an operator has made.
pub fn new_disk() -> SimFiles {
    let files = SimFiles::new();
    files.create_dir_all(Path::new("/data")).unwrap();
    files.sync_dir(Path::new("/")).unwrap();
    files
}

/// A clock that stands still.
pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(1_700_000_000_000))
}

/// The name of a user's topic.
pub fn name(name: &str) -> TopicName {
    TopicName::user(name, &TenantId::default()).unwrap()
}

/// Commits an atomic append by a writer of its own.
///
/// # Errors
/// Those of the log.
pub fn append_atomic(
    log: &dyn Log,
    append: &AtomicAppend<'_>,
    level: AckLevel,
    done: Done<Vec<Appended>>,
) -> Result<(), Error> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    log.writer(&NEXT.fetch_add(1, Ordering::Relaxed).to_string())?.commit(append, level, done)
}
